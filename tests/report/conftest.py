"""A small comparison, made once: a ladder of n-grams and one network of the tape, on a text of a few lines."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.browsing import launched

import chainrule as cr
from chainrule.comparison.compare import compare
from chainrule.comparison.results import read_comparison
from chainrule.comparison.surprisals import record_surprisals

HELD_OUT = """\
The value of the expression is the value of its last part, and a name is bound to it.
A function is an object; a class is an object too, and so is a module.
If the name is not found, a NameError is raised.

The order of the arguments matters: <b>first</b> & "last" — naïve café.
"""


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    """A browser for all pages of this folder; while it runs, its process has an event loop."""
    with launched() as found:
        yield found


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison folder with its held-out text and the surprisals of all models."""
    folder = tmp_path_factory.mktemp("comparison")
    documents = [document.decode() for document in cr.Corpus.open("builtin:python").documents()]
    (folder / "corpus.txt").write_text("".join(documents[:12]), encoding="utf-8")
    (folder / "held.txt").write_text(HELD_OUT, encoding="utf-8")
    out = folder / "ladder"
    compare(
        folder / "corpus.txt",
        out,
        test=folder / "held.txt",
        kinds=["ngram", "elman"],
        tokenizer=cr.TokenizerChoice("bpe", vocab_size=400),
        budget="steps=2",
    )
    comparison = read_comparison(out)
    assert comparison is not None
    record_surprisals(out, comparison, folder / "held.txt")
    return out


@pytest.fixture
def ladder(made: Path, tmp_path: Path) -> Path:
    """A copy of that comparison, to change."""
    shutil.copytree(made, tmp_path / "ladder")
    return tmp_path / "ladder"


def edit(folder: Path, **changes: object) -> None:
    """Change values of compare.json."""
    values = json.loads((folder / "compare.json").read_text())
    (folder / "compare.json").write_text(json.dumps(values | changes))
