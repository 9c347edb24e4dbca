"""Large arrays under a memory cap lie in files without a name."""

from __future__ import annotations

import errno
import gc
import os
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, Mock

import numpy as np
import pytest
from naive import BOS, EOS, train_on
from test_automaton import SIZE, random_ids

from chainrule.errors import ChainruleError, SettingsError
from chainrule.ngram import train as training
from chainrule.ngram import workspace as workspaces
from chainrule.ngram.estimate import count as counting
from chainrule.ngram.estimate.count import count_by_sorting
from chainrule.ngram.workspace import LEAST, Workspace, default_memory, parse_size
from chainrule.system import parallel

IDS = random_ids(9, lines=100)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files go; every text is worth a kernel."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(parallel, "SLOW_NANOSECONDS", 0)
    return tmp_path


@pytest.mark.parametrize("smoothing", ["modified-kneser-ney", "katz", "jelinek-mercer", "witten-bell"])
def test_under_a_cap_the_model_is_the_same(folder: Path, smoothing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"order": 4, "smoothing": smoothing, "prune": "0,0,1"}
    roomy = train_on(IDS, SIZE, **settings)
    sizes = []
    allocate = os.posix_fallocate

    def watched(file: int, offset: int, size: int) -> None:
        assert list(folder.iterdir()) == []
        sizes.append(size)
        allocate(file, offset, size)

    monkeypatch.setattr(os, "posix_fallocate", watched)
    tight = train_on(IDS, SIZE, memory="1MB", **settings)
    assert len(sizes) > 10
    assert list(folder.iterdir()) == []
    np.testing.assert_array_equal(tight.automaton.log_prob.plain, roomy.automaton.log_prob.plain)
    np.testing.assert_array_equal(tight.automaton.log_backoff.plain, roomy.automaton.log_backoff.plain)
    np.testing.assert_array_equal(tight.automaton.trie.words, roomy.automaton.trie.words)


def test_a_cap_decides_whether_arrays_spill(folder: Path) -> None:
    from chainrule.ngram.settings import NgramSettings

    assert training._workspace(NgramSettings(memory="1MB"), 1000, "cpu").spills
    assert training._workspace(NgramSettings(memory="1MB"), 1000, "cpu").folder == folder
    assert not training._workspace(NgramSettings(memory="1GB"), 1000, "cpu").spills
    assert not training._workspace(NgramSettings(), 1000, "cpu").spills
    assert not training._workspace(NgramSettings(memory="1MB"), 1000, "cuda").spills  # a GPU has memory of its own


def test_counting_has_no_more_in_memory_than_the_cap_lets_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "_WINDOWS_PER_PART", 2)
    monkeypatch.setattr(workspaces, "LEAST", 64)
    sizes: list[int] = []
    fill = counting.Windows.windows

    def filled(*args: Any, **options: Any) -> Any:
        block = fill(*args, **options)
        sizes.append(block.windows.nbytes)
        return block

    put = Mock(side_effect=np.copy)
    monkeypatch.setattr(counting.Windows, "windows", filled)
    monkeypatch.setattr(Workspace, "put", put)
    largest, chunks = [], []
    for cap in (None, 4000):
        sizes.clear(), put.reset_mock()
        count_by_sorting(IDS, 4, SIZE, BOS, EOS, "line", Workspace(folder, cap=cap))
        largest.append(max(sizes))
        chunks.append(put.call_count)
    assert largest[0] > 4000
    assert largest[1] < 2000  # a quarter of 4000, and the rest of a part, which is counted as a whole
    assert chunks[1] > 2 * chunks[0]


def test_a_cap_below_what_counting_needs_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "private_memory", lambda: 100_000_000)

    def notes(memory: str) -> list[str]:
        told = MagicMock()
        train_on(IDS, SIZE, order=3, memory=memory, progress=told)
        return [call.args[0] for call in told.note.call_args_list if call.args[0].startswith("memory=")]

    floor = "the estimation needs about 125 MB, of which Python, the compiled loops and the vocabulary take 100 MB"
    assert notes("1MB") == [f"memory=1MB: {floor}"]
    assert notes("110MB") == [f"memory=110MB: {floor}"]
    assert notes("130MB") == notes("200GB") == []


def test_what_is_left_of_a_cap_is_for_counting(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from chainrule.ngram.settings import NgramSettings

    monkeypatch.setattr(training, "private_memory", lambda: 100_000_000)
    workspace = training._workspace(NgramSettings(memory="180MB"), 1000, "cpu")
    assert workspace.cap == 80_000_000
    assert workspace.limited(1 << 30) == 20_000_000
    beyond = training._workspace(NgramSettings(memory="20MB"), 1000, "cpu")
    assert (beyond.cap, beyond.limited(1 << 30)) == (0, LEAST)


def test_words_are_counted_in_stretches_of_the_cap(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = MagicMock(wraps=counting.Windows)
    monkeypatch.setattr(counting, "Windows", made)
    for cap, stretch in ((None, 1 << 21), (40_000_000, 1_250_000), (0, LEAST // 8)):
        counting.count_by_sorting(IDS, 3, SIZE, BOS, EOS, "line", Workspace(folder, cap=cap))
        assert made.call_args.args[-1] == stretch


@pytest.mark.parametrize("after", [0, 5])
def test_a_full_disk_is_one_clear_error(folder: Path, after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = 0
    allocate = os.posix_fallocate

    def full(file: int, offset: int, size: int) -> None:
        nonlocal taken
        taken += 1
        if taken > after:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        allocate(file, offset, size)

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(ChainruleError, match=rf"{folder}: no space left to spill .* MB to; free some, set TMPDIR"):
        train_on(IDS, SIZE, order=4, memory="1MB")
    assert list(folder.iterdir()) == []


def test_another_failure_is_not_called_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(file: int, offset: int, size: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "posix_fallocate", broken)
    with pytest.raises(OSError, match="Input/output error"):
        Workspace(tmp_path).empty(10, np.uint8)


def test_arrays_keep_what_was_written(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    array = workspace.empty((3, 4), np.uint16)
    array[...] = np.arange(12).reshape(3, 4)
    moved = workspace.put(np.arange(5000))
    workspace.release()
    workspace.release(array)
    np.testing.assert_array_equal(array.ravel(), np.arange(12))
    np.testing.assert_array_equal(moved, np.arange(5000))
    assert isinstance(moved, np.memmap)
    assert workspace.empty(0, np.uint8).shape == (0,)
    assert list(tmp_path.iterdir()) == []


def test_in_memory_nothing_is_moved() -> None:
    workspace = Workspace()
    array = np.arange(5)
    assert not workspace.spills
    assert workspace.put(array) is array
    workspace.release()


def test_files_are_closed_when_arrays_are_gone(tmp_path: Path) -> None:
    descriptors = Path("/proc/self/fd")
    if not descriptors.exists():
        pytest.skip("there is no /proc")
    gc.collect()
    before = len(list(descriptors.iterdir()))
    workspace = Workspace(tmp_path)
    for _ in range(50):
        workspace.empty(1000, np.uint8)
    gc.collect()
    assert len(list(descriptors.iterdir())) <= before + 1


@pytest.mark.parametrize(
    ("text", "size"),
    [("4GB", 4 * 10**9), ("512MB", 512 * 10**6), ("1e9", 10**9), (" 2 tb", 2 * 10**12), ("1.5kb", 1500), ("7", 7)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GB", "much", "-1GB", "0", "nan", "inf", "4XB", "1e400"])
def test_sizes_that_make_no_sense(text: str) -> None:
    with pytest.raises(SettingsError, match="memory should be a size such as 4GB or 512MB"):
        parse_size(text)


def test_the_default_is_half_of_the_machine() -> None:
    assert 10**8 < default_memory() < 10**15
