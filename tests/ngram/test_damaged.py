"""A folder with impossible arrays is refused: it must not hang, crash or return numbers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chainrule as cr
from chainrule.errors import DamagedFileError
from chainrule.folder import ModelFolder, read_folder, write_folder
from chainrule.ngram.loading import load_ngram

Change = Callable[[np.ndarray], np.ndarray]

TEXT = "i love cats\ni love dogs\ncats chase mice\nmice love mice\n"


def saved(folder: Path, **settings: Any) -> Path:
    cr.train(
        "ngram", cr.Corpus.from_text(TEXT), order=3, smoothing="witten-bell", **settings, tokenizer="word"
    ).save(folder)
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("damaged") / "m")


@pytest.fixture(scope="module")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of few bits, and with an index."""
    return saved(tmp_path_factory.mktemp("damaged") / "m", bits=4, index="hash")


def changed(model: Path, name: str, change: Change) -> ModelFolder:
    content = read_folder(model)
    tensors = {key: np.array(array) for key, array in content.tensors.items()}
    tensors[name] = np.ascontiguousarray(change(tensors[name]))
    return replace(content, tensors=tensors)


def set_to(place: int, value: float) -> Change:
    def change(array: np.ndarray) -> np.ndarray:
        array[place] = value
        return array

    return change


def as_type(dtype: Any) -> Change:
    return lambda array: array.astype(dtype)


def shorter(array: np.ndarray) -> np.ndarray:
    return array[:-1]


def longer(array: np.ndarray) -> np.ndarray:
    return np.append(array, array[-1:])


REFUSED: list[tuple[str, Change]] = [
    ("first_of_length", set_to(0, 1)),
    ("first_of_length", set_to(2, 1)),
    ("first_of_length", set_to(3, 5)),
    ("first_of_length", set_to(4, 999)),
    ("first_of_length", set_to(4, -1)),
    ("first_of_length", as_type(np.int32)),
    ("first_of_length", shorter),
    ("first_of_length", longer),
    ("words", shorter),
    ("words", longer),
    ("words", lambda a: a[:0]),
    ("words", as_type(np.int32)),
    ("words", as_type(np.float32)),
    ("words", lambda a: ~a),  # codes beyond the vocabulary, unsorted
    ("words", lambda a: a * 0),  # the same word twice after a context
    ("base", shorter),
    ("base", as_type(np.int64)),
    ("base", set_to(0, 3)),
    ("base", set_to(0, 2**32 - 1)),
    ("offset", shorter),
    ("offset", set_to(0, 1)),
    ("offset", lambda a: a[::-1]),
    ("offset", lambda a: np.where(np.arange(len(a)) == 1, 0, a)),  # a group of no words
    ("rest", shorter),
    ("rest", as_type(np.uint64)),
    ("rest", lambda a: a[::-1]),
    ("rest", lambda a: ~a),
    ("log_prob", shorter),
    ("log_prob", longer),
    ("log_prob", as_type(np.float64)),
    ("log_prob", as_type(np.float16)),
    ("log_prob", set_to(3, 0.5)),
    ("log_prob", set_to(3, np.nan)),
    ("log_prob", set_to(3, np.inf)),
    ("log_backoff", shorter),
    ("log_backoff", set_to(1, np.nan)),
    ("log_backoff", set_to(1, np.inf)),
    ("log_backoff", as_type(np.float64)),
]


@pytest.mark.parametrize(("name", "change"), REFUSED)
def test_arrays_that_make_no_model(model: Path, name: str, change: Change) -> None:
    bad = changed(model, name, change)
    with pytest.raises(DamagedFileError, match="not those of an n-gram model of order 3"):
        load_ngram(bad)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("log_prob_codes", shorter),
        ("log_prob_codes", as_type(np.uint64)),
        ("log_prob_books", lambda a: a[:-1]),
        ("log_prob_books", lambda a: a[:, :-1]),
        ("log_prob_books", as_type(np.float64)),
        ("log_prob_books", lambda a: np.where(a > -0.1, 0.1, a + 5)),
        ("log_prob_books", lambda a: a * np.nan),
        ("log_backoff_books", lambda a: a * np.nan),
        ("log_backoff_codes", longer),
        ("index", shorter),
        ("index", longer),
        ("index", as_type(np.int64)),
    ],
)
def test_small_values_and_indexes_that_make_no_model(small_model: Path, name: str, change: Change) -> None:
    bad = changed(small_model, name, change)
    with pytest.raises(DamagedFileError, match="not those of an n-gram model of order 3"):
        load_ngram(bad)


def test_what_is_refused_is_refused_from_a_folder_too(model: Path, tmp_path: Path) -> None:
    write_folder(tmp_path / "bad", changed(model, "log_prob", shorter))
    with pytest.raises(DamagedFileError, match=r"bad: the arrays are not those"):
        cr.load(tmp_path / "bad")


@pytest.mark.parametrize("name", ["first_of_length", "words", "base", "offset", "rest", "log_prob", "log_backoff"])
@pytest.mark.parametrize("shape", ["a matrix", "a number", "missing"])
def test_arrays_of_other_shapes(model: Path, name: str, shape: str) -> None:
    content = read_folder(model)
    tensors = {key: np.array(array) for key, array in content.tensors.items()}
    if shape == "missing":
        del tensors[name]
    else:
        tensors[name] = tensors[name][None] if shape == "a matrix" else np.array(tensors[name][0])
    with pytest.raises(DamagedFileError):
        load_ngram(replace(content, tensors=tensors))


GARBAGE = """
import sys
import numpy as np
import chainrule as cr
from chainrule.system import parallel
from chainrule.ngram import loading

loading._CHECKED_UP_TO = 0
parallel.SLOW_NANOSECONDS = 0
for folder in sys.argv[1:]:
    lm = cr.load(folder)
    ids = np.random.default_rng(1).integers(0, lm.tokenizer.vocab_size, (40, 30))
    scores = lm.score(ids)
    assert scores.shape == ids.shape
print("survived", len(sys.argv) - 1)
"""


@pytest.mark.parametrize(
    "sizes",
    ["own", pytest.param("wide", marks=pytest.mark.slow)],  # kernels are compiled for other types
)
def test_garbage_in_a_model_too_large_to_check_leads_nowhere_else(sizes: str, tmp_path: Path) -> None:
    """Such models open at once. Their answers may be nonsense, but the kernels stay within the arrays."""
    folders = []
    chance = np.random.default_rng(0)

    def noise(array: np.ndarray) -> np.ndarray:
        return np.frombuffer(chance.bytes(array.nbytes), dtype=array.dtype).copy()

    def full(array: np.ndarray) -> np.ndarray:
        return np.full_like(array, np.iinfo(array.dtype).max)

    def wide(array: np.ndarray) -> np.ndarray:
        """Numbers of 64 bits, half of them negative to a kernel."""
        return noise(array.astype(np.uint64))

    for settings in ({}, {"bits": 3}, {"index": "hash"}):
        whole = saved(tmp_path / f"whole-{len(folders)}", **settings)
        for names in (["words"], ["rest"], ["base"], ["index"], ["words", "rest", "base", "index"]):
            for change in (noise, full) if sizes == "own" else (wide,):
                content = read_folder(whole)
                tensors = {key: np.array(array) for key, array in content.tensors.items()}
                if change is wide:
                    tensors["offset"] = tensors["offset"].astype(np.uint64)
                    tensors["base"] = tensors["base"].astype(np.uint64)
                for name in set(names) & set(tensors) - ({"words", "rest"} if change is wide else set()):
                    tensors[name] = change(tensors[name])
                folders.append(tmp_path / f"bad-{len(folders)}")
                write_folder(folders[-1], replace(content, tensors=tensors))
    # in a process of its own: a crash would take the tests with it
    command = [sys.executable, "-X", "faulthandler", "-c", GARBAGE, *map(str, folders)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.stdout == f"survived {len(folders)}\n", (done.returncode, done.stderr[-3000:])
