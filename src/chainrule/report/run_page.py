"""The page of one training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chainrule.report.charts import LOSSES
from chainrule.report.costs import shown
from chainrule.report.html import figure_of, legend_of, numbers_of, page, specs, text
from chainrule.report.run import RunRecord

_RUN_CAPTIONS = {
    "loss": "The loss in bits per token.",
    "learning-rate": "The learning rate.",
    "tokens-per-second": "The speed of training, tokens/s.",
    "grad-norm": "The norm of the gradient.",
}
_SUMMARY = {
    "step": "step",
    "tokens": "tokens seen",
    "seconds": "seconds",
    "loss": "loss in training, bits per token",
    "validation_loss": "loss in validation, bits per token",
    "best_validation_loss": "best loss in validation, bits per token",
    "learning_rate": "learning rate",
    "tokens_per_second": "tokens/s",
}


def run_page(record: RunRecord, charts: Mapping[str, Any], refresh: int | None = None) -> str:
    """The page of one training; with `refresh`, a browser reads it again after so many seconds."""
    summary = [(title, shown(record.summary[key], 4)) for key, title in _SUMMARY.items() if key in record.summary]
    facts = "".join(f"<dt>{text(name)}</dt><dd>{text(value)}</dd>" for name, value in summary)
    now = f"<dl>{facts}</dl>" if facts else "<p>Nothing was measured yet.</p>"
    sections = [("now", "Where it is" if record.is_going_on else "What came of it", now)]
    if charts:
        points = [
            (f"{one['step']:,}", *(shown(one.get(key), 4) for key in ("loss", "validation_loss")))
            for one in record.points
        ]
        numbers = numbers_of("Losses by step, bits per token", ("step", "training", "validation"), points)
        figures = "".join(
            figure_of(name, _RUN_CAPTIONS[name], numbers if name == "loss" else "") for name in charts
        )
        sections.append(("curves", "Curves", f'{legend_of(LOSSES)}<div class="charts">{figures}</div>'))
    if record.settings:
        listed = "".join(f"<dt>{text(name)}</dt><dd>{text(value)}</dd>" for name, value in record.settings.items())
        sections.append(("settings", "Settings", f"<dl>{listed}</dl>"))
    going = "It is going on; the page follows it." if refresh is not None else ""
    lead = f"{text(record.kind)}, {record.measurements:,} measurements. {going}".strip(", ")
    return page(record.title, lead, sections, {"charts": specs(charts), "map": None}, refresh)
