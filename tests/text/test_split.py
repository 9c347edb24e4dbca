"""A split is a partition by document: nothing lost, nothing twice, nothing in two parts."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chainrule.errors import CorpusError
from chainrule.text.corpus import Corpus
from chainrule.text.split import split

examples = settings(max_examples=50, deadline=None, derandomize=True)

SHARES = {"train": 0.9, "valid": 0.05, "test": 0.05}


def parts(corpus: Corpus, shares: dict[str, float], seed: int = 0) -> dict[str, bytes]:
    """The text of each part."""
    with tempfile.TemporaryDirectory() as folder:
        made = split(corpus, shares, Path(folder), seed=seed)
        assert {name: part.paths for name, part in made.items()} == {n: (Path(folder, f"{n}.txt"),) for n in shares}
        return {name: b"".join(part.blocks()) for name, part in made.items()}


def paragraphs(text: bytes) -> Counter[bytes]:
    return Counter(paragraph for paragraph in text.split(b"\n\n") if paragraph)


def numbered(count: int, width: int = 10) -> str:
    """Distinct lines of so many bytes."""
    return "".join(f"{i:0{width - 1}d}\n" for i in range(count))


# -- a partition ------------------------------------------------------------------------------------------

paragraph = st.lists(st.sampled_from(["cats", "dogs", "i love", "naïve"]), min_size=1, max_size=3).map("\n".join)


@given(
    documents=st.lists(paragraph, min_size=3, max_size=40).filter(lambda d: len(set(d)) >= 3),
    seed=st.integers(0, 9),
)
@example(documents=["cats", "dogs", "i love"], seed=0)
@examples
def test_parts_hold_every_document_once_and_copies_together(documents: list[str], seed: int) -> None:
    corpus = Corpus.from_text("".join(document + "\n\n" for document in documents))
    texts = parts(corpus, {"train": 0.8, "valid": 0.1, "test": 0.1}, seed)
    held = {name: paragraphs(text) for name, text in texts.items()}
    assert held["train"] + held["valid"] + held["test"] == Counter(document.encode() for document in documents)
    assert not held["train"].keys() & held["valid"].keys()
    assert not held["train"].keys() & held["test"].keys()
    assert not held["valid"].keys() & held["test"].keys()
    assert all(held.values())  # three documents are enough for three parts


def test_copies_with_other_white_space_around_them_stay_together() -> None:
    """The last copy lacks its blank line; the words are the same."""
    copies = "the same\n\n\nother {0}\n\nthe same\n\nthe same"
    for seed in range(20):
        texts = parts(Corpus.from_text(copies.format(seed)), {"train": 0.5, "valid": 0.5}, seed)
        assert sorted(text.count(b"the same") for text in texts.values()) == [0, 3]


def test_a_document_without_final_newline_does_not_join_the_next(tmp_path: Path) -> None:
    for name in "abcd":
        (tmp_path / f"{name}.txt").write_text(f"only line of {name}")
    texts = parts(Corpus.open(f"{tmp_path}/*.txt"), {"train": 0.75, "valid": 0.25})
    held = Counter(line for text in texts.values() for line in text.splitlines())
    assert held == Counter(b"only line of %c" % name for name in b"abcd")


def test_lines_are_the_documents_where_no_line_is_blank() -> None:
    texts = parts(Corpus.from_text(numbered(1000)), {"train": 0.9, "valid": 0.1})
    lines = texts["train"].splitlines() + texts["valid"].splitlines()
    assert sorted(lines) == numbered(1000).encode().splitlines()


def test_records_of_jsonl_are_the_documents(tmp_path: Path) -> None:
    """Records of two lines: neither line goes anywhere without the other."""
    (tmp_path / "a.jsonl").write_text("".join(f'{{"text": "first {i}\\nsecond {i}"}}\n' for i in range(50)))
    texts = parts(Corpus.open(tmp_path / "a.jsonl"), {"train": 0.5, "valid": 0.5})
    for text in texts.values():
        numbers = [line.split()[1] for line in text.splitlines()]
        assert numbers[::2] == numbers[1::2]
    assert sum(text.count(b"\n") for text in texts.values()) == 100


# -- the same everywhere ----------------------------------------------------------------------------------


@pytest.mark.parametrize("lines_per_file", [20, 15_000])
def test_the_order_of_files_changes_nothing(lines_per_file: int, tmp_path: Path) -> None:
    """Small (exact shares) and large (3 x 15,000 x 100 bytes = 4.5 MB: by draw alone)."""
    for place, name in enumerate("abc"):
        lines = numbered(3 * lines_per_file, 100).splitlines(keepends=True)[place::3]
        (tmp_path / f"{name}.txt").write_text("".join(lines))
    forward = parts(Corpus.open(*(tmp_path / f"{name}.txt" for name in "abc")), SHARES)
    backward = parts(Corpus.open(*(tmp_path / f"{name}.txt" for name in "cba")), SHARES)
    for name in SHARES:
        assert sorted(forward[name].splitlines()) == sorted(backward[name].splitlines())


def test_the_same_seed_splits_the_same_and_another_differs() -> None:
    corpus = Corpus.from_text(numbered(200))
    assert parts(corpus, SHARES, seed=3) == parts(corpus, SHARES, seed=3)
    assert parts(corpus, SHARES, seed=3)["valid"] != parts(corpus, SHARES, seed=4)["valid"]


def test_the_split_is_the_same_on_every_machine() -> None:
    """By seed 0 the letters are drawn in the order c a e b d f; a third of them is c and a."""
    texts = parts(Corpus.from_text("a\nb\nc\nd\ne\nf\n"), {"train": 2 / 3, "valid": 1 / 3})
    assert texts == {"train": b"b\nd\ne\nf\n", "valid": b"a\nc\n"}


# -- shares -----------------------------------------------------------------------------------------------


def test_small_corpora_get_the_exact_shares() -> None:
    """1,000 lines of ten bytes: 5 % of 10,000 bytes are 50 lines."""
    texts = parts(Corpus.from_text(numbered(1000)), SHARES)
    assert {name: text.count(b"\n") for name, text in texts.items()} == {"train": 900, "valid": 50, "test": 50}


def test_large_corpora_get_about_their_shares() -> None:
    texts = parts(Corpus.from_text(numbered(50_000, 100)), SHARES)
    total = sum(map(len, texts.values()))
    assert total == 5_000_000
    for name, share in SHARES.items():
        assert len(texts[name]) / total == pytest.approx(share, abs=0.015)


def test_shares_are_of_bytes_not_of_documents() -> None:
    """100 lines of 10 bytes and 100 of 100: half of the bytes may be any number of lines."""
    text = "".join(f"{i:09d}\n" + f"{i:099d}\n" for i in range(100))
    texts = parts(Corpus.from_text(text), {"train": 0.5, "valid": 0.5})
    assert len(texts["valid"]) == pytest.approx(len(text) / 2, abs=100)


def test_every_part_gets_a_document_however_small_its_share() -> None:
    """3 lines: 5 % of 6 bytes is less than half a line, and still there are three parts of one line."""
    texts = parts(Corpus.from_text("a\nb\nc\n"), SHARES)
    assert sorted(texts.values()) == [b"a\n", b"b\n", b"c\n"]


@pytest.mark.parametrize("seed", range(3))
def test_every_part_gets_a_document_also_of_few_large_ones(seed: int, tmp_path: Path) -> None:
    """Eight books of 100 kB are more than enough documents for three parts."""
    for book in "abcdefgh":
        (tmp_path / f"{book}.txt").write_text(f"title {book}\n\n" + f"line of {book}\n" * 9_000)
    texts = parts(Corpus.open(f"{tmp_path}/*.txt"), {"train": 0.8, "valid": 0.1, "test": 0.1}, seed)
    assert all(texts.values())


def test_an_empty_text_is_said_to_be_empty() -> None:
    with pytest.raises(CorpusError, match=r"^the text is empty$"):
        parts(Corpus.from_text(""), SHARES)


@pytest.mark.parametrize("text", ["one line\n", "the same\n" * 50, "two\nlines\n"])
def test_too_few_documents_is_an_error_that_says_what_to_do(text: str) -> None:
    with pytest.raises(CorpusError, match=r"too few documents.*blank line.*add text, or name the parts"):
        parts(Corpus.from_text(text), SHARES)


@pytest.mark.parametrize("shares", [{"train": 0.9}, {"train": 0.9, "valid": 0.2}, {"train": 1.0, "valid": 0.0}])
def test_shares_must_be_positive_and_sum_to_one(shares: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="shares must be positive and sum to one"):
        parts(Corpus.from_text(numbered(10)), shares)
