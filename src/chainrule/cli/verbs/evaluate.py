"""`chainrule evaluate`: how good models are on a text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from chainrule.cli import options as opt
from chainrule.cli import output
from chainrule.cli.options.dynamic import chosen_dynamic, dynamic_options
from chainrule.cli.options.texts import corpus_options, open_corpus, open_examples
from chainrule.cli.output import number, print_table, say, terminal_progress

if TYPE_CHECKING:
    from rich.console import Console

    from chainrule.contract.kinds import Task
    from chainrule.evaluation.measure import Measured
    from chainrule.evaluation.pseudo import PseudoMeasured
    from chainrule.seq2seq.evaluate import TranslationMeasured

_FIGURES = 60  # the width of the table without the names of the models
_WIDE = 70

Measure: TypeAlias = Callable[[Any], Any]
"""Measures a loaded model."""
Show: TypeAlias = Callable[["Console", list[tuple[str, Any]]], None]
"""Prints what was measured of the models of some folders."""


@click.command()
@click.argument("folders_and_text", nargs=-1, metavar="DIR... [TEXT]", type=click.Path())
@opt.option("--source FILE", "Translation: the sources, a line for each.")
@opt.option("--target FILE", "Translation: their targets, a line for each.")
@opt.option("--beams B", "Translation: hypotheses. [default: 5]", type=int)
@opt.option("--plot FILE.svg", "Translation: draw BLEU against the length of the source.")
@opt.overwrite("a plot")
@dynamic_options
@opt.compute
@corpus_options
@opt.json
def evaluate(folders_and_text: tuple[str, ...], as_json: bool, **options: Any) -> None:
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
    from chainrule.contract.kinds import task_of
    from chainrule.folder import read_folder

    pairs = [file for file in (options["source"], options["target"]) if file is not None]
    if len(pairs) == 1:
        raise click.UsageError("--source and --target go together: a file of sources, and one of their targets")
    task: Task = "translation"
    if pairs or _translates(folders_and_text):
        folders, measure, show = _for_pairs(folders_and_text, pairs, options)
    else:
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
        if len(tasks) > 1:
            raise click.UsageError(f"models of several tasks are not measured together: {', '.join(sorted(tasks))}")
        (task,) = tasks
        measure, show = _for_text(task, text, dynamic, options)
    # one after the other: memory need not hold all models at once
    results = [(folder, measure(opt.load_model(folder, options, task))) for folder in folders]
    if options["plot"] is not None:
        _plot(results, options["plot"])
    if as_json:
        output.print_measured(results)
    else:
        show(output.console(), results)


def _without_runs(folders: list[str]) -> list[str]:
    """Leave out the run folders that a pattern such as models/* finds beside model folders."""
    from chainrule.folder import MANIFEST
    from chainrule.training.checkpoints.run_folder import METRICS

    runs = [f for f in folders if (Path(f) / METRICS).exists() and not (Path(f) / MANIFEST).exists()]
    if not runs or len(runs) == len(folders):  # if all are runs, loading raises a helpful error
        return folders
    terminal_progress().note(f"left out, as they are runs and not models: {', '.join(runs)}")
    return [folder for folder in folders if folder not in runs]


def _for_text(task: Task, text: str, dynamic: Any, options: dict[str, Any]) -> tuple[Measure, Show]:
    """Return how models of a task are measured on a text, and how that is shown."""
    progress = terminal_progress()
    if task == "tagging":
        from chainrule.cli.verbs.tag import show_taggers
        from chainrule.tagging.evaluate import evaluate_tagger
        from chainrule.text.tagged import Tagged

        sentences = Tagged.open(text, encoding_errors=options["encoding_errors"])
        return lambda tagger: evaluate_tagger(tagger, sentences, progress=progress), show_taggers
    corpus = open_corpus(options, text)
    if task == "masked":
        from chainrule.evaluation.pseudo import evaluate_masked

        return lambda model: evaluate_masked(model, corpus), _show_masked
    from chainrule.evaluation.measure import evaluate as evaluate_model

    return lambda lm: evaluate_model(lm, corpus, dynamic=dynamic, progress=progress), _show_language


def _show_language(screen: Console, results: list[tuple[str, Measured]]) -> None:
    """Print a row for each model; a narrow table leaves out nats and bits, the logarithms of the perplexity."""
    figures: dict[str, Callable[[Measured], str]] = {
        "perplexity": lambda m: output.figure(m, m.perplexity),
        "nats": lambda m: output.figure(m, m.nats),
        "bits": lambda m: output.figure(m, m.bits),
        "bits/byte": output.bits_per_byte,
        "tokens": lambda m: f"{m.tokens:,}",
        "OOV": lambda m: f"{m.oov:.2%}",
    }
    if screen.width < _WIDE:
        del figures["nats"], figures["bits"]
    room = max(screen.width - (_FIGURES if "nats" in figures else _FIGURES - 16), 8)
    names = [output.cut(folder, room, keep="end") if screen.is_terminal else folder for folder, _ in results]
    rows = [[name, *(show(m) for show in figures.values())] for name, (_, m) in zip(names, results, strict=True)]
    print_table(screen, ["model", *figures], rows)
    for folder, m in results:
        if m.impossible:
            share = m.impossible / m.tokens
            say(screen, f"{folder}: {share:.1%} of the tokens have probability 0, so the perplexity is infinite")
    every = [m for _, m in results]
    output.say_caveats(screen, normalised=all(m.normalised for m in every), lossless=all(m.lossless for m in every))


def _show_masked(screen: Console, results: list[tuple[str, PseudoMeasured]]) -> None:
    from chainrule.cli.verbs.score import PSEUDO

    rows = (
        [folder, number(m.pll_per_token, 4), number(m.pseudo_perplexity, 4), f"{m.tokens:,}", f"{m.oov:.2%}"]
        for folder, m in results
    )
    print_table(screen, ["model", "PLL", "pseudo-perplexity", "tokens", "OOV"], rows)
    say(screen, PSEUDO)


# -- models that translate --------------------------------------------------------------------------------


def _translates(folders_and_text: tuple[str, ...]) -> bool:
    """Return True if the model in the first folder translates; one that cannot be read is an error later."""
    from chainrule.contract.kinds import find_kind
    from chainrule.errors import ChainruleError
    from chainrule.folder import read_folder

    try:
        return find_kind(read_folder(folders_and_text[0], verify=False).kind).task == "translation"
    except (ChainruleError, OSError, IndexError):
        return False


def _for_pairs(
    given: tuple[str, ...], files: list[str], options: dict[str, Any]
) -> tuple[list[str], Measure, Show]:
    """Return the folders of models that translate, how they are measured on pairs, and how that is shown."""
    from chainrule.contract.kinds import check_task
    from chainrule.folder import read_folder
    from chainrule.seq2seq.evaluate import evaluate_pairs
    from chainrule.seq2seq.translate import BEAM
    from chainrule.text.pairs import Pairs

    folders = list(given)
    if not files:
        *folders, text = folders
        files = [text]
        if not folders:
            raise click.UsageError("name the pairs: --source FILE --target FILE, or a file with a --field for each")
    if options["plot"] is not None:
        opt.check_new_file(options["plot"], "--plot", options["overwrite"])
    if not folders:
        raise click.UsageError("name a model folder, and --source and --target")
    if len(files) == 1 and not options["fields"]:
        raise click.UsageError(
            f"a model that translates is measured on pairs: --source FILE --target FILE, or {files[0]} with a "
            "--field for each side"
        )
    folders = _without_runs(folders)
    for folder in folders:  # a wrong name should not be found only after an hour
        check_task(read_folder(folder, verify=False), ["translation"])
    (pairs,) = open_examples(options, "translation", files)
    assert isinstance(pairs, Pairs)
    beam = BEAM if options["beams"] is None else replace(BEAM, width=options["beams"])
    progress = terminal_progress()
    return folders, lambda lm: evaluate_pairs(lm, pairs, strategy=beam, progress=progress), _show_translations


def _plot(results: list[tuple[str, TranslationMeasured]], path: str) -> None:
    from chainrule.seq2seq.pictures import length_plot
    from chainrule.system.disk import replaced_file

    with replaced_file(Path(path)) as file:
        file.write(length_plot([(folder, found.lengths) for folder, found in results]).encode())


def _show_translations(screen: Console, results: list[tuple[str, TranslationMeasured]]) -> None:
    rows = (
        [folder, f"{m.bleu:.1f}", f"{m.chrf:.1f}", number(m.perplexity, 4), number(m.sentences_per_second)]
        for folder, m in results
    )
    print_table(screen, ["model", "BLEU", "chrF", "perplexity", "sentences/s"], rows)
    first = results[0][1]
    say(
        screen,
        f"{first.pairs:,} pairs, {first.tokens:,} tokens of targets; copying the sources has BLEU "
        f"{first.copied_bleu:.1f}",
    )
    lengths = [["pairs", *(f"{one.pairs:,}" for one in first.lengths)]]
    lengths += [[folder, *(f"{one.bleu:.1f}" for one in m.lengths)] for folder, m in results]
    print_table(screen, ["BLEU by words of the source", *(one.name for one in first.lengths)], lengths)
    for name, signature in first.signatures.items():
        say(screen, f"{'BLEU' if name == 'bleu' else 'chrF'}: sacrebleu {signature}")
    for folder, m in results:
        if m.cut:
            say(screen, f"{folder}: {m.cut:,} sources are longer than the model takes, and were cut")
