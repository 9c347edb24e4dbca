"""`chainrule gradcheck`: the gradients of the backward pass, checked against finite differences."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from chainrule.cli import options as opt
from chainrule.cli.options.declaring import names_from
from chainrule.cli.output import console, print_json, print_table, say, terminal_progress

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
@opt.seed
@opt.json
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
    if as_json:
        print_json(
            [
                {name: getattr(report, name) for name in ("name", "passed", "tolerance")}
                | {"inputs": [{key: getattr(one, name) for key, name in _KEYS.items()} for one in report.inputs]}
                for report in reports
            ]
        )
    else:
        _print(reports)
    ctx.exit(0 if all(report.passed for report in reports) else 1)


def _print(reports: list[GradientReport]) -> None:
    screen, rows, styles = console(), [], {}
    for place, report in enumerate(reports):
        if not report.passed:
            styles[place] = "bold red"
        names = [one.name for one in report.inputs]
        inputs = ", ".join(names) if len(names) <= _MOST else f"{len(names)} parameters"
        entries = f"{sum(one.entries for one in report.inputs):,}"
        rows.append([report.name, inputs, entries, f"{report.error:.1e}", "pass" if report.passed else "FAIL"])
    print_table(screen, ["what", "inputs", "entries", "relative error", ""], rows, styles=styles)
    failed = [report for report in reports if not report.passed]
    say(screen, f"{len(reports) - len(failed)} of {len(reports)} pass (tolerance {reports[0].tolerance:g})")
    for report in failed:
        worst = report.worst
        say(
            screen,
            f"{report.name}: of {worst.name} {list(worst.shape)} the entry {list(worst.where)}: backward gives "
            f"{worst.analytic:.9g}, a small step {worst.numeric:.9g}",
        )
