"""Labelled texts: each text has one label, such as its language, its author or its genre.

    Labelled.open("train.jsonl")   records (.jsonl, .csv, .tsv, .parquet): the fields `text` and `label`
    Labelled.open("train.txt")     a line for each text: its label, a tab, and the text
    Labelled.of([("the cat", "en"), ("die Katze", "de")])   texts in memory

A text is one sequence: white space inside it, line ends included, becomes single spaces.

>>> given = Labelled.of([("the cat", "en"), ("die\\nKatze", "de")])
>>> [one.text for one in given], given.labels
(['the cat', 'die Katze'], ['de', 'en'])
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from chainrule.errors import CorpusError
from chainrule.system.progress import SILENT, Progress
from chainrule.text.corpus import Corpus
from chainrule.text.files import form_of, lines_in
from chainrule.text.given import Text, read_given
from chainrule.text.pairs import example_lines
from chainrule.text.records import Fields
from chainrule.text.split import check_parts, dealt

GivenLabelled: TypeAlias = "Labelled | Text | Iterable[tuple[str, str]]"
"""Labelled texts as callers give them."""

LABEL = "label"
"""The field of a record that is its label, if no other is named."""


class LabelledText(NamedTuple):
    """A text, and its label."""

    text: str
    label: str


@dataclass(frozen=True)
class Labelled:
    """Labelled texts."""

    texts: tuple[LabelledText, ...]
    origin: Corpus | None = None
    """The corpus that they were read from; None if they were in memory."""

    @classmethod
    def open(
        cls, *files: str | Path, field: str = "text", label_field: str = LABEL, encoding_errors: str = "strict"
    ) -> Labelled:
        """Return the texts of files: of records by the names of two fields, or of lines of LABEL TAB TEXT."""
        fields = Fields.parse([field], label_field)
        return cls.read(Corpus.open(*files, encoding_errors=encoding_errors, fields=fields))  # type: ignore[arg-type]

    @classmethod
    def read(cls, corpus: Corpus) -> Labelled:
        """Return the labelled texts of a corpus; the label of a record is the field that identifies it."""
        if corpus.fields.id is None:
            corpus = replace(corpus, fields=replace(corpus.fields, id=LABEL))
        # in memory: texts that people have labelled are never many
        texts = tuple(_read(corpus))
        if not texts:
            raise CorpusError(f"{corpus.name}: empty: there are no labelled texts")
        return cls(texts, corpus)

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, str]]) -> Labelled:
        """Return texts in memory, each with its label, as a corpus of labelled texts."""
        made = []
        for number, pair in enumerate(pairs):
            if not isinstance(pair, (tuple, list)) or [type(one) for one in pair] != [str, str]:
                raise CorpusError(f"item {number}: expected (text, label), two texts, found {pair!r:.60}")
            made.append(_checked(*pair, f"item {number}"))
        if not made:
            raise CorpusError("there are no labelled texts")
        return cls(tuple(made))

    def split(
        self, shares: Mapping[str, float], folder: Path, *, seed: int = 0, progress: Progress = SILENT
    ) -> dict[str, Labelled]:
        """Return the texts in parts of these shares, as lines are split; equal ones are in the same part.

        The first part has every label: it gets all texts of a label that it would lack.
        """
        if self.origin is not None:
            self.origin.note_losses(progress)
        lines, first = self.lines, next(iter(shares))
        part_of = dealt(lines.texts, shares, seed, lines.name)
        dealt_to = [part_of(line) for line in lines.texts]
        there = {one.label for one, name in zip(self.texts, dealt_to, strict=True) if name == first}
        parts = {name: list[LabelledText]() for name in shares}
        for one, name in zip(self.texts, dealt_to, strict=True):
            parts[name if one.label in there else first].append(one)
        check_parts({name: len(some) for name, some in parts.items()}, lines.name)
        return {name: Labelled(tuple(some)) for name, some in parts.items()}

    def __iter__(self) -> Iterator[LabelledText]:
        return iter(self.texts)

    @cached_property
    def labels(self) -> list[str]:
        """The labels that occur, in the order of the alphabet."""
        return sorted({one.label for one in self.texts})

    @property
    def lines(self) -> Corpus:
        """A line for each text, LABEL TAB TEXT, by which they are split, and which a comparison shows."""
        return Corpus.from_texts([f"{one.label}\t{one.text}" for one in self.texts])

    @property
    def without_annotation(self) -> list[str]:
        """Each text without its label."""
        return [one.text for one in self.texts]

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 of the lines: the text is another one if its labels are others."""
        return hashlib.sha256("".join(f"{one.label}\t{one.text}\n" for one in self.texts).encode()).hexdigest()


def as_labelled(given: Any) -> Labelled:
    """Return given labelled texts as `Labelled`."""
    return given if isinstance(given, Labelled) else read_given(given, Labelled.read, Labelled.of)


def one_line(text: str) -> str:
    """Return a text with single spaces for its white space: a text is one sequence."""
    return " ".join(text.split())


def single_texts(corpus: Corpus) -> Iterator[str]:
    """Yield the texts to classify: lines of text files, and the text of each record; empty ones are left out."""
    for text in lines_in(corpus.texts):
        yield one_line(text.decode())
    yield from filter(None, (one_line(text.decode()) for text in example_lines(corpus)))


def _read(corpus: Corpus) -> Iterator[LabelledText]:
    corpus.cleaning.begin()
    if corpus.texts:
        yield from _of_lines("the text", lines_in(corpus.texts))
    for path in corpus.paths:
        name = corpus.name_of(path)
        if form_of(path) == "text":
            yield from _of_lines(name, lines_in(corpus.text_blocks(path)))
            continue
        unlabelled = None
        for record in corpus.records(path):
            place = f"{name}, record {record.number:,}"
            if not isinstance(record.label, str):  # the number of a record without one
                unlabelled = unlabelled or place  # that no record at all has the field is said by another error
            elif record.text.strip():
                yield _checked(record.text.decode(), record.label, place)
            else:
                corpus.cleaning.skipped += 1
        if unlabelled is not None:
            raise CorpusError(f'{unlabelled}: it has no label: the field "{corpus.fields.id}" is empty')


def _of_lines(name: str, lines: Iterable[bytes]) -> Iterator[LabelledText]:
    """Yield the texts of lines of LABEL TAB TEXT; empty lines are left out."""
    for number, line in enumerate(lines, 1):
        label, tab, text = line.decode().partition("\t")
        place = f"{name}, line {number:,}"
        if tab:
            yield _checked(text, label, place)
        elif label.strip():
            raise CorpusError(f"{place}: expected a label, a tab and a text, found {label[:40]!r}")


def _checked(text: str, label: str, place: str) -> LabelledText:
    """Return a text and its label, each on one line; neither may be empty."""
    found = LabelledText(one_line(text), one_line(label))
    for name, value in found._asdict().items():
        if not value:
            raise CorpusError(f"{place}: the {name} is empty: remove the line, or complete it")
    return found
