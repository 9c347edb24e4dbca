"""Pairs: sources, each with its target, such as sentences and their translations.

    Pairs.open(source, target)           two files with as many lines
    Pairs.open(file, fields=("en", "de"))   one file of records (.jsonl, .csv, .tsv, .parquet) with two fields
    Pairs.of([("a cat", "eine Katze")])  pairs in memory

A pair is one line of a corpus, SOURCE TAB TARGET, so that pairs are split like any lines.

>>> pairs = Pairs.of([("a cat", "eine Katze"), ("a dog", "ein Hund")])
>>> [target for source, target in pairs]
['eine Katze', 'ein Hund']
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TypeAlias

from chainrule.errors import CorpusError
from chainrule.system.disk import naming, scratch_file
from chainrule.system.progress import SILENT, Progress
from chainrule.text.corpus import Corpus
from chainrule.text.files import EncodingErrors, form_of, lines_in
from chainrule.text.hub import is_dataset
from chainrule.text.records import Fields
from chainrule.text.split import split

TAB = b"\t"
GivenPairs: TypeAlias = "Pairs | Iterable[tuple[str, str]]"
"""Pairs as callers give them."""

_SIDES = ("source", "target")


@dataclass(frozen=True)
class Pairs:
    """Sources and targets, a pair on each line."""

    lines: Corpus
    """A line for each pair: the source, a tab, and the target."""
    origin: tuple[Corpus, ...] = ()
    """The corpora that they were read from; none if they were in memory."""

    @classmethod
    def open(
        cls, *files: str | Path, fields: Sequence[str] = (), encoding_errors: EncodingErrors = "strict"
    ) -> Pairs:
        """Return the pairs of two files with a line for each, or of one file of records with two fields."""
        if len(files) == 1 and (is_dataset(files[0]) or form_of(Path(files[0])) != "text"):
            if len(fields) != len(_SIDES):
                raise CorpusError(
                    f"{files[0]}: name the fields of the source and of the target (--field en --field de), "
                    f"not {len(fields)} of them"
                )
            named = [(files[0], Fields((name,))) for name in fields]
        elif len(files) == len(_SIDES):
            named = [(file, Fields()) for file in files]
        else:
            raise CorpusError(
                f"pairs are two files, the sources and their targets, or one file of records with two fields; "
                f"{len(files)} given"
            )
        return cls.joined([Corpus.open(one, encoding_errors=encoding_errors, fields=of) for one, of in named])

    @classmethod
    def joined(cls, origin: Sequence[Corpus]) -> Pairs:
        """Return the pairs of two corpora, line by line."""
        spool = scratch_file(".txt")
        try:
            with naming(spool.name):
                for pair in _paired(*origin):
                    spool.write(TAB.join(pair) + b"\n")
                spool.flush()
        except BaseException:
            spool.close()
            raise
        lines = Corpus(paths=(Path(spool.name),), _spools={" and ".join(one.name for one in origin): spool})
        return cls(lines, tuple(origin))

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, str]]) -> Pairs:
        """Return pairs in memory as a corpus of pairs."""
        made = []
        for number, pair in enumerate(pairs):
            if not isinstance(pair, (tuple, list)) or [type(side) for side in pair] != [str, str]:
                raise CorpusError(f"pair {number}: expected (source, target), two texts, found {pair!r:.60}")
            sides = [_clean(side.encode()) for side in pair]
            _check_sides(sides, f"pair {number}")
            made.append(TAB.join(sides).decode())
        if not made:
            raise CorpusError("there are no pairs")
        return cls(Corpus.from_texts(made))

    def split(
        self, shares: Mapping[str, float], folder: Path, *, seed: int = 0, progress: Progress = SILENT
    ) -> dict[str, Pairs]:
        """Return the pairs in parts of these shares, as `text.split.split` makes them of lines."""
        parts = split(self.lines, shares, folder, seed=seed, progress=progress)
        return {name: Pairs(lines) for name, lines in parts.items()}

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for source, target in sides_of(self.lines):
            yield source.decode(), target.decode()


def as_pairs(given: GivenPairs) -> Pairs:
    """Return given pairs as `Pairs`."""
    if isinstance(given, Pairs):
        return given
    if isinstance(given, (str, Path, Corpus)):
        raise CorpusError(
            "expected pairs, a list of (source, target); Pairs.open(source, target) reads them from files"
        )
    return Pairs.of(given)


def sides_of(lines: Corpus) -> Iterator[tuple[bytes, bytes]]:
    """Yield the source and the target of each line of a corpus of pairs."""
    for line in lines_in(lines.blocks()):
        source, _, target = line.partition(TAB)
        yield source, target


def _paired(sources: Corpus, targets: Corpus) -> Iterator[list[bytes]]:
    """Yield the sides of each pair; corpora of different lengths and empty sides are errors."""
    number = 0
    for number, numbered in enumerate(zip_longest(_numbered(sources), _numbered(targets)), 1):
        _check_records(sources, targets, numbered)
        pair = [None if one is None else one[1] for one in numbered]
        if None in pair:
            longer = targets if pair[0] is None else sources
            total = sum(1 for _ in _numbered(longer))
            extra = next(side for side in pair if side is not None).decode()
            raise CorpusError(
                f"{sources.name} has {total if longer is sources else number - 1:,} lines and {targets.name} has "
                f"{total if longer is targets else number - 1:,}; the first line without a partner is line "
                f"{number:,} of {longer.name}: {extra[:60]!r}"
            )
        sides = [_clean(side) for side in pair if side is not None]
        if not any(sides):
            continue  # an empty line in both
        _check_sides(sides, f"{sources.name} and {targets.name}, line {number:,}")
        yield sides
    if not number:
        raise CorpusError(f"{sources.name}: empty: there are no pairs")


def _check_sides(sides: Sequence[bytes], place: str) -> None:
    for name, side in zip(_SIDES, sides, strict=True):
        if not side:
            raise CorpusError(f"{place}: the {name} is empty: remove the pair, or complete it")


def _check_records(sources: Corpus, targets: Corpus, numbered: Sequence[tuple[int, bytes] | None]) -> None:
    """Refuse a record that has only one of the two fields: those after it would be paired with the wrong ones."""
    numbers = [None if one is None else one[0] for one in numbered]
    if numbers[0] == numbers[1] or not (sources.has_records and targets.has_records):
        return
    first = min(number for number in numbers if number is not None)
    without = sources if numbers[0] != first else targets
    raise CorpusError(
        f"{without.name}: record {first:,} has no {without.fields.text[0]!r}: remove the record, or complete it"
    )


def example_lines(corpus: Corpus) -> Iterator[bytes]:
    """Yield the lines of text files, and the text of each record of others."""
    return (text for _, text in _numbered(corpus))


def _numbered(corpus: Corpus) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of text files, and the text of each record, each with its number in its file."""
    for path in corpus.paths:
        if form_of(path) == "text":
            yield from enumerate(lines_in(corpus.text_blocks(path)), 1)
        else:
            yield from ((record.number, record.text) for record in corpus.records(path))


def _clean(side: bytes) -> bytes:
    """Return a side as one line without tabs, which separate sides."""
    return b" ".join(side.split())
