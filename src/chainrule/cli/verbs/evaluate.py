"""`chainrule evaluate`: how good models are on a text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from chainrule.cli.options.dynamic import chosen_dynamic, dynamic_options
from chainrule.cli.options.models import device_option, note_slow_precision, precision_option
from chainrule.cli.options.runs import check_new_file, json_option, overwrite_option
from chainrule.cli.options.texts import corpus_options, open_corpus, open_examples
from chainrule.cli.output.lines import console, print_json, say
from chainrule.cli.output.tables import SCORES, UNPAID, bits_per_byte, figure, results_table, show_table
from chainrule.cli.output.words import cut, number

if TYPE_CHECKING:
    from rich.console import Console

    from chainrule.evaluation.measure import Measured
    from chainrule.masked.contract import MaskedModel
    from chainrule.seq2seq.evaluate import TranslationMeasured


_FIGURES = 60  # the width of the table without the names of the models
_WIDE = 70


def _without_runs(folders: list[str]) -> list[str]:
    """The model folders, without the run folders that a pattern such as models/* finds beside them."""
    from chainrule.cli.output.progress import terminal_progress
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
@click.argument("folders_and_text", nargs=-1, metavar="DIR... [TEXT]", type=click.Path())
@click.option("--source", type=click.Path(), metavar="FILE", help="Translation: the sources, a line for each.")
@click.option("--target", type=click.Path(), metavar="FILE", help="Translation: their targets, a line for each.")
@click.option("--beams", type=int, metavar="B", help="Translation: hypotheses. [default: 5]")
@click.option(
    "--plot", type=click.Path(), metavar="FILE.svg", help="Translation: draw BLEU against the length of the source."
)
@overwrite_option("a plot")
@dynamic_options
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

    With --dynamic, each token is scored before networks learn from it: the figures are those of a model that adapts
    to the text as it reads, and the models in DIR... stay as they are.

    Masked models have a pseudo-log-likelihood instead, of each token given those on both sides: no perplexity.

    Models that translate are measured on pairs, --source and --target, or TEXT with a --field for each side: the
    perplexity of the targets given the sources, and BLEU and chrF of their translations (by sacrebleu), also by the
    length of the source.

    For taggers, TEXT is CoNLL-U or lines of word/TAG: accuracy, also on unknown words, each tag, and a table of
    which tags are confused, beside the most frequent tag of each word.

    \b
    chainrule evaluate model held-out.txt
    chainrule evaluate model --source test.en --target test.de --plot lengths.svg
    """
    from chainrule.cli.output.progress import terminal_progress
    from chainrule.cli.verbs.pseudo import show_masked
    from chainrule.cli.verbs.tag import evaluate_taggers
    from chainrule.contract.kinds import load, task_of
    from chainrule.evaluation.measure import evaluate as evaluate_model
    from chainrule.evaluation.pseudo import evaluate_masked
    from chainrule.folder import read_folder

    pairs = [file for file in (options["source"], options["target"]) if file is not None]
    if len(pairs) == 1:
        raise click.UsageError("--source and --target go together: a file of sources, and one of their targets")
    if pairs or _translates(folders_and_text):
        _evaluate_pairs(folders_and_text, pairs, device, dtype, as_json, options)
        return
    for name in ("beams", "plot"):
        if options[name] is not None:
            raise click.UsageError(f"--{name} is for models that translate, with --source and --target")
    dynamic = chosen_dynamic(options)
    if len(folders_and_text) < 2:
        raise click.UsageError("name one or more model folders, and then the text")
    *folders, text = folders_and_text
    folders = _without_runs(folders)
    # a wrong name is found at once, and not after an hour; what is damaged in the others, when they are loaded
    contents = [read_folder(folder, verify=False if place else None) for place, folder in enumerate(folders)]
    tasks = {task_of(content) for content in contents}
    if dynamic is not None and tasks != {"language"}:
        raise click.UsageError("--dynamic is for models that predict text")
    if tasks == {"tagging"}:
        evaluate_taggers(folders, text, device=device, dtype=dtype, as_json=as_json, **options)
        return
    if len(tasks) > 1:
        raise click.UsageError(f"models of several tasks are not measured together: {', '.join(sorted(tasks))}")
    progress, results = terminal_progress(), []
    if tasks == {"masked"}:
        models = ((folder, cast("MaskedModel", load(folder, device=device, dtype=dtype))) for folder in folders)
        masked = [(folder, evaluate_masked(model, open_corpus(options, text))) for folder, model in models]
        show_masked(masked, as_json=as_json)
        return
    corpus = None
    for folder in folders:  # one after the other: memory need not hold all models at once
        lm = load(folder, device=device, dtype=dtype, tasks=["language"])
        if corpus is None:
            note_slow_precision(dtype, lm)
            corpus = open_corpus(options, text)
        results.append((folder, evaluate_model(lm, corpus, dynamic=dynamic, progress=progress)))
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


# -- models that translate --------------------------------------------------------------------------------


def _translates(folders_and_text: tuple[str, ...]) -> bool:
    """Whether the first folder is that of a model that translates; one that cannot be read is told of later."""
    from chainrule.contract.kinds import find_kind
    from chainrule.errors import ChainruleError
    from chainrule.folder import read_folder

    try:
        return find_kind(read_folder(folders_and_text[0], verify=False).kind).task == "translation"
    except (ChainruleError, OSError, IndexError):
        return False


def _evaluate_pairs(
    given: tuple[str, ...], files: list[str], device: str, dtype: str, as_json: bool, options: dict[str, Any]
) -> None:
    from chainrule.cli.output.progress import terminal_progress
    from chainrule.contract.kinds import check_task, load
    from chainrule.folder import read_folder
    from chainrule.seq2seq.evaluate import evaluate_pairs
    from chainrule.seq2seq.pictures import length_plot
    from chainrule.seq2seq.translate import BEAM
    from chainrule.system.disk import replaced_file
    from chainrule.text.pairs import Pairs

    folders = list(given)
    if not files:
        *folders, text = folders
        files = [text]
        if not folders:
            raise click.UsageError("name the pairs: --source FILE --target FILE, or a file with a --field for each")
    if options["plot"] is not None:
        check_new_file(options["plot"], "--plot", options["overwrite"])
    if not folders:
        raise click.UsageError("name a model folder, and --source and --target")
    if len(files) == 1 and not options["fields"]:
        raise click.UsageError(
            f"a model that translates is measured on pairs: --source FILE --target FILE, or {files[0]} with a "
            "--field for each side"
        )
    folders, progress = _without_runs(folders), terminal_progress()
    for folder in folders:  # a wrong name should not be found only after an hour
        check_task(read_folder(folder, verify=False), ["translation"])
    (pairs,) = open_examples(options, "translation", files)
    assert isinstance(pairs, Pairs)
    beam = BEAM if options["beams"] is None else replace(BEAM, width=options["beams"])
    results = []
    for folder in folders:
        lm = load(folder, device=device, dtype=dtype, tasks=["translation"])
        note_slow_precision(dtype, lm)
        results.append((folder, evaluate_pairs(lm, pairs, strategy=beam, progress=progress)))
    if options["plot"] is not None:
        with replaced_file(Path(options["plot"])) as file:
            file.write(length_plot([(folder, found.lengths) for folder, found in results]).encode())
    if as_json:
        objects = [{"folder": folder, **found.to_json()} for folder, found in results]
        print_json(objects[0] if len(objects) == 1 else objects)
        return
    _print_translations(console(), results)


def _print_translations(screen: Console, results: list[tuple[str, TranslationMeasured]]) -> None:
    table = results_table("model", "BLEU", "chrF", "perplexity", "sentences/s")
    for folder, m in results:
        figures = f"{m.bleu:.1f}", f"{m.chrf:.1f}", number(m.perplexity, 4), number(m.sentences_per_second)
        table.add_row(folder, *figures)
    show_table(screen, table)
    first = results[0][1]
    say(
        screen,
        f"{first.pairs:,} pairs, {first.tokens:,} tokens of targets; copying the sources has BLEU "
        f"{first.copied_bleu:.1f}",
    )
    names = {one.name: one.pairs for one in first.lengths}
    lengths = results_table("BLEU by words of the source", *names)
    lengths.add_row("pairs", *(f"{pairs:,}" for pairs in names.values()))
    for folder, m in results:
        lengths.add_row(folder, *(f"{one.bleu:.1f}" for one in m.lengths))
    show_table(screen, lengths)
    for name, signature in first.signatures.items():
        say(screen, f"{'BLEU' if name == 'bleu' else 'chrF'}: sacrebleu {signature}")
    for folder, m in results:
        if m.cut:
            say(screen, f"{folder}: {m.cut:,} sources are longer than the model takes, and were cut")
