"""Tests that the documents agree with the code."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.lectures import Lecture, Row

import chainrule as cr
from chainrule.cli.main import main, verbs

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


LADDER = """
[[model]]
kind = "ngram"
name = "trigram, kneser-ney"
settings = { order = 3, smoothing = "kneser-ney" }
[[model]]
kind = "lstm"
name = "lstm"
settings = { embedding = 8, hidden = 8 }
"""
"""A ladder of two models that train quickly; test_cli_compare.py trains the usual one."""


@pytest.fixture
def corpora(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the texts of the README's commands to the current folder."""
    monkeypatch.chdir(tmp_path)
    documents = [document.decode() for document in cr.Corpus.open("builtin:python").documents()]
    Path("corpus.txt").write_text("i want to eat\n" + "".join(documents[:40]), encoding="utf-8")
    Path("ladder.toml").write_text(LADDER, encoding="utf-8")
    Path("tickets.jsonl").write_text("".join(json.dumps({"body": text}) + "\n" for text in documents[:20]))
    names = [f"{name}.txt" for name in ("test", "unsigned", "austen", "melville")]
    names += ["app.log", "logs/monday/a.log", "logs/tuesday/b.log"]
    for number, name in enumerate(names):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(documents[41 + number], encoding="utf-8")


def blocks(language: str, page: str = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, flags=re.DOTALL)


@pytest.mark.parametrize(
    "words",
    [
        ["update_help.py"],
        ["update_lectures.py"],
        *(
            pytest.param(["update_tutorials.py", name], marks=pytest.mark.slow)
            for name in ("engineer", "researcher", "student")
        ),
    ],
    ids=" ".join,
)
def test_a_page_is_what_its_program_makes(words: list[str]) -> None:
    """The help of each verb, the rows of the lectures, the commands of a tutorial and what they print."""
    program, *names = words
    command = [sys.executable, ROOT / "docs" / program, "--check", *names]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_each_verb_has_a_page() -> None:
    pages = {path.stem for path in (ROOT / "docs" / "cli").glob("*.md")}
    assert pages == {verb.name for verb in verbs()} | {"README"}


@pytest.mark.usefixtures("corpora")
@pytest.mark.parametrize("name", ["README.md", "docs/recipes.md"])
def test_the_tour_on_the_command_line_runs(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chainrule.comparison.measured_training.LEAST_STEPS", 1)
    page = (ROOT / name).read_text(encoding="utf-8")
    commands = [line for line in "\n".join(blocks("sh", page)).splitlines() if line.startswith("chainrule ")]
    assert len(commands) >= 3
    for command in commands:
        command = re.sub(r"--minutes \d+", "--minutes 0.01", command)
        if command.startswith("chainrule compare"):
            command += " --minutes 0.01 --ladder ladder.toml"
        with pytest.raises(SystemExit) as ended:
            main(shlex.split(command)[1:])
        assert ended.value.code == 0, (command, capsys.readouterr().err)


def test_the_table_has_the_models_of_the_ladder() -> None:
    from chainrule.comparison.ladder import ladder_entries
    from chainrule.comparison.measured_training import MIXTURE

    table = README.partition("bits/byte")[2].partition("─\n")[2].partition("```")[0]
    rows = [line for line in table.splitlines() if "  " in line]
    names = [re.split(" {2,}", row)[0].removesuffix(" (best)") for row in rows]
    assert names == [*(entry.name for _, entry in ladder_entries() if entry.quick), MIXTURE]


@pytest.mark.usefixtures("corpora")
def test_the_tour_in_python_runs() -> None:
    (tour,) = blocks("python")
    exec(compile(tour, "README.md", "exec"), {})


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").rglob("*.md")), ids=lambda p: p.name
)
def test_links_lead_somewhere(path: Path) -> None:
    prose = re.sub(r"`[^`\n]*`", "", path.read_text(encoding="utf-8"))  # code may show a link
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", prose):
        assert (path.parent / target).exists(), f"{path.name} links to {target}"


def anchor(heading: str) -> str:
    """Return the anchor that code hosts give to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def sections(path: Path) -> dict[str, str]:
    """Return the text of each section of a page by its anchor."""
    code = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
    page = code.sub("", path.read_text(encoding="utf-8"))
    parts = re.split(r"^#+ (.*)$", page, flags=re.MULTILINE)[1:]
    return {anchor(heading): text for heading, text in zip(parts[::2], parts[1::2], strict=True)}


def test_figures_of_the_readme_lead_to_the_command_that_gives_them() -> None:
    """A link to a page of several sections names one that exists; a result's section has its command."""
    links = re.findall(r"\]\(([^)#]+\.md)#?([^)]*)\)", README)
    for target, name in links:
        found = sections(ROOT / target)
        assert name in found or not name, f"README.md links to {target}#{name}"
        if target.startswith("benchmarks/"):
            assert re.search(r"`[^`]*(python -m|chainrule|make) [^`]+`", found[name]), (
                f"{target}#{name}: no command"
            )
    assert sum(target.startswith("benchmarks/") for target, _ in links) >= 5
    assert len(README.splitlines()) < 120


def test_cells_of_the_lectures_have_no_markup_of_their_own() -> None:
    update = runpy.run_path(str(ROOT / "docs" / "update_lectures.py"))
    assert update["plain"]("<s> 2 * 3, `<s> * $`") == r"\<s> 2 \* 3, `<s> * $`"
    assert update["table"](["a"], [["p(x | y)\nis 1"]]) == "| a |\n| --- |\n| p(x \\| y) is 1 |\n\n"
    row = Row("2.1", "", "", command="chainrule kinds\nchainrule tokenize '`'", shows=["x"])
    lecture = Lecture("002", "", [row], {}, {})
    assert update["shown_by"](row, lecture) == "`chainrule kinds`, then `` chainrule tokenize '`' ``"
    assert update["shown_by"](Row("2.2", "", "", python="1 == 1"), lecture) == "[code](../tests/lectures/002.toml)"
    prose = Row("2.3", "", "", prose="docs/ngrams.md:words")
    assert update["shown_by"](prose, lecture) == "[ngrams.md](ngrams.md)"
    odd = Row("2.4", "a", "b", prose="docs/ngrams.md:words", number="1", differs="the slide has 2", lesson=3)
    made = update["rows"](Lecture("002", "", [odd, odd], {}, {})).splitlines()
    assert made[2] == (
        "| 2.4 | a | b | [ngrams.md](ngrams.md) | 1. Differs: the slide has 2 "
        "| [3](../src/chainrule/course/lessons/03-counting.md) |"
    )
    assert made[3].startswith("| 2.4 |  | b |")


@pytest.mark.parametrize("name", ["lectures.md", "lectures-files.md"])
def test_the_lectures_pages_name_files_functions_and_options_that_exist(name: str) -> None:
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    options = {option for verb in verbs() for parameter in verb.params for option in parameter.opts}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", page)) <= options
    for target, found in re.findall(r"\(\.\./(src/[^)]+\.py)\), `(\w+)`", page):
        assert re.search(rf"(def|class) {found}\b", (ROOT / target).read_text(encoding="utf-8")), (target, found)
