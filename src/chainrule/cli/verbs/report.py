"""`chainrule report`: a comparison or a training on one page."""

from __future__ import annotations

import sys
from pathlib import Path

import click

import chainrule as cr
from chainrule.cli import options as opt
from chainrule.cli.output import console, print_json, say, terminal_progress


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.argument("other", metavar="[OTHER]", type=click.Path(path_type=Path), required=False)
@opt.options("""
    --test FILE... formerly --text
        Held-out text: compute each model's surprise at it anew; repeatable. [default: what compare kept]
    --prompt TEXT... as prompts
        What models go on from in the samples; repeatable. [default: beginnings of lines of the held-out text]
    --watch  Follow a training that is going on, until it ends or Ctrl-C.
""")
@opt.json
def report(
    folder: Path, other: Path | None, test: tuple[str, ...], prompts: tuple[str, ...], watch: bool, as_json: bool
) -> None:
    """Write a page about DIR: a comparison, or a training. With OTHER: two comparisons side by side.

    DIR is a folder that compare made, the run folder of a training (OUT.run), or a model folder of a network.
    DIR/report.html opens in any browser without a network; DIR/report.json has every number of it, and DIR/report/
    the charts as PNG and SVG. The page of a model folder stands beside it. The page of two comparisons is
    DIR/against-OTHER.html: it matches models by name, and says whether their figures compare.

    \b
    chainrule report ladder
    chainrule report ladder longer
    chainrule report model.run --watch
    """
    from chainrule.report.write import watch_report

    if watch:
        if test or prompts or as_json or other is not None:
            raise click.UsageError("--watch follows a training, and goes with no other option")
        try:
            where = "The report is {}; Ctrl-C stops following it"
            watch_report(folder, on_page=lambda page: say(console(), where.format(page)))
        except KeyboardInterrupt:
            sys.exit(0)  # the usual way to end it
        return
    if other is not None and (test or prompts):
        raise click.UsageError("--test and --prompt are for the page of one comparison")
    text = [Path(name) for name in test] or None
    made = cr.report.make_report(
        folder, other, test=text, prompts=list(prompts) or None, progress=terminal_progress()
    )
    page = made.write()
    if as_json:
        print_json(made.record.to_json())
    else:
        say(console(), f"The report is {page}")
