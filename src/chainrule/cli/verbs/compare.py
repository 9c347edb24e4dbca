"""`chainrule compare`: a ladder of models, trained and measured on one corpus; `report`: its page."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import chainrule as cr
from chainrule.cli import options as opt
from chainrule.cli.options import texts
from chainrule.cli.options.declaring import names_from
from chainrule.cli.output import console, print_json, say, show, terminal_progress
from chainrule.errors import ChainruleError, Interrupted

if TYPE_CHECKING:
    from chainrule.comparison.results import Comparison


@click.command(short_help="Train a ladder of models and measure them on one scale.")
@texts.corpus_argument
@opt.options(
    """
    --task NAME = language
        What the models do: language, translation, tagging or classification. Each task has a ladder and a measure
        of its own.
    --out DIR required                   A new folder for the models.
    --overwrite                          Replace a comparison that exists.
    --held-out FILE... formerly --valid  Text to tune on; repeatable. [default: 10 % of CORPUS]
    --test FILE...                       Text to measure on; repeatable. [default: 10 % of CORPUS]
    --kind KIND... as kinds              Only this kind; repeatable. [default: all]
    --ladder NAME|FILE
        The models: quick (a few), standard (each family at its best), full (every smoothing method too),
        lecture-ngrams or lecture-networks (tables of the lectures), or the [[model]] tables (kind, name, settings,
        share, tokenizer, vocab_size) of a TOML or JSON file. [default: standard; full with --kind]
    --minutes M : (0,∞)
        The time of the whole comparison, which networks share. [default: 4; other tasks 1 for each]
    --budget UNIT=N
        The same for every network: tokens=2M, steps=1000 or flops=1e15 of training instead of minutes, or
        parameters=1M, which share the minutes.
    --seeds N : 1.. = 1
        Train each network N times, from other seeds, within the same time; its figures are means, and the
        intervals take the seeds into account.
    --curve
        Learning curves: train the models of the short ladder (of a FILE all) on 1/16, 1/8, 1/4 and 1/2 of the text
        too, networks on 1/4 and 1/2, within the same time.
    --split [auto|file|paragraph|line|time] = auto
        What is kept together where CORPUS is split; time: the end of the text is tuned and measured on. auto:
        files where there are many, else records, paragraphs, or lines where blank lines are rare.
    --include DIR...                     Measure a model that stands already too, with its own tokens; repeatable.
    --report/--no-report = yes           Write DIR/report.html at the end.
    """,
    task={"shell_complete": names_from("chainrule.contract.tasks:task_names")},
    include={"type": click.Path(exists=True, file_okay=False)},
)
@texts.tokenizer_options(None)
@texts.source_tokenizer
@texts.context_option()
@opt.device
@opt.seed
@texts.corpus_options
@texts.label_field
@opt.json
def compare(
    corpus: tuple[str, ...], task: str, out: str, kinds: tuple[str, ...], as_json: bool, **options: Any
) -> None:
    """Train a ladder of models on CORPUS and measure them on one scale.

    The documents of CORPUS are split 80/10/10: models learn from the first part, tune on the second and are
    measured on the third; --held-out and --test name texts of their own for that. Each model stays in a folder of
    DIR that generate, score, evaluate and inspect take; compare.json has every figure.

    The same command goes on with a comparison that was stopped, and takes up the models that are there. ± is half
    of the 95 % interval of a figure, over documents of the test text.

    Models that translate are compared on pairs: CORPUS is the sources and their targets, as for `chainrule train`.

    \b
    chainrule compare corpus.txt --out ladder
    chainrule compare corpus.txt --ladder quick --curve --out ladder
    chainrule compare corpus.txt --ladder lecture-ngrams --tokenizer word --out ladder
    chainrule compare --task translation train.en train.de --out ladder
    chainrule compare --task classification reviews.csv --label-field stars --out ladder
    """
    from chainrule.contract.tasks import find_task

    parts = corpus, options["held_out"] or None, options["test"] or None
    text, valid, test = texts.open_examples(options, find_task(task), *parts)
    sources = options["source_tokenizer"]
    names = ("ladder", "context", "device", "minutes", "budget", "seeds", "curve", "split", "include", "seed")
    try:
        comparison = cr.compare(
            text,
            out,
            task=task,
            valid=valid,
            test=test,
            kinds=kinds or None,
            tokenizer=texts.given_tokenizer(options),
            source_tokenizer=None if sources is None else cr.TokenizerChoice(sources),
            overwrite=options["overwrite"],
            progress=terminal_progress(),
            **{name: options[name] for name in names},
        )
    except (KeyboardInterrupt, SystemExit, Interrupted):
        if not as_json:
            _print_unfinished(out)
        raise
    if as_json:
        print_json(comparison.to_json())
        return
    _print(comparison, out)
    if options["report"] and comparison.is_of_text:
        write_page(out)


def write_page(out: str) -> None:
    """Write the report of a comparison, and say where it is."""
    screen = console()
    try:
        page = cr.report.write_report(out, pictures=False, progress=terminal_progress())
    except ChainruleError as error:  # such as a missing library: the comparison is done all the same
        say(screen, f"There is no report: {error}")
    else:
        say(screen, f"The report: {page}")


def _print_unfinished(out: str) -> None:
    """Print the results of a comparison that is being stopped."""
    from chainrule.comparison.results import read_comparison

    found = read_comparison(Path(out))
    if found is not None and found.results and not found.is_finished:
        _print(found, out)
        say(console(), "The comparison was stopped: the same command goes on with the models that are missing.")


def _print(comparison: Comparison, out: str) -> None:
    """Print a row for each model with its figures and costs, samples, the advice, and a command to try."""
    from chainrule.comparison.advice import pick
    from chainrule.comparison.tables import comparison_parts, sample
    from chainrule.contract.tasks import find_task

    screen = console()
    show(screen, comparison_parts(comparison), style="bold green")
    screen.print("\nSamples (top-p 0.9)" if comparison.is_of_text else "\nExamples", style="bold")
    for result in comparison.results:
        say(screen, f"{result.name}: {sample(result)}", emphasis=len(result.name) + 1)
    if comparison.advice is not None:
        say(screen, f"\n{comparison.advice}")
    taken = pick(comparison) or comparison.best
    if taken is not None:
        words = ["chainrule", find_task(comparison.task).verb, str(Path(out, taken.folder))]
        # one line of a text may be empty, or a name alone
        several = ["-n", "5"] if comparison.is_of_text and comparison.context == "line" else []
        command = shlex.join(words + several)
        say(screen, f"\nTry: {command}")


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
