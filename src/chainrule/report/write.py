"""The files of a report: one HTML page, the figures as JSON, and the charts as PNG and SVG.

    DIR/report.html    opens in any browser, without a network
    DIR/report.json    every number of the page
    DIR/report/        the charts, CHART.svg and CHART.png

Two comparisons side by side are DIR/against-OTHER.html, with its JSON and charts.
The report of a model folder stands beside it (MODEL.report.html): such a folder holds a model and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from chainrule.comparison.results import RESULTS
from chainrule.errors import FolderError
from chainrule.folder import MANIFEST, to_json
from chainrule.report.charts import altair, comparison_charts, pair_charts, run_charts
from chainrule.report.pages import comparison_page, pair_page, run_page
from chainrule.report.pair import PairDetails, pair_details
from chainrule.report.record import ComparisonDetails, comparison_details, points_of
from chainrule.report.run import RunDetails, is_going_on, is_run, run_details, spaced
from chainrule.system.disk import replaced_file
from chainrule.system.progress import Reports, as_progress
from chainrule.text.given import Text

SECONDS = 5
"""Between two pages of a run that is followed."""
_SCALE = 2.0  # pixels of a PNG for each unit of a chart


@dataclass(frozen=True, repr=False)
class Report:
    """A report: its figures, its charts, and its page, which a notebook shows."""

    record: ComparisonDetails | PairDetails | RunDetails
    charts: Mapping[str, Any]
    """Altair charts by name; each shows itself in a notebook."""
    html: str
    place: Path = field(compare=False)
    """Where the page is written."""

    def __repr__(self) -> str:
        return f"<Report {self.record.title}: {', '.join(self.charts)}>"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        title, page = escape(self.record.title), escape(self.html)
        frame = f'<iframe title="{title}" style="width:100%;height:80vh;border:0" srcdoc="{page}"></iframe>'
        return {"text/plain": repr(self), "text/html": frame}

    def write(self, *, pictures: bool = True) -> Path:
        """Write the page, the JSON record and, with `pictures`, the charts; return the path of the page."""
        stem = self.place.with_suffix("")
        if pictures and self.charts:
            write_pictures(self.charts, stem)
        with replaced_file(stem.with_name(f"{stem.name}.json")) as file:
            file.write(to_json(self.record.to_json(), indent=1).encode(errors="replace") + b"\n")
        with replaced_file(self.place) as file:
            file.write(self.html.encode(errors="replace"))
        return self.place


def write_pictures(charts: Mapping[str, Any], folder: Path) -> None:
    """Write each chart into a folder, as an SVG and a PNG file."""
    import vl_convert

    folder.mkdir(exist_ok=True)
    for name, chart in charts.items():
        spec = chart.to_dict()
        with replaced_file(folder / f"{name}.svg") as file:
            file.write(vl_convert.vegalite_to_svg(spec).encode())
        with replaced_file(folder / f"{name}.png") as file:
            file.write(vl_convert.vegalite_to_png({**spec, "background": "white"}, scale=_SCALE))


def loss_picture(records: Iterable[dict[str, Any]]) -> str | None:
    """Draw the losses in the records of `Curves` as the text of an SVG file, on white; None if there are none."""
    chart = run_charts(spaced(points_of(records))).get("loss")
    if chart is None:
        return None
    import vl_convert

    # room at the right, since browsers draw a legend wider than it was measured
    around = {"background": "white", "padding": {"left": 8, "top": 8, "right": 24, "bottom": 8}}
    picture: str = vl_convert.vegalite_to_svg({**chart.to_dict(), **around})
    return picture


def make_report(
    folder: str | Path,
    other: str | Path | None = None,
    *,
    test: Text | None = None,
    prompts: Sequence[str] | None = None,
    progress: Reports = False,
) -> Report:
    """Make the report of a comparison folder, a run folder, or a model folder with training curves.

    With the folder of an `other` comparison, the report holds the two side by side. Nothing is written, but for the
    surprisals on `test`, the held-out text of a comparison that kept none. `prompts` are the beginnings of the
    samples; by default they are taken from lines of the held-out text. A notebook shows the page of a report.

    >>> import chainrule as cr
    >>> report = cr.report.make_report("ladder")  # doctest: +SKIP
    """
    altair()
    folders = [Path(one) for one in (folder, other) if one is not None]
    folder = folders[0]
    for one in folders:
        if not one.is_dir():
            raise FolderError(f"{one}: {'a file, not a folder' if one.exists() else 'no such folder'}")
        if len(folders) > 1 and not (one / RESULTS).is_file():
            raise FolderError(
                f"{one}: not a comparison, since it has no {RESULTS}; two comparisons go side by side"
            )
    if len(folders) > 1:
        pair = pair_details(folders)
        charts = pair_charts(pair)
        name = f"against-{folders[1].resolve().name}.html"
        return Report(pair, charts, pair_page(pair, charts), folder / name)
    if (folder / RESULTS).is_file():
        record = comparison_details(folder, test=test, prompts=prompts, progress=as_progress(progress))
        charts = comparison_charts(record)
        return Report(record, charts, comparison_page(record, charts), folder / "report.html")
    if test is not None or prompts is not None:
        raise FolderError(
            f"{folder}: only the report of a comparison takes a text and prompts; it has no {RESULTS}"
        )
    return _run_report(folder, following=False)


def _run_report(folder: Path, *, following: bool) -> Report:
    if not is_run(folder) and not (folder / MANIFEST).is_file():
        raise FolderError(
            f"{folder}: neither a comparison ({RESULTS}), nor a run folder (metrics.jsonl), nor a model folder "
            f"({MANIFEST})"
        )
    record = run_details(folder)
    charts = run_charts(record.points)
    html = run_page(record, charts, SECONDS if following else None)
    beside = folder.resolve().with_name(f"{folder.resolve().name}.report.html")
    return Report(record, charts, html, folder / "report.html" if is_run(folder) else beside)


def write_report(
    folder: str | Path,
    other: str | Path | None = None,
    *,
    test: Text | None = None,
    prompts: Sequence[str] | None = None,
    pictures: bool = True,
    progress: Reports = False,
) -> Path:
    """Write the report of a comparison, a run or a model folder, or of two comparisons; see `make_report`.

    Return the path of the page.

    >>> import tempfile
    >>> import chainrule as cr
    >>> small = {"engine": "tape", "hidden": 4, "embedding": 4, "steps": 2}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = cr.train("elman", ["the cat sat", "a dog ran"] * 4, run=folder, **small)
    ...     write_report(folder, pictures=False).name
    'report.html'
    """
    return make_report(folder, other, test=test, prompts=prompts, progress=progress).write(pictures=pictures)


def watch_report(
    folder: str | Path, *, seconds: float = SECONDS, on_page: Callable[[Path], None] = lambda page: None
) -> Path:
    """Write the page of a run again and again until its end; `on_page` is called with the path of the first."""
    folder = Path(folder)
    if (folder / RESULTS).is_file():
        raise FolderError(
            f"{folder}: a comparison, whose report is made at its end; --watch follows a run (OUT.run)"
        )
    altair()
    first = True
    while is_run(folder) and is_going_on(folder):
        page = _run_report(folder, following=True).write(pictures=False)
        if first:
            on_page(page)
            first = False
        time.sleep(seconds)
    page = _run_report(folder, following=False).write()
    if first:
        on_page(page)
    return page
