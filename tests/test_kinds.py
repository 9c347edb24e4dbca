"""Tests of finding kinds by name: built-in kinds, plug-ins, and kinds whose library is missing."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import chainrule as cr
from chainrule.comparison.ladder import ladder_entries
from chainrule.contract import kinds
from chainrule.contract.tasks import LANGUAGE, REPLIES, find_task
from chainrule.errors import ChainruleError, FolderError, MissingExtraError, PluginError
from chainrule.networks.transformer.settings import TransformerSettings
from chainrule.ngram.train import KIND as NGRAM
from chainrule.training.kinds import network_kind
from listening import Listening
from manifests import read_manifest, write_manifest


@dataclass(frozen=True)
class NoSettings:
    """A kind without settings."""


def train_bigram(settings: NoSettings, data: kinds.TrainingData) -> cr.LanguageModel:
    return NGRAM.train(NGRAM.settings(order=2, smoothing="laplace"), data)


PLUGIN = kinds.Kind(
    name="pair",
    summary="pairs of words",
    settings=NoSettings,
    train=train_bigram,
    load=NGRAM.load,
    ladder=(kinds.LadderEntry("pair", {}),),
)


@dataclass(frozen=True)
class EntryPoint:
    """Return the entry point of an installed plug-in, as importlib.metadata gives it."""

    name: str
    target: Any
    value: str = "somewhere:KIND"

    def load(self) -> Any:
        if isinstance(self.target, BaseException):
            raise self.target
        return self.target


def plug_in(monkeypatch: pytest.MonkeyPatch, *points: EntryPoint) -> None:
    installed = {"chainrule.kinds": points}
    monkeypatch.setattr(
        "chainrule.system.plugins._plugins", lambda group, path: {one.name: one for one in installed.get(group, ())}
    )


NET = replace(PLUGIN, name="net", requires_torch=True)


@pytest.fixture
def without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register a kind "net" that needs torch, which is missing, and kinds that do not need it."""
    monkeypatch.setattr(sys.modules[__name__], "KIND_OF_NETS", NET, raising=False)
    others = {name: kinds._BUILT_IN[name] for name in ("ngram", "feedforward")}
    monkeypatch.setattr(kinds, "_BUILT_IN", {**others, "net": f"{__name__}:KIND_OF_NETS"})
    monkeypatch.setattr(kinds, "has_torch", lambda: False)


def test_a_kind_is_found_by_its_name() -> None:
    assert kinds.find_kind("ngram") is NGRAM
    assert "ngram" in kinds.kind_names()


def test_an_unknown_kind_is_guessed_at() -> None:
    with pytest.raises(
        ChainruleError, match=r"no kind of model 'n-gram'; did you mean 'ngram'\? \(there are: ngram"
    ):
        kinds.find_kind("n-gram")
    with pytest.raises(ChainruleError, match=r"no kind of model 'oracle' \(there are: ngram"):
        kinds.find_kind("oracle")


def test_a_plugin_is_a_kind_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    plug_in(monkeypatch, EntryPoint("pair", PLUGIN))
    assert kinds.kind_names()[-1] == "pair"
    assert kinds.find_kind("pair") is PLUGIN
    assert ("pair", "pair") in [(kind.name, entry.name) for kind, entry in ladder_entries()]
    lm = cr.train("pair", cr.Corpus.from_text("i love cats\ni love dogs\n"), tokenizer="word")
    assert lm.perplexity("i love cats") < 10


def test_kinds_are_listed_without_being_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    plug_in(monkeypatch, EntryPoint("broken", ImportError("this kind cannot be imported")))
    monkeypatch.setitem(kinds._BUILT_IN, "absent", "no_such_module:KIND")
    assert {"broken", "absent"} <= set(kinds.kind_names())


def test_a_plugin_never_takes_the_place_of_a_built_in_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    plug_in(monkeypatch, EntryPoint("ngram", PLUGIN))
    assert kinds.kind_names().count("ngram") == 1
    assert kinds.find_kind("ngram") is NGRAM


@pytest.mark.usefixtures("without_torch")
def test_a_missing_library_says_what_to_install() -> None:
    with pytest.raises(MissingExtraError, match=r"the kind 'net' needs torch.*pip install 'chainrule\[neural\]'"):
        kinds.find_kind("net")


def test_a_missing_library_of_a_plugin_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    plug_in(monkeypatch, EntryPoint("net", NET))
    assert kinds.find_kind("net") is NET
    monkeypatch.setattr(kinds, "has_torch", lambda: False)
    with pytest.raises(MissingExtraError, match="the kind 'net' needs torch"):
        kinds.find_kind("net")
    # a plug-in that imports torch right away fails before it can say so
    plug_in(monkeypatch, EntryPoint("eager", ModuleNotFoundError("No module named 'torch'", name="torch")))
    with pytest.raises(MissingExtraError, match="the kind 'eager' needs torch"):
        kinds.find_kind("eager")


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (
            ModuleNotFoundError("No module named 'lightning'", name="lightning"),
            "ModuleNotFoundError: No module named 'lightning'",
        ),
        (SystemExit(3), "SystemExit: 3"),
        (ZeroDivisionError(), "ZeroDivisionError"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_plugin_that_cannot_be_loaded_is_named(
    target: BaseException, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plug_in(monkeypatch, EntryPoint("odd", target))
    with pytest.raises(PluginError) as error:
        kinds.find_kind("odd")
    assert str(error.value) == f"the plug-in 'odd' (somewhere:KIND) cannot be loaded: {said}"


def test_a_plugin_that_is_no_kind_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    plug_in(monkeypatch, EntryPoint("odd", NoSettings()))
    with pytest.raises(PluginError, match=r"'odd' \(somewhere:KIND\) should be a Kind, not NoSettings"):
        kinds.find_kind("odd")


def test_a_kind_under_another_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    plug_in(monkeypatch, EntryPoint("other", NGRAM))
    with pytest.raises(PluginError, match=r"'other' .* is a kind of another name, 'ngram'"):
        kinds.find_kind("other")


def test_a_broken_plugin_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    expected, progress = list(ladder_entries()), Listening()
    plug_in(monkeypatch, EntryPoint("odd", ImportError("no such thing")), EntryPoint("pair", PLUGIN))
    assert list(ladder_entries(progress=progress)) == [*expected, (PLUGIN, PLUGIN.ladder[0])]
    assert progress.notes == [
        "left out: the plug-in 'odd' (somewhere:KIND) cannot be loaded: ImportError: no such thing"
    ]
    with pytest.raises(PluginError):
        list(ladder_entries(["odd"]))


def test_ctrl_c_while_a_plugin_is_loaded_is_no_broken_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    plug_in(monkeypatch, EntryPoint("slow", KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        kinds.find_kind("slow")


def test_another_missing_module_is_not_blamed_on_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(kinds._BUILT_IN, "absent", "no_such_module:KIND")
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        kinds.find_kind("absent")


@pytest.mark.usefixtures("without_torch")
def test_the_ladder_leaves_out_a_kind_whose_library_is_missing() -> None:
    progress = Listening()
    others = [name for name in kinds.kind_names() if name != "net"]
    assert list(ladder_entries(progress=progress)) == list(ladder_entries(others))
    assert progress.notes == [
        "left out: the kind net needs torch, which is not installed: pip install 'chainrule[neural]'"
    ]


@pytest.mark.usefixtures("without_torch")
def test_a_kind_that_was_asked_for_is_not_left_out() -> None:
    with pytest.raises(MissingExtraError):
        list(ladder_entries(["net"]))


def test_only_kinds_that_are_trained_in_steps_keep_a_run() -> None:
    assert [name for name in ("ngram", "anygram", "lstm", "transformer") if kinds.find_kind(name).keeps_run] == [
        "lstm",
        "transformer",
    ]


def test_two_tasks_learn_from_pairs() -> None:
    every = [LANGUAGE, REPLIES, find_task("translation"), find_task("tagging")]
    assert [task.name for task in every if task.has_sources] == ["replies", "translation"]


def test_pairs_are_counted_where_there_are_pairs_only() -> None:
    lm = cr.train("ngram", ["i love cats", "i love dogs"], order=2, tokenizer="word")
    assert "corpus_pairs" not in lm.provenance and lm.provenance["corpus_tokens"] == 8


def test_a_folder_with_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    cr.train("ngram", cr.Corpus.from_text("i love cats\n"), tokenizer="word").save(tmp_path / "m")
    write_manifest(tmp_path / "m", {**read_manifest(tmp_path / "m"), "kind": "os"})
    with pytest.raises(FolderError, match="its kind 'os' is not one this chainrule knows"):
        kinds.load(tmp_path / "m")


def test_a_loaded_model_knows_where_it_comes_from(tmp_path: Path) -> None:
    lm = cr.train("ngram", cr.Corpus.from_text("i love cats\ni love dogs\n"), tokenizer="word")
    lm.save(tmp_path / "m")
    loaded = kinds.load(tmp_path / "m")
    assert loaded.provenance == lm.provenance
    assert loaded.metrics == lm.metrics


def test_the_settings_of_kinds_need_no_torch() -> None:
    """The settings of all kinds can be listed without importing torch, which takes seconds."""
    code = """
import sys
from chainrule.errors import MissingExtraError
from chainrule.contract.kinds import find_kind, kind_names

def is_there(name):
    try:
        return find_kind(name).name == name
    except MissingExtraError:
        return False

assert all(is_there(name) for name in kind_names())
assert "torch" not in sys.modules
tasks = {name: find_kind(name).task for name in kind_names()}
sys.modules["torch"] = None
print([name for name in kind_names() if not is_there(name) and tasks[name] == "language"])
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert found.stdout.strip() == "[]"


def test_a_kind_that_needs_torch_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    made = network_kind("transformer", "only in torch", TransformerSettings, torch="some.where:Network")
    assert made.requires_torch
    monkeypatch.setattr("chainrule.training.kinds.TRANSFORMER", made)
    assert kinds.find_kind("transformer") is made
    monkeypatch.setattr("chainrule.contract.kinds.has_torch", lambda: False)
    with pytest.raises(MissingExtraError, match="the kind 'transformer' needs torch"):
        kinds.find_kind("transformer")


SMALL: dict[str, Any] = {"steps": 1, "embedding": 4, "hidden": 4, "engine": "tape", "tokenizer": "word"}


def test_a_renamed_kind_is_found_by_its_former_name() -> None:
    with pytest.warns(FutureWarning, match="^the kind 'averaging' is now called 'bagofwords'$"):
        lm = cr.train("averaging", ["i love cats", "i love dogs"], **SMALL)
    assert lm.kind == "bagofwords"
    assert "averaging" not in kinds.kind_names()


def test_a_folder_with_the_former_name_of_its_kind_is_loaded_without_a_note(tmp_path: Path) -> None:
    lm = cr.train("bagofwords", ["i love cats", "i love dogs"], **SMALL)
    lm.save(tmp_path / "m")
    write_manifest(tmp_path / "m", {**read_manifest(tmp_path / "m"), "kind": "averaging"})
    assert cr.load(tmp_path / "m").kind == "bagofwords"
