"""Tagged sentences: words, each with its tag, such as its part of speech.

    Tagged.open("train.conllu")   CoNLL-U: a word on each line, its tag in the column UPOS
    Tagged.open("train.txt")      a sentence on each line: the/DET cat/NOUN sat/VERB
    Tagged.of([[("the", "DET"), ("cat", "NOUN")]])   sentences in memory

A sentence is parsed once, where it is read, and stays a `Sentence` on its way to a network. White space inside a
word becomes _.

>>> tagged = Tagged.of([[("the", "DET"), ("cat", "NOUN")], [("New York", "PROPN")]])
>>> [sentence.words for sentence in tagged]
[('the', 'cat'), ('New_York',)]
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeAlias

from chainrule.errors import CorpusError
from chainrule.system.progress import SILENT, Progress
from chainrule.text.corpus import Corpus
from chainrule.text.files import form_of, lines_in
from chainrule.text.given import Text, read_given
from chainrule.text.split import check_parts, dealt

GivenTagged: TypeAlias = "Tagged | Text | Iterable[Sequence[tuple[str, str]]]"
"""Tagged sentences as callers give them."""

CONLLU = (".conllu", ".conll")
"""The endings of files in CoNLL-U."""

Form: TypeAlias = Literal["conllu", "slashes"]
NO_TAG = "_"
"""The value of an empty column of CoNLL-U."""

COLUMNS = ("ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC")
UPOS = COLUMNS.index("UPOS")


@dataclass(frozen=True)
class Sentence:
    """The words of a sentence, and the tag of each."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    """A tag for each word; `_` for a word without one."""
    lines: tuple[str, ...] = ()
    """The lines of CoNLL-U that it was read from, with comments."""

    @property
    def line(self) -> str:
        """The sentence as word/TAG word/TAG."""
        return " ".join(f"{word}/{tag}" for word, tag in zip(self.words, self.tags, strict=True))

    def retagged(self, tags: Sequence[str]) -> list[str]:
        """Return lines of CoNLL-U with these tags: those that it was read from, or new ones."""
        if not self.lines:
            nothing = "\t".join("_" * (len(COLUMNS) - UPOS - 1))
            rows = enumerate(zip(self.words, tags, strict=True), 1)
            return [f"{number}\t{word}\t_\t{tag}\t{nothing}" for number, (word, tag) in rows]
        left, found = iter(tags), []
        for line in self.lines:
            columns = line.split("\t")
            if columns[0].isdecimal():
                columns[UPOS] = next(left)
            found.append("\t".join(columns))
        return found


@dataclass(frozen=True)
class Tagged:
    """Tagged sentences."""

    sentences: tuple[Sentence, ...]
    origin: Corpus | None = None
    """The corpus that they were read from; None if they were in memory."""

    @classmethod
    def open(cls, *files: str | Path, encoding_errors: str = "strict") -> Tagged:
        """Return the sentences of files of CoNLL-U, or of lines of word/TAG."""
        return cls.read(Corpus.open(*files, encoding_errors=encoding_errors))  # type: ignore[arg-type]

    @classmethod
    def read(cls, corpus: Corpus) -> Tagged:
        """Return the sentences of a corpus, of either form."""
        # in memory: sentences that people have tagged are never many
        sentences = tuple(read_sentences(corpus, with_tags=True))
        if not sentences:
            raise CorpusError(f"{corpus.name}: empty: there are no sentences")
        return cls(sentences, corpus)

    @classmethod
    def of(cls, sentences: Iterable[Sequence[tuple[str, str]]]) -> Tagged:
        """Return sentences in memory, each a list of words with their tags, as a corpus of tagged sentences."""
        made = []
        for number, sentence in enumerate(sentences):
            pairs = [_pair(pair, f"sentence {number}, word {place}") for place, pair in enumerate(sentence)]
            if not pairs:
                raise CorpusError(f"sentence {number} is empty")
            made.append(Sentence(*zip(*pairs, strict=True)))
        if not made:
            raise CorpusError("there are no sentences")
        return cls(tuple(made))

    def split(
        self, shares: Mapping[str, float], folder: Path, *, seed: int = 0, progress: Progress = SILENT
    ) -> dict[str, Tagged]:
        """Return the sentences in parts of these shares, as lines are split; equal ones are in the same part."""
        lines, parts = self.lines, {name: list[Sentence]() for name in shares}
        part_of = dealt(lines.texts, shares, seed, lines.name)
        for sentence, line in zip(self.sentences, lines.texts, strict=True):
            parts[part_of(line)].append(sentence)
        check_parts({name: len(some) for name, some in parts.items()}, lines.name)
        return {name: Tagged(tuple(some)) for name, some in parts.items()}

    def __iter__(self) -> Iterator[Sentence]:
        return iter(self.sentences)

    @property
    def lines(self) -> Corpus:
        """A line for each sentence, word/TAG word/TAG, by which they are split, and which a comparison shows."""
        return Corpus.from_texts([sentence.line for sentence in self.sentences])

    @property
    def without_annotation(self) -> list[str]:
        """The words of each sentence."""
        return [" ".join(one.words) for one in self.sentences]

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 of the lines: the text is another one if its tags are others."""
        return hashlib.sha256("".join(f"{one.line}\n" for one in self.sentences).encode()).hexdigest()


def as_tagged(given: Any) -> Tagged:
    """Return given tagged sentences as `Tagged`."""
    return given if isinstance(given, Tagged) else read_given(given, Tagged.read, Tagged.of)


def one_word(text: str) -> str:
    """Return a word with _ for white space, which separates words."""
    return "_".join(text.split())


# -- reading ----------------------------------------------------------------------------------------------


def read_sentences(corpus: Corpus, *, with_tags: bool, form: Form | None = None) -> Iterator[Sentence]:
    """Yield the sentences of a corpus; with `with_tags`, a word of CoNLL-U without a tag is an error.

    Without `form`, the form of each file is recognised.
    """
    for name, lines in _files(corpus):
        is_conllu, lines = _recognised(name, lines)
        if form == "conllu" or (form is None and is_conllu):
            yield from _conllu(name, lines, with_tags)
        else:
            yield from _slashed(name, lines)


def _files(corpus: Corpus) -> Iterator[tuple[str, Iterator[str]]]:
    """Yield the name and the lines of each file, or of the texts in memory."""
    if corpus.texts:
        yield "the text", (line.decode() for line in lines_in(corpus.texts))
    for path in corpus.paths:
        if form_of(path) != "text":
            raise CorpusError(f"{path}: tagged sentences are CoNLL-U, or lines of word/TAG, not records")
        yield corpus.name_of(path), (line.decode() for line in lines_in(corpus.text_blocks(path)))


def _recognised(name: str, lines: Iterator[str]) -> tuple[bool, Iterator[str]]:
    """Return True for lines of CoNLL-U, known by the name or the first line of a word; and the lines again."""
    seen = []
    for line in lines:
        seen.append(line)
        if line.strip() and not line.startswith("#"):
            break
    ending = name.lower().removesuffix(".gz").removesuffix(".zst")
    is_conllu = ending.endswith(CONLLU) or (bool(seen) and "\t" in seen[-1])
    return is_conllu, chain(seen, lines)


def _conllu(name: str, lines: Iterator[str], with_tags: bool) -> Iterator[Sentence]:
    """Yield the sentences of CoNLL-U, which end at empty lines.

    Words that are written together (ids such as 3-4) are tagged one by one; words that are not written (8.1) are
    left out.
    """
    kept: list[str] = []
    pairs: list[tuple[str, str]] = []
    for number, line in enumerate(chain(lines, [""]), 1):
        if line.strip():
            kept.append(line)
            if not line.startswith("#") and (pair := _word(name, number, line, len(pairs) + 1, with_tags)):
                pairs.append(pair)
            continue
        if pairs:
            words, tags = zip(*pairs, strict=True)
            yield Sentence(words, tags, tuple(kept))
        elif any(not one.startswith("#") for one in kept):
            raise CorpusError(f"{name}, line {number - 1:,}, column 1: a sentence without words")
        kept, pairs = [], []


def _word(name: str, number: int, line: str, expected: int, with_tags: bool) -> tuple[str, str] | None:
    """Return the word and the tag of a line; None if the line is not a word of the sentence."""

    def wrong(column: int, message: str) -> CorpusError:
        return CorpusError(f"{name}, line {number:,}, column {column}: {message}")

    columns = line.split("\t")
    if len(columns) != len(COLUMNS):
        raise wrong(
            len(columns), f"CoNLL-U has {len(COLUMNS)} columns, separated by tabs, and this line has {len(columns)}"
        )
    identity, form, tag = columns[0], columns[1], columns[UPOS]
    parts = identity.replace("-", ".").split(".")
    if not all(part.isdecimal() for part in parts) or len(parts) > 2:
        raise wrong(1, f"expected the number of a word, such as {expected}, found {identity[:20]!r}")
    if len(parts) > 1:
        return None
    if int(identity) != expected:
        raise wrong(1, f"expected word {expected} of the sentence, found {identity}: is an empty line missing?")
    if not form.strip():
        raise wrong(2, "the word is empty")
    if with_tags:
        _check_tag(tag, f"{name}, line {number:,}, column {UPOS + 1}")
    return one_word(form), tag


def _slashed(name: str, lines: Iterator[str]) -> Iterator[Sentence]:
    """Yield the sentences of lines of word/TAG; empty lines are left out."""
    for number, line in enumerate(lines, 1):
        tokens = line.split()
        pairs = [token.rpartition("/") for token in tokens]
        for place, (token, (word, slash, tag)) in enumerate(zip(tokens, pairs, strict=True)):
            if not (word and slash and tag):
                column = sum(map(len, tokens[:place])) + place + 1
                raise CorpusError(
                    f"{name}, line {number:,}, column {column:,}: expected word/TAG, found {token[:40]!r}"
                )
        if tokens:
            words, _, tags = zip(*pairs, strict=True)
            yield Sentence(words, tags)


def _pair(pair: Any, place: str) -> tuple[str, str]:
    if not isinstance(pair, (tuple, list)) or [type(side) for side in pair] != [str, str]:
        raise CorpusError(f"{place}: expected (word, tag), two texts, found {pair!r:.60}")
    word, tag = pair
    if not word.strip():
        raise CorpusError(f"{place}: the word is empty")
    _check_tag(tag, place)
    return one_word(word), tag


def _check_tag(tag: str, place: str) -> None:
    if not tag or tag == NO_TAG:
        raise CorpusError(f"{place}: the word has no tag")
    if "/" in tag or tag.split() != [tag]:
        raise CorpusError(f"{place}: a tag has neither / nor white space in it: {tag[:40]!r}")
