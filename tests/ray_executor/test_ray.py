"""Ray's workers: the same folders and the same output as one process, also where workers die."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.running import TRAIN_NGRAM, Fails, Run, sets

import chainrule as cr
from chainrule.errors import ChainruleError, CorpusError, MissingExtraError
from chainrule.ray.connection import ClusterError, ray_executor
from chainrule.ray.executor import RayExecutor
from chainrule.system.parallel import EMBEDDED

WORDS = ("--tokenizer", "word")
TEXT = "".join(f"line {i % 97} of a text that has {i % 13} words and {i % 7} ends\n" for i in range(3000))


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.txt").write_text(TEXT[number * 40_000 :], encoding="utf-8")
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """What does not tell how long training took, and by which command."""
    return {name: (folder / name).read_bytes() for name in ("model.safetensors", "tokenizer.json")}


@pytest.mark.parametrize("settings", [["order=5"], ["order=3", "entropy=0.001"]], ids=str)
def test_the_folder_is_that_of_one_process(
    run: Run, files: Path, tmp_path: Path, local_ray: None, settings: list[str]
) -> None:
    for executor in ("embedded", "ray"):
        out = ("--executor", executor, "--out", tmp_path / executor)
        done = run(*TRAIN_NGRAM, f"{files}/*.txt", *sets(*settings), *out)
        assert done.code == 0, done.err
    assert contents(tmp_path / "ray") == contents(tmp_path / "embedded")
    one, other = (cr.load(tmp_path / executor) for executor in ("embedded", "ray"))
    if len(settings) > 1:  # something was pruned, so that there is something to compare
        whole = cr.train("ngram", files, order=3, tokenizer="word")
        assert sum(map(len, one.tensors().values())) < sum(map(len, whole.tensors().values()))
    told = {"command"}
    assert {k: v for k, v in one.provenance.items() if k not in told} == {
        k: v for k, v in other.provenance.items() if k not in told
    }


def test_scores_filters_and_ids_are_those_of_one_process(
    run: Run, files: Path, tmp_path: Path, local_ray: None
) -> None:
    model = tmp_path / "model"
    assert run("train", "ngram", "--tokenizer", "word", files / "0.txt", "--out", model).code == 0
    ids = [tmp_path / executor for executor in ("embedded.ids", "ray.ids")]
    verbs: list[Callable[[str], list[Any]]] = [
        lambda executor: ["score", model, files / "1.txt"],
        lambda executor: ["score", model, files / "1.txt", "--worst", "5", "--by", "total", "--json"],
        lambda executor: ["filter", model, files / "1.txt", "--keep", "0.3"],
        lambda executor: ["tokenize", files, *WORDS, "--ids", tmp_path / f"{executor}.ids", "--json"],
    ]
    for verb in verbs:
        one, other = (run(*verb(executor), "--executor", executor) for executor in ("embedded", "ray"))
        assert (one.code, one.out) == (other.code, other.out) == (0, one.out)
    assert ids[0].read_bytes() == ids[1].read_bytes()


def dying(work: Callable[[Any], Any], mark: Path) -> Callable[[Any], Any]:
    """A function that does its work, and takes its process down before anybody is told: once for each mark."""

    def die(piece: Any) -> Any:
        result = work(piece)
        try:
            mark.touch(exist_ok=False)
        except FileExistsError:
            return result
        os.kill(os.getpid(), signal.SIGKILL)
        return None

    return die


class DyingWorkers(RayExecutor):
    """Workers of which one dies in each round of work that is named."""

    rounds = ("_count", "_smooth", "log")
    died = 0

    def in_order(self, work: Callable[[Any], Any], pieces: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        name = getattr(getattr(work, "func", work), "__name__", type(work).__name__)  # "func": of a partial
        mark = self.folder.parent / f"died-{name}"  # type: ignore[union-attr]
        if name in self.rounds and not mark.exists():
            yield from super().in_order(dying(work, mark), pieces)
            self.died += mark.exists()
        else:
            yield from super().in_order(work, pieces)


@pytest.mark.slow
def test_workers_that_die_in_the_middle_change_nothing(files: Path, ray_workers: RayExecutor) -> None:
    expected = cr.train("ngram", files, order=3, tokenizer="word")
    executor = DyingWorkers(ray_workers.folder, ray_workers.workers)  # type: ignore[arg-type]
    found = cr.train("ngram", files, order=3, workers=executor, tokenizer="word")
    assert executor.died == 3
    for name, array in expected.tensors().items():
        assert found.tensors()[name].tobytes() == array.tobytes(), name


def test_a_worker_that_is_killed_from_outside_is_replaced(tmp_path: Path, ray_workers: RayExecutor) -> None:
    def slow(number: int) -> int:
        (tmp_path / f"pid-{number}-{os.getpid()}").touch()
        while number == 3 and len(list(tmp_path.glob("pid-3-*"))) < 2:
            time.sleep(0.05)  # until it is killed, and done by another
        return number * number

    def kill() -> None:
        while not (found := list(tmp_path.glob("pid-3-*"))):
            time.sleep(0.02)
        os.kill(int(found[0].name.rpartition("-")[2]), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    assert list(ray_workers.in_order(slow, range(6))) == [(n, n * n) for n in range(6)]
    killer.join()
    assert len(list(tmp_path.glob("pid-3-*"))) == 2


def test_errors_of_workers_are_raised_as_they_are(ray_workers: RayExecutor) -> None:
    def fail(number: int) -> int:
        if number == 2:
            raise CorpusError("this is not a text")
        return number

    with pytest.raises(CorpusError, match="this is not a text"):
        list(ray_workers.in_order(fail, range(4)))


def test_arrays_of_files_travel_by_name(ray_workers: RayExecutor, tmp_path: Path) -> None:
    array = np.memmap(tmp_path / "array", np.int64, "w+", shape=1000)
    part = np.asarray(array[100:900])

    def fill(number: int) -> bool:
        part[number * 100 : number * 100 + 100] = number
        return isinstance(part, np.memmap)

    assert all(named for _, named in ray_workers.in_order(fill, range(8)))
    expected = [0] * 100 + [n for n in range(8) for _ in range(100)] + [0] * 100
    assert array.tolist() == expected


def test_a_dead_cluster_is_refused_at_once(fails: Fails, files: Path, tmp_path: Path) -> None:
    ray = pytest.importorskip("ray")
    if ray.is_initialized():
        with pytest.raises(ClusterError, match=r"no Ray cluster answers at 127.0.0.1:9: .*refused"):
            from chainrule.ray.connection import _check_answers

            _check_answers("127.0.0.1:9")
    out = tmp_path / "model"
    script = [sys.executable, "-m", "chainrule", "train", "ngram", "--tokenizer", "word", files, "--out", out]
    began = time.monotonic()
    script += ["--executor", "ray", "--address", "127.0.0.1:9"]
    done = subprocess.run([*map(str, script)], capture_output=True, text=True, check=False)
    assert time.monotonic() - began < 20
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "no Ray cluster answers at 127.0.0.1:9" in done.stderr
    assert not out.exists()


def test_a_dead_cluster_is_refused_by_each_verb(
    run: Run, fails: Fails, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = pytest.importorskip("ray")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)  # the Ray of other tests is none of this one's
    model, out = tmp_path / "model", tmp_path / "out"
    cr.train("ngram", files / "0.txt", order=2, tokenizer="word").save(model)
    for verb in (
        ["score", model, files / "1.txt"],
        ["filter", model, files / "1.txt", "--keep", "0.3", "--out", out],
        ["tokenize", files, "--tokenizer", "word", "--ids", out],
    ):
        said = fails(*verb, "--executor", "ray", "--address", "127.0.0.1:9")
        assert "no Ray cluster answers at 127.0.0.1:9: Connection refused; start one (ray start --head)" in said
        assert not out.exists()


def test_options_that_do_not_go_together(fails: Fails, files: Path, tmp_path: Path) -> None:
    train = ["train", "ngram", "--tokenizer", "word", files, "--out", tmp_path / "m"]
    assert "--address is for --executor ray" in fails(*train, "--address", "auto")
    assert "anygram is not trained by counting" in fails(
        "train", "anygram", "--tokenizer", "word", *train[2:], "--engine", "ray"
    )  # its earlier name
    assert "needs no executor" in fails("tokenize", files, "--show", "--executor", "ray")
    with pytest.raises(ClusterError, match="no such folder to work in"), ray_executor(work=tmp_path / "nowhere"):
        pass


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.0 400 Bad Request\r\n"], ids=["nothing", "a web server"])
def test_what_listens_and_is_not_ray_is_refused_at_once(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    from chainrule.ray import connection

    monkeypatch.setattr(connection, "_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def reply() -> None:
            client, _ = server.accept()
            with client:
                client.recv(100)
                client.sendall(answer) if answer else time.sleep(1)

        thread = threading.Thread(target=reply)
        thread.start()
        with pytest.raises(ClusterError, match=r"not Ray|timed out"):
            connection._check_answers(f"127.0.0.1:{server.getsockname()[1]}")
        thread.join()


def test_the_address_of_a_cluster_that_runs_is_taken(local_ray: None) -> None:
    import ray

    from chainrule.ray.connection import _check_answers

    _check_answers(ray.get_runtime_context().gcs_address)


def test_an_address_should_be_one() -> None:
    from chainrule.ray.connection import _check_answers

    with pytest.raises(ClusterError, match="should be HOST:PORT"):
        _check_answers("somewhere")


def test_a_cluster_that_wants_a_token_is_told_from_one_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")
    from chainrule.ray import connection

    def init(**options: Any) -> None:
        try:  # as Ray does it: what is wrong stands in the error before the last
            raise RuntimeError("Failed to connect to GCS.\nRPC error: InvalidAuthToken: it is missing or incorrect")
        except RuntimeError as error:
            raise ConnectionError("Failed to connect to Ray cluster\nwith much advice") from error

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(connection, "_check_answers", lambda address: None)
    with pytest.raises(ClusterError) as caught, ray_executor("127.0.0.1:6379"):
        pass
    expected = "no Ray cluster can be used at 127.0.0.1:6379: it wants its own token: set RAY_AUTH_MODE=token and "
    assert str(caught.value).startswith(expected) and "\n" not in str(caught.value)


def test_without_ray_the_message_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'chainrule\[scale\]'"), ray_executor():
        pass


def test_a_context_that_flows_is_read_in_sequence(
    files: Path, tmp_path: Path, fails: Fails, monkeypatch: pytest.MonkeyPatch
) -> None:
    from chainrule.contract.kinds import Stored, Workers
    from chainrule.evaluation.records import score_records

    lm = cr.train("ngram", files / "0.txt", order=2, context="stream", tokenizer="word")
    with pytest.raises(ChainruleError, match="reads a text in sequence"):
        list(score_records(lm, files / "1.txt", workers=Workers(EMBEDDED, Stored(tmp_path))))
    lm.save(tmp_path / "model")
    monkeypatch.setitem(sys.modules, "ray", None)  # it is refused before Ray is asked for
    said = fails("score", tmp_path / "model", files / "1.txt", "--executor", "ray")
    assert "reads a text in sequence: leave out the executor" in said


def test_ray_is_not_imported_unless_asked_for() -> None:
    script = (
        "import sys, chainrule as cr; cr.train('ngram', ['a b', 'b a'], order=2); "
        "import chainrule.cli.main; print('ray' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
