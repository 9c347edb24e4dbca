"""`chainrule evaluate`: how good models are on a text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from chainrule.cli.options.models import device_option, note_slow_precision, precision_option
from chainrule.cli.options.runs import json_option
from chainrule.cli.options.texts import corpus_options, open_corpus
from chainrule.cli.screen.lines import console, print_json, say
from chainrule.cli.screen.tables import SCORES, UNPAID, bits_per_byte, figure, results_table, show_table
from chainrule.cli.screen.words import cut

if TYPE_CHECKING:
    from rich.console import Console

    from chainrule.evaluation.measure import Measured


_FIGURES = 60  # the width of the table without the names of the models
_WIDE = 70


def _without_runs(folders: list[str]) -> list[str]:
    """The model folders, without the run folders that a pattern such as models/* finds beside them."""
    from chainrule.cli.progress import terminal_progress
    from chainrule.folder import MANIFEST
    from chainrule.training.checkpoints.run_folder import METRICS

    runs = [f for f in folders if (Path(f) / METRICS).exists() and not (Path(f) / MANIFEST).exists()]
    if not runs or len(runs) == len(folders):  # if all are runs, loading raises a helpful error
        return folders
    terminal_progress().note(f"left out, as they are runs and not models: {', '.join(runs)}")
    return [folder for folder in folders if folder not in runs]


def _print_table(screen: Console, results: list[tuple[str, Measured]]) -> None:
    """Print a row for each model; a narrow table leaves out nats and bits, the logarithms of the perplexity."""
    figures: dict[str, Callable[[Measured], str]] = {
        "perplexity": lambda m: figure(m, m.perplexity),
        "nats": lambda m: figure(m, m.nats),
        "bits": lambda m: figure(m, m.bits),
        "bits/byte": bits_per_byte,
        "tokens": lambda m: f"{m.tokens:,}",
        "OOV": lambda m: f"{m.oov:.2%}",
    }
    if screen.width < _WIDE:
        del figures["nats"], figures["bits"]
    taken = _FIGURES if "nats" in figures else _FIGURES - 16
    table = results_table("model", *figures)
    for folder, m in results:
        name = cut(folder, max(screen.width - taken, 8), keep="end") if screen.is_terminal else folder
        table.add_row(name, *(show(m) for show in figures.values()))
    show_table(screen, table)


@click.command()
@click.argument("folders_and_text", nargs=-1, metavar="DIR... TEXT", type=click.Path())
@device_option
@precision_option
@corpus_options
@json_option
def evaluate(folders_and_text: tuple[str, ...], device: str, dtype: str, as_json: bool, **options: Any) -> None:
    """Measure the models in DIR... on TEXT.

    Perplexity and cross-entropy (in nats and bits) are per token, so they compare models of the same tokenizer.
    Bits per byte compare any that spell out the whole text; word tokens do not, and are marked. TEXT is a file, a
    folder, a pattern in quotes, or - for standard input.

    With --json: one object, or a list for several folders, with perplexity, nats, bits, bits_per_byte, tokens, oov.
    A model that gives some token probability 0 has infinite perplexity; JSON has 1e999 then.
    """
    from chainrule.cli.progress import terminal_progress
    from chainrule.evaluation.measure import evaluate as evaluate_model
    from chainrule.folder import read_folder
    from chainrule.kinds import load

    if len(folders_and_text) < 2:
        raise click.UsageError("name one or more model folders, and then the text")
    *folders, text = folders_and_text
    folders = _without_runs(folders)
    for folder in folders[1:]:  # a wrong name should not be found only after an hour
        read_folder(folder, verify=False)
    progress, results = terminal_progress(), []
    corpus = None
    for folder in folders:  # one after the other: memory need not hold all models at once
        lm = load(folder, device=device, dtype=dtype)
        if corpus is None:
            note_slow_precision(dtype, lm)
            corpus = open_corpus(options, text)
        results.append((folder, evaluate_model(lm, corpus, progress=progress)))
    if as_json:
        objects = [{"folder": folder, **measured.to_json()} for folder, measured in results]
        print_json(objects[0] if len(objects) == 1 else objects)
        return
    screen = console()
    _print_table(screen, results)
    for folder, m in results:
        if m.impossible:
            share = m.impossible / m.tokens
            say(screen, f"{folder}: {share:.1%} of the tokens have probability 0, so the perplexity is infinite")
    if not all(m.normalised for _, m in results):
        say(screen, SCORES)
    if not all(m.lossless for _, m in results):
        say(screen, UNPAID)
