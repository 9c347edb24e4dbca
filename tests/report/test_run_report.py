"""The report of one training, finished or going on."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import chainrule as cr
from chainrule.cli.main import main
from chainrule.errors import FolderError
from chainrule.report.run import MOST_POINTS, RunDetails, is_going_on, run_details
from chainrule.report.write import watch_report
from chainrule.system.disk import holding

pytest.importorskip("altair")


def run_folder(folder: Path, steps: int = 30) -> Path:
    """A run folder as training writes it: losses in nats."""
    folder.mkdir()
    given = {"hidden": 64, "batch": None, "layers": None, "note": "<b>"}
    (folder / "run.json").write_text(json.dumps({"kind": "lstm", "settings": given}))
    with (folder / "metrics.jsonl").open("w") as file:
        decided = {"compiled": False, "measured": {"validation_tokens_per_second": 20285}}
        complete = given | {"batch": 256, "layers": 2}
        file.write(json.dumps({"what": "decisions", "step": 0, **decided, "settings": complete}) + "\n")
        for step in range(1, steps + 1):
            loss = 6 / (1 + step / 10)
            figures = {"step": step, "tokens": 100 * step, "seconds": step / 2, "loss": loss, "grad_norm": 1.0}
            speeds = {"learning_rate": 0.01 / step, "tokens_per_second": 900.0 + step, "mfu": None}
            file.write(json.dumps({"what": "steps", **figures, **speeds}) + "\n")
            if step % 10 == 0:
                valid = {"step": step, "loss": 2 * loss, "validation_loss": loss + 0.2}  # since the last validation
                file.write(json.dumps({"what": "validation", **valid}) + "\n")
                file.write(json.dumps({"what": "sample", "step": step, "text": f"<i> {step}"}) + "\n")
        file.write('{"what": "steps", "st')  # cut short
    return folder


def test_losses_are_in_bits_and_every_validation_is_there(tmp_path: Path) -> None:
    record = run_details(run_folder(tmp_path / "model.run"))
    assert (record.kind, record.settings["hidden"], record.measurements) == ("lstm", 64, 30)
    assert [point["step"] for point in record.points] == [*range(1, 31)]
    assert record.points[0]["loss"] == pytest.approx(6 / 1.1 / math.log(2))
    assert record.points[9]["loss"] == pytest.approx(6 / 2 / math.log(2))  # one curve of one mean
    assert record.summary["best_validation_loss"] == pytest.approx((6 / 4 + 0.2) / math.log(2))
    assert record.summary["step"] == 30
    assert not record.is_going_on


def test_what_was_chosen_and_why(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "model.run")
    record = run_details(run)
    assert {name: one["value"] for name, one in record.chosen.items()} == {"batch": 256, "layers": 2}
    assert record.decisions == {"compiled": False, "validation_tokens_per_second": 20285}
    assert record.samples == [{"step": step, "text": f"<i> {step}"} for step in (10, 20, 30)]
    assert record.settings["layers"] == 2
    # "note" is not a setting of this version: the values are shown without their reasons
    assert record.chosen["layers"]["reason"] == ""
    values = json.loads((run / "run.json").read_text())
    del values["settings"]["note"]
    (run / "run.json").write_text(json.dumps(values))
    html = cr.report.make_report(run).html
    assert "the largest network that reads enough tokens for each parameter" in html
    assert "about the square root of the tokens" in html
    assert "&lt;i&gt; 20" in html


def test_of_a_long_run_some_points_are_kept(tmp_path: Path) -> None:
    record = run_details(run_folder(tmp_path / "model.run", 3 * MOST_POINTS))
    assert record.measurements == 3 * MOST_POINTS
    valid = [point for point in record.points if "validation_loss" in point]
    assert len(valid) == 3 * MOST_POINTS // 10
    assert len(record.points) <= MOST_POINTS + len(valid) + 1
    assert record.points[-1]["step"] == 3 * MOST_POINTS


def test_the_page_of_a_run(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "model.run")
    page = cr.report.write_report(run)
    html = page.read_text(encoding="utf-8")
    assert page == run / "report.html"
    assert 'http-equiv="refresh"' not in html
    assert "<dt>hidden</dt><dd>64</dd>" in html
    assert "<dt>step</dt><dd>30</dd>" in html
    assert "<dd>&lt;b&gt;</dd>" in html
    names = {path.stem for path in (run / "report").glob("*.svg")}
    assert names == {"loss", "learning-rate", "tokens-per-second", "grad-norm"}
    assert json.loads((run / "report.json").read_text())["what"] == "run"


def test_the_page_of_a_model_stands_beside_it(made: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(made / "elman", tmp_path / "elman")
    before = sorted(path.name for path in (tmp_path / "elman").iterdir())
    page = cr.report.write_report(tmp_path / "elman")
    assert page == tmp_path / "elman.report.html"
    assert (tmp_path / "elman.report.json").is_file()
    assert (tmp_path / "elman.report" / "loss.svg").is_file()
    assert sorted(path.name for path in (tmp_path / "elman").iterdir()) == before
    with pytest.raises(FolderError, match="no training curves"):
        cr.report.write_report(next(path.parent for path in made.glob("trigram*/manifest.json")))


def test_a_run_without_measurements(tmp_path: Path) -> None:
    (tmp_path / "new.run").mkdir()
    (tmp_path / "new.run" / "run.json").write_text("{}")
    report = cr.report.make_report(tmp_path / "new.run")
    assert isinstance(report.record, RunDetails)
    assert report.charts == {}
    assert "Nothing was measured yet" in report.html


def test_a_run_is_followed_until_it_ends(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "model.run")
    pages: list[str] = []
    ended = threading.Event()

    def train() -> None:
        with holding(run):
            started.set()
            ended.wait(20)

    started = threading.Event()
    training = threading.Thread(target=train)
    training.start()
    started.wait(20)
    assert is_going_on(run)

    def seen(page: Path) -> None:
        pages.append(page.read_text(encoding="utf-8"))
        ended.set()

    page = watch_report(run, seconds=0.1, on_page=seen)
    training.join()
    assert len(pages) == 1
    assert '<meta http-equiv="refresh" content="5">' in pages[0]
    assert "It is going on" in pages[0]
    last = page.read_text(encoding="utf-8")
    assert "refresh" not in last.partition("<style>")[0]
    assert (run / "report" / "loss.png").is_file()


def test_ctrl_c_ends_following_quietly(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "model.run")
    with holding(run):
        following = subprocess.Popen(
            [sys.executable, "-m", "chainrule", "report", str(run), "--watch"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        deadline = time.monotonic() + 120
        while not (run / "report.html").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(0.5)
        following.send_signal(signal.SIGINT)
        out, err = following.communicate(timeout=60)
    assert following.returncode == 0, err
    assert "The report is" in out
    assert "Traceback" not in err
    assert "error" not in err


def test_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_folder(tmp_path / "model.run")
    with pytest.raises(SystemExit) as ended:
        main(["report", str(run)])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"The report is {run / 'report.html'}\n"
    with pytest.raises(SystemExit):
        main(["report", str(run), "--json"])
    assert json.loads(capsys.readouterr().out)["what"] == "run"
    with pytest.raises(SystemExit) as ended:
        main(["report", str(run), "--watch", "--prompt", "The"])
    assert ended.value.code == 2
    for arguments in (["report", "a", "b", "--prompt", "The"], ["report", "a", "b", "--watch"]):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 2
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["report", str(run), str(run)])
    assert ended.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1  # one line for a folder that is no comparison
    with pytest.raises(SystemExit) as ended:
        main(["report", str(tmp_path)])
    assert ended.value.code == 2
    assert "neither a comparison" in capsys.readouterr().err


def test_a_comparison_is_not_watched(tmp_path: Path) -> None:
    (tmp_path / "compare.json").touch()
    with pytest.raises(FolderError, match=r"a comparison, whose report is made at its end; --watch follows a run"):
        watch_report(tmp_path)
