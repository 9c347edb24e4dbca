"""Reports: what a comparison or a training found, as one HTML file that opens anywhere, and as JSON.

In reading order:

    costs.py            what models cost, which are on the frontier, which to pick for what
    surprise.py         a text word by word under several models: by place, by frequency, where one beats another
    samples.py          what the models write after the same prompts
    record.py           every figure of a comparison's report, as plain values
    run.py              every figure of one training's report
    charts.py           the charts of a record, by Altair
    html.py             what all pages have: legends, charts, tables of numbers
    comparison_page.py  the page of a comparison
    run_page.py         the page of one training
    scaling.py          the page and charts of a scaling law
    write.py            `write_report`, `Report`: the files of a report, and one that follows a run
    template/           the page's HTML, style and script
"""

from __future__ import annotations

from chainrule.report.write import Report, make_report, write_report

__all__ = ["Report", "make_report", "write_report"]
