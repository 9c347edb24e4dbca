"""A folder whose arrays say something impossible is refused: it must not hang, crash or give figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import chainrule as cr
from chainrule.errors import DamagedFileError
from chainrule.folder import read_folder, write_folder

Change = Callable[[np.ndarray], np.ndarray]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    cr.train("ngram", cr.Corpus.from_text("i love cats\ni love dogs\n"), order=3, smoothing="mle").save(
        tmp_path / "m"
    )
    return tmp_path / "m"


def set_to(place: int, value: float) -> Change:
    def change(array: np.ndarray) -> np.ndarray:
        array[place] = value
        return array

    return change


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("suffix", set_to(5, 5)),  # a circle: walking it would never end
        ("suffix", set_to(5, 4_000_000)),
        ("suffix", lambda a: a[:-1]),
        ("keys", lambda a: a[::-1]),
        ("keys", lambda a: a.astype(np.float64)),
        ("keys", lambda a: a[:0]),
        ("first_of_length", set_to(2, 1)),
        ("first_of_length", set_to(4, 999)),
        ("log_prob", lambda a: a[:-1]),
        ("log_prob", set_to(3, 0.5)),
        ("log_prob", set_to(3, np.nan)),
        ("log_backoff", set_to(1, np.nan)),
    ],
)
def test_arrays_that_make_no_model(model: Path, name: str, change: Change) -> None:
    content = read_folder(model)
    tensors = {key: np.array(array) for key, array in content.tensors.items()}
    tensors[name] = np.ascontiguousarray(change(tensors[name]))
    write_folder(model.parent / "bad", replace(content, tensors=tensors))
    with pytest.raises(DamagedFileError, match="not those of an n-gram model of order 3"):
        cr.load(model.parent / "bad")


def test_an_array_that_is_missing(model: Path) -> None:
    content = read_folder(model)
    tensors = {key: np.array(array) for key, array in content.tensors.items() if key != "keys"}
    write_folder(model.parent / "bad", replace(content, tensors=tensors))
    with pytest.raises(DamagedFileError, match="has no array 'keys'"):
        cr.load(model.parent / "bad")
