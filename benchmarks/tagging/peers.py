"""spaCy's tagger, trained on the same sentences for as many minutes, from random weights, without word vectors.

It has two of spaCy's own designs: that of the small English pipelines (width 96, 4 layers of convolutions) and that
which the quickstart calls accurate (width 256, 8 layers). Words are hashes of their norm, prefix, suffix and shape.
Optimiser, batches and dropout are those of `spacy init config`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Iterator, Sequence
from importlib import import_module
from typing import Any

from chainrule.text.tagged import Sentence

DESIGNS = {
    "spacy": {"width": 96, "depth": 4, "rows": [5000, 1000, 2500, 2500]},
    "spacy-accurate": {"width": 256, "depth": 8, "rows": [5000, 1000, 2500, 2500]},
}
"""The rows of the benchmark, and the sizes of each."""

_VALIDATE_EVERY = 200  # steps, as in spaCy's configuration
_DROPOUT = 0.1


def missing() -> str | None:
    """Return why spaCy cannot be used; None if it can."""
    try:
        import_module("spacy")
    except ImportError as error:
        return f"spaCy is not installed ({error}): pip install spacy"
    return None


class SpacyTagger:
    """A pipeline of one component, which gives tags."""

    def __init__(self, name: str, train: Sequence[Sentence], seed: int) -> None:
        self.spacy: Any = import_module("spacy")
        self.design, self.random = DESIGNS[name], random.Random(seed)
        self.spacy.util.fix_random_seed(seed)
        self.nlp = self.spacy.blank("en")
        self.nlp.add_pipe("tagger", config={"model": self._model()})
        self.examples = self._examples(train)
        self.optimiser = self.nlp.initialize(lambda: self.examples)
        self.steps = self.words = 0

    def _model(self) -> dict[str, Any]:
        width, depth, rows = (self.design[key] for key in ("width", "depth", "rows"))
        return {
            "@architectures": "spacy.Tagger.v2",
            "nO": None,
            "tok2vec": {
                "@architectures": "spacy.Tok2Vec.v2",
                "embed": {
                    "@architectures": "spacy.MultiHashEmbed.v2",
                    "width": width,
                    "attrs": ["NORM", "PREFIX", "SUFFIX", "SHAPE"],
                    "rows": rows,
                    "include_static_vectors": False,
                },
                "encode": {
                    "@architectures": "spacy.MaxoutWindowEncoder.v2",
                    "width": width,
                    "depth": depth,
                    "window_size": 1,
                    "maxout_pieces": 3,
                },
            },
        }

    @property
    def size(self) -> str:
        """Width and layers."""
        return f"{self.design['width']} x {self.design['depth']}"

    @property
    def parameters(self) -> int:
        """The number of parameters."""
        nodes = self.nlp.get_pipe("tagger").model.walk()
        return sum(
            int(node.get_param(name).size) for node in nodes for name in node.param_names if node.has_param(name)
        )

    def train(self, minutes: float, dev: Sequence[Sentence]) -> None:
        """Train for some minutes, validations included, and keep the weights that were best on `dev`."""
        until = time.perf_counter() + 60 * minutes
        best, kept = -1.0, self.nlp.to_bytes()
        batches = self._batches()
        while time.perf_counter() < until:
            batch = next(batches)
            self.nlp.update(batch, sgd=self.optimiser, drop=_DROPOUT)
            self.steps += 1
            self.words += sum(len(example.reference) for example in batch)
            if self.steps % _VALIDATE_EVERY == 0:
                with self.nlp.use_params(self.optimiser.averages):
                    accuracy = self.accuracy(dev)
                    if accuracy > best:
                        best, kept = accuracy, self.nlp.to_bytes()
        self.nlp.from_bytes(kept)

    def tag(self, sentences: Sequence[Sequence[str]]) -> list[list[str]]:
        """Return the tag of each word."""
        docs = [self.spacy.tokens.Doc(self.nlp.vocab, words=list(words)) for words in sentences]
        return [[token.tag_ for token in doc] for doc in self.nlp.pipe(docs, batch_size=256)]

    def accuracy(self, sentences: Sequence[Sentence], without: Collection[str] = ()) -> float:
        """Return the share of words that get the right tag, of all words or of those not in `without`."""
        found = self.tag([sentence.words for sentence in sentences])
        right = [
            mine == tag
            for tags, sentence in zip(found, sentences, strict=True)
            for mine, tag, word in zip(tags, sentence.tags, sentence.words, strict=True)
            if word not in without
        ]
        return sum(right) / max(len(right), 1)

    def _examples(self, sentences: Sequence[Sentence]) -> list[Any]:
        training, doc = import_module("spacy.training"), self.spacy.tokens.Doc
        return [
            training.Example.from_dict(doc(self.nlp.vocab, words=list(one.words)), {"tags": list(one.tags)})
            for one in sentences
        ]

    def _batches(self) -> Iterator[list[Any]]:
        """Yield batches of examples in random order without end, of 100 words at first and of 1,000 later."""
        most = 100.0
        while True:
            self.random.shuffle(self.examples)
            batch: list[Any] = []
            words = 0
            for example in self.examples:
                batch.append(example)
                words += len(example.reference)
                if words >= most:
                    yield batch
                    batch, words, most = [], 0, min(1000.0, most * 1.001)
            if batch:
                yield batch
