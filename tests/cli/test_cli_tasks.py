"""Tasks: each is declared once, commands know none by its name, and a plug-in can bring one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import chainrule as cr
from chainrule.comparison.results import read_comparison
from chainrule.contract import kinds, tasks
from chainrule.contract.data import TrainingData
from chainrule.contract.kinds import Figures, HeldOut, Kind, LadderEntry, find_kind
from chainrule.contract.tasks import Task, find_task, task_names
from chainrule.errors import ChainruleError
from chainrule.system.plugins import import_object
from chainrule.system.progress import Progress

from .running import Fails, Run

SOURCE = Path(cr.__file__).parent


@dataclass(frozen=True)
class Counted:
    """What the task of the plug-in measures."""

    words: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def evaluate_counter(model: object, corpus: cr.Corpus, *, progress: Progress) -> Counted:
    return Counted(sum(len(block.split()) for block in corpus.blocks()))


def show_counters(screen: Console, results: Sequence[tuple[str, Counted]]) -> None:
    for folder, found in results:
        screen.print(f"{Path(folder).name} counts {found.words}")


COUNTED = Figures({"words": 3.0}, loss=0.5, tokens_per_second=1.0, sample="three")


def measure_counter(model: object, held_out: HeldOut, progress: Progress) -> Figures:
    return COUNTED


def train_counter(settings: Any, data: TrainingData) -> Any:
    model = find_kind("ngram").train(settings, data)
    model.kind = "counter"
    return model


COUNTING = Task(
    "counting",
    does="counts words",
    verb="evaluate",
    evaluate=f"{__name__}:evaluate_counter",
    show=f"{__name__}:show_counters",
    unit="word",
)
COUNTER: Kind = replace(
    find_kind("ngram"),
    name="counter",
    train=train_counter,
    task="counting",
    measure=f"{__name__}:measure_counter",
    ladder=(LadderEntry("counter", {"order": 1}),),
)


@pytest.fixture
def _plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that brings a task, and a kind for it."""
    points = {
        "counting": EntryPoint("counting", f"{__name__}:COUNTING", tasks.PLUGINS),
        "counter": EntryPoint("counter", f"{__name__}:COUNTER", kinds.PLUGINS),
    }
    for module in (tasks, kinds):
        found = {name: point for name, point in points.items() if point.group == module.PLUGINS}
        monkeypatch.setattr(module, "find_plugins", lambda group, found=found: found)


@pytest.mark.usefixtures("_plugin")
def test_a_plug_in_brings_a_task(run: Run, fails: Fails, toy: Path, tmp_path: Path) -> None:
    assert task_names()[-1] == "counting" and find_task("counting") is COUNTING
    model = tmp_path / "model"
    trained = run("train", "counter", toy, "--tokenizer", "word", "--out", model)
    assert trained.code == 0 and "trained on 12 words" in trained.out
    assert run("evaluate", model, toy).out == "model counts 9\n"
    assert run("evaluate", model, toy, "--json").json == {"folder": str(model), "words": 9}
    assert "a model of the kind counter counts words: use chainrule evaluate" in fails("generate", model)
    assert "is for models that predict text" in fails("evaluate", model, toy, "--dynamic", "0.1")
    compared = run(
        "compare", toy, "--task", "counting", "--out", tmp_path / "ladder", "--valid", toy, "--test", toy
    )
    assert compared.code == 0, compared.err
    assert "counter: three" in compared.out and "Try: chainrule evaluate" in compared.out
    found = read_comparison(tmp_path / "ladder")
    assert found is not None and found.results[0].test == COUNTED


def test_a_task_that_is_not_there_is_named(fails: Fails, toy: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ChainruleError, match="no task 'typing' \\(there are: language, translation, tagging, masked"
    ):
        find_task("typing")
    assert "no task 'typing'" in fails("compare", toy, "--task", "typing", "--out", tmp_path / "ladder")


@pytest.mark.parametrize("name", ["language", "translation", "tagging", "masked", "classification"])
def test_what_a_task_names_is_there(name: str) -> None:
    task = find_task(name)
    assert task.name == name
    for place in (task.evaluate, task.show, task.plot, task.examples, task.encode):
        assert place is None or callable(import_object(place))


def test_no_command_knows_a_task_by_its_name() -> None:
    """What differs between tasks is declared by them; a new one needs no change elsewhere."""
    names = "|".join(tasks._BUILT_IN)
    branch = re.compile(rf"""task\w*(\.\w+)?(\([^)]*\))? *(==|!=|in|not in) *[({{\[]*["']({names})["']""")
    for room in ("cli", "runs", "comparison"):
        for path in sorted((SOURCE / room).rglob("*.py")):
            assert not branch.search(path.read_text()), path
