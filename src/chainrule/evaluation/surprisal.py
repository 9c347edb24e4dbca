"""ln p of many texts at once, as arrays: of each token, and of each text.

>>> import chainrule as cr
>>> texts = ["i love cats", "i love dogs", "cats chase mice"]
>>> lm = cr.train("ngram", texts, order=2, smoothing="laplace", tokenizer="word")
>>> scores = cr.score(lm, ["i love mice", "dogs"])
>>> scores.tokens.tolist(), scores.perplexity.round(2).tolist()
([4, 2], [4.84, 7.04])
>>> [round(log_prob, 2) for log_prob in scores[1].log_probs]  # "dogs", and the end of the line
[-2.4, -1.5]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, overload

import numpy as np
from numpy.typing import NDArray

from chainrule.contract.lm import LanguageModel, State, score_in_pieces
from chainrule.errors import CorpusError, TokenizerError
from chainrule.evaluation.measure import score_after
from chainrule.evaluation.metrics import perplexity_of
from chainrule.system.disk.tables import frame
from chainrule.system.display import Html, ResultTable, coloured, number, to_html
from chainrule.system.progress import SILENT, Progress, Reports, Task, as_progress
from chainrule.text.corpus import Corpus
from chainrule.text.given import Text, as_corpus, as_items
from chainrule.tokens.base import Ids, Tokenizer, encode_in_parallel, lines_of, utf8
from chainrule.tokens.spelling import text_spans

if TYPE_CHECKING:
    import pandas

MOST_TEXTS, MOST_TOKENS = 20, 2000
"""The texts and tokens that a notebook shows of `Scores`, at most; the first text is shown whole."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class ScoredText:
    """A text, its tokens (each line ends in </s>) and ln p of each."""

    text: str
    ids: tuple[int, ...]
    log_probs: tuple[float, ...]

    @cached_property
    def log_prob(self) -> float:
        """ln p of the text."""
        return math.fsum(self.log_probs) if all(map(math.isfinite, self.log_probs)) else -math.inf

    @property
    def perplexity(self) -> float:
        """exp of the mean surprisal."""
        return perplexity_of(-self.log_prob / len(self.ids))


@dataclass(frozen=True)
class SurprisingToken:
    """A token of a text with its place and its surprisal."""

    text: str
    start: int
    """The place of its first character in the text."""
    end: int
    """The place after its last character; the end of the last line has no character."""
    bits: float


@dataclass(frozen=True, repr=False)
class Scores:
    """Texts and ln p of their tokens, all in one array; text i has the tokens from offsets[i] to offsets[i + 1].

    In a notebook, the first texts show themselves, each token coloured by its surprisal.
    """

    texts: list[str]
    ids: Ids
    """The tokens of all texts, one text after the other; each line ends in </s>."""
    log_probs: Floats
    """ln p of each token."""
    offsets: Ints
    """Where the tokens of each text begin, and, at the end, the number of all tokens."""
    tokenizer: Tokenizer = field(compare=False)

    def __len__(self) -> int:
        return len(self.texts)

    def __repr__(self) -> str:
        return f"<Scores of {len(self):,} texts, {len(self.ids):,} tokens>"

    def _repr_html_(self) -> str:
        rows, left = list[list[str]](), MOST_TOKENS
        for one, bits, perplexity in zip(self[:MOST_TEXTS], self.nats / math.log(2), self.perplexity, strict=False):
            if rows and len(one.ids) > left:
                break
            left -= len(one.ids)
            text = coloured_text(one.text, surprising_tokens(self.tokenizer, one))
            rows.append([number(bits), number(perplexity), text])
        headings = ["bits per token", "perplexity", "text, coloured by surprisal"]
        more = [f"{len(self) - len(rows):,} more texts"] if len(rows) < len(self) else []
        return to_html([ResultTable(headings, rows, left=[2]), *more])

    @overload
    def __getitem__(self, which: int) -> ScoredText: ...
    @overload
    def __getitem__(self, which: slice) -> list[ScoredText]: ...
    def __getitem__(self, which: int | slice) -> ScoredText | list[ScoredText]:
        """Return the text of a number, or the texts of a slice, with their tokens."""
        if isinstance(which, slice):
            return [self[number] for number in range(*which.indices(len(self)))]
        text = self.texts[which]
        start, end = self.offsets[:-1][which], self.offsets[1:][which]
        return ScoredText(text, tuple(self.ids[start:end].tolist()), tuple(self.log_probs[start:end].tolist()))

    # -- a number for each text ---------------------------------------------------------------------------

    @property
    def tokens(self) -> Ints:
        """The number of tokens of each text, line ends included."""
        return np.diff(self.offsets)

    @cached_property
    def bytes(self) -> Ints:
        """The length of each text in UTF-8."""
        return np.fromiter((len(text.encode()) for text in self.texts), np.int64, len(self))

    @cached_property
    def log_prob(self) -> Floats:
        """ln p of each text: -inf if a token of it is impossible."""
        return np.add.reduceat(self.log_probs, self.offsets[:-1])

    @property
    def nats(self) -> Floats:
        """The mean surprisal of a token of each text: its cross-entropy, natural logarithm."""
        return -self.log_prob / self.tokens

    @property
    def perplexity(self) -> Floats:
        """exp of the mean surprisal of each text."""
        with np.errstate(over="ignore"):
            return np.exp(self.nats)

    @property
    def bits_per_byte(self) -> Floats:
        """Bits per byte of each text: infinite for an empty text, whose end takes some bits."""
        with np.errstate(divide="ignore"):
            return -self.log_prob / math.log(2) / self.bytes

    @property
    def unknown(self) -> Ints:
        """The number of <unk> tokens of each text."""
        if self.tokenizer.unk is None:
            return np.zeros(len(self), dtype=np.int64)
        return np.add.reduceat((self.ids == self.tokenizer.unk).astype(np.int64), self.offsets[:-1])

    # -- a number for each token --------------------------------------------------------------------------

    @property
    def surprisals(self) -> Floats:
        """-ln p of each token."""
        return -self.log_probs

    @property
    def text_of(self) -> Ints:
        """The number of the text of each token."""
        return np.repeat(np.arange(len(self)), self.tokens)

    # -- tables -------------------------------------------------------------------------------------------

    def to_frame(self) -> pandas.DataFrame:
        """Return a pandas table with a row for each text."""
        names = ("tokens", "bytes", "log_prob", "nats", "perplexity", "bits_per_byte", "unknown")
        return frame(text=self.texts, **{name: getattr(self, name) for name in names})

    def token_frame(self) -> pandas.DataFrame:
        """Return a pandas table with a row for each token: its text's number, its position, its id, ln p."""
        texts = self.text_of
        ids, where = np.unique(self.ids, return_inverse=True)
        names = np.asarray([self.tokenizer.token(int(i)) for i in ids], dtype=object)
        return frame(
            text=texts,
            position=np.arange(len(self.ids)) - self.offsets[texts],
            id=self.ids,
            token=names[where],
            log_prob=self.log_probs,
            surprisal=self.surprisals,
        )


# -- tokens in their text ---------------------------------------------------------------------------------


def surprising_tokens(
    tokenizer: Tokenizer, record: ScoredText, mask: Callable[[bytes], bytes] | None = None
) -> Iterator[SurprisingToken]:
    """Yield the tokens of a text with their places and bits; the end of a line is a token without text.

    If several tokens spell a character, the last one has it. With a `mask`, the tokens spell the masked text.
    """
    text = record.text.encode() if mask is None else mask(record.text.encode())
    begins = np.flatnonzero((np.frombuffer(text, np.uint8) & 0xC0) != 0x80)  # the first byte of each character
    for token, log_prob, (first, last) in zip(
        record.ids, record.log_probs, text_spans(tokenizer, text, record.ids), strict=True
    ):
        start, end = (
            len(record.text) if place == len(text) else int(np.searchsorted(begins, place, side="right")) - 1
            for place in (first, last)
        )
        spelled = "" if token == tokenizer.eos else record.text[start:end]
        yield SurprisingToken(spelled, start, end, -log_prob / math.log(2))


def coloured_text(text: str, tokens: Iterable[SurprisingToken]) -> Html:
    """Return a text as HTML, each token coloured by its surprisal; a notebook shows the bits at the pointer."""
    pieces: list[tuple[str, float | None]] = []
    place = 0
    for token in tokens:
        pieces.append((text[place : token.start], None))
        # the end of a line would not be seen
        pieces.append((("" if token.text else "↵") + text[token.start : token.end], token.bits))
        place = max(place, token.end)
    body = coloured([*pieces, (text[place:], None)])
    return Html(f'<span style="white-space:pre-wrap;overflow-wrap:anywhere">{body}</span>')


# -- scoring ----------------------------------------------------------------------------------------------


def score(lm: LanguageModel, texts: Text, *, progress: Reports = False) -> Scores:
    """Score texts and each of their tokens: the same as `lm.log_prob` of each text, for many at once.

    A string is one text and a list of strings is several, each scored on its own. A file (a `Path`) or a corpus
    stands for its lines; with stream context each of those is scored after the lines before it.

    >>> import chainrule as cr
    >>> lm = cr.train("ngram", ["i love cats", "i love dogs"] * 3, order=2, tokenizer="word")
    >>> found = cr.score(lm, ["i love cats", "cats love i"])
    >>> [round(float(value), 1) for value in found.log_prob]
    [-2.0, -10.9]
    """
    progress = as_progress(progress)
    LanguageModel.expect(lm)
    items = [] if isinstance(texts, Corpus) else as_items(texts)
    if items and isinstance(items[0], str):
        return _score_texts(lm, items, progress)
    corpus = as_corpus(texts if isinstance(texts, Corpus) else items)
    with progress.task("scoring", corpus.size(), "B") as task:
        parts = list(_score_corpus(lm, corpus, task))
    if not parts:
        raise CorpusError(f"{corpus.name}: the text is empty")
    sizes = np.concatenate([part.tokens for part in parts])
    return Scores(
        texts=[text for part in parts for text in part.texts],
        ids=np.concatenate([part.ids for part in parts]),
        log_probs=np.concatenate([part.log_probs for part in parts]),
        offsets=np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)]),
        tokenizer=lm.tokenizer,
    )


def score_lines(lm: LanguageModel, text: Text) -> Iterator[ScoredText]:
    """Yield the lines of a text with their scores; memory holds a block of the text at a time.

    With stream context each line is scored after those before it.

    >>> import chainrule as cr
    >>> lm = cr.train("ngram", ["i love cats", "i love dogs"], order=2, smoothing="laplace", tokenizer="word")
    >>> [(line.text, round(line.perplexity, 2)) for line in score_lines(lm, ["i love cats"])]
    [('i love cats', 3.16)]
    """
    LanguageModel.expect(lm)
    with SILENT.task("scoring") as task:
        for part in _score_corpus(lm, as_corpus(text), task):
            yield from (part[number] for number in range(len(part)))


def _score_texts(lm: LanguageModel, texts: list[str], progress: Progress) -> Scores:
    """Score texts, each by itself."""
    block, lines = _block(texts)
    ids = encode_in_parallel(lm.tokenizer, block)
    line_offsets = _line_offsets(lm.tokenizer, ids)
    offsets = line_offsets if lines is None else line_offsets[np.concatenate([np.zeros(1, np.int64), lines])]
    sequences = line_offsets if lm.context == "line" else offsets
    log_probs = np.empty(len(ids))
    done = 0
    with progress.task("scoring", len(ids), "tokens") as task:
        for piece in score_in_pieces(lm, ids, sequences[:-1], sequences[1:]):
            log_probs[done : done + len(piece)] = piece
            done += len(piece)
            task.advance(len(piece))
    return Scores(texts, ids, log_probs, offsets, lm.tokenizer)


def _block(texts: list[str]) -> tuple[bytes, Ints | None]:
    """Return the texts as one block of lines, and the number of lines up to the end of each; None: one each."""
    try:
        block = b"\n".join(map(str.encode, texts)) + b"\n"  # faster than to join them first: one may be wide
    except (UnicodeEncodeError, TypeError):
        block = _utf8("\n".join(texts), texts) + b"\n"
    line_ends = np.count_nonzero(np.frombuffer(block, np.uint8) == ord("\n"))
    if line_ends == len(texts) and not (b"\r" in block and b"\r\n" in block):
        return block, None
    texts = [text.replace("\r\n", "\n").removesuffix("\n") for text in texts]
    lines = np.fromiter((text.count("\n") + 1 for text in texts), np.int64, len(texts))
    return _utf8("\n".join(texts), texts) + b"\n", np.cumsum(lines)


def _utf8(whole: str, texts: list[str]) -> bytes:
    """Encode the joined texts; an error names the text with the fault."""
    try:
        return utf8(whole)
    except TokenizerError:
        for number, text in enumerate(texts):
            try:
                utf8(text)
            except TokenizerError as error:
                raise TokenizerError(f"text {number}: {error}") from None
        raise


def _line_offsets(tokenizer: Tokenizer, ids: Ids) -> Ints:
    return np.concatenate([np.zeros(1, np.int64), np.flatnonzero(ids == tokenizer.eos) + 1])


def _score_corpus(lm: LanguageModel, corpus: Corpus, task: Task) -> Iterator[Scores]:
    """Score the lines of a corpus, block by block."""
    state: State = lm.start(1)
    for block in corpus.blocks():
        ids = encode_in_parallel(lm.tokenizer, block)
        offsets = _line_offsets(lm.tokenizer, ids)
        if lm.context == "line":
            log_probs = np.concatenate(list(score_in_pieces(lm, ids, offsets[:-1], offsets[1:])))
        else:
            log_probs, state = score_after(lm, state, ids)
        yield Scores([line.decode() for line in lines_of(block)], ids, log_probs, offsets, lm.tokenizer)
        task.advance(len(block))
