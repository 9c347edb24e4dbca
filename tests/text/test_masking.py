"""Masking: what varies from line to line becomes zeros, all else stays, and so does every place."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule.text.corpus import Corpus
from chainrule.text.masking import mask_variables


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("Nov 11 09:14:02 alpha", "000 00 00:00:00 alpha"),
        ("Nov  3 09:14:02 alpha", "000 00 00:00:00 alpha"),
        ("2024-11-03T10:00:00.123Z", "0000-00-00T00:00:00.000Z"),
        ("Tue, 5 Nov 2024", "000, 0 000 0000"),
        ("[11/Nov/2024:10:00:00 +0100]", "[00/000/0000:00:00:00 +0000]"),
        ("sshd[4711]: port 50122", "sshd[0000]: port 00000"),
        ("at 0x7ffe91ab", "at 0000000000"),
        ("id 550e8400-e29b-41d4-a716-446655440000", "id 00000000-0000-0000-0000-000000000000"),
        ("sha deadbeef99", "sha 0000000000"),
        ("de:ad:be:ef:00:01", "00:00:00:00:00:00"),
        ("10.0.0.7", "00.0.0.0"),
        ("May the force be added to the facade", "May the force be added to the facade"),
        ("abc123g", "abc000g"),
        ("naïve 漢字", "naïve 漢字"),
    ],
)
def test_what_varies_becomes_zeros(text: str, masked: str) -> None:
    assert mask_variables(text.encode()).decode() == masked


@given(st.text("abcdefx0123456789:-. Nov\n漢", max_size=60))
def test_places_stay_and_digits_go(text: str) -> None:
    masked = mask_variables(text.encode())
    assert len(masked) == len(text.encode())
    assert not set(masked) & set(b"123456789")
    assert [i for i, byte in enumerate(masked) if byte in b"\n"] == [
        i for i, b in enumerate(text.encode()) if b == 10
    ]
    assert mask_variables(masked) == masked


def test_a_corpus_of_files_is_masked_wherever_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("port 4711\n\nport 12\n")
    (tmp_path / "b.jsonl").write_text('{"text": "port 99", "number": 5}\n')
    corpus = Corpus.open(tmp_path / "a.log", tmp_path / "b.jsonl", mask=True)
    assert b"".join(corpus.blocks()) == b"port 0000\n\nport 00\nport 00\n"
    assert b"".join(corpus.documents()) == b"port 0000\n\nport 00\nport 00\n"
