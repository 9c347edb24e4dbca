"""The house in order: imports point one way, and what is public is pinned."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import chainrule as cr

SOURCE = Path(cr.__file__).parent

# A package may import from the floors below its own. Packages on one floor do not know each other.
FLOORS = [
    {"errors", "_version"},
    {"settings", "arrays", "system"},
    {"text"},
    {"tokens"},
    {"folder"},
    {"model", "fast_paths"},
    {"lm"},
    {"chain", "kinds"},
    {"ngram", "designs"},
    {"decode"},
    {"neural"},
    {"autodiff"},
    {"inside"},
    {"training"},
    {"encoders"},
    {"compose"},
    {"pipeline"},
    {"evaluation"},
    {"tasks", "report", "scale"},
    {"interop"},
    {"serve"},
    {"testing"},
    {"cli", "__init__"},
    {"__main__"},
]

# Inside a package of several folders, the same: a folder imports from the folders before it.
INSIDE = {
    "tokens": ["vocabulary", "words.splitting", "base"],
    "ngram": [
        "segments",
        "workspace",
        "settings",
        "store",
        "estimate",
        "tables",
        "writing",
        "model",
        "anylength",
        "evidence",
        "arpa",
        "mix",
        "train",
    ],
    "neural": ["networks", "windows", "gpu", "inference", "traces"],
    "autodiff": ["tape", "networks", "optim", "model", "traces", "checks", "picture"],
    "encoders": ["seq2seq", "masked", "tagging"],
    "compose": ["caches", "gates", "tuning", "mixture", "dynamic", "mix", "kind"],
    "training": [
        "run_state",
        "objectives",
        "batches",
        "checkpoints",
        "optim",
        "team",
        "parallel",
        "engines",
        "backends",
        "examples",
        "planning",
        "job",
        "loop",
        "train",
        "kinds",
    ],
}


def floor_of(room: str) -> int:
    return next(number for number, rooms in enumerate(FLOORS) if room in rooms)


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_modules(path: Path) -> set[str]:
    """The modules of the package that a file imports; `from chainrule.room import name` may mean room.name."""
    modules = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "chainrule":
            module = node.module or ""
            folder = SOURCE.joinpath(*module.split(".")[1:])
            for alias in node.names:
                is_module = (folder / f"{alias.name}.py").exists() or (folder / alias.name).is_dir()
                modules.add(f"{module}.{alias.name}" if is_module else module)
        elif isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names if alias.name.startswith("chainrule.")}
    return modules


def imported_rooms(path: Path) -> set[str]:
    return {module.split(".")[1] for module in imported_modules(path) if "." in module}


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_one_way(path: Path) -> None:
    here = room_of(path)
    for there in imported_rooms(path) - {here}:
        assert floor_of(there) < floor_of(here), f"{here} must not import {there}"


@pytest.mark.parametrize("room", INSIDE)
def test_folders_of_a_package_point_one_way(room: str) -> None:
    order = INSIDE[room]

    def rank(module: str) -> int | None:
        found = [number for number, name in enumerate(order) if f"{module}.".startswith(f"{name}.")]
        return found[0] if found else None

    for path in sorted((SOURCE / room).rglob("*.py")):
        here = ".".join(path.relative_to(SOURCE / room).with_suffix("").parts)
        for module in imported_modules(path):
            if not module.startswith(f"chainrule.{room}."):
                continue
            there = module.removeprefix(f"chainrule.{room}.")
            above, below = rank(here), rank(there)
            if above is not None and below is not None:
                assert below <= above, f"{room}/{here} must not import {there}"


def test_no_folder_has_too_many_doors() -> None:
    """About a dozen files and folders are what one can see at a time."""
    for folder in (SOURCE, *(path for path in SOURCE.rglob("*") if path.is_dir() and path.name != "__pycache__")):
        doors = {path.name for path in folder.iterdir()} - {"__init__.py", "__pycache__", "py.typed"}
        most = 32 if folder == SOURCE else 17
        assert len(doors) <= most, f"{folder.relative_to(SOURCE.parent)} has {len(doors)}: {sorted(doors)}"


def test_every_room_has_a_floor() -> None:
    rooms = {room_of(path) for path in SOURCE.rglob("*.py")}
    assert rooms == set().union(*FLOORS)


def test_public_names_are_pinned() -> None:
    assert set(cr.__all__) == {
        "PAD",
        "Alignment",
        "Anomaly",
        "Beam",
        "ChainruleError",
        "Corpus",
        "Correction",
        "Diagnosis",
        "Draft",
        "Dynamic",
        "Explanation",
        "Filled",
        "Filtered",
        "FrequencyPenalty",
        "Generation",
        "Greedy",
        "Keystrokes",
        "LanguageModel",
        "Measured",
        "MinP",
        "NbestList",
        "Pairs",
        "PresencePenalty",
        "RepetitionPenalty",
        "Report",
        "Sample",
        "Scores",
        "State",
        "Strategy",
        "Suggestion",
        "Temperature",
        "Tokenizer",
        "TokenizerChoice",
        "TopK",
        "TopP",
        "__version__",
        "align",
        "anomalies",
        "compare",
        "correct",
        "curves",
        "diagnose",
        "evaluate",
        "evaluate_tagger",
        "explain",
        "fill",
        "filter_corpus",
        "filter_texts",
        "generate",
        "generate_many",
        "interpolate",
        "keystrokes",
        "load",
        "load_arpa",
        "load_tokenizer",
        "mix",
        "minimal_pairs",
        "rerank",
        "make_report",
        "resume",
        "save_arpa",
        "score",
        "score_lines",
        "stream",
        "suggest",
        "tag",
        "to_numpy",
        "train",
        "train_tokenizer",
        "translate",
        "write_report",
    }
    assert all(getattr(cr, name) is not None for name in cr.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = cr.nonsense


def test_public_names_stay_functions_whatever_is_imported_first() -> None:
    """A room of the same name as a function would hide it."""
    script = (
        "import chainrule.cli.main, chainrule.pipeline.train, chainrule as cr; "
        "assert callable(cr.train); print('ok')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "ok\n"


def test_the_base_install_is_enough_for_ngrams() -> None:
    """No torch, no gigatoken, no pyarrow: training, scoring and generating still work."""
    script = """
import sys
for extra in ("torch", "gigatoken", "awkward", "pyarrow", "tiktoken"):
    sys.modules[extra] = None
import chainrule as cr
for tokenizer in ("word", "bpe"):
    lm = cr.train("ngram", cr.Corpus.open("builtin:python"), order=2, tokenizer=tokenizer)
    assert lm.perplexity("the value of the expression") < 2000
    assert cr.generate(lm, "The", cr.TopP(0.9), max_tokens=5).startswith("The")
print("ok")
"""
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)
    assert done.stdout == "ok\n", done.stderr


@pytest.mark.parametrize(
    "path", sorted(SOURCE.rglob("__init__.py")), ids=lambda p: str(p.parent.relative_to(SOURCE))
)
def test_a_package_that_lists_its_files_lists_all_of_them(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text()), clean=False) or ""
    listed = re.findall(r"^ *(\w+(?:\.py|/)) ", docstring, re.M)
    here = [child for child in path.parent.iterdir() if child.name not in ("__init__.py", "__pycache__")]
    there = {f"{child.name}/" if child.is_dir() else child.name for child in here}
    verbs = {child for child in there if path.parent.name == "cli"}  # a file per verb is enough said
    if len(listed) > 1:
        assert set(listed) <= there
        assert there - verbs <= set(listed)


def test_arrows_of_the_drawing_are_imports() -> None:
    """Of docs/architecture.md; a box of several modules imports what one of them does."""
    drawing = (SOURCE.parents[1] / "docs" / "architecture.md").read_text().split("```")[1]
    boxes = dict(re.findall(r'(\w+)\["([^"]*)"\]', drawing))
    arrows = re.findall(r'^ *(\w+)(?:\["[^"]*"\])? --> (\w+)', drawing, re.M)
    rooms = {box: {box} for box in boxes} | {
        "contract": {"model", "lm", "fast_paths", "chain", "kinds"},
        "base": set(re.findall(r"\w+", boxes["base"])),
    }
    assert set().union(*rooms.values()) == set().union(*FLOORS) - {"__init__", "__main__", "_version"}
    imports: dict[str, set[str]] = {}
    for path in SOURCE.rglob("*.py"):
        imports.setdefault(room_of(path), set()).update(imported_rooms(path))
    for above, below in arrows:
        assert any(imports[room] & rooms[below] for room in rooms[above]), f"{above} does not import {below}"
    assert {above for above, _ in arrows} == set(boxes) - {"base"}
