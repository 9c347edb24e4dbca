"""Tagged sentences as examples for the training loop, and the objective: the tag of each word."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, cast

import numpy as np

from chainrule.arrays import PAD
from chainrule.contract.data import Annotated, TrainingData
from chainrule.networks.training_settings import TrainingSettings
from chainrule.tagging.reading import DistinctWords, WordReader, numbered
from chainrule.text.tagged import Tagged
from chainrule.tokens.words.tokenizer import WordTokenizer
from chainrule.training.engines.base import Engine
from chainrule.training.examples import SequenceExamples, size_for
from chainrule.training.layouts import OVERLAP, Lines
from chainrule.training.objectives import Batch, Feed, Objective, Sequences, Stretches


@dataclass(frozen=True)
class TaggingData(TrainingData):
    """The data of a training of a tagger, whose sentences are numbered once."""

    @cached_property
    def parts(self) -> list[Tagged]:
        """The sentences of the training text and, if there is one, of the held-out text."""
        sources = cast("Annotated[Tagged]", self.sources)
        return [part for part in (sources.train, sources.valid) if part is not None]

    @cached_property
    def tag_tokenizer(self) -> WordTokenizer:
        """The tags of the training text and of the held-out text."""
        every = {tag for part in self.parts for sentence in part for tag in sentence.tags}
        return WordTokenizer([tag.encode() for tag in sorted(every)])

    @cached_property
    def distinct_words(self) -> list[bytes]:
        """The distinct words of all parts, in the order of their numbers."""
        return self._numbered[0]

    @cached_property
    def texts(self) -> list[tuple[np.ndarray, Sequences]]:
        """The numbers of the words of each part, and the numbers of their tags, sentence by sentence."""
        tag_numbers, rows = {tag: i for i, tag in enumerate(self.tag_tokenizer.words)}, iter(self._numbered[1])
        texts = []
        for part in self.parts:
            words = np.concatenate([next(rows) for _ in part])
            tags = np.asarray([tag_numbers[tag] for sentence in part for tag in sentence.tags], np.uint32)
            lengths = np.asarray([len(sentence.tags) for sentence in part])
            ends = np.cumsum(lengths)
            texts.append((words, Sequences(tags, ends - lengths, ends)))
        return texts

    @cached_property
    def _numbered(self) -> tuple[list[bytes], list[np.ndarray]]:
        return numbered([sentence.words for part in self.parts for sentence in part])

    def most_frequent(self, reader: WordReader) -> np.ndarray:
        """Return the number of the most frequent tag of each word of the table; at <unk>, that of all words."""
        words, tags = self.texts[0]
        ids = reader.read(self.distinct_words).ids_N[words]
        counts_VK = np.zeros((self.tokenizer.vocab_size, len(self.tag_tokenizer.words)), np.int64)
        np.add.at(counts_VK, (ids, tags.ids), 1)
        counts_VK[counts_VK.sum(axis=1) == 0] = counts_VK.sum(axis=0)
        counts_VK[self.tokenizer.unk] = np.bincount(tags.ids, minlength=counts_VK.shape[1])
        most_V: np.ndarray = counts_VK.argmax(axis=1)
        return most_V


@dataclass(frozen=True, eq=False)
class WordDropout:
    """Words that are read as unknown in training, rare ones above all (Kiperwasser and Goldberg 2016).

    p(w is read as <unk>) = a / (a + n),         where n is the count of w in the training text

    So the network learns to tag a word that it has never seen.
    """

    chances_N: np.ndarray
    """The probability for each of the distinct words."""
    unk: int
    seed: int

    @classmethod
    def of(cls, a: float, counts_N: np.ndarray, unk: int, seed: int) -> WordDropout:
        """Return the dropout of distinct words that stand so often in the training text."""
        return cls(a / (a + np.maximum(counts_N, 1)), unk, seed)

    def is_dropped(self, words_BT: np.ndarray, epoch: int, place: int) -> np.ndarray:
        """Return which words of a batch are dropped, by the seed, the epoch and the place of the batch alone."""
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
class TaggedExamples(SequenceExamples):
    """The tags of sentences, whose words are read; a sentence longer than `longest` is read in pieces."""

    words: np.ndarray
    """The number of each word of the text."""
    distinct: DistinctWords
    longest: int | None
    dropout: WordDropout | None = None

    @property
    def objective(self) -> TagOfWord:  # type: ignore[override]
        """The objective, which knows the words."""
        return TagOfWord(self.words, self.distinct, self.dropout)

    def feed(self, engine: Engine, settings: TrainingSettings, seed: int) -> Feed:
        longest = int(self.targets.lengths.max())
        length = longest if self.longest is None else min(longest, self.longest)
        overlap = 0 if self.longest is None else self.longest // OVERLAP
        size, starts, ends = size_for(length, engine, settings), self.targets.starts, self.targets.ends
        layout = Lines(starts, ends, min(overlap, length - 1), size, seed)
        return Feed(layout, engine.gatherer(self.targets.ids, self.objective))
