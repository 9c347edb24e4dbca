"""The house in order: imports point one way, and what is public is pinned."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
import tomllib
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import chainrule as cr
from chainrule._renamed import MOVED, RENAMED
from planted_faults import FAULTS

SOURCE = Path(cr.__file__).parent

# A package may import from the floors below its own. Packages on one floor do not know each other.
FLOORS = [
    {"errors", "_version", "_renamed"},
    {"settings", "arrays", "system"},
    {"text"},
    {"tokens"},
    {"folder"},
    {"contract"},
    {"ngram", "networks"},
    {"decode"},
    {"inference"},
    {"autodiff"},
    {"explanation"},
    {"training"},
    {"masked", "seq2seq", "tagging"},
    {"mixtures"},
    {"runs"},
    {"evaluation"},
    {"comparison", "classification"},
    {"tasks", "report", "ray"},
    {"interop"},
    {"testing"},
    {"course"},
    {"serve"},
    {"cli", "__init__"},
    {"__main__"},
]

# Inside a package of several folders, the same: a folder imports from the folders before it.
INSIDE = {
    "contract": ["model", "capabilities", "lm", "chain", "tasks", "data", "kinds"],
    "tokens": ["vocabulary", "words.splitting", "base"],
    "ngram": [
        "segments",
        "workspace",
        "settings",
        "store",
        "estimate",
        "tables",
        "sampling",
        "ngram_model",
        "infinite",
        "evidence",
        "arpa",
        "mix",
        "train",
    ],
    "inference": ["state", "gpu", "neural_model"],
    "autodiff": ["tape", "networks", "optim", "tape_model", "checks"],
    "course": ["markdown", "graders", "lesson", "answers", "grading"],
    "mixtures": ["caches", "gates", "tuning", "mixture", "dynamic", "mix", "kind"],
    "training": [
        "run_state",
        "layouts",
        "objectives",
        "checkpoints",
        "optimisers",
        "team",
        "parallel",
        "engines",
        "examples",
        "base",
        "planning",
        "loop",
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


def test_every_room_has_a_floor() -> None:
    rooms = {room_of(path) for path in SOURCE.rglob("*.py")}
    assert rooms == set().union(*FLOORS)


def test_public_names_are_pinned() -> None:
    """As httpx does: what the list names is there, is documented, and nothing else is public."""
    stub = ast.parse((SOURCE / "__init__.pyi").read_text())
    imported = [alias.name for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert sorted(imported) == sorted(cr.__all__) == sorted(set(imported))
    assert 35 <= sum(not inspect.ismodule(getattr(cr, name)) for name in cr.__all__) <= 48
    for name in cr.__all__:
        assert getattr(cr, name).__doc__ or name in ("PAD", "__version__"), name
    with pytest.raises(AttributeError, match="attribute nonsense"):
        _ = cr.nonsense


@pytest.mark.parametrize("room", MOVED)
def test_names_that_moved_still_work(room: str) -> None:
    for name in MOVED[room].split():
        with pytest.warns(DeprecationWarning, match=rf"now chainrule\.{room}\.{name}"):
            assert getattr(cr, name) is getattr(importlib.import_module(f"chainrule.{room}"), name)


def test_modules_that_moved_are_still_imported() -> None:
    for old, new in RENAMED.items():
        sys.modules.pop(old, None)
        with pytest.warns(DeprecationWarning, match=new):
            assert importlib.import_module(old) is importlib.import_module(new)


def test_public_names_stay_functions_whatever_is_imported_first() -> None:
    """A room of the same name as a function would hide it."""
    script = (
        "import chainrule.cli.main, chainrule.runs.train, chainrule as cr; assert callable(cr.train); print('ok')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "ok\n"


def test_the_base_install_is_enough_for_ngrams() -> None:
    """No torch, no gigatoken, no pyarrow: training, scoring and generating still work."""
    script = """
import sys
import tomllib
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
    rooms = {box: {box} for box in boxes} | {"base": set(re.findall(r"\w+", boxes["base"]))}
    assert set().union(*rooms.values()) == set().union(*FLOORS) - {"__init__", "__main__", "_version", "_renamed"}
    imports: dict[str, set[str]] = {}
    for path in SOURCE.rglob("*.py"):
        imports.setdefault(room_of(path), set()).update(imported_rooms(path))
    for above, below in arrows:
        assert any(imports[room] & rooms[below] for room in rooms[above]), f"{above} does not import {below}"
    assert {above for above, _ in arrows} == set(boxes) - {"base"}


def test_the_fast_run_names_tests_that_exist() -> None:
    """A test that was renamed would silently run with all of its cases."""
    root = Path(__file__).parents[1]
    chosen = tomllib.loads((root / "tests" / "fast_run.toml").read_text())
    assert [name for name in chosen["slow_files"] if not (root / name).exists()] == []
    functions: dict[str, set[str]] = {}
    for name in chosen["cases"]:
        file, _, function = name.partition("::")
        if file not in functions:
            tree = ast.parse((root / file).read_text())
            functions[file] = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert file.startswith("src/") or function in functions[file], name


@pytest.mark.parametrize(("file", "old"), [(file, old) for file, old, _, _ in FAULTS])
def test_a_fault_can_be_planted(file: str, old: str) -> None:
    assert (SOURCE / file).read_text().count(old) >= 1


# -- what is installed ----------------------------------------------------------------------------------------

ROOT = Path(__file__).parents[1]
LEFT_OUT = {"torch", "sympy", "mpmath", "networkx"}
"""What locked.txt has no hashes of: the builds of torch differ, and it alone needs the others."""


def pins(name: str) -> dict[str, str]:
    """The version of each package in constraints.txt or locked.txt; the last of several for several Pythons."""
    return dict(re.findall(r"^([a-z0-9.-]+)==(\S+)", (ROOT / name).read_text(), re.MULTILINE))


def named_requirements(*extras: str) -> list[Requirement]:
    """The requirements that pyproject.toml names for these extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = [Requirement(line) for line in project["dependencies"]]
    for requirement in (Requirement(line) for extra in extras for line in project["optional-dependencies"][extra]):
        found += named_requirements(*requirement.extras) if requirement.name == "chainrule" else [requirement]
    return found


def test_every_package_of_the_two_commands_has_an_exact_version() -> None:
    """From the packages that pyproject.toml names to what those need, on any Linux and any Python."""
    pinned, reached, waiting = pins("constraints.txt"), set(), named_requirements("dev", "report")
    machines = [{"platform_machine": machine} for machine in ("x86_64", "aarch64")]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        key = (name, *sorted(requirement.extras))
        if key in reached:
            continue
        reached.add(key)
        assert name in pinned, f"{name} is not in constraints.txt"
        assert requirement.specifier.contains(pinned[name]), f"{requirement} is not {pinned[name]}"
        with suppress(PackageNotFoundError):
            if Version(version(name)).public == pinned[name]:  # another version may need other packages
                for needed in map(Requirement, requires(name) or []):
                    marks = [
                        {**machine, "extra": extra} for machine in machines for extra in ("", *requirement.extras)
                    ]
                    if needed.marker is None or any(map(needed.marker.evaluate, marks)):
                        waiting.append(needed)
    assert len(reached) > 100


def test_hashes_are_of_the_same_versions() -> None:
    pinned, locked = pins("constraints.txt"), pins("locked.txt")
    assert {canonicalize_name(one.name) for one in named_requirements("dev", "report")} <= {*locked, *LEFT_OUT}
    assert {name: pinned.get(name) for name in locked} == locked
    entries = re.split(r"\n(?=\S)", (ROOT / "locked.txt").read_text().strip())
    assert len(entries) >= len(locked) and all("--hash=sha256:" in entry for entry in entries)
