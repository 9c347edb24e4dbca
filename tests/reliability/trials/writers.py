"""What chainrule writes: for each, a function that writes a version of it, and one that says which is there."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import chainrule as cr
from chainrule.comparison import results as comparison
from chainrule.folder import ModelFolder, read_folder, write_folder
from chainrule.ngram.arpa.arpa_model import load_arpa, save_arpa
from chainrule.system.disk import replaced_path, sweep
from chainrule.system.progress import SILENT
from chainrule.tokens.char import CharTokenizer
from chainrule.tokens.ids import encode_corpus, learn_and_encode
from chainrule.tokens.registry import dump_tokenizer, load_tokenizer, train_tokenizer, write_tokenizer
from chainrule.tokens.vocabulary import Limit
from chainrule.training.checkpoints.checkpoint import Checkpoint, Checkpoints

SIZE = 20_000
"""Numbers in the arrays that are written."""


@dataclass(frozen=True)
class Writer:
    """A writer of one kind of file or folder."""

    name: str
    write: Callable[[Path, int], None]
    """Write version `number` at a place inside a folder."""
    version: Callable[[Path], int | None]
    """The version that is there, None if nothing is; an error if it is neither whole nor absent."""


def _model(number: int) -> ModelFolder:
    return ModelFolder(
        kind="ngram",
        config={"number": number},
        context="line",
        tokenizers={"text": dump_tokenizer(CharTokenizer("abc"))},
        tensors={"array": np.full(SIZE, number, np.int64)},
    )


def _write_model(folder: Path, number: int) -> None:
    write_folder(folder / "m", _model(number), overwrite=True)


def _read_model(folder: Path) -> int | None:
    sweep(folder / "m")
    if not (folder / "m").exists():
        return None
    content = read_folder(folder / "m", verify=True)
    number: int = content.config["number"]
    assert (content.tensor("array") == number).all(), "arrays of one model, configuration of another"
    return number


def _write_checkpoint(folder: Path, number: int) -> None:
    state = {"number": number, "counts": {}}
    # each step is written twice: the second time its folder is replaced
    Checkpoints(folder, SILENT).write(number // 2, Checkpoint({"array": np.full(SIZE, number)}, state))


def _read_checkpoint(folder: Path) -> int | None:
    found = _newest(folder)
    return None if found is None else max(found)


def _newest(folder: Path) -> list[int] | None:
    from chainrule.training.checkpoints.checkpoint import _read
    from chainrule.training.checkpoints.run_folder import checkpoint_folders

    numbers = []
    for place in checkpoint_folders(folder):
        checkpoint = _read(place)
        number = checkpoint.state["number"]
        assert (checkpoint.arrays["array"] == number).all()
        numbers.append(number)
    return numbers or None


def _write_comparison(folder: Path, number: int) -> None:
    comparison.Comparison(comparison.FORMAT, "x" * SIZE, number, "line", {}, [], {}).write(folder)


def _read_comparison(folder: Path) -> int | None:
    path = folder / comparison.RESULTS
    return None if not path.exists() else int(json.loads(path.read_text())["vocab_size"])


def _write_tokenizer(folder: Path, number: int) -> None:
    write_tokenizer(CharTokenizer("".join(chr(0x100 + i) for i in range(number % 5000 + 1))), folder / "t")


def _read_tokenizer(folder: Path) -> int | None:
    return None if not (folder / "t" / "tokenizer.json").exists() else load_tokenizer(folder / "t").vocab_size - 4


def _write_ids(folder: Path, number: int) -> None:
    with replaced_path(folder / "ids") as path:
        encode_corpus(_text(), train_tokenizer("byte", _text()), path)
        with path.open("ab") as file:
            file.write(number.to_bytes(8, "little"))


def _write_words(folder: Path, number: int) -> None:
    """Ids of words, which are first numbers and then rewritten in place."""
    with replaced_path(folder / "ids") as path:
        learn_and_encode(_text(), Limit(), "whitespace", path)
        with path.open("ab") as file:
            file.write(number.to_bytes(8, "little"))


def _read_words(folder: Path) -> int | None:
    path = folder / "ids"
    if not path.exists():
        return None
    content = path.read_bytes()
    assert len(content) == 2 * 5 * SIZE // 20 + 8, f"{len(content)} bytes"
    assert max(np.frombuffer(content[:-8], np.uint16)) == 6
    return int.from_bytes(content[-8:], "little")


def _read_ids(folder: Path) -> int | None:
    path = folder / "ids"
    if not path.exists():
        return None
    content = path.read_bytes()
    assert len(content) == 2 * 20 * SIZE // 20 + 8, f"{len(content)} bytes"
    return int.from_bytes(content[-8:], "little")


@cache
def _text() -> cr.Corpus:
    return cr.Corpus.from_text("some words to write\n" * (SIZE // 20))


@cache
def _ngrams() -> Any:
    return cr.train("ngram", cr.Corpus.from_text("a b c\nb c a\n" * 50), order=2, tokenizer="word")


def _write_arpa(folder: Path, number: int) -> None:
    """Two versions of different sizes, told apart by their order."""
    lm = _ngrams() if number % 2 == 0 else _unigrams()
    save_arpa(lm, folder / "m.arpa.gz", overwrite=True)


@cache
def _unigrams() -> Any:
    return cr.train("ngram", cr.Corpus.from_text("a b c\nb c a\n" * 50), order=1, tokenizer="word")


def _read_arpa(folder: Path) -> int | None:
    path = folder / "m.arpa.gz"
    return None if not path.exists() else 2 - load_arpa(path).settings.order


WRITERS = [
    Writer("model", _write_model, _read_model),
    Writer("checkpoint", _write_checkpoint, _read_checkpoint),
    Writer("comparison", _write_comparison, _read_comparison),
    Writer("tokenizer", _write_tokenizer, _read_tokenizer),
    Writer("ids of bytes", _write_ids, _read_ids),
    Writer("ids of words", _write_words, _read_words),
    Writer("arpa", _write_arpa, _read_arpa),
]
