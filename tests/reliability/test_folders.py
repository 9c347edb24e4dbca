"""Model folders that were damaged, replaced, or half written when a process was killed."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import chainrule as cr
from chainrule.autodiff.tape_model import load_on_tape
from chainrule.comparison.results import Comparison
from chainrule.errors import DamagedFileError, FolderError, SettingsError, TokenizerError
from chainrule.folder import integrity, manifest, read_folder
from chainrule.system import disk
from chainrule.system.disk import atomic, locks, scratch
from chainrule.tokens.registry import load_tokenizer, train_tokenizer, write_tokenizer
from chainrule.training.checkpoints.run_folder import checkpoint_folders, remove_checkpoints
from manifests import read_manifest, write_manifest

TEXT = "i love cats\ni love dogs\ncats chase mice\n" * 4
SMALL: dict[str, dict[str, Any]] = {
    "ngram": {"order": 3},
    "anygram": {},
    "transformer": {"layers": 1, "width": 16, "heads": 2, "window": 16, "steps": 1},
    "lstm": {"hidden": 8, "embedding": 8, "layers": 1, "steps": 1},
    "feedforward": {"hidden": 8, "embedding": 8, "steps": 1},
    "bagofwords": {"hidden": 8, "embedding": 8, "steps": 1},
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    for kind, settings in SMALL.items():
        cr.train(kind, cr.Corpus.from_text(TEXT), **settings, tokenizer="word").save(folder / kind)
    return {kind: folder / kind for kind in SMALL}


def copied(folder: Path, to: Path) -> Path:
    shutil.copytree(folder, to)
    return to


# -- the manifest -----------------------------------------------------------------------------------------


def test_one_bit_in_a_manifest_is_found_wherever_it_is(saved: dict[str, Path], tmp_path: Path) -> None:
    """Of every byte one bit: one that decides a score, such as a digit of rotary_base, is as good as another."""
    folder = copied(saved["transformer"], tmp_path / "m")
    path = folder / "manifest.json"
    content = path.read_bytes()
    for place in range(0, len(content), 7):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        with pytest.raises(FolderError, match=r"manifest\.json"):
            cr.load(folder)
    path.write_bytes(content)
    cr.load(folder)


def test_another_setting_is_refused_by_inspect_too(saved: dict[str, Path], tmp_path: Path) -> None:
    folder = copied(saved["transformer"], tmp_path / "m")
    content = (folder / "manifest.json").read_text()
    assert '"rotary_base": 10000.0' in content
    (folder / "manifest.json").write_text(content.replace('"rotary_base": 10000.0', '"rotary_base": 90000.0'))
    with pytest.raises(DamagedFileError, match="checksum"):
        read_folder(folder, verify=True)


def test_a_tokenizer_alone_has_a_checksum_too(tmp_path: Path) -> None:
    write_tokenizer(train_tokenizer("char", cr.Corpus.from_text("abc\n")), tmp_path)
    path = tmp_path / "tokenizer.json"
    assert load_tokenizer(tmp_path).vocab_size == 6
    path.write_text(path.read_text().replace("abc", "abd"))
    with pytest.raises(TokenizerError, match="checksum differs"):
        load_tokenizer(tmp_path)


# -- large files ------------------------------------------------------------------------------------------


def test_a_large_file_is_read_again_whenever_it_may_have_changed(
    saved: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(integrity, "_VERIFY_UP_TO", 100)
    cr.train("ngram", cr.Corpus.from_text(TEXT), order=3, tokenizer="word").save(tmp_path / "m")
    file = tmp_path / "m" / "model.safetensors"
    read: list[str] = []

    def counting(path: Path) -> str:
        read.append(path.name)
        return digest(path)

    digest = integrity.sha256
    monkeypatch.setattr(integrity, "sha256", counting)
    cr.load(tmp_path / "m")
    assert file.name not in read  # it was read when it was written
    shutil.copytree(tmp_path / "m", tmp_path / "copy")
    cr.load(tmp_path / "copy")
    assert read.count(file.name) == 1  # a copy is another file
    before = file.stat()
    content = bytearray(file.read_bytes())
    content[-2] ^= 64
    file.write_bytes(content)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))  # the time of the change is seen even so
    with pytest.raises(DamagedFileError, match="checksum"):
        cr.load(tmp_path / "m")


def test_a_large_file_that_changes_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cr.train("ngram", cr.Corpus.from_text(TEXT), order=3, tokenizer="word").save(tmp_path / "m")
    monkeypatch.setattr(integrity, "_VERIFY_UP_TO", 100)
    digest = integrity.sha256

    def changing(path: Path) -> str:
        found = digest(path)
        if path.name == "model.safetensors":
            with path.open("r+b") as file:
                file.seek(-2, os.SEEK_END)
                file.write(b"\x40")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(integrity, "sha256", changing)
        read_folder(tmp_path / "m")
    with pytest.raises(DamagedFileError, match="checksum"):
        read_folder(tmp_path / "m")


def test_a_folder_that_cannot_be_written_to_is_read_each_time(
    saved: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copied(saved["ngram"], tmp_path / "m")
    monkeypatch.setattr(integrity, "_VERIFY_UP_TO", 100)
    monkeypatch.setattr(atomic, "_temporary", lambda path, what: path.with_name("no") / "such" / "folder")
    cr.load(folder)
    assert not (folder / integrity.VERIFIED).exists()


# -- sizes ------------------------------------------------------------------------------------------------

IMPOSSIBLE = [
    ("transformer", {"layers": 2_000_000}),
    ("transformer", {"layers": 900}),
    ("transformer", {"window": 1_000_000_000}),
    ("transformer", {"width": 2**40}),
    ("transformer", {"width": 32}),
    ("transformer", {"heads": 8, "kv_heads": 8, "width": 8_000_000_000}),
    ("transformer", {"hidden": 2**31}),
    ("lstm", {"layers": 10**12}),
    ("lstm", {"layers": 999}),
    ("lstm", {"hidden": 2**31}),
    ("lstm", {"embedding": 10**9}),
    ("feedforward", {"order": 999}),
    ("feedforward", {"layers": 1000}),
    ("feedforward", {"hidden": 2**31}),
    ("bagofwords", {"window": 10**12}),
    ("bagofwords", {"embedding": 2**30}),
    ("ngram", {"order": 999}),
    ("ngram", {"order": 10**12}),
    ("ngram", {"bits": 8}),
    ("ngram", {"index": "hash"}),
]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(("kind", "config"), IMPOSSIBLE, ids=str)
def test_sizes_are_compared_with_the_arrays_before_they_are_believed(
    saved: dict[str, Path], tmp_path: Path, kind: str, config: dict[str, Any], version: int
) -> None:
    folder = copied(saved[kind], tmp_path / "m")
    content = read_manifest(folder)
    content["config"] |= config
    if version == 1:
        del content["checksum"]
    write_manifest(folder, {**content, "version": version})
    began, before = time.process_time(), memory()
    for load in (cr.load, load_on_tape):
        with pytest.raises((DamagedFileError, SettingsError)):
            load(folder)
    assert time.process_time() - began < 10
    assert memory() - before < 500e6


def memory() -> float:
    """The peak memory of this process, in bytes."""
    from chainrule.system.devices import peak_memory

    return float(peak_memory())


def test_a_shape_that_overflows_is_damage(saved: dict[str, Path], tmp_path: Path) -> None:
    folder = copied(saved["ngram"], tmp_path / "m")
    file = folder / "model.safetensors"
    header = {"base": {"dtype": "F32", "shape": [2**62, 2**62, 0], "data_offsets": [0, 0]}}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write_bytes(len(text).to_bytes(8, "little") + text)
    content = read_manifest(folder)
    content["files"][file.name] = integrity.files_in(folder)[file.name]
    write_manifest(folder, content)
    with pytest.raises(DamagedFileError, match=r"model\.safetensors"):
        cr.load(folder)


# -- replacing --------------------------------------------------------------------------------------------

KILLED = """
import os, sys
from pathlib import Path
import chainrule as cr
from chainrule.system.disk import atomic

if sys.argv[2] == "renames":
    atomic._exchange = lambda one, other: False
rename, calls = os.rename, []

def deadly(source, target, **options):
    calls.append(source)
    if len(calls) == int(sys.argv[3]) + 1:
        os._exit(9)
    rename(source, target, **options)

lm = cr.train("ngram", cr.Corpus.from_text("a b\\nb a\\n"), order=1, smoothing="mle")
os.rename = deadly
lm.save(sys.argv[1], overwrite=True)
"""


@pytest.mark.parametrize("renames", [0, 1])
def test_a_model_survives_a_kill_between_the_two_renames(
    saved: dict[str, Path], tmp_path: Path, renames: int
) -> None:
    folder = copied(saved["ngram"], tmp_path / "m")
    command = [sys.executable, "-c", KILLED, str(folder), "renames", str(renames)]
    assert subprocess.run(command, check=False, timeout=100).returncode == 9
    assert folder.exists() == (renames == 0)
    assert cr.load(folder).provenance == cr.load(saved["ngram"]).provenance
    cr.train("ngram", cr.Corpus.from_text(TEXT), order=2, tokenizer="word").save(folder, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["m"]  # nothing is left


def test_what_earlier_versions_left_between_two_renames_is_put_back(saved: dict[str, Path], tmp_path: Path) -> None:
    copied(saved["ngram"], tmp_path / ".m-old-ab12cd34" / "m")
    assert cr.load(tmp_path / "m").kind == "ngram"


def test_names_are_exchanged_in_one_step_where_the_system_can(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    (tmp_path / "one" / "first").touch()
    if not atomic._exchange(tmp_path / "one", tmp_path / "two"):
        pytest.skip("this system cannot")
    assert (tmp_path / "two" / "first").exists()
    assert not atomic._exchange(tmp_path / "one", tmp_path / "nowhere")


def test_a_folder_whose_remains_cannot_be_removed_is_replaced_anyway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(path: Path, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            raise OSError(errno.EBUSY, "busy", str(path))

    for text in ("old", "new"):
        with atomic.new_folder(tmp_path / "m") as temporary:
            (temporary / "file").write_text(text)
        monkeypatch.setattr(shutil, "rmtree", refusing)
    assert (tmp_path / "m" / "file").read_text() == "new"
    atomic.remove_folder(tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_linux_is_asked_to_exchange_two_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`man renameat2`: AT_FDCWD is -100, and RENAME_EXCHANGE is 2."""
    asked: list[tuple[object, ...]] = []
    library = SimpleNamespace(renameat2=lambda *arguments: asked.append(arguments) or 0)
    monkeypatch.setattr(atomic.ctypes, "CDLL", lambda name: library)
    assert atomic._exchange(tmp_path / "a", tmp_path / "b")
    assert asked == [(-100, os.fsencode(tmp_path / "a"), -100, os.fsencode(tmp_path / "b"), 2)]


@pytest.mark.parametrize("error", [AttributeError, OSError, TypeError])
def test_a_folder_is_replaced_where_names_cannot_be_exchanged(
    error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_library(name: None) -> None:
        raise error

    monkeypatch.setattr(atomic.ctypes, "CDLL", no_library)
    for text in ("old", "new"):
        with atomic.new_folder(tmp_path / "m") as temporary:
            (temporary / "file").write_text(text)
    assert (tmp_path / "m" / "file").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_the_only_checkpoint_survives_a_kill_while_it_is_replaced(tmp_path: Path) -> None:
    run = tmp_path / "run"
    options: dict[str, Any] = {"steps": 4, "hidden": 8, "embedding": 8, "layers": 1, "checkpoint_minutes": 0.0}
    whole = cr.train("lstm", cr.Corpus.from_text(TEXT), run=run, **options, tokenizer="word")
    for folder in checkpoint_folders(run)[1:]:
        shutil.rmtree(folder)
    (only,) = checkpoint_folders(run)
    only.rename(only.with_name(f".{only.name}.old-01234567"))
    (tmp_path / "run" / "checkpoints" / f".{only.name}.part-01234567").mkdir()
    assert checkpoint_folders(run) == [only]
    resumed = cr.train("lstm", cr.Corpus.from_text(TEXT), run=run, resume=True, **options, tokenizer="word")
    for name, array in whole.tensors().items():
        np.testing.assert_array_equal(resumed.tensors()[name], array)
    remove_checkpoints(run)
    assert not (run / "checkpoints").exists() or checkpoint_folders(run) == []


def test_a_folder_that_is_replaced_while_it_is_read_is_read_again(
    saved: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copied(saved["ngram"], tmp_path / "m")
    other = cr.train("ngram", cr.Corpus.from_text(TEXT), order=2, tokenizer="word")
    check, times = manifest.check_file, []

    def replacing(path: Path, entry: Any, verify: bool | None) -> None:
        if path.name == "model.safetensors" and len(times) < most:
            times.append(path)
            other.save(folder, overwrite=True)
        check(path, entry, verify)

    monkeypatch.setattr(manifest, "check_file", replacing)
    most = 1
    assert read_folder(folder).config["order"] == 2
    most, times = 9, []
    with pytest.raises(FolderError, match="is being replaced while it is read"):
        read_folder(folder)


# -- writers ----------------------------------------------------------------------------------------------


def full(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_full_disk_leaves_the_comparison_that_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, options = cr.Corpus.from_text(TEXT), {"kinds": ["anygram"], "tokenizer": cr.TokenizerChoice("char")}
    cr.compare(text, tmp_path / "out", **options)  # type: ignore[arg-type]
    before = (tmp_path / "out" / "compare.json").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match=r"compare\.json"):
            Comparison("", "", 0, "line", {}, [], {}).write(tmp_path / "out")
    assert (tmp_path / "out" / "compare.json").read_bytes() == before
    cr.compare(text, tmp_path / "out", overwrite=True, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["new.txt", "old.txt"])
def test_a_file_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (tmp_path / "old.txt").write_text("old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=name), disk.replaced_file(tmp_path / name) as file:
        file.write(b"half of it")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("old.txt", "old")]


def test_an_error_of_another_file_stays_as_it_is(tmp_path: Path) -> None:
    error = FileNotFoundError(errno.ENOENT, "missing", "another")
    with pytest.raises(FileNotFoundError) as raised, atomic.naming(tmp_path / "file"):
        raise error
    assert raised.value is error


def test_an_error_without_a_number_is_a_full_disk(tmp_path: Path) -> None:
    """NumPy has such errors for files that it could not write whole."""
    with pytest.raises(OSError, match=r"whole \(5 of 9 written\); is the disk full\?") as raised:  # noqa: SIM117
        with atomic.naming(tmp_path / "array"):
            raise OSError("5 of 9 written")
    assert (raised.value.errno, raised.value.filename) == (errno.EIO, str(tmp_path / "array"))


def test_errors_call_files_by_their_final_names(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space") as raised, disk.replaced_path(tmp_path / "ids") as path:
        raise OSError(28, "No space left on device", str(path))
    assert raised.value.filename == str(tmp_path / "ids")
    with pytest.raises(OSError, match="No space") as raised, disk.new_folder(tmp_path / "m") as folder:
        raise OSError(28, "No space left on device", str(folder / "model.safetensors"))
    assert raised.value.filename == str(tmp_path / "m" / "model.safetensors")
    with pytest.raises(FileNotFoundError) as raised, disk.replaced_path(tmp_path / "ids"):
        (tmp_path / "elsewhere").open()
    assert raised.value.filename == str(tmp_path / "elsewhere")


# -- what is left behind ----------------------------------------------------------------------------------


def test_the_next_start_sweeps_what_no_living_process_owns(
    saved: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch.tempfile, "tempdir", str(tmp_path))
    dead, living, mine = (tmp_path / name for name in (".m.part-00000000", ".m.part-00000001", ".m.part-mine"))
    scraps = tmp_path / f"{scratch.PREFIX}dead", tmp_path / f"{scratch.PREFIX}alive"
    for folder in (dead, living, *scraps):
        folder.mkdir()
        (folder / "half").write_text("of it")
    mine.write_text("a file of the user's own")
    with locks.locked(living), locks.locked(scraps[1]), disk.scratch_folder() as now:
        assert now.parent == tmp_path
        cr.load(saved["ngram"]).save(tmp_path / "m")
    assert not dead.exists() and not scraps[0].exists()
    assert living.exists() and scraps[1].exists()
    assert mine.exists()  # the names of temporary files are more particular


def test_what_is_empty_and_new_may_be_about_to_be_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "new").mkdir()
    locks.remove_abandoned(tmp_path / "new")
    assert (tmp_path / "new").exists()
    monkeypatch.setattr(locks, "_FRESH_SECONDS", -1.0)
    locks.remove_abandoned(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_killed_process_leaves_its_text_until_the_next_start(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    code = (
        "import os; from chainrule.system import disk\nwith disk.scratch_folder() as f:\n (f/'a').write_text('a')"
    )
    killed = f"{code}; os._exit(9)"
    subprocess.run([sys.executable, "-c", killed], env=environment, check=False, timeout=60)
    assert len(list(tmp_path.iterdir())) == 1
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=60)
    assert list(tmp_path.iterdir()) == []


def test_a_second_training_is_told_who_holds_the_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    code = (
        "import sys, time; from pathlib import Path; from chainrule.system.disk import holding\n"
        "with holding(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(run)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        try:
            with pytest.raises(FolderError, match=rf"run is in use by process {process.pid} on .* since 20"):
                cr.train("elman", cr.Corpus.from_text(TEXT), run=run, steps=1, hidden=8, tokenizer="word")
        finally:
            process.kill()
    cr.train("elman", cr.Corpus.from_text(TEXT), run=run, steps=1, hidden=8, tokenizer="word")
    assert not (run / locks.LOCK).exists()


def test_the_owner_of_a_folder_is_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/chainrule", "train", "my text.txt"])
    assert locks._owner().startswith(f"process {os.getpid()} on ")
    assert locks._owner().endswith(" (chainrule train 'my text.txt')")


def test_folders_above_a_held_one_are_made(tmp_path: Path) -> None:
    for _ in range(2):
        with disk.holding(tmp_path / "a" / "b"):
            assert (tmp_path / "a" / "b" / locks.LOCK).exists()


def test_everybody_may_read_who_holds_a_folder(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with disk.holding(tmp_path / "run"):
            assert (tmp_path / "run" / locks.LOCK).stat().st_mode & 0o777 == 0o644
    finally:
        os.umask(before)


def test_blocks_that_hold_a_folder_may_be_nested_but_not_in_another_thread(tmp_path: Path) -> None:
    import threading

    errors: list[BaseException] = []

    def other() -> None:
        try:
            with disk.holding(tmp_path / "run"):
                pass
        except FolderError as error:
            errors.append(error)

    with disk.holding(tmp_path / "run"), disk.holding(tmp_path / "run"):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert len(errors) == 1
    assert not (tmp_path / "run").exists()  # it was made for this, and is empty


def test_a_folder_is_held_without_the_name_of_its_owner_where_the_disk_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(descriptor: int, length: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "ftruncate", fails)
    with disk.holding(tmp_path / "run"):
        assert [path.stat().st_size for path in (tmp_path / "run").iterdir()] == [0]


def test_a_file_that_a_living_process_has_unlocked_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch.tempfile, "tempdir", str(tmp_path))
    of_living, of_dead = (tmp_path / f"{scratch.PREFIX}{pid}-x" for pid in (os.getppid(), 999_999_999))
    of_living.write_text("written")
    of_dead.write_text("written")
    with disk.scratch_folder():
        assert of_living.exists() and not of_dead.exists()
