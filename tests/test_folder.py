"""Tests of model folders: a folder is complete or absent, and reading returns what was written."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

import chainrule as cr
from chainrule.errors import DamagedFileError, FolderError, ForeignFileError
from chainrule.folder import (
    ModelFolder,
    check_destination,
    integrity,
    manifest,
    megabytes,
    read_folder,
    to_json,
    write_folder,
)
from chainrule.folder.integrity import sha256
from chainrule.system.disk import atomic, replaced_file
from chainrule.system.disk.checksums import CHECKSUM, UNSIGNED, is_signed, signed
from manifests import read_manifest, write_manifest

ARRAYS = {
    "float64": np.array([0.1, -0.0, math.nan, math.inf, 5e-324]),
    "float32": np.arange(6, dtype=np.float32).reshape(2, 3) / 7,
    "float16": np.array([1.5, -math.inf], dtype=np.float16),
    "int64": np.array([-(2**63), 2**63 - 1]),
    "int32": np.array([-7], dtype=np.int32),
    "int16": np.array([[1], [-2]], dtype=np.int16),
    "int8": np.array([-128, 127], dtype=np.int8),
    "uint64": np.array([2**64 - 1], dtype=np.uint64),
    "uint32": np.array([2**32 - 1, 0], dtype=np.uint32),
    "uint16": np.array([65535], dtype=np.uint16),
    "uint8": np.arange(5, dtype=np.uint8),
    "bool": np.array([True, False, True]),
    "empty": np.zeros((0, 3), dtype=np.float32),
    "strided": np.arange(24).reshape(4, 6)[::2, ::3],
    "scalar": np.array(2.5),
}
MODEL = ModelFolder(
    kind="ngram",
    config={"order": 3},
    context="line",
    tokenizers={"text": '{"words": ["café"]}'},
    tensors=ARRAYS,
    provenance={"seed": 1},
    metrics={"perplexity": math.inf, "unknown": math.nan},
)
OTHER = replace(MODEL, config={"order": 5})


@pytest.fixture
def written(tmp_path: Path) -> Path:
    write_folder(tmp_path / "m", MODEL)
    return tmp_path / "m"


@pytest.fixture(params=[0o022, 0o077, 0o027], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def edit(folder: Path, **changes: Any) -> None:
    write_manifest(folder, read_manifest(folder) | changes)


def flip(path: Path, place: int = -1) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


# -- round trip -------------------------------------------------------------------------------------------


def test_a_folder_is_signed_as_it_is_made(written: Path) -> None:
    assert MODEL.is_signed and read_folder(written).is_signed


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_comes_back_bit_by_bit(written: Path, name: str) -> None:
    before, after = ARRAYS[name], read_folder(written).tensor(name)
    assert after.dtype == before.dtype
    assert after.shape == before.shape
    assert after.tobytes() == before.tobytes()


def test_arrays_stay_on_disk_and_cannot_be_changed(written: Path) -> None:
    array = read_folder(written).tensors["float32"]
    assert isinstance(array, np.memmap)
    assert array.filename == written / "model.safetensors"
    with pytest.raises(ValueError, match="read-only"):
        array[0, 0] = 1


def test_everything_else_comes_back_too(written: Path) -> None:
    read = read_folder(written)
    assert (read.kind, read.config, read.context) == ("ngram", {"order": 3}, "line")
    assert read.tokenizer == MODEL.tokenizer
    assert read.provenance == {"seed": 1}
    assert read.metrics == {"perplexity": math.inf, "unknown": None}
    assert read.path == written


def test_other_libraries_can_read_the_arrays(written: Path) -> None:
    arrays = safetensors.numpy.load_file(written / "model.safetensors")
    assert arrays.keys() == ARRAYS.keys()
    np.testing.assert_array_equal(arrays["float32"], ARRAYS["float32"])


def test_a_missing_array_is_named(written: Path) -> None:
    with pytest.raises(DamagedFileError, match="no array 'weights', which the kind 'ngram' needs"):
        read_folder(written).tensor("weights")


def test_the_card_describes_the_model(written: Path) -> None:
    card = (written / "README.md").read_text(encoding="utf-8")
    assert "`ngram`" in card
    assert "| order | 3 |" in card
    assert "| seed | 1 |" in card


def test_the_size_is_that_of_all_files(written: Path) -> None:
    assert megabytes(written) * 1e6 == sum(file.stat().st_size for file in written.iterdir())


# -- whole or not at all ----------------------------------------------------------------------------------


def full(*args: object, **options: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def fail_to_save(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "write_tensors", full)


def fail_to_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", full)


def fail_to_finish(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail to rename the new folder."""
    rename, tried = os.rename, []
    monkeypatch.setattr(atomic, "_exchange", lambda one, other: False)

    def refuse_once(source: Path, target: Path, **options: Any) -> None:
        if Path(target).name == "m" and not Path(target).parent.name.startswith(".") and not tried:
            tried.append(target)
            full()
        rename(source, target, **options)

    monkeypatch.setattr(os, "rename", refuse_once)


def stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise KeyboardInterrupt while files are written."""

    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(manifest, "_card", interrupted)


FAILURES = [fail_to_save, fail_to_sync, fail_to_finish, stop]


@pytest.mark.parametrize("failure", FAILURES)
def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Any) -> None:
    failure(monkeypatch)
    with pytest.raises((OSError, KeyboardInterrupt)):
        write_folder(tmp_path / "m", MODEL)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("failure", FAILURES)
def test_a_replacement_that_fails_leaves_the_old_model(
    written: Path, monkeypatch: pytest.MonkeyPatch, failure: Any
) -> None:
    with monkeypatch.context() as patch:
        failure(patch)
        with pytest.raises((OSError, KeyboardInterrupt)):
            write_folder(written, OTHER, overwrite=True)
    assert read_folder(written, verify=True).config == MODEL.config
    assert list(written.parent.iterdir()) == [written]


def test_a_replacement_removes_all_old_files(written: Path) -> None:
    write_folder(written, OTHER, overwrite=True)
    assert read_folder(written).config == OTHER.config
    assert list(written.parent.iterdir()) == [written]


def test_a_model_that_is_being_read_outlives_its_replacement(written: Path) -> None:
    array = read_folder(written).tensor("float32")
    write_folder(written, replace(OTHER, tensors={"float32": ARRAYS["float32"] + 1}), overwrite=True)
    np.testing.assert_array_equal(array, ARRAYS["float32"])


def test_folders_on_the_way_are_made(tmp_path: Path) -> None:
    write_folder(tmp_path / "a" / "b" / "m", MODEL)
    assert read_folder(tmp_path / "a" / "b" / "m").kind == "ngram"


def test_who_may_read_a_model_is_left_to_the_umask(tmp_path: Path, umask: int) -> None:
    write_folder(tmp_path / "m", MODEL)
    assert stat.S_IMODE((tmp_path / "m").stat().st_mode) == 0o777 & ~umask
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "m").iterdir()}
    assert modes == dict.fromkeys(modes, 0o666 & ~umask)


def test_the_umask_is_left_as_it_was(tmp_path: Path, umask: int) -> None:
    write_folder(tmp_path / "m", MODEL)
    now = os.umask(umask)
    assert now == umask


@pytest.mark.parametrize("overwrite", [False, True])
def test_only_a_model_may_be_replaced_and_only_with_overwrite(written: Path, overwrite: bool) -> None:
    (written.parent / "letters").mkdir()
    (written.parent / "letters" / "letter.txt").touch()
    for place in ("letters", "letters/letter.txt"):
        with pytest.raises(FolderError, match="is not a model folder"):
            check_destination(written.parent / place, overwrite=overwrite)
    (written.parent / "dangling").symlink_to("nowhere")
    with pytest.raises(FolderError):
        check_destination(written.parent / "dangling", overwrite=overwrite)
    if overwrite:
        check_destination(written, overwrite=True)
    else:
        with pytest.raises(FolderError, match="--overwrite"):
            check_destination(written)


# -- checks -----------------------------------------------------------------------------------------------


def test_a_manifest_can_be_read_by_eye(written: Path) -> None:
    lines = (written / "manifest.json").read_text().splitlines()
    assert f'  "kind": "{MODEL.kind}",' in lines


@pytest.mark.parametrize("name", [".", "..", "m/..", "here"])
def test_a_model_needs_a_name_of_its_own(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FolderError, match="no name of its own"):
        check_destination(tmp_path if name == "here" else name)
    check_destination("m")


def test_only_the_first_checksum_is_that_of_a_text_itself() -> None:
    inner = json.dumps({"parts": [{CHECKSUM: UNSIGNED}]})
    content = signed(f'{{"{CHECKSUM}": "{UNSIGNED}", {inner[1:]}')
    assert is_signed(content)
    assert json.loads(content)["parts"] == [{CHECKSUM: UNSIGNED}]
    assert not is_signed(content.replace(b"parts", b"party"))


def test_a_note_in_the_card_breaks_nothing(written: Path) -> None:
    card = written / "README.md"
    card.write_text(card.read_text() + "Our first model.\n")
    assert read_folder(written).kind == "ngram"
    with pytest.raises(DamagedFileError, match=r"README\.md: damaged"):
        read_folder(written, verify=True)
    card.unlink()
    assert read_folder(written).kind == "ngram"


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "metrics.json"])
@pytest.mark.parametrize("verify", [None, True])
def test_a_flipped_bit_is_found(written: Path, name: str, verify: bool | None) -> None:
    flip(written / name)
    with pytest.raises(DamagedFileError, match="checksum"):
        read_folder(written, verify=verify)


def test_a_large_file_opens_at_once_and_is_verified_on_demand(
    written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(integrity, "_VERIFY_UP_TO", (written / "model.safetensors").stat().st_size - 1)
    assert read_folder(written).kind == "ngram"
    with monkeypatch.context() as patch:  # what was read once is not read again
        patch.setattr(integrity, "sha256", lambda path: "" if path.name == "model.safetensors" else sha256(path))
        assert read_folder(written).kind == "ngram"
        with pytest.raises(DamagedFileError, match="checksum"):
            read_folder(written, verify=True)
    flip(written / "model.safetensors")
    assert read_folder(written, verify=False).kind == "ngram"
    for verify in (None, True):
        with pytest.raises(DamagedFileError, match="checksum"):
            read_folder(written, verify=verify)


def test_files_of_more_than_256_megabytes_are_large(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    for size, is_large in ((256 << 20, False), ((256 << 20) + 1, True)):
        with path.open("ab") as file:
            file.truncate(size)  # without taking up the space
        assert integrity.is_large(path) == is_large


@pytest.mark.parametrize("verify", [None, False])
def test_a_missing_byte_is_found_without_a_checksum(written: Path, verify: bool | None) -> None:
    file = written / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(DamagedFileError, match="bytes where"):
        read_folder(written, verify=verify)


def test_a_header_that_lies_is_found_without_a_checksum(written: Path) -> None:
    flip(written / "model.safetensors", place=1)
    with pytest.raises(DamagedFileError, match=r"model\.safetensors: damaged"):
        read_folder(written, verify=False)


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "sub/x"])
def test_a_file_name_is_no_way_out_of_the_folder(written: Path, name: str) -> None:
    (written.parent / "x").touch()
    manifest = json.loads((written / "manifest.json").read_text(encoding="utf-8"))
    edit(written, files=manifest["files"] | {name: {"bytes": 0, "sha256": ""}})
    with pytest.raises(DamagedFileError, match="is not valid"):
        read_folder(written)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"  \n<HTML><body>", "web page"),
        (b"<!DOCTYPE html>\n<html><body>404</body></html>\n", "web page"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (b"\x80\x04\x95", "pickle"),
        (b"PK\x03\x04", "zip archive"),
    ],
)
@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "manifest.json"])
def test_a_foreign_file_is_called_what_it_is(written: Path, name: str, content: bytes, words: str) -> None:
    (written / name).write_bytes(content)
    with pytest.raises(ForeignFileError, match=words) as refused:
        read_folder(written)
    assert str(written / name) in str(refused.value)


def test_no_pickle_is_ever_loaded(written: Path, tmp_path: Path) -> None:
    """A pickle is refused even if sizes and checksums are right."""
    content = b"cos\nmkdir\n(V" + str(tmp_path / "ran").encode() + b"\ntR."
    (written / "model.safetensors").write_bytes(content)
    files = json.loads((written / "manifest.json").read_text(encoding="utf-8"))["files"]
    files["model.safetensors"] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    edit(written, files=files)
    with pytest.raises(DamagedFileError, match=r"model\.safetensors"):
        read_folder(written)
    assert not (tmp_path / "ran").exists()


# -- JSON -------------------------------------------------------------------------------------------------


def no_constant(word: str) -> None:
    raise AssertionError(f"{word} is not JSON")


@pytest.mark.parametrize(
    ("value", "back"),
    [
        (math.inf, math.inf),
        (-math.inf, -math.inf),
        (math.nan, None),
        ({"a": [math.inf, (1.5, math.nan)]}, {"a": [math.inf, [1.5, None]]}),
        (np.float64(-math.inf), -math.inf),
        ("Infinity, NaN", "Infinity, NaN"),
        ("\ue000infinity\ue000", "\ue000infinity\ue000"),
        ({"inf": "-1e999"}, {"inf": "-1e999"}),
        (True, True),
        (3, 3),
        ("café \n\x00", "café \n\x00"),
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_json_can_be_read_by_every_parser(value: Any, back: Any, indent: int | None) -> None:
    assert json.loads(to_json(value, indent), parse_constant=no_constant) == back


def test_a_model_that_cannot_be_put_back_is_still_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If neither the new folder nor the old one can be renamed, the old one stays where it was moved."""
    lm = cr.train("ngram", cr.Corpus.from_text("i love cats\n"), order=1, smoothing="mle", tokenizer="word")
    lm.save(tmp_path / "m")
    rename = os.rename
    monkeypatch.setattr(atomic, "_exchange", lambda one, other: False)

    def refuse(source: Path, target: Path, **options: Any) -> None:
        if Path(target) == tmp_path / "m":
            full()
        rename(source, target, **options)

    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(OSError, match="No space"):
        lm.save(tmp_path / "m", overwrite=True)
    monkeypatch.undo()
    assert not (tmp_path / "m").exists()
    assert cr.load(tmp_path / "m").tokenizer.vocab_size == lm.tokenizer.vocab_size
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


# -- folders inside folders -------------------------------------------------------------------------------

NESTED = replace(MODEL, parts={"first": MODEL, "second": replace(OTHER, parts={"deep": MODEL})})


def test_a_folder_may_hold_folders(tmp_path: Path) -> None:
    write_folder(tmp_path / "m", NESTED)
    found = read_folder(tmp_path / "m", verify=True)
    assert list(found.parts) == ["first", "second"]
    assert found.part("second").config == {"order": 5}
    assert found.part("second").part("deep").path == tmp_path / "m" / "parts" / "second" / "parts" / "deep"
    np.testing.assert_array_equal(found.part("first").tensor("uint8"), ARRAYS["uint8"])
    assert megabytes(tmp_path / "m") > 3 * megabytes(tmp_path / "m" / "parts" / "first")
    # a part is a model folder of its own
    assert read_folder(tmp_path / "m" / "parts" / "first").config == MODEL.config
    with pytest.raises(DamagedFileError, match="no part 'third'"):
        found.part("third")


def test_damage_in_a_part_is_named(tmp_path: Path) -> None:
    write_folder(tmp_path / "m", NESTED)
    deep = tmp_path / "m" / "parts" / "second" / "parts" / "deep"
    (deep / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(DamagedFileError, match=r"deep/model\.safetensors"):
        read_folder(tmp_path / "m")


def test_another_part_in_the_place_of_one_is_refused(tmp_path: Path) -> None:
    """Another valid model folder in the place of a part is an error."""
    write_folder(tmp_path / "m", NESTED)
    write_folder(tmp_path / "other", replace(MODEL, config={"order": 7}))
    shutil.rmtree(tmp_path / "m" / "parts" / "first")
    (tmp_path / "other").rename(tmp_path / "m" / "parts" / "first")
    with pytest.raises(DamagedFileError, match=r"first/manifest\.json"):
        read_folder(tmp_path / "m")


@pytest.mark.parametrize("name", ["", "..", "a/b", "/etc"])
def test_the_name_of_a_part_is_never_a_way_out(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="plain file name"):
        write_folder(tmp_path / "m", replace(MODEL, parts={name: MODEL}))
    write_folder(tmp_path / "m", NESTED)
    content = read_manifest(tmp_path / "m")
    content["parts"] = {name: {}}
    write_manifest(tmp_path / "m", content)
    with pytest.raises(DamagedFileError, match="'parts'"):
        read_folder(tmp_path / "m")


def test_several_tokenizers_have_a_file_each(tmp_path: Path) -> None:
    both = replace(MODEL, context=None, tokenizers={"source": '{"a": 1}', "target": '{"b": 2}'})
    write_folder(tmp_path / "m", both)
    assert (tmp_path / "m" / "source.tokenizer.json").read_text() == '{"a": 1}'
    found = read_folder(tmp_path / "m")
    assert found.tokenizers == both.tokenizers
    assert found.context is None
    with pytest.raises(DamagedFileError, match=r"no tokenizer\.json"):
        _ = found.tokenizer
    with pytest.raises(DamagedFileError, match=r"it has no tokenizer\.json, which"):
        found.parsed_tokenizer()
    with pytest.raises(DamagedFileError, match="it has no tokenizer 'third'"):
        found.parsed_tokenizer("third")


def test_a_file_is_replaced_and_never_overwritten(tmp_path: Path) -> None:
    """Whoever has the old file open goes on reading it: the new one takes its name in one step."""
    path = tmp_path / "file"
    path.write_text("old")
    before = path.stat().st_ino
    with path.open() as reader:
        with replaced_file(path) as file:
            file.write(b"new")
        assert reader.read() == "old"
    assert path.read_text() == "new" and path.stat().st_ino != before
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
