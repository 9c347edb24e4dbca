"""Measurements of a model on a text: cross-entropy, perplexity, bits per byte, speed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from chainrule.arrays import TOKENS_AT_ONCE, checked, to_numpy
from chainrule.contract.lm import LanguageModel, State, offered, read, score_in_pieces, tokens_at_once
from chainrule.errors import ModelError
from chainrule.evaluation.metrics import bits_per_byte, perplexity_of
from chainrule.evaluation.replies import RepliesMeasured, evaluate_replies
from chainrule.seq2seq.contract import ConditionalModel
from chainrule.seq2seq.evaluate import TranslationMeasured, evaluate_pairs
from chainrule.system.disk import scratch_folder
from chainrule.system.display import Measurements, Part, number
from chainrule.system.progress import SILENT, Progress, Reports, as_progress
from chainrule.text.given import Text, as_corpus
from chainrule.text.overlap import shared, sketches_in
from chainrule.text.pairs import Pairs
from chainrule.tokens.base import line_bounds
from chainrule.tokens.ids import Encoded, encode_corpus

if TYPE_CHECKING:
    from chainrule.mixtures.dynamic import Dynamic


SCORES = "(…) computed from scores, not from probabilities: it does not compare with the others"
LOWER_BOUND = "* a lower bound: white space, and the spelling of unknown tokens, are not counted"
_MOST_HITS = 1_000_000  # tokens whose n-grams are looked up
_WORTH_SAYING = 0.02  # a share of trained text in a test text


@dataclass(frozen=True, repr=False)
class Measured(Measurements):
    """The measurements of a model on a text.

    Printed, they have the marks of the command line: a star for bits per byte that are only a lower bound, and
    brackets for figures that are computed from scores.

    >>> import chainrule as cr
    >>> lm = cr.train("ngram", ["i love cats", "i love dogs"], order=2, smoothing="laplace", tokenizer="word")
    >>> print(cr.evaluate(lm, ["i love cats"]))
    perplexity 3.159, 0.5531* bits/byte on 4 tokens
    * a lower bound: white space, and the spelling of unknown tokens, are not counted
    """

    perplexity: float
    nats: float
    """Cross-entropy per token, natural logarithm."""
    bits: float
    """Cross-entropy per token, base 2."""
    bits_per_byte: float
    tokens: int
    """Tokens predicted, line ends included."""
    bytes: int
    oov: float
    """The share of tokens that are <unk>."""
    lossless: bool
    """True if the tokens spell out all of the text; if not, bits per byte are a lower bound."""
    impossible: int
    """Tokens that the model gave probability 0: with one of them the perplexity is infinite."""
    normalised: bool
    """True if the model gives probabilities; if not, the figures above are computed from its scores."""
    seconds: float
    tokens_per_second: float
    perplexity_without_end: float | None = None
    """The perplexity of the tokens that the text has, without the end of its last line; None: the text has it.

    Other programs count a line end only where there is one, and give this figure.
    """

    trained_on: float | None = None
    """The share of the text's long lines that the model was trained on, by a sample; None if it is not known."""

    ignores_case: bool | None = None
    """True if the model reads upper-case letters as lower-case ones."""

    hits: list[float] | None = None
    """The shares of tokens whose longest known n-gram has 1, 2, ... tokens; None if the model has no n-grams.

    For a long text they count its first million tokens.
    """

    @property
    def is_lower_bound(self) -> bool:
        """True if `bits_per_byte` is only a lower bound, because the tokens do not spell out all of the text."""
        return not self.lossless

    def to_json(self) -> dict[str, Any]:
        """Return the measurements as plain values, without those that are None."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def figures(self) -> dict[str, str]:
        """Return the figures as people read them, by their headings in a table; `remarks` explain their marks."""
        form, star = "{}" if self.normalised else "({})", "*" if self.is_lower_bound else ""
        shown = {name: form.format(number(getattr(self, name), 4)) for name in ("perplexity", "nats", "bits")}
        shown["bits/byte"] = form.format(number(self.bits_per_byte, 4)) + star
        return {**shown, "tokens": f"{self.tokens:,}", "OOV": f"{self.oov:.2%}"}

    def __str__(self) -> str:
        shown = self.figures()
        line = f"perplexity {shown['perplexity']}, {shown['bits/byte']} bits/byte on {shown['tokens']} tokens"
        return "\n".join([line, *map(str, self.remarks())])

    def __repr__(self) -> str:
        return f"<Measured: {'; '.join(str(self).splitlines())}>"

    def remarks(self) -> list[Part]:
        return [*caveats([self]), *missing_ends([self])]


def caveats(every: Iterable[Measured]) -> list[str]:
    """Explain the marks of some measurements, where they have any."""
    every = list(every)
    found = [] if all(one.normalised for one in every) else [SCORES]
    if not all(one.lossless for one in every):
        found.append(LOWER_BOUND + (", nor is case" if any(one.ignores_case for one in every) else ""))
    trained = [one.trained_on for one in every if one.trained_on is not None and one.trained_on > _WORTH_SAYING]
    if trained:
        share = f"{min(trained):.0%}" if len(set(trained)) == 1 else f"{min(trained):.0%} to {max(trained):.0%}"
        found.append(f"about {share} of the text's long lines were in the training text")
    return found


def missing_ends(every: Iterable[Measured]) -> list[str]:
    """Give the other perplexities of a text that has no line end at its end, in the order of the measurements."""
    found = [one.perplexity_without_end for one in every if one.perplexity_without_end is not None]
    shown = ", ".join(number(perplexity, 4) for perplexity in found)
    return [f"the text has no final line end; without the one that is counted, perplexity {shown}"] if found else []


@overload
def evaluate(
    lm: LanguageModel, text: Pairs, *, progress: Reports = False
) -> TranslationMeasured | RepliesMeasured: ...


@overload
def evaluate(
    lm: LanguageModel, text: Text, *, dynamic: Dynamic | None = None, progress: Reports = False
) -> Measured: ...


def evaluate(
    lm: LanguageModel, text: Text | Pairs, *, dynamic: Dynamic | None = None, progress: Reports = False
) -> Measured | TranslationMeasured | RepliesMeasured:
    """Measure a model on a text: strings are text, paths are files. A model that translates is measured on `Pairs`.

    A language model is measured on `Pairs`, too: prompts and their replies.

    With `dynamic`, its networks learn from the text while it is scored: each token is scored before they learn from
    it. The model itself stays as it is.

    >>> import chainrule as cr
    >>> lm = cr.train("ngram", ["i love cats", "i love dogs"], order=2, smoothing="laplace", tokenizer="word")
    >>> measured = evaluate(lm, ["i love cats"])
    >>> measured.tokens, round(measured.perplexity, 2)
    (4, 3.16)
    """
    if isinstance(text, Pairs) and isinstance(lm, LanguageModel) and not isinstance(lm, ConditionalModel):
        return evaluate_replies(lm, text, progress=progress)
    if isinstance(text, Pairs):
        return evaluate_pairs(lm, text, progress=progress)
    if isinstance(lm, ConditionalModel):
        raise ModelError(f"a {lm.kind} model writes a target for a source: evaluate it on Pairs, not on a text")
    LanguageModel.expect(lm)
    progress = as_progress(progress)
    with scratch_folder() as folder:
        as_text = lm.context == "stream"
        encoded = encode_corpus(as_corpus(text), lm.tokenizer, folder / "text.ids", progress, as_text=as_text)
        measured = measure(lm, encoded, dynamic=dynamic, progress=progress)
        return replace(measured, hits=_hits(lm, encoded.ids))


def measure(
    lm: LanguageModel,
    encoded: Encoded,
    *,
    dynamic: Dynamic | None = None,
    progress: Progress = SILENT,
    keep: Callable[[np.ndarray], object] | None = None,
) -> Measured:
    """Measure a model on ids of its own tokenizer; `keep` is called with ln p of the tokens, piece by piece."""
    if dynamic is None:
        pieces = score_ids(lm, encoded.ids)
    else:
        from chainrule.mixtures.dynamic import dynamic_scores

        pieces = dynamic_scores(lm, encoded.ids, dynamic)
    nats, impossible, last = 0.0, 0, 0.0
    began = time.perf_counter()
    with progress.task("scoring", encoded.tokens, "tokens") as task:
        for scores in pieces:
            finite = np.isfinite(scores)
            nats -= float(scores[finite].sum())
            impossible += int(len(scores) - finite.sum())
            last = float(scores[-1])
            if keep is not None:
                keep(scores)
            task.advance(len(scores))
    seconds = time.perf_counter() - began
    total = math.inf if impossible else nats
    mean = total / encoded.tokens
    return Measured(
        perplexity=perplexity_of(mean),
        nats=mean,
        bits=mean / math.log(2),
        bits_per_byte=bits_per_byte(total, encoded.bytes),
        tokens=encoded.tokens,
        bytes=encoded.bytes,
        oov=encoded.unknown / encoded.tokens,
        lossless=lm.tokenizer.lossless and encoded.unknown == 0,
        impossible=impossible,
        normalised=lm.normalised,
        seconds=seconds,
        tokens_per_second=encoded.tokens / max(seconds, 1e-9),
        perplexity_without_end=None if encoded.ends else _without_end(lm, encoded, nats, impossible, last),
        ignores_case=lm.tokenizer.ignores_case or None,
        trained_on=None if encoded.sketch is None else shared(encoded.sketch, sketches_in(lm.provenance)),
    )


def _hits(lm: LanguageModel, ids: np.ndarray) -> list[float] | None:
    """Return the share of tokens by the length of the longest known n-gram; None if the model has no n-grams."""
    if (lengths_of := offered(lm, "ngram_lengths")) is None:
        return None
    some = np.asarray(ids[:_MOST_HITS], dtype=np.uint32)
    starts, ends = lm.bounds(some)
    if not len(ends):  # a piece of one long line
        starts, ends = np.zeros(1, np.int64), np.asarray([len(some)])
    lengths = lengths_of(some[: ends[-1]], starts, ends)
    shares: list[float] = (np.bincount(lengths, minlength=lm.settings.order + 1)[1:] / len(lengths)).tolist()
    return shares


def _without_end(lm: LanguageModel, encoded: Encoded, nats: float, impossible: int, last: float) -> float | None:
    """Return the perplexity without the last token; None if that is not the line end alone, or the only token."""
    if encoded.tokens < 2 or encoded.ids[-1] != lm.tokenizer.eos:
        return None
    if impossible > (last == -math.inf):
        return math.inf
    return perplexity_of((nats + (0 if impossible else last)) / (encoded.tokens - 1))


def score_ids(lm: LanguageModel, ids: np.ndarray) -> Iterator[np.ndarray]:
    """Yield ln p of every token of a text, in pieces."""
    if lm.context == "line":
        yield from score_in_pieces(lm, ids, *line_bounds(ids, lm.tokenizer.eos))
    else:
        yield from (scores for scores, _ in _in_pieces(lm, lm.start(1), ids))


def score_after(lm: LanguageModel, state: State, ids: np.ndarray) -> tuple[np.ndarray, State]:
    """Return ln p of each token after the text that a state has read, and the state after them."""
    pieces = list[np.ndarray]()
    for scores, after in _in_pieces(lm, state, ids):
        pieces.append(scores)
        state = after
    return np.concatenate(pieces), state


def _in_pieces(lm: LanguageModel, state: State, ids: np.ndarray) -> Iterator[tuple[np.ndarray, State]]:
    """Yield ln p of the tokens of one long sequence, some at a time, and the state after each piece."""
    at_once = min(tokens_at_once(lm), TOKENS_AT_ONCE)
    for first in range(0, len(ids), at_once):
        scores, state = read(lm, state, np.asarray(ids[None, first : first + at_once], dtype=np.int64))
        yield checked(to_numpy(scores)[0], normalised=lm.normalised), state
