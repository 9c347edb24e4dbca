"""Tests of plug-ins: the example package as a user would install it, and packages that cannot be loaded."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import chainrule as cr
from chainrule.contract import kinds
from chainrule.testing import check_laws
from chainrule.tokens.registry import tokenizer_names
from plugin import PLUGIN, install

TOY = cr.Corpus.from_text("i love cats\ni love dogs\ncats chase mice\n")


@pytest.fixture
def path() -> Iterator[None]:
    before = list(sys.path)
    yield
    sys.path[:] = before


@pytest.fixture
def example(path: None, tmp_path: Path) -> None:
    install(tmp_path / "installed")


@pytest.fixture
def broken(path: None, tmp_path: Path) -> None:
    """Install a package with three broken kinds: one import fails, one ends the process, one object is no kind."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "no_import.py").write_text("import a_library_that_is_not_there\n")
    (code / "exits.py").write_text("import sys\nsys.exit(3)\n")
    (code / "no_kind.py").write_text("KIND = 'a kind'\n")
    points = "\n".join(f'{name} = "{name}:KIND"' for name in ("no_import", "exits", "no_kind"))
    (code / "pyproject.toml").write_text(
        f'[project]\nname = "broken"\nversion = "1"\n[project.entry-points."chainrule.kinds"]\n{points}\n'
    )
    install(tmp_path / "installed", code)


@pytest.mark.usefixtures("example")
@pytest.mark.parametrize("kind", ["torch-bigram", "fading-bag"])
@pytest.mark.parametrize("tokenizer", ["word", "half-word"])
def test_the_example_keeps_the_laws(kind: str, tokenizer: str) -> None:
    settings = {"steps": 2} if kind == "fading-bag" else {}
    check_laws(cr.train(kind, TOY, tokenizer=tokenizer, **settings))


@pytest.mark.usefixtures("example")
def test_the_example_trains_saves_and_resumes_as_any_kind(tmp_path: Path) -> None:
    whole = cr.train("fading-bag", TOY, steps=6, run=tmp_path / "a")
    cr.train("fading-bag", TOY, steps=3, run=tmp_path / "b")
    resumed = cr.train("fading-bag", TOY, steps=6, run=tmp_path / "b", resume=True)
    assert resumed.metrics["steps"] == whole.metrics["steps"] == 6
    whole.save(tmp_path / "m")
    assert cr.load(tmp_path / "m").log_prob("i love cats") == whole.log_prob("i love cats")


@pytest.mark.usefixtures("example")
def test_the_example_appears_without_edits(tmp_path: Path) -> None:
    assert {"torch-bigram", "fading-bag"} <= set(kinds.kind_names())
    assert "half-word" in tokenizer_names()
    text = cr.Corpus.from_text("".join(f"word{i % 7} and word{i % 5}\n" for i in range(60)))
    comparison = cr.compare(
        text, tmp_path / "out", kinds=["torch-bigram"], tokenizer=cr.TokenizerChoice("half-word")
    )
    assert [result.name for result in comparison.results] == ["torch bigram"] and comparison.results[0].sample
    loaded = cr.load(tmp_path / "out" / "torch-bigram")
    assert loaded.tokenizer.name == "half-word"
    assert loaded.tokenizer.decode(loaded.tokenizer.encode("word1 and word2")) == "word1 and word2"


@pytest.mark.usefixtures("broken")
def test_a_broken_plugin_takes_nothing_down(tmp_path: Path) -> None:
    """Listing and comparing leave the broken kinds out, and print that."""
    script = f"import sys; sys.path[:0] = {sys.path[:2]!r}; from chainrule.cli.main import main; main(sys.argv[1:])"
    run = [sys.executable, "-c", script]
    done = subprocess.run([*run, "kinds", "--json"], capture_output=True, text=True, check=True)
    listed = {entry["name"]: entry for entry in json.loads(done.stdout)}
    assert "ngram" in listed
    assert "cannot be loaded" in listed["exits"]["summary"]
    (tmp_path / "text").write_text("".join(f"word{i % 7} and word{i % 5}\n" for i in range(60)))
    from chainrule.comparison.ladder import ladder_entries
    from listening import Listening

    progress = Listening()
    names = {kind.name for kind, _ in ladder_entries(None, progress)}
    assert "ngram" in names
    assert "transformer" in names
    assert sum("left out: the plug-in" in note for note in progress.notes) == 3


@pytest.mark.slow
def test_the_example_installs_with_pip(tmp_path: Path) -> None:
    """Install it as a user does, but without the network: pip provides its files and entry points."""
    target = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target"]
    copy = shutil.copytree(PLUGIN, tmp_path / "copy")  # pip builds in the folder itself
    subprocess.run([*pip, str(target), str(copy)], check=True)
    script = (
        f"import sys; sys.path.insert(0, {str(target)!r}); from chainrule import kinds; print(kinds.kind_names())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "fading-bag" in done.stdout


@pytest.mark.usefixtures("example")
def test_no_word_looks_like_the_first_half_of_another() -> None:
    from chainrule.tokens.registry import train_tokenizer

    tokenizer = train_tokenizer("half-word", cr.Corpus.from_text("a+ + reading b++\n"))
    assert tokenizer.decode(tokenizer.encode("a+ + reading b++")) == "a+ + reading b++"
