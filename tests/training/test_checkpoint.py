"""A run that was interrupted, killed, damaged or out of disk goes on, bit by bit as if nothing had been."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import namedtuple
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from trainables import Bigram, Cells, Recurrent, data, encoded, feed, seeded, train
from training_child import settings, trained

from chainrule.errors import Interrupted, SettingsError, TrainingError
from chainrule.networks.training_settings import TrainingSettings
from chainrule.settings import parse
from chainrule.system.progress import SILENT
from chainrule.tokens.words.tokenizer import WordTokenizer
from chainrule.training import loop
from chainrule.training.checkpoints import checkpoint
from chainrule.training.checkpoints.checkpoint import Checkpoint, Checkpoints, changes
from chainrule.training.checkpoints.flatten import flatten, rebuild
from chainrule.training.checkpoints.run_folder import checkpoint_folders, remove_checkpoints
from chainrule.training.engines.base import Snapshot
from chainrule.training.engines.torch_engine import TorchEngine, from_arrays, to_arrays
from chainrule.training.engines.torch_step import Stepper
from chainrule.training.layouts import Size
from chainrule.training.loop import Trained
from chainrule.training.run_state import Mode, Place
from listening import Listening
from stopping import interrupted, stopping

HERE = Path(__file__).parent


def assert_same(one: Trained, other: Trained) -> None:
    assert (one.state.step, one.state.tokens, one.state.best_loss, one.state.history) == (
        other.state.step,
        other.state.tokens,
        other.state.best_loss,
        other.state.history,
    )
    for name in one.last:
        assert np.array_equal(one.last[name], other.last[name]), name
        assert np.array_equal(one.best[name], other.best[name]), name


CASES = [
    ("bigram", "stream", "adamw", "none"),
    ("bigram", "line", "muon", "ema"),
    ("recurrent", "stream", "adam", "tail"),
    ("recurrent", "stream", "momentum", "ema"),
    ("recurrent", "line", "rmsprop", "none"),
    ("bigram", "stream", "sgd", "tail"),
]


@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_an_interrupted_run_goes_on_bit_by_bit(
    case: tuple[str, str, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = trained(None, *case)
    with monkeypatch.context() as patched:
        stopping(patched, 1, 12, 13, 33, 40)
        for step in (1, 12, 13, 33, 40):
            with pytest.raises(
                Interrupted, match=rf"stopped after step {step} of 40; go on with: chainrule resume"
            ):
                trained(tmp_path, *case)
    assert_same(trained(tmp_path, *case), whole)


@pytest.mark.parametrize(
    ("number", "case", "times"),
    [
        (signal.SIGKILL, CASES[2], 1),
        pytest.param(signal.SIGKILL, CASES[0], 2, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, CASES[1], 2, marks=pytest.mark.slow),
    ],
)
def test_a_killed_run_goes_on_bit_by_bit(
    number: int, case: tuple[str, str, str, str], times: int, tmp_path: Path
) -> None:
    """Killed wherever it is, also while it writes, so many times, after it got a little further each time."""
    for _ in range(times):
        before = newest(tmp_path)
        command = [sys.executable, str(HERE / "training_child.py"), str(tmp_path), *case, str(before + 15)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(HERE)]), "OMP_NUM_THREADS": "1"}
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as child:
            deadline = time.monotonic() + 600
            while newest(tmp_path) < before + 9 and child.poll() is None and time.monotonic() < deadline:
                time.sleep(0.005)
            child.send_signal(number)
            _, said = child.communicate(timeout=600)
        assert newest(tmp_path) >= before + 9, said
        assert child.returncode != 0
        assert (b"go on with: chainrule resume" in said) == (number == signal.SIGTERM)
    assert 0 < newest(tmp_path) < 40
    assert_same(trained(tmp_path, *case), trained(None, *case))


def newest(run: Path) -> int:
    return max((int(folder.name.removeprefix("step-")) for folder in checkpoint_folders(run)), default=0)


def test_the_newest_two_are_kept_and_leftovers_go(tmp_path: Path) -> None:
    left = tmp_path / "checkpoints" / ".step-000003.part-0123abcd"
    left.mkdir(parents=True)
    (left / "state.json").write_text("half of")
    trained(tmp_path, *CASES[0], minutes=0)
    assert [folder.name for folder in checkpoint_folders(tmp_path)] == ["step-000040", "step-000039"]
    assert not left.exists()


def test_a_finished_run_is_read_back(tmp_path: Path) -> None:
    assert_same(trained(tmp_path, *CASES[2]), trained(tmp_path, *CASES[2]))


def test_the_best_weights_outlive_the_checkpoint_they_were_read_from(tmp_path: Path) -> None:
    trained(tmp_path, *CASES[2])
    again = trained(tmp_path, *CASES[2])
    assert all(array.flags.owndata and array.flags.writeable for array in again.best.values())


def test_a_snapshot_is_a_copy() -> None:
    texts = feed(data().train.ids, "stream", None, Size(8, 64, 24))
    engine = TorchEngine(seeded(Recurrent), settings("adam", "ema"), "cpu")
    engine.start(Mode())
    epoch = texts.layout.epoch(0)
    for number in range(2):
        before = engine.snapshot().arrays
        as_it_was = {name: array.copy() for name, array in before.items()}
        engine.take_step(texts, epoch[number], 1.0, Place(number + 1, 0, number))
        engine.average_weights(number + 1, 40, 0)
    assert {name.partition("/")[0] for name in before} == {"weights", "optimiser", "average", "memory", "random"}
    for name, array in before.items():
        assert np.array_equal(array, as_it_was[name]), name


def test_a_checkpoint_from_before_there_were_engines_goes_on(tmp_path: Path) -> None:
    """It says nothing of an objective, and of counts only that of the averaged weights."""
    with interrupted(35):
        trained(tmp_path, *CASES[2])
    checkpoints = Checkpoints(tmp_path, SILENT)
    found = checkpoints.newest()
    assert found is not None
    state = dict(found.state)
    state["average_count"] = state.pop("counts")["average_count"]
    del state["identity"]["objective"]
    checkpoints.write(36, Checkpoint(found.arrays, state))
    shutil.rmtree(tmp_path / "checkpoints" / "step-000035")
    assert_same(trained(tmp_path, *CASES[2]), trained(None, *CASES[2]))


def test_a_checkpoint_may_have_a_folder_of_shards(tmp_path: Path) -> None:
    """Their sizes are checked, and not their content, which would take as long as reading them."""
    checkpoints, arrays = Checkpoints(tmp_path, Listening()), {"a": np.arange(3.0)}

    def save_shards(folder: Path) -> None:
        folder.mkdir()
        (folder / "rank-0").write_bytes(b"abc")

    checkpoints.write(1, Checkpoint(arrays, {"step": 1}))
    folder = checkpoints.write(2, Checkpoint(arrays, {"step": 2}), save_shards)
    (folder / "shards" / "rank-0").write_bytes(b"xyz")
    found = checkpoints.newest()
    assert found is not None and found.state["step"] == 2 and found.shards == folder / "shards"
    (folder / "shards" / "rank-0").write_bytes(b"ab")
    found = checkpoints.newest()
    assert found is not None and found.state["step"] == 1 and found.shards is None


def test_a_checkpoint_says_its_version_and_an_older_one_has_no_counts(tmp_path: Path) -> None:
    checkpoints, arrays = Checkpoints(tmp_path, Listening()), {"a": np.arange(3.0)}
    for step, state in enumerate(({}, {"average_count": 7}, {"counts": {"b": 2}}), start=1):
        folder = checkpoints.write(step, Checkpoint(arrays, {"step": step, **state}))
        manifest = json.loads((folder / "manifest.json").read_text())
        assert (manifest["format"], manifest["version"]) == ("chainrule-checkpoint", 2)
        found = checkpoints.newest()
        assert found is not None
        assert found.state["counts"] == ({"average_count": 0}, {"average_count": 7}, {"b": 2})[step - 1]
    assert len(checkpoint_folders(tmp_path)) == 2


def test_one_bit_in_a_checkpoint_is_found(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, Listening())
    for step in (1, 2):
        folder = checkpoints.write(step, Checkpoint({"a": np.arange(1000.0)}, {"step": step}))
    flip(folder / "tensors.safetensors")
    found = checkpoints.newest()
    assert found is not None and found.state["step"] == 1


def test_what_is_no_folder_of_a_step_is_no_checkpoint(tmp_path: Path) -> None:
    folder = Checkpoints(tmp_path, SILENT).write(10, Checkpoint({}, {}))
    (folder.parent / "step-000011").write_text("a file")
    (folder.parent / "step-old").mkdir()
    assert checkpoint_folders(tmp_path) == [folder]


def test_a_run_does_not_start_over_existing_checkpoints(tmp_path: Path) -> None:
    trained(tmp_path, *CASES[0])
    with pytest.raises(SettingsError, match="can be resumed"):
        train(seeded(Bigram), settings(), data(run=tmp_path))
    (tmp_path / "checkpoints" / "mine.txt").write_text("keep")
    remove_checkpoints(tmp_path)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["mine.txt"]


def test_nothing_to_resume_is_said(tmp_path: Path) -> None:
    progress = Listening()
    train(seeded(Bigram), settings(), data(run=tmp_path, resume=True, progress=progress))
    assert "there is no checkpoint: training begins anew" in progress.notes[0]
    with pytest.raises(SettingsError, match="needs the run folder"):
        train(seeded(Bigram), settings(), data(resume=True))


# -- damage -----------------------------------------------------------------------------------------------


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.fixture(scope="module")
def stopped_twice(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Trained]:
    """A run with two checkpoints, and what the run becomes that is never stopped."""
    run = tmp_path_factory.mktemp("stopped") / "run"
    with pytest.MonkeyPatch.context() as patched:
        stopping(patched, 20, 30)
        for _ in range(2):
            with pytest.raises(Interrupted):
                trained(run, *CASES[2])
    return run, trained(None, *CASES[2])


@pytest.mark.parametrize("name", ["tensors.safetensors", "state.json", "manifest.json"])
@pytest.mark.parametrize("damage", [truncate, flip, Path.unlink])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(
    name: str, damage: Any, tmp_path: Path, stopped_twice: tuple[Path, Trained]
) -> None:
    run, whole = stopped_twice
    shutil.copytree(run, tmp_path, dirs_exist_ok=True)
    damage(checkpoint_folders(tmp_path)[0] / name)
    progress = Listening()
    resumed = train(
        seeded(Recurrent, dropout=0.3),
        settings("adam", "tail"),
        data(run=tmp_path, resume=True, progress=progress),
    )
    assert len(progress.notes) == 1
    assert "step-000030" in progress.notes[0]
    assert "going back to the checkpoint before" in progress.notes[0]
    assert_same(resumed, whole)


def test_damage_to_all_is_an_error(tmp_path: Path) -> None:
    trained(tmp_path, *CASES[0])
    for folder in checkpoint_folders(tmp_path):
        truncate(folder / "state.json")
    with pytest.raises(TrainingError, match="no checkpoint is whole"):
        trained(tmp_path, *CASES[0])


# -- disks ------------------------------------------------------------------------------------------------


def test_a_full_disk_does_not_end_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is full from step 5 to 8; the checkpoint of step 4 stays, and later ones are written again."""
    kept = set()
    write = checkpoint.write_tensors

    def full(path: Path, tensors: Any) -> None:
        step = int(path.parent.name.split("-")[1].split(".")[0])
        if 5 <= step <= 8:
            kept.add(checkpoint_folders(tmp_path)[0].name)
            path.write_bytes(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, tensors)

    monkeypatch.setattr(checkpoint, "write_tensors", full)
    progress = Listening()
    found = train(seeded(Bigram, dropout=0.3), settings(minutes=0), data(run=tmp_path, progress=progress))
    assert kept == {"step-000004"}
    assert len(progress.notes) == 4
    assert "checkpoint of step 5 could not be written: [Errno 28] No space left" in progress.notes[0]
    assert [folder.name for folder in (tmp_path / "checkpoints").iterdir() if folder.name.startswith(".")] == []
    assert newest(tmp_path) == 40
    assert_same(found, trained(None, *CASES[0]))


def full_disk(path: Path, tensors: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_checkpoint_that_cannot_be_written_at_the_stop_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "write_tensors", full_disk)
    with interrupted(5, match=r"step 5 could not be written: .*No space left"):
        trained(tmp_path, *CASES[0])


def test_a_finished_training_is_not_lost_with_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "write_tensors", full_disk)
    progress = Listening()
    found = train(seeded(Bigram), settings(), data(run=tmp_path, progress=progress))
    assert found.state.step == 40
    assert [
        ("step 40 could not be written" in note, "the model is complete" in note) for note in progress.notes
    ] == [(True, True)]


# -- signals ----------------------------------------------------------------------------------------------


def test_signals_do_what_they_did_after_a_run(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with interrupted(3) as caught:
        trained(tmp_path, *CASES[0])
    assert caught.value.signal == signal.SIGINT
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_second_signal_ends_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(self: Any) -> None:
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)
        raise AssertionError("not reached")

    monkeypatch.setattr(loop.Loop, "_step", twice)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path, *CASES[0])


def test_without_a_run_folder_signals_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    stopping(monkeypatch, 3, number=signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        trained(None, *CASES[0])


# -- something else ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"settings": replace(settings(), batch=32)}, "settings batch: 64 then, 32 now"),
        ({"settings": settings("adam", "none")}, "settings optimiser: adamw then, adam now"),
        ({"network": Bigram(width=4)}, "network embed.weight: .*6. then, .*4. now"),
        ({"data": {"seed": 1}}, "data seed: 0 then, 1 now"),
        ({"settings": replace(settings(), batch=32), "data": {"seed": 1}}, "32 now; data seed"),
        ({"data": {"context": "line"}}, "data context: stream then, line now"),
        ({"data": {"train": encoded([3, 4, 2])}}, "another corpus"),
        ({"data": {"valid": encoded([3, 4, 2])}}, "another held-out text"),
        ({"data": {"tokenizer": WordTokenizer([bytes([97 + i, 97]) for i in range(8)])}}, "another tokenizer"),
    ],
)
def test_another_training_is_not_resumed(change: dict[str, Any], expected: str, tmp_path: Path) -> None:
    trained(tmp_path, *CASES[0])
    texts = replace(data(run=tmp_path, resume=True), **change.get("data", {}))
    with pytest.raises(TrainingError, match=f"not the training that the checkpoint is of .*{expected}"):
        train(change.get("network", seeded(Bigram)), change.get("settings", settings()), texts)


def test_a_fingerprint_that_one_side_lacks_is_not_compared() -> None:
    """Older checkpoints of taggers have a fingerprint of the sources too, which is that of the corpus."""
    now = {"objective": {"name": "tag-of-word"}, "settings": {"batch": 4}, "fingerprints": {"corpus": "a"}}
    then = {**now, "fingerprints": {"corpus": "a", "sources": "a"}}
    assert changes(then, now) == {"sources"}
    with pytest.raises(TrainingError, match="another corpus"):
        changes({**then, "fingerprints": {"corpus": "b", "sources": "b"}}, now)


def test_settings_without_effect_may_change(tmp_path: Path) -> None:
    trained(tmp_path, *CASES[0])
    other = replace(settings(), checkpoint_minutes=5, sample_every=1)
    train(seeded(Bigram, dropout=0.3), other, data(run=tmp_path, resume=True))


def test_a_run_that_broke_leaves_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss is no number at step 10: the checkpoint of step 9 is the last, and it is good."""
    gradients = Stepper.gradients

    def broken(self: Any, *arguments: Any) -> Any:
        loss, after = gradients(self, *arguments)
        count[0] += 1
        return (loss * float("nan") if count[0] == 10 else loss), after

    count = [0]
    with monkeypatch.context() as patched:
        patched.setattr(Stepper, "gradients", broken)
        with pytest.raises(TrainingError, match="step 10"):
            trained(tmp_path, *CASES[0], minutes=0)
    assert newest(tmp_path) == 9
    assert_same(trained(tmp_path, *CASES[0]), trained(None, *CASES[0]))


# -- tensors ----------------------------------------------------------------------------------------------

Pair = namedtuple("Pair", "left right")


@dataclass(frozen=True)
class Deep:
    """A memory of every sort."""

    cells: tuple[Cells, ...]
    pair: Pair
    by_name: dict[str, Any]
    position: int
    nothing: None = None


def deep(value: float) -> Deep:
    cells = Cells(torch.full((2, 1), value), torch.full((1,), value, dtype=torch.bfloat16))
    return Deep(
        (cells, cells), Pair(torch.tensor(value), [torch.tensor(value)]), {"a": torch.tensor(value)}, int(value)
    )


def test_memories_become_tensors_and_back() -> None:
    tensors = from_arrays(to_arrays(flatten([deep(3.0)])))
    assert tensors["0.cells.1.cell"].dtype == torch.bfloat16
    (found,) = rebuild([deep(0.0)], tensors)
    assert isinstance(found, Deep)
    assert isinstance(found.pair, Pair)
    assert (found.position, found.nothing) == (3, None)
    expected = flatten(deep(3.0))
    assert flatten(found).keys() == expected.keys()
    for name, leaf in flatten(found).items():
        assert torch.equal(torch.as_tensor(leaf), torch.as_tensor(expected[name])), name


@pytest.mark.parametrize("value", [object(), SimpleNamespace(shape=(1,)), SimpleNamespace(dtype="float32")])
def test_a_memory_that_cannot_be_kept_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="made of arrays"):
        flatten([value])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool])
def test_tensors_become_arrays_bit_by_bit(dtype: torch.dtype) -> None:
    tensor = torch.from_numpy(np.random.default_rng(0).integers(0, 2, (3, 5)).astype(np.float32)).to(dtype).T
    assert torch.equal(from_arrays(to_arrays({"x": tensor}))["x"], tensor)
    assert from_arrays(to_arrays({"x": tensor}))["x"].dtype == dtype


def test_a_checkpoint_holds_no_pickle(tmp_path: Path) -> None:
    trained(tmp_path, *CASES[0])
    names = {path.name for path in checkpoint_folders(tmp_path)[0].iterdir()}
    assert names == {"manifest.json", "state.json", "tensors.safetensors"}


class Clock:
    """Ten seconds a step, and none between."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.saved = 1000.0, list[int]()
        step, save = loop.Loop._step, loop.Loop._save

        def timed(running: Any) -> None:
            step(running)
            self.now += 10

        def noted(running: Any, **how: Any) -> None:
            self.saved.append(running.state.step)
            save(running, **how)

        monkeypatch.setattr(loop.Loop, "_step", timed)
        monkeypatch.setattr(loop.Loop, "_save", noted)
        monkeypatch.setattr(loop, "time", SimpleNamespace(perf_counter=lambda: self.now))


def test_checkpoints_are_minutes_apart_and_time_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    chosen = parse(TrainingSettings, {"steps": 20, "validate_every": 20, "checkpoint_minutes": 1})
    with monkeypatch.context() as patched, pytest.raises(RuntimeError, match="power failure"):
        patched.setattr(loop.Loop, "_validate", power_failure)
        train(seeded(Bigram), chosen, data(run=tmp_path))
    assert clock.saved == [6, 12, 18]
    clock.now = 5.0  # another process, another clock
    trained = train(seeded(Bigram), chosen, data(run=tmp_path, resume=True))
    assert trained.state.seconds == 200


def power_failure(running: Any) -> None:
    raise RuntimeError("power failure")


def test_a_training_whose_steps_were_too_large_goes_on_with_smaller_ones(tmp_path: Path) -> None:
    with interrupted(5):
        train(seeded(Bigram), settings(), data(run=tmp_path))
    smaller = replace(settings(), learning_rate=1e-9, clip=0.1)
    found = train(seeded(Bigram), smaller, data(run=tmp_path, resume=True))
    assert found.state.step == 40
    for name, weight in seeded(Bigram).state_dict().items():  # five steps of at most 0.02 an entry, and no more
        assert np.abs(found.last[name] - weight.numpy()).max() <= 5 * 0.021
    with pytest.raises(TrainingError, match="settings batch: 64 then, 32 now"):
        train(seeded(Bigram), replace(settings(), batch=32), data(run=tmp_path, resume=True))


# -- another length ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("longer", "steps"), [({"steps": 50}, 50), ({"steps": None, "epochs": 3}, 36)], ids=str)
def test_a_resumed_run_may_have_another_length(longer: dict[str, Any], steps: int, tmp_path: Path) -> None:
    """With a constant rate, it is the same as a run that had this length from its start."""
    constant = replace(settings(), schedule="constant", warmup=0.0, validate_every=10)
    with interrupted(12):
        train(seeded(Bigram), constant, data(run=tmp_path))
    progress, longer_settings = Listening(), replace(constant, **longer)
    found = train(seeded(Bigram), longer_settings, data(run=tmp_path, resume=True, progress=progress))
    assert found.state.step == steps
    assert progress.notes == [f"12 steps are done, of {steps}; the plan was 40"]
    assert_same(found, train(seeded(Bigram), longer_settings, data()))


def test_a_resumed_run_cannot_be_shorter_than_it_is(tmp_path: Path) -> None:
    train(seeded(Bigram), settings(), data(run=tmp_path))
    with pytest.raises(SettingsError, match="40 steps are done, and no more are asked for"):
        train(seeded(Bigram), replace(settings(), steps=39), data(run=tmp_path, resume=True))


@pytest.mark.parametrize("stop", [7, 15])
def test_a_run_may_end_where_it_stands(stop: int, tmp_path: Path) -> None:
    """Before the first validation, and between two."""
    validating = replace(settings(), validate_every=10)
    with interrupted(stop):
        train(seeded(Bigram), validating, data(run=tmp_path))
    found = train(seeded(Bigram), replace(validating, steps=stop), data(run=tmp_path, resume=True))
    assert found.state.step == found.state.history[-1]["step"] == stop
    assert found.state.best_loss is not None


def test_a_run_that_stalled_goes_on_with_more_patience(tmp_path: Path) -> None:
    stalling = replace(settings(), learning_rate=1e-9, validate_every=2, patience=3, schedule="constant")
    first = train(seeded(Bigram), stalling, data(run=tmp_path))
    assert first.state.step < 40
    more = replace(stalling, patience=5)
    found = train(seeded(Bigram), more, data(run=tmp_path, resume=True))
    assert_same(found, train(seeded(Bigram), more, data()))
    assert first.state.step < found.state.step


def test_a_run_that_patience_ended_needs_more_of_it_to_be_longer(tmp_path: Path) -> None:
    stalling = replace(settings(), learning_rate=1e-9, validate_every=2, patience=3, schedule="constant")
    train(seeded(Bigram), stalling, data(run=tmp_path))
    with pytest.raises(
        SettingsError, match=r"3 validations in a row found nothing better: .* more patience than 3"
    ):
        train(seeded(Bigram), replace(stalling, steps=50), data(run=tmp_path, resume=True))


def test_a_longer_run_validates_as_often_as_one_that_was_planned_so(tmp_path: Path) -> None:
    """Every step where there are ten steps, but not where there are a hundred; metrics.jsonl tells."""
    constant = replace(settings(), schedule="constant", warmup=0.0)
    train(seeded(Bigram), replace(constant, steps=10), data(run=tmp_path))
    longer = replace(constant, steps=100)
    found = train(seeded(Bigram), longer, data(run=tmp_path, resume=True))
    fresh = train(seeded(Bigram), longer, data())
    assert [one["step"] for one in found.state.history if one["step"] > 10] == [
        one["step"] for one in fresh.state.history if one["step"] > 10
    ]
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    decided = [(one["step"], one["total"]) for one in records if one["what"] == "decisions"]
    assert decided == [(0, 10), (10, 100)]


@pytest.mark.parametrize(("average", "every", "stop"), [("tail", 50, 36), ("tail", 50, 20), ("ema", 20, 2)])
def test_an_average_is_that_of_the_longer_run(average: str, every: int, stop: int, tmp_path: Path) -> None:
    """The tail holds the last 9 of 40 steps and the last 21 of 100; the moving mean spans 2 of 40 and 5 of 100."""
    constant = replace(settings("adamw", average), schedule="constant", warmup=0.0, validate_every=every)
    with interrupted(stop):
        train(seeded(Bigram), constant, data(run=tmp_path))
    longer = replace(constant, steps=100)
    found = train(seeded(Bigram), longer, data(run=tmp_path, resume=True))
    assert_same(found, train(seeded(Bigram), longer, data()))


def test_parts_may_be_others(tmp_path: Path) -> None:
    for make, forgets in ((Bigram, False), (Recurrent, True)):
        run, progress = tmp_path / make.__name__, Listening()
        train(seeded(make), settings(), data(run=run))
        for steps in (50, 51):  # the second time they are no others
            other = replace(settings(), device_batch=8, steps=steps)
            assert train(seeded(make), other, data(run=run, resume=True, progress=progress)).state.step == steps
        assert sum("is dropped" in note for note in progress.notes) == forgets


def test_precision_may_be_another(tmp_path: Path) -> None:
    train(seeded(Bigram), settings(), data(run=tmp_path))
    other = replace(settings(), steps=50, precision="bfloat16")
    assert train(seeded(Bigram), other, data(run=tmp_path, resume=True)).state.decisions.bfloat16


def test_what_was_remembered_in_another_precision_goes_on_in_that_of_now() -> None:
    texts = feed(data().train.ids, "stream", None, Size(8, 64, 24))
    engine = TorchEngine(seeded(Recurrent), settings(), "cpu")
    engine.start(Mode())
    engine.take_step(texts, texts.layout.epoch(0)[0], 1.0, Place(1, 0, 0))
    arrays, counts = engine.snapshot()
    remembered = {name: torch.tensor(arrays.pop(name)) for name in list(arrays) if name.startswith("memory/")}
    small = to_arrays({name: tensor.bfloat16() for name, tensor in remembered.items()})
    engine.restore(Snapshot({**arrays, **small}, counts), texts)
    found = flatten(engine.memories)
    assert {f"memory/{name}" for name in found} == set(remembered)
    for name, tensor in found.items():
        assert torch.equal(tensor, remembered[f"memory/{name}"].bfloat16().float())


@pytest.mark.parametrize(("before", "after"), [("no", "yes"), ("yes", "no")])
def test_code_may_be_compiled_from_then_on(
    before: str, after: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight rows in parts of three: compiled code takes three in the last part too, of which one is PAD."""
    monkeypatch.setattr(torch, "compile", lambda function, dynamic: function)
    progress = Listening()
    train(seeded(Recurrent), replace(settings(), compile=before), data(run=tmp_path))
    again = replace(settings(), compile=after, steps=50)
    assert train(seeded(Recurrent), again, data(run=tmp_path, resume=True, progress=progress)).state.step == 50
    assert any("is dropped" in note for note in progress.notes)
