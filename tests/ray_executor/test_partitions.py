"""N-grams counted and smoothed by workers that share files: every array is that of the one process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chainrule.contract.data import TrainingData
from chainrule.contract.kinds import find_kind
from chainrule.errors import SettingsError
from chainrule.ngram.estimate import count, partitions
from chainrule.ngram.estimate.count import count_by_sorting
from chainrule.ngram.estimate.levels import Counts
from chainrule.ngram.settings import NgramSettings
from chainrule.ngram.train import train
from chainrule.ngram.workspace import Workspace
from chainrule.runs.train import check_executor
from chainrule.text.corpus import Corpus
from chainrule.tokens.ids import Encoded
from chainrule.tokens.registry import train_and_encode

from .conftest import Threads


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> TrainingData:
    """Python's language reference as words, a twentieth of it held out."""
    folder = tmp_path_factory.mktemp("data")
    tokenizer, encoded = train_and_encode("word", Corpus.open("builtin:python"), folder / "ids")
    cut = len(encoded.ids) // 20
    held_out = Encoded(encoded.ids[:cut], 0, 0, 0, "")
    return TrainingData(tokenizer, encoded, held_out)


def arrays_of(counts: Counts) -> list[np.ndarray]:
    fields = ("word", "count", "begin", "suffix")
    return [np.asarray(getattr(level, field)) for level in counts.levels for field in fields]


@pytest.mark.parametrize("context", ["line", "stream"])
@pytest.mark.parametrize(("partition_bytes", "stretch"), [(1 << 14, 1000), (1 << 16, 1 << 30), (1 << 30, 777)])
def test_counts_do_not_depend_on_partitions(
    data: TrainingData, threads: Threads, context: Any, partition_bytes: int, stretch: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    ids = np.asarray(data.train.ids[:20_000])
    what = (4, data.tokenizer.vocab_size, data.tokenizer.bos, data.tokenizer.eos, context)
    expected = count_by_sorting(ids, *what)
    monkeypatch.setattr(partitions, "PARTITION_BYTES", partition_bytes)
    monkeypatch.setattr(count, "_TOKENS_OF_A_STRETCH", stretch)
    found = count_by_sorting(ids, *what, Workspace(threads.folder, threads))
    for one, other in zip(arrays_of(found), arrays_of(expected), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "settings",
    [
        {"order": 5},
        {"order": 1},
        {"order": 2, "smoothing": "kneser-ney"},
        {"order": 3, "smoothing": "katz"},
        {"order": 3, "smoothing": "jelinek-mercer", "buckets": 3},
        {"order": 3, "smoothing": "stupid-backoff", "counts": True},
        {"order": 4, "prune": "0,0,1", "bits": 8},
    ],
    ids=str,
)
def test_models_are_the_same_bit_for_bit(
    data: TrainingData, threads: Threads, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chainrule.ngram.store.trie._GROUPS_AT_ONCE", 64)
    monkeypatch.setattr("chainrule.ngram.estimate.passes._COUNTED_AT_ONCE", 10_000)
    expected = train(NgramSettings(**settings), data)
    found = train(NgramSettings(**settings), replace(data, executor=threads))
    assert found.metrics == expected.metrics
    assert found.tensors().keys() == expected.tensors().keys()
    for name, array in expected.tensors().items():
        assert found.tensors()[name].tobytes() == array.tobytes(), name


def test_files_go_when_nobody_uses_them(data: TrainingData, threads: Threads, tmp_path: Path) -> None:
    lm = train(NgramSettings(order=3), replace(data, executor=threads))
    lm.save(tmp_path / "model")
    del lm
    assert list((tmp_path / "work").iterdir()) == []


def test_kinds_that_an_executor_does_nothing_for_are_refused() -> None:
    ngram, anygram = find_kind("ngram"), find_kind("anygram")
    check_executor(ngram, NgramSettings(), "ray", "cpu")
    check_executor(anygram, anygram.settings(), "embedded", "cuda")
    with pytest.raises(SettingsError, match="anygram is not trained by counting"):
        check_executor(anygram, anygram.settings(), "ray", "cpu")
    with pytest.raises(SettingsError, match="ngram is not trained by counting"):
        check_executor(ngram, NgramSettings(smoothing="infinite"), "ray", "cpu")
    with pytest.raises(SettingsError, match="the device cuda"):
        check_executor(ngram, NgramSettings(), "ray", "cuda")
