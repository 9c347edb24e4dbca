"""Reports: the figures of a comparison or a training, as one HTML file that opens anywhere, and as JSON.

In reading order:

    surprise.py   a text word by word under several models: by place, by frequency, where one beats another
    samples.py    what models write, and how much they repeat
    record.py     every figure of a comparison's report, as plain values
    pair.py       every figure of two comparisons side by side
    run.py        every figure of one training's report
    charts.py     the charts of both, by Altair
    pages.py      the pages of both
    write.py      `write_report`, `Report`: the files of a report, and one that follows a run
    scaling.py    the page and charts of a scaling law
    template/     the pages' HTML, style and script
"""

from __future__ import annotations

from chainrule.report.write import Report, make_report, write_report

__all__ = ["Report", "make_report", "write_report"]
