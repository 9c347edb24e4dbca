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
from chainrule.cli.output import echo, echo_json, terminal_progress

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
@opt.option("--nbest N", "The N best of each.", type=click.IntRange(1), default=1)
@opt.option("--max-tokens N", "Maximum number of tokens. [default: 2 per token + 10]", type=int)
@opt.option(
    "--batch N",
    "How many lines to wait for: 1 answers each as it comes. [default: 1 on a terminal, else 32 and more]",
    type=click.IntRange(1),
)
@opt.option(
    "--alignments FILE.svg",
    f"Draw which words of the source each word of the target looked at (the first {_MOST_PICTURES} lines).",
)
@opt.overwrite("a picture")
@corpus_options
@opt.compute
@opt.seed
@opt.json
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
    from chainrule.seq2seq.contract import ConditionalModel

    picture, strategy = options["alignments"], _strategy(options, nbest)
    if picture is not None:
        opt.check_new_file(picture, "--alignments", options["overwrite"])
    lm = ConditionalModel.expect(opt.load_model(folder, options, "translation"))
    if picture is not None and not _has_attention(lm):
        raise click.UsageError(f"the model in {folder} has no attention, so there are no --alignments")
    progress = terminal_progress()
    sources = _Sources(lm, texts or ("-",), options, progress)
    found: list[tuple[str, Translation]] = []
    every = _translated(lm, sources, strategy, nbest, options, progress)
    for number, (source, best) in enumerate(every, start=1):
        _print(source, best, number, nbest, as_json)
        if picture is not None and len(found) < _MOST_PICTURES and best[0].ids:
            found.append((source, best[0]))
    sources.note_cuts()
    if picture is not None:
        _draw(lm, found, picture)


def _strategy(options: dict[str, Any], nbest: int) -> Strategy | Beam:
    from chainrule.seq2seq.translate import BEAM

    narrows = any(options[name] is not None for name in ("temperature", "top_k", "top_p", "min_p"))
    if narrows and options["strategy"] == "beam":
        options = {**options, "strategy": "sample"}  # which is what these options narrow
        if options["beams"] is not None:
            raise click.UsageError(
                "a beam search does not sample: leave out --beams, or --temperature and the like"
            )
    if options["strategy"] == "greedy" and nbest > 1:
        raise click.UsageError("greedy always gives the same text: --nbest needs --strategy sample or beam")
    return chosen_strategy(options, usual=replace(BEAM, width=max(BEAM.width, nbest)))


class _Sources:
    """The lines to translate; those that are longer than the model takes are noted."""

    def __init__(
        self, lm: ConditionalModel, texts: tuple[str, ...], options: dict[str, Any], progress: Progress
    ) -> None:
        self.lm, self.texts, self.options, self.progress = lm, texts, options, progress
        self.cut = 0
        self.is_live = texts == ("-",) and sys.stdin.isatty()
        for text in texts:
            if text != "-" and not Path(text).exists() and len(text.split()) < 2:
                raise click.UsageError(
                    f"{text}: no such file; a text of a single word is read from standard input, as by echo"
                )

    def __iter__(self) -> Iterator[str]:
        from chainrule.seq2seq.evaluate import is_cut

        for name, number, line in self._lines():
            if is_cut(self.lm, line):
                self.cut += 1
                if self.cut <= _MOST_NOTES:
                    most = self.lm.longest_source
                    self.progress.note(
                        f"{name}, line {number:,}: longer than the {most} tokens the model takes; cut"
                    )
            yield line

    def _lines(self) -> Iterator[tuple[str, int, str]]:
        from chainrule.text.pairs import example_lines

        for text in self.texts:
            if text == "-":
                for number, line in enumerate(standard_input(), start=1):
                    yield "standard input", number, line
            elif Path(text).exists():
                corpus = open_corpus(self.options, text)
                for number, block in enumerate(example_lines(corpus), start=1):
                    yield text, number, " ".join(block.decode().split("\n"))
            else:
                yield "the text", 1, text

    def note_cuts(self) -> None:
        """Note how many sources were cut, if not each of them was noted."""
        if self.cut > _MOST_NOTES:
            self.progress.note(f"longer than the model takes, and cut: {self.cut:,} lines in all")


def _translated(
    lm: ConditionalModel,
    sources: _Sources,
    strategy: Strategy | Beam,
    nbest: int,
    options: dict[str, Any],
    progress: Progress,
) -> Iterator[tuple[str, list[Translation]]]:
    from chainrule.seq2seq.translate import FIRST_TEXTS, translate_stream

    at_once = options["batch"] or (1 if sources.is_live else FIRST_TEXTS)
    every = translate_stream(
        lm,
        sources,
        strategy,
        best=nbest,
        max_tokens=options["max_tokens"],
        seed=options["seed"],
        at_once=at_once,
        grows=options["batch"] is None and not sources.is_live,
    )
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
            {
                "text": one.text,
                "score": one.score,
                "log_prob": one.log_prob,
                "tokens": len(one.ids),
                "finished": one.is_finished,
            }
            for one in found
        ]
        best = found[0]
        echo_json({"source": source, "translation": best.text, "score": best.score, "translations": every})
        return
    for one in found:
        text = " ".join(one.text.split("\n"))
        echo(text if nbest == 1 else f"{number}\t{one.score:.4f}\t{text}")


def _has_attention(lm: ConditionalModel) -> bool:
    """Return True if the model gives attention weights, which an empty source and target show."""
    import numpy as np

    source, target = np.asarray([lm.source_tokenizer.eos]), np.asarray([lm.tokenizer.eos])
    return lm.attention_weights(source, target) is not None


def _draw(lm: ConditionalModel, found: list[tuple[str, Translation]], path: str) -> None:
    import numpy as np

    from chainrule.seq2seq.alignments import align_ids
    from chainrule.seq2seq.pictures import alignment_picture
    from chainrule.system.disk import replaced_file

    pictures = [align_ids(lm, lm.encode_source(source), np.asarray(one.ids)).of_words() for source, one in found]
    with replaced_file(Path(path)) as file:
        file.write(alignment_picture(pictures).encode())
