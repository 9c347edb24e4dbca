"""Tagged sentences as examples for the training loop, and the objective: the tag of each word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from chainrule.arrays import PAD
from chainrule.contract.kinds import TrainingData
from chainrule.networks.training_settings import TrainingSettings
from chainrule.tagging.reading import DistinctWords, WordReader
from chainrule.text.tagged import split_line
from chainrule.tokens.words.tokenizer import WordTokenizer
from chainrule.training.batches.layouts import OVERLAP, Lines
from chainrule.training.batches.rows import Size
from chainrule.training.engines.base import Engine, Feed
from chainrule.training.examples import Examples, Texts
from chainrule.training.objectives import Batch, Objective, Stretches


@dataclass(frozen=True)
class TaggedText:
    """A text of tagged sentences: each word, and its tag, by number, sentence after sentence."""

    words: np.ndarray
    tags: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


@dataclass(frozen=True)
class TaggingData(TrainingData):
    """The data of a training of a tagger; its sources are lines of word/TAG, byte by byte."""

    @cached_property
    def _lines(self) -> list[list[tuple[tuple[str, ...], tuple[str, ...]]]]:
        assert self.sources is not None
        parts = [part for part in (self.sources.train, self.sources.valid) if part is not None]
        texts = [part.ids.astype(np.uint8).tobytes().decode() for part in parts]
        return [[split_line(line) for line in text.removesuffix("\n").split("\n")] for text in texts]

    @cached_property
    def tag_tokenizer(self) -> WordTokenizer:
        """The tags of the training text and of the held-out text."""
        every = {tag for part in self._lines for _, tags in part for tag in tags}
        return WordTokenizer([tag.encode() for tag in sorted(every)])

    @cached_property
    def texts(self) -> tuple[list[bytes], list[TaggedText]]:
        """The distinct words, and the texts as numbers: the training text and, if any, the held-out one."""
        numbers: dict[str, int] = {}
        tag_numbers = {tag: number for number, tag in enumerate(self.tag_tokenizer.words)}
        texts = []
        for part in self._lines:
            words = [numbers.setdefault(word, len(numbers)) for some, _ in part for word in some]
            tags = [tag_numbers[tag] for _, some in part for tag in some]
            ends = np.cumsum([len(some) for some, _ in part])
            starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
            texts.append(TaggedText(np.asarray(words), np.asarray(tags, np.uint32), starts, ends))
        return [word.encode() for word in numbers], texts

    def most_frequent(self, reader: WordReader) -> np.ndarray:
        """The number of the most frequent tag of each word of the table; at the id of <unk>, that of all words."""
        distinct, (train, *_) = self.texts
        ids = reader.read(distinct).ids_N[train.words]
        counts_VK = np.zeros((self.tokenizer.vocab_size, len(self.tag_tokenizer.words)), np.int64)
        np.add.at(counts_VK, (ids, train.tags), 1)
        counts_VK[counts_VK.sum(axis=1) == 0] = counts_VK.sum(axis=0)
        counts_VK[self.tokenizer.unk] = np.bincount(train.tags, minlength=counts_VK.shape[1])
        most_V: np.ndarray = counts_VK.argmax(axis=1)
        return most_V


@dataclass(frozen=True, eq=False)
class WordDropout:
    """Words that are read as unknown in training, rare ones above all (Kiperwasser and Goldberg 2016).

    p(w is read as <unk>) = a / (a + n),         where n is how often w stands in the training text

    So the network learns what to do with a word that it has never seen.
    """

    chances_N: np.ndarray
    """The probability for each of the distinct words."""
    unk: int
    seed: int

    @classmethod
    def of(cls, a: float, counts_N: np.ndarray, unk: int, seed: int) -> WordDropout:
        """The dropout of distinct words that stand so often in the training text."""
        return cls(a / (a + np.maximum(counts_N, 1)), unk, seed)

    def is_dropped(self, words_BT: np.ndarray, epoch: int, place: int) -> np.ndarray:
        """Which words of a batch are dropped, by the seed, the epoch and the place of the batch alone."""
        generator = np.random.default_rng((self.seed % 2**64, epoch, place))
        is_dropped_BT: np.ndarray = generator.random(words_BT.shape) < self.chances_N[words_BT]
        return is_dropped_BT


@dataclass(frozen=True, eq=False)
class TagOfWord(Objective):
    """Predict the tag of every word from all words of its sentence: inputs are `WordInputs`."""

    words: np.ndarray
    """The number of each word of the text."""
    distinct: DistinctWords
    dropout: WordDropout | None = None
    name: ClassVar[str] = "tag-of-word"
    is_on_host: ClassVar[bool] = True

    def batch(self, stretches: Stretches) -> Batch:
        tags_BT = np.asarray(stretches.ids_BS)[:, 1:]
        columns_T = np.arange(tags_BT.shape[1])
        places_BT = np.asarray(stretches.starts_B)[:, None] + columns_T
        is_outside_BT = columns_T >= np.asarray(stretches.lengths_B)[:, None]
        words_BT = np.where(is_outside_BT, PAD, self.words.take(places_BT, mode="clip"))
        is_skipped_BT = columns_T < np.asarray(stretches.skips_B)[:, None]
        targets_BT = np.where(is_outside_BT | is_skipped_BT, PAD, tags_BT)
        inputs = self.distinct.inputs(words_BT)
        if self.dropout is not None and stretches.epoch is not None:
            # the row that comes first in the text names the batch
            is_dropped_BT = self.dropout.is_dropped(words_BT, stretches.epoch, int(np.min(stretches.starts_B)))
            read_BT = np.where(is_dropped_BT & ~is_outside_BT, self.dropout.unk, inputs.words_BT)
            inputs = inputs._replace(words_BT=read_BT)
        return Batch(tuple(inputs), targets_BT)


@dataclass(frozen=True)
class TaggedExamples(Examples):
    """Tagged sentences; one longer than `longest` is read in pieces."""

    text: TaggedText
    distinct: DistinctWords
    longest: int | None
    dropout: WordDropout | None = None

    @property
    def objective(self) -> TagOfWord:  # type: ignore[override]
        """The objective, which knows the words."""
        return TagOfWord(self.text.words, self.distinct, self.dropout)

    @property
    def tokens(self) -> int:
        return int((self.text.ends - self.text.starts).sum())

    def sampled(self, tokens: int) -> TaggedExamples:
        return self._taken(slice(None, None, max(1, round(self.tokens / tokens))))

    def beginning(self, tokens: int) -> TaggedExamples:
        lengths = np.cumsum(self.text.ends - self.text.starts)
        return self._taken(slice(0, max(1, int(np.searchsorted(lengths, tokens, side="right")))))

    def _taken(self, which: slice) -> TaggedExamples:
        text = replace(self.text, starts=self.text.starts[which], ends=self.text.ends[which])
        return replace(self, text=text)

    def feed(self, engine: Engine, settings: TrainingSettings, seed: int) -> Feed:
        longest = int((self.text.ends - self.text.starts).max())
        length = longest if self.longest is None else min(longest, self.longest)
        size = Size(length, settings.batch, settings.device_batch or settings.batch)
        overlap = 0 if self.longest is None else self.longest // OVERLAP
        layout = Lines(self.text.starts, self.text.ends, min(overlap, length - 1), size, seed)
        return Feed(layout, engine.gatherer(self.text.tags, self.objective))


def tagged_examples(
    data: TaggingData, reader: WordReader, longest: int | None, word_dropout: float | None = None
) -> Texts:
    """The sentences of the data, as examples; `word_dropout` is the a of `WordDropout`."""
    words, texts = data.texts
    distinct, dropout = reader.read(words), None
    if word_dropout:
        assert reader.words.unk is not None
        counts_N = np.bincount(texts[0].words, minlength=len(words))
        dropout = WordDropout.of(word_dropout, counts_N, reader.words.unk, data.seed)
    made: Sequence[TaggedExamples] = [TaggedExamples(text, distinct, longest, dropout) for text in texts]
    return Texts(made[0], made[1] if len(made) > 1 else None)
