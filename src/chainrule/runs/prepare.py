"""The preparation of a training: a tokenizer, and the text as ids."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from chainrule.contract.data import Annotated, Sources
from chainrule.errors import SettingsError
from chainrule.folder import Context, ContextChoice
from chainrule.system.disk import naming
from chainrule.system.parallel import EMBEDDED, Executor
from chainrule.system.progress import SILENT, Progress
from chainrule.text.corpus import Corpus
from chainrule.text.labelled import Labelled
from chainrule.text.pairs import Pairs, sides_of
from chainrule.text.split import By, split
from chainrule.text.tagged import Tagged
from chainrule.text.templates import prompted, replied
from chainrule.tokens.base import Tokenizer
from chainrule.tokens.ids import Encoded, encode_corpus
from chainrule.tokens.lowercase import LowercaseTokenizer
from chainrule.tokens.registry import (
    load_tokenizer,
    tokenizer_names,
    train_and_encode,
    train_tokenizer,
    word_splitting,
)
from chainrule.tokens.vocabulary import Limit
from chainrule.tokens.words.tokenizer import WordTokenizer

E = TypeVar("E", Corpus, Pairs, Tagged, Labelled)
"""The examples of a task."""


_FEWEST_SUBWORDS, _MOST_SUBWORDS = 1024, 8192
_FIRST_DOCUMENTS, _LINES_OF_LINES = 1000, 1.5  # documents that are read; the most lines of documents that are lines


def context_for(examples: Any, context: ContextChoice, by: By = "auto") -> Context:
    """Return the context that suits a text, if none is chosen.

    It flows across lines if the documents have several, such as paragraphs of prose and files of code: what a line
    says depends on the lines before it. `by` is how the text is split: between lines that were dealt to different
    parts, nothing can flow.

    >>> prose = Corpus.from_text("To be,\\nor not to be.\\n\\nThat is\\nthe question.\\n")
    >>> context_for(prose, "auto"), context_for(prose, "auto", by="line")
    ('stream', 'line')
    >>> context_for(Corpus.from_text("i love cats\\nyou love dogs\\n"), "auto")
    'line'
    """
    if context != "auto":
        return context
    if by == "line" or not isinstance(examples, Corpus):
        return "line"
    lines = [document.count(b"\n") for document in islice(examples.documents(), _FIRST_DOCUMENTS)]
    return "stream" if sum(lines) > _LINES_OF_LINES * len(lines) else "line"


def subwords_for(size: int) -> int:
    """Return how many subwords suit a text of this size: the power of two below 3 √bytes, from 1,024 to 8,192.

    N-gram models hardly notice, and networks read more text in the same time if it has fewer tokens
    (benchmarks/results/tokens.md).

    >>> [subwords_for(size) for size in (10_000, 900_000, 2_000_000, 100_000_000)]
    [1024, 2048, 4096, 8192]
    """
    near = 1 << int(math.log2(3 * math.sqrt(max(size, 1))))
    return min(max(near, _FEWEST_SUBWORDS), _MOST_SUBWORDS)


@dataclass(frozen=True)
class TokenizerChoice:
    """A tokenizer by name, or by the folder that it is in, and the size or the words of its vocabulary.

    >>> TokenizerChoice("word", vocab_size=2).make(Corpus.from_texts(["the cat sees the dog", "the dog"])).words
    ['the', 'dog']
    """

    name: str = "bpe"
    vocab_size: str | int | None = None
    min_count: int = 1
    vocabulary: str | Path | None = None
    """A file with a word on each line: the vocabulary is exactly these words."""
    lowercase: bool = False
    """True if upper-case letters are read as lower-case ones."""

    @property
    def has_subwords(self) -> bool:
        """True if subwords are learned from text."""
        return self.name in ("bpe", "wordpiece", "unigram")

    def sized_for(self, corpus: Corpus) -> TokenizerChoice:
        """Return the choice with a vocabulary of subwords that suits the size of a text, if none is given."""
        if self.vocab_size is not None or not self.has_subwords:
            return self
        size = corpus.size() or sum(path.stat().st_size for path in corpus.paths)
        return replace(self, vocab_size=subwords_for(size))

    def check(self) -> None:
        """Refuse an impossible choice before any text is read."""
        self._limit()
        _ = self._given

    def make(self, corpus: Corpus, progress: Progress = SILENT) -> Tokenizer:
        """Return the tokenizer, learned from the corpus, or loaded from a folder or a list of words."""
        limit, tokenizer = self._limit(), self._given
        if tokenizer is None:
            return train_tokenizer(self.name, corpus, limit, progress, lowercase=self.lowercase)
        return tokenizer

    def make_and_encode(
        self, corpus: Corpus, path: Path, progress: Progress = SILENT, executor: Executor = EMBEDDED
    ) -> tuple[Tokenizer, Encoded]:
        """Make the tokenizer and encode the corpus into a file, in one pass if the tokenizer can."""
        limit, tokenizer = self._limit(), self._given
        if tokenizer is None:
            return train_and_encode(self.name, corpus, path, limit, progress, executor, lowercase=self.lowercase)
        return tokenizer, encode_corpus(corpus, tokenizer, path, progress, executor)

    @cached_property
    def _given(self) -> Tokenizer | None:
        """The tokenizer of a folder or a list of words, read once; None if it will be learned from text."""
        if self.vocabulary is None:
            if self.name in tokenizer_names():
                return None
            if self.lowercase:
                raise SettingsError(f"the tokenizer in {self.name} is given: leave out lowercase")
            return load_tokenizer(self.name)
        splitting = word_splitting(self.name)
        if splitting is None:
            raise SettingsError(
                f"a list of words is for the tokenizers word and word:unicode, not for {self.name}: "
                f"leave out the vocabulary {self.vocabulary}, or choose one of the two"
            )
        found = WordTokenizer.from_file(self.vocabulary, splitting)
        return LowercaseTokenizer(found) if self.lowercase else found

    def _limit(self) -> Limit:
        limit = Limit.parse(self.vocab_size, self.min_count)
        which = None
        if self.vocabulary is not None:
            which = f"the vocabulary is what {self.vocabulary} lists"
        elif self.name == "byte":
            which = "byte tokens are the 256 bytes"
        elif self.name not in tokenizer_names():
            which = f"the tokenizer in {self.name} is given"
        if which and limit != Limit():
            raise SettingsError(f"{which}: leave out the vocabulary size and the minimum count")
        return limit


def split_off(
    examples: E,
    given: Mapping[str, E | None],
    shares: Mapping[str, float],
    folder: Path,
    *,
    by: By = "auto",
    seed: int = 0,
    progress: Progress = SILENT,
) -> dict[str, E]:
    """Return a part for each share: the given examples, and the others split off; train gets the rest."""
    parts = {name: one for name, one in given.items() if one is not None}
    wanted = {name: share for name, share in shares.items() if name not in parts}
    if list(wanted) == ["train"]:
        return {"train": examples, **parts}
    wanted["train"] += 1 - sum(wanted.values())
    whole: Any = examples
    if hasattr(whole, "split"):
        divide = whole.split
        if by != "auto":
            raise SettingsError(f"pairs, tagged sentences and labelled texts are split one by one, not by {by}")
    else:
        divide = partial(split, whole, by=by)
    return {**divide(wanted, folder, seed=seed, progress=progress), **parts}


# -- the lines of examples as ids: a function for each kind of example, which its task names ----------------

Chosen: TypeAlias = Tokenizer | TokenizerChoice
"""A tokenizer, or how one is learned from the lines."""


def encode_pairs(
    parts: Mapping[str, Pairs],
    tokenizer: Chosen,
    folder: Path,
    progress: Progress = SILENT,
    executor: Executor = EMBEDDED,
    *,
    source_tokenizer: Chosen | None = None,
    template: str | None = None,
) -> tuple[Tokenizer, dict[str, Encoded], Sources]:
    """Return the targets of each part of pairs as ids, and their sources.

    Without a tokenizer of their own, the sources use that of the targets, which is learned from both. With a
    template, sources are prompts in it, and each target begins with its prompt: it is the text that a model reads.
    """
    sides = {name: _sides(pairs.lines, folder, name, template) for name, pairs in parts.items()}
    if isinstance(tokenizer, TokenizerChoice):
        learned_from = sides["train"][1:] if source_tokenizer is not None else sides["train"]
        tokenizer = tokenizer.make(
            Corpus(paths=tuple(path for one in learned_from for path in one.paths)), progress
        )
    if isinstance(source_tokenizer, TokenizerChoice):
        source_tokenizer = source_tokenizer.make(sides["train"][0], progress)
    source_tokenizer = source_tokenizer or tokenizer
    targets, sources = (
        {
            name: encode_corpus(corpora[side], one, folder / f"{name}.{side}.ids", progress)
            for name, corpora in sides.items()
        }
        for side, one in ((1, tokenizer), (0, source_tokenizer))
    )
    return tokenizer, targets, Sources(source_tokenizer, sources["train"], sources.get("valid"))


def _sides(lines: Corpus, folder: Path, name: str, template: str | None = None) -> list[Corpus]:
    """Write the sources and the targets of a corpus of pairs to files of `folder`, and return both."""
    paths = [folder / f"{name}.{side}.txt" for side in ("source", "target")]
    with naming(folder), paths[0].open("wb") as sources, paths[1].open("wb") as targets:
        for source, target in sides_of(lines):
            if template is not None:
                prompt, reply = source.decode(), target.decode()
                source, target = prompted(template, prompt).encode(), replied(template, prompt, reply).encode()
            sources.write(source + b"\n")
            targets.write(target + b"\n")
    return [Corpus(paths=(path,)) for path in paths]


def encode_annotated(
    parts: Mapping[str, Tagged | Labelled],
    tokenizer: Chosen,
    folder: Path,
    progress: Progress = SILENT,
    executor: Executor = EMBEDDED,
) -> tuple[Tokenizer, dict[str, Encoded], Any]:
    """Return the texts of each part without their tags or labels as ids, a line for each, and the parts."""
    for part in parts.values():
        if part.origin is not None:
            part.origin.note_losses(progress)
    texts = {name: Corpus.from_texts(part.without_annotation) for name, part in parts.items()}
    tokenizer, encoded, _ = encode_parts(texts, tokenizer, folder, progress, executor)
    encoded = {name: replace(one, fingerprint=parts[name].fingerprint) for name, one in encoded.items()}
    return tokenizer, encoded, Annotated(parts["train"], parts.get("valid"))


def encode_parts(
    parts: Mapping[str, Corpus],
    tokenizer: Chosen,
    folder: Path,
    progress: Progress = SILENT,
    executor: Executor = EMBEDDED,
) -> tuple[Tokenizer, dict[str, Encoded], None]:
    """Make the tokenizer, from `train` if it is a choice, and encode each part into a file; text has no sources."""
    encoded: dict[str, Encoded] = {}
    if isinstance(tokenizer, TokenizerChoice):
        ids, tokenizer = folder / "train.ids", tokenizer.sized_for(parts["train"])
        tokenizer, encoded["train"] = tokenizer.make_and_encode(parts["train"], ids, progress, executor)
    for name, corpus in parts.items():
        if name not in encoded:
            encoded[name] = encode_corpus(corpus, tokenizer, folder / f"{name}.ids", progress, executor)
    return tokenizer, encoded, None
