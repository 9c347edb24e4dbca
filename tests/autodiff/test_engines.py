"""Which engine computes: as it is set, by what is installed, and by what a folder says."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import chainrule as cr
from chainrule.autodiff.tape_model import TapeModel
from chainrule.contract.kinds import find_kind
from chainrule.errors import MissingExtraError
from chainrule.folder import read_folder, write_folder
from chainrule.inference.neural_model import NeuralModel
from chainrule.settings import describe

from .twins import KINDS

TOY = cr.Corpus.from_text("i love cats\ni love dogs\ncats chase mice\n" * 5)
SMALL = {"embedding": 8, "hidden": 8, "layers": 1, "steps": 2, "batch": 32}
TRANSFORMER = {"width": 8, "heads": 2, "layers": 1, "steps": 2, "batch": 32}

NO_TORCH = "import sys\nsys.modules['torch'] = None  # as if it were not installed\n"


def without_torch(script: str, *arguments: str) -> str:
    """What a script prints where torch is not installed."""
    command = [sys.executable, "-W", "error", "-c", NO_TORCH + script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_the_settings_of_each_kind_choose_the_engine(kind: str) -> None:
    entry = next(item for item in describe(find_kind(kind).settings) if item["name"] == "engine")
    assert (entry["type"], entry["default"]) == ("auto|torch|tape", "auto")


@pytest.mark.parametrize(
    ("engine", "expected", "written"),
    [("auto", NeuralModel, "torch"), ("torch", NeuralModel, "torch"), ("tape", TapeModel, "tape")],
)
def test_the_folder_says_which_engine_it_was(engine: str, expected: type, written: str, tmp_path: Path) -> None:
    lm = cr.train("gru", TOY, engine=engine, **SMALL, tokenizer="word")
    assert type(lm) is expected
    lm.save(tmp_path / "m")
    assert read_folder(tmp_path / "m").config["engine"] == written
    assert type(cr.load(tmp_path / "m")) is expected


def test_a_folder_from_before_there_were_engines_is_loaded(tmp_path: Path) -> None:
    cr.train("lstm", TOY, engine="tape", **SMALL, tokenizer="word").save(tmp_path / "m")
    content = read_folder(tmp_path / "m")
    config = {key: value for key, value in content.config.items() if key != "engine"}
    write_folder(tmp_path / "old", replace(content, config=config))
    assert type(cr.load(tmp_path / "old")) is NeuralModel


def test_another_precision_is_torchs(tmp_path: Path) -> None:
    lm = cr.train("elman", TOY, engine="tape", **SMALL, tokenizer="word")
    assert lm.on("cpu") is lm
    lm.save(tmp_path / "m")
    loaded = cr.load(tmp_path / "m", dtype="bfloat16")
    assert isinstance(loaded, NeuralModel)
    assert loaded.metrics == lm.metrics and loaded.provenance == lm.provenance


def test_a_model_on_the_tape_can_be_diagnosed() -> None:
    diagnosis = cr.diagnose(cr.train("lstm", TOY, engine="tape", **SMALL, tokenizer="word"), "i love cats")
    assert diagnosis.target == "cats"
    assert diagnosis.state_gradients["h"].shape == (1, 3)


def test_what_needs_torch_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = cr.train("elman", TOY, engine="tape", **SMALL, tokenizer="word")
    monkeypatch.setattr("chainrule.autodiff.tape_model.has_torch", lambda: False)
    with pytest.raises(MissingExtraError, match="a network on cuda in float32 needs torch"):
        lm.on("cuda")


def test_the_command_line_works_without_torch(tmp_path: Path) -> None:
    """Train, save, load, score, generate, evaluate: all of it by the commands that people type."""
    text = tmp_path / "text.txt"
    text.write_text("i love cats\ni love dogs\ncats chase mice\n" * 20)
    out = str(tmp_path / "m")
    script = """
from chainrule.cli.main import main

def command(*words):
    try:
        main(list(words))
    except SystemExit as done:
        assert not done.code, done.code

text, out = sys.argv[1:3]
given = ("engine=tape", "hidden=16", "embedding=8", "batch=64", "learning_rate=0.05")
sets = [word for one in given for word in ("--set", one)]
command("train", "feedforward", text, "--held-out", text, "--out", out, *sets)
command("generate", out, "--prompt", "i", "--max-tokens", "5")
command("score", out, text)
command("evaluate", out, text)
command("kinds", "feedforward", "--all")
"""
    printed = without_torch(script, str(text), out)
    assert "trained on" in printed and "engine=auto (auto | torch | tape)" in " ".join(printed.split())
    assert sorted(path.name for path in Path(f"{out}.run").iterdir()) == ["last", "metrics.jsonl", "run.json"]
    lm = cr.load(out)
    assert isinstance(lm, TapeModel) and lm.perplexity("i love cats") < 3


def test_kinds_choose_the_tape_where_torch_is_not_installed(tmp_path: Path) -> None:
    """Folders of either engine are loaded, and the ladder has a entry for each of these kinds."""
    cr.train("gru", TOY, engine="torch", **SMALL, tokenizer="word").save(tmp_path / "torch")
    script = f"""
import chainrule as cr
from chainrule.errors import MissingExtraError
from chainrule.comparison.ladder import ladder_entries
toy = cr.Corpus.from_text("i love cats\\ni love dogs\\ncats chase mice\\n" * 5)
loaded = cr.load(sys.argv[1])
print(type(loaded).__name__, loaded.score(loaded.tokenizer.encode("i love cats")[None]).tolist())
for kind in {KINDS!r}:
    lm = cr.train(kind, toy, **({TRANSFORMER!r} if kind == "transformer" else {SMALL!r}))
    print(type(lm).__name__, lm.settings.engine, len(cr.generate(lm, "i", cr.TopP(0.9), max_tokens=5)) > 0)
try:
    cr.train("lstm", toy, engine="torch")
except MissingExtraError as error:
    print(error)
print([kind.name for kind, _ in ladder_entries() if kind.name not in ("ngram", "anygram")])
"""
    first, *lines = without_torch(script, str(tmp_path / "torch")).splitlines()
    lm = cr.load(tmp_path / "torch")
    name, _, scores = first.partition(" ")
    assert name == "TapeModel"
    expected = cr.to_numpy(lm.score(lm.tokenizer.encode("i love cats")[None]))
    assert json.loads(scores)[0] == pytest.approx(expected[0].tolist(), abs=1e-5)
    count = len(KINDS)
    assert lines[:count] == ["TapeModel tape True"] * count
    assert lines[count].startswith("lstm with engine=torch needs torch")
    assert lines[count + 1] == str([*KINDS])


def test_compare_trains_its_ladder_without_torch(tmp_path: Path) -> None:
    script = """
import chainrule as cr
text = cr.Corpus.from_text("i love cats\\ni love dogs\\ncats chase mice\\n" * 20)
more = {"valid": text, "test": text, "tokenizer": cr.TokenizerChoice("word")}
comparison = cr.compare(text, sys.argv[1], kinds=["feedforward"], **more)
print([result.name for result in comparison.results], comparison.results[0].test.perplexity < 5)
"""
    assert without_torch(script, str(tmp_path / "out")) == "['feed-forward'] True\n"
