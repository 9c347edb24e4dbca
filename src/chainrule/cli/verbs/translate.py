"""`chainrule translate`: a target for each source."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from chainrule.cli import options as opt
from chainrule.cli.options.decoding import chosen_strategy, strategy_options
from chainrule.cli.options.texts import corpus_options, open_corpus, standard_input
from chainrule.cli.output import draw, echo, echo_json, terminal_progress

if TYPE_CHECKING:
    from chainrule.decode.strategies import Beam, Strategy
    from chainrule.seq2seq.contract import ConditionalModel
    from chainrule.seq2seq.translate import Translation
    from chainrule.system.progress import Progress

_MOST_PICTURES = 20
_MOST_NOTES = 5


@click.command()
@opt.model
@click.argument("texts", nargs=-1, metavar="[TEXT|-]...")
@strategy_options("beam", beams=5, ending="best")
@opt.options(f"""
    --nbest N : 1.. = 1   The N best of each.
    --max-tokens N : int  Maximum number of tokens. [default: 2 per token + 10]
    --batch N : 1..
        How many lines to wait for: 1 answers each as it comes. [default: 1 on a terminal, else 32 and more]
    --alignments FILE.svg : new
        Draw which words of the source each word of the target looked at (the first {_MOST_PICTURES} lines).
    --overwrite           Replace a picture that exists.
""")
@opt.group(corpus_options, opt.compute, opt.seed, opt.json)
def translate(folder: str, texts: tuple[str, ...], nbest: int, as_json: bool, **options: Any) -> None:
    """Translate each line of TEXT with the model in DIR.

    TEXT is a file, - for standard input, or a text of several words itself; without it, standard input is read.
    Translations come in the order of the lines, as soon as some are found; an empty line stays empty.

    With --nbest: a line for each translation, with the number of its source, its score (ln p per token) and the
    text, separated by tabs. With --json: an object per source.

    \b
    chainrule translate model "A dog runs on the beach."
    chainrule translate model test.en --beams 10 > test.de
    """
    import numpy as np

    from chainrule.seq2seq.alignments import align_ids
    from chainrule.seq2seq.contract import ConditionalModel
    from chainrule.seq2seq.pictures import alignment_picture
    from chainrule.seq2seq.translate import BEAM

    if options["strategy"] == "greedy" and nbest > 1:
        raise click.UsageError("greedy always gives the same text: --nbest needs --strategy sample or beam")
    strategy = chosen_strategy(options, usual=replace(BEAM, width=max(BEAM.width, nbest)))
    picture = options["alignments"]
    lm = ConditionalModel.expect(opt.load_model(folder, options, "translation"))
    # an empty source and target show whether the model gives attention weights
    ends = ([one.eos] for one in (lm.source_tokenizer, lm.tokenizer))
    if picture is not None and lm.attention_weights(*map(np.asarray, ends)) is None:
        raise click.UsageError(f"the model in {folder} has no attention, so there are no --alignments")
    for text in texts:
        if text != "-" and not Path(text).exists() and len(text.split()) < 2:
            raise click.UsageError(
                f"{text}: no such file; a text of a single word is read from standard input, as by echo"
            )
    found: list[tuple[str, Translation]] = []
    every = _translated(lm, texts or ("-",), strategy, nbest, options)
    for number, (source, best) in enumerate(every, start=1):
        _print(source, best, number, nbest, as_json)
        if picture is not None and len(found) < _MOST_PICTURES and best[0].ids:
            found.append((source, best[0]))
    draw(
        picture,
        lambda: alignment_picture(
            [align_ids(lm, lm.encode_source(source), np.asarray(one.ids)).of_words() for source, one in found]
        ),
    )


def _sources(
    lm: ConditionalModel, texts: tuple[str, ...], options: dict[str, Any], progress: Progress
) -> Iterator[str]:
    """Yield the lines to translate; those that are longer than the model takes are noted."""
    from chainrule.seq2seq.evaluate import is_cut

    cut = 0
    for name, number, line in _lines(texts, options):
        if is_cut(lm, line):
            cut += 1
            if cut <= _MOST_NOTES:
                most = lm.longest_source
                progress.note(f"{name}, line {number:,}: longer than the {most} tokens the model takes; cut")
        yield line
    if cut > _MOST_NOTES:
        progress.note(f"longer than the model takes, and cut: {cut:,} lines in all")


def _lines(texts: tuple[str, ...], options: dict[str, Any]) -> Iterator[tuple[str, int, str]]:
    """Yield each line with the name of its text, and its number there."""
    from chainrule.text.pairs import example_lines

    for text in texts:
        if text == "-":
            for number, line in enumerate(standard_input(), start=1):
                yield "standard input", number, line
        elif Path(text).exists():
            for number, block in enumerate(example_lines(open_corpus(options, text)), start=1):
                yield text, number, " ".join(block.decode().split("\n"))
        else:
            yield "the text", 1, text


def _translated(
    lm: ConditionalModel, texts: tuple[str, ...], strategy: Strategy | Beam, nbest: int, options: dict[str, Any]
) -> Iterator[tuple[str, list[Translation]]]:
    """Yield each source with its best translations, as soon as some are found."""
    from chainrule.seq2seq.translate import FIRST_TEXTS, translate_stream

    progress, is_live = terminal_progress(), texts == ("-",) and sys.stdin.isatty()
    how: Any = {"best": nbest, "max_tokens": options["max_tokens"], "seed": options["seed"]}
    how["at_once"] = options["batch"] or (1 if is_live else FIRST_TEXTS)
    how["grows"] = options["batch"] is None and not is_live
    every = translate_stream(lm, _sources(lm, texts, options, progress), strategy, **how)
    if sys.stdout.isatty():  # where the translations themselves show the progress
        yield from every
        return
    with progress.task("translating", None, "lines") as task:
        for one in every:
            yield one
            task.advance(1)


def _print(source: str, found: list[Translation], number: int, nbest: int, as_json: bool) -> None:
    if as_json:
        every = [
            {name: getattr(one, name) for name in ("text", "score", "log_prob")}
            | {"tokens": len(one.ids), "finished": one.is_finished}
            for one in found
        ]
        best = found[0]
        echo_json({"source": source, "translation": best.text, "score": best.score, "translations": every})
        return
    for one in found:
        text = " ".join(one.text.split("\n"))
        echo(text if nbest == 1 else f"{number}\t{one.score:.4f}\t{text}")
