"""`chainrule gradcheck`: the gradients of the backward pass, checked against finite differences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from chainrule.cli import options as opt
from chainrule.cli.options.declaring import names_from
from chainrule.cli.output import emit, terminal_progress
from chainrule.system.display import Part, ResultTable

if TYPE_CHECKING:
    from chainrule.autodiff.tape.gradcheck import GradientReport

_MOST = 3  # inputs that are named; of more, only the number is shown
_KEYS = {"input": "name", "shape": "shape", "entries": "entries", "relative_error": "error", "where": "where"}
_KEYS |= {"backward": "analytic", "small_step": "numeric", "passed": "passed"}
"""The attributes of an input by their names in JSON."""


@click.command(short_help="Check the gradients of every module of the tape.")
@click.argument(
    "names", nargs=-1, metavar="[NAME]...", shell_complete=names_from("chainrule.autodiff.checks:check_names")
)
@opt.options("--eps FLOAT : float = 1e-6  Step of the finite difference.")
@opt.options("--tolerance FLOAT : float = 1e-6  The largest relative error that passes.")
@opt.group(opt.seed, opt.json)
@click.pass_context
def gradcheck(
    ctx: click.Context, names: tuple[str, ...], eps: float, tolerance: float, seed: int, as_json: bool
) -> None:
    """Check the gradients of every module of the tape, and of the networks made of them.

    Each entry of each input is moved by a small step both ways, and the change of the output is compared with the
    gradient of the backward pass, in double precision. NAME checks one module or network only, such as Linear or
    lstm.

    The exit code is 1 if one fails; the entry that is furthest off is then named.
    """
    from chainrule.autodiff.checks import every_check

    reports = every_check(names, eps=eps, tolerance=tolerance, seed=seed, progress=terminal_progress())
    found = [
        {name: getattr(report, name) for name in ("name", "passed", "tolerance")}
        | {"inputs": [{key: getattr(one, name) for key, name in _KEYS.items()} for one in report.inputs]}
        for report in reports
    ]
    emit(as_json, found, *_parts(reports), style="bold red")
    ctx.exit(0 if all(report.passed for report in reports) else 1)


def _parts(reports: list[GradientReport]) -> Iterator[Part]:
    rows = []
    for report in reports:
        names = [one.name for one in report.inputs]
        inputs = ", ".join(names) if len(names) <= _MOST else f"{len(names)} parameters"
        entries = f"{sum(one.entries for one in report.inputs):,}"
        rows.append([report.name, inputs, entries, f"{report.error:.1e}", "pass" if report.passed else "FAIL"])
    failed = [place for place, report in enumerate(reports) if not report.passed]
    yield ResultTable(["what", "inputs", "entries", "relative error", ""], rows, strong=failed)
    yield f"{len(reports) - len(failed)} of {len(reports)} pass (tolerance {reports[0].tolerance:g})"
    for place in failed:
        worst = reports[place].worst
        yield (
            f"{reports[place].name}: of {worst.name} {list(worst.shape)} the entry {list(worst.where)}: backward "
            f"gives {worst.analytic:.9g}, a small step {worst.numeric:.9g}"
        )
