"""Faults planted in the source, one at a time, by a small tool: the tests of that package must catch them.

A mutant has one operator, comparison, number or condition changed. Its tests are those of the fast run (`make
test`) that the table below names for its package, and the examples in the docstrings of its file. What was found is
kept in build/reliability, so a long run can be stopped and goes on where it was.
"""

from __future__ import annotations

import ast
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .frame import Trial

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "chainrule"
KEPT = ROOT / "build" / "reliability" / "mutants.json"
TESTS = {
    "contract": "test_lm.py test_kinds.py classification/test_classifiers.py contract/test_laws.py "
    "contract/test_broken.py",
    "folder": "test_folder.py reliability/test_folders.py test_old_folders.py",
    "system/disk": "reliability/test_folders.py test_folder.py reliability/test_process.py cli/test_cli_process.py",
    "training/loop.py": "training/test_loop.py training/test_checkpoint.py training/test_resume.py "
    "training/test_curves.py",
    "training/checkpoints": "training/test_checkpoint.py training/test_resume.py training/test_resume_by_folder.py",
    "decode": "decode test_lm.py cli/test_cli_suggest.py cli/test_cli_generate.py contract/test_laws.py",
    "serve": "serve/test_safety.py serve/test_batching.py serve/test_completions.py serve/test_tasks.py "
    "serve/test_large_requests.py",
}
"""The tests of each package, in tests/; one that lasts long stands behind those that are short."""
SMALL = {"decode/top.py": "decode/test_top.py"}
SECONDS = 600

_COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_OPERATORS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Add, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """A change of one file."""

    file: str
    line: int
    before: str
    after: str
    place: int
    """The number of the change among those of the file."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.before} -> {self.after}"


class _Change(ast.NodeTransformer):
    """Makes one of the changes that are possible in a file, and counts them."""

    def __init__(self, chosen: int = -1) -> None:
        self.chosen, self.count = chosen, 0
        self.found: list[tuple[int, str, str]] = []

    def _offer(self, node: ast.expr, other: ast.expr) -> ast.expr:
        self.found.append((node.lineno, ast.unparse(node), ast.unparse(other)))
        self.count += 1
        return ast.copy_location(other, node) if self.count - 1 == self.chosen else node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        kind = type(node.ops[0])
        if kind not in _COMPARISONS:
            return node
        return self._offer(node, ast.Compare(node.left, [_COMPARISONS[kind](), *node.ops[1:]], node.comparators))

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        kind = type(node.op)
        if kind not in _OPERATORS or any(_is_text(side) for side in (node.left, node.right)):
            return node
        return self._offer(node, ast.BinOp(node.left, _OPERATORS[kind](), node.right))

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        return self._offer(node, ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        return self._offer(node, node.operand) if isinstance(node.op, ast.Not) else node

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if isinstance(node.value, bool):
            return self._offer(node, ast.Constant(not node.value))
        return self._offer(node, ast.Constant(node.value + 1)) if isinstance(node.value, int) else node

    # types, messages and text decide nothing that a test should hold
    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        if node.value is not None:
            node.value = self.visit(node.value)
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        node.args = self.visit(node.args)
        node.body = [self.visit(part) for part in node.body]
        return node

    def visit_Raise(self, node: ast.Raise) -> ast.stmt:
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        return node


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def mutants(place: str) -> Iterator[Mutant]:
    """All mutants of a file or package."""
    path = SOURCE / place
    for file in [path] if path.suffix else sorted(path.rglob("*.py")):
        changes = _Change()
        changes.visit(ast.parse(file.read_text(encoding="utf-8")))
        for number, (line, before, after) in enumerate(changes.found):
            yield Mutant(str(file.relative_to(SOURCE)), line, before[:80], after[:80], number)


def mutated(file: str, place: int) -> str:
    """The source of a file with one change."""
    changed = _Change(place).visit(ast.parse((SOURCE / file).read_text(encoding="utf-8")))
    return ast.unparse(ast.fix_missing_locations(changed))


def run(trial: Trial) -> None:
    """Plant faults that the seed chooses, as many in each package."""
    tests = SMALL if trial.small else TESTS
    generator = random.Random(trial.seed)
    chosen = {place: generator.sample(found := [*mutants(place)], len(found)) for place in tests}
    kept: dict[str, bool] = json.loads(KEPT.read_text()) if KEPT.exists() and not trial.small else {}
    with tempfile.TemporaryDirectory(prefix="trial-") as name:
        shutil.copytree(SOURCE, Path(name) / "chainrule")  # with compiled kernels, and the times of files
        for number in trial:
            place = [*tests][number % len(tests)]
            mutant = chosen[place][number // len(tests) % len(chosen[place])]
            if str(mutant) not in kept or trial.control:
                kept[str(mutant)] = caught(mutant, tests[place], Path(name))
                if not trial.small:
                    KEPT.parent.mkdir(parents=True, exist_ok=True)
                    KEPT.write_text(json.dumps(kept, indent=1))
            trial.note(place, None if kept[str(mutant)] else f"lives: {mutant}")


def caught(mutant: Mutant, tests: str, folder: Path) -> bool:
    """Whether a test fails with a fault in a copy of the source in `folder`."""
    file = folder / "chainrule" / mutant.file
    content = file.read_text(encoding="utf-8")
    file.write_text(mutated(mutant.file, mutant.place), encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        str(file),
        *(f"tests/{one}" for one in tests.split()),
    ]
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        with subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            try:
                return process.wait(SECONDS) != 0
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # a loop without end, and the processes that it started
                return True
    finally:
        file.write_text(content, encoding="utf-8")
