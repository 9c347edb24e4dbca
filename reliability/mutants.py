"""Faults planted in the source, one at a time, by a small tool: the tests of that package must catch them.

A mutant has one operator, comparison, number or condition changed. Its tests are those of the fast run (`make
test`) that the table below names for its package and that reach the changed line, and the examples in the
docstrings of its file; a test that fails without the fault too does not count. What was found is kept in
build/reliability, so a long run can be stopped and goes on where it was.
"""

from __future__ import annotations

import ast
import fcntl
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from subprocess import PIPE

from .frame import Trial
from .reached import FILE, PLACE

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "chainrule"
KEPT = ROOT / "build" / "reliability"
KNOWN = KEPT / "mutants.jsonl"
TESTS = {
    "contract": "contract test_lm.py test_kinds.py test_context.py classification tagging evaluation "
    "cli/test_cli_count.py networks/test_lecture_networks.py",
    "folder": "reliability/test_folders.py test_folder.py test_old_folders.py cli/test_cli_inspect.py",
    "system/disk": "reliability/test_folders.py reliability/test_process.py test_folder.py cli/test_cli_process.py "
    "training/test_checkpoint.py test_notebook_displays.py",
    "training/loop.py": "training test_training.py cli/test_cli_train.py autodiff/test_training.py",
    "training/checkpoints": "training cli/test_cli_train.py autodiff/test_training.py",
    "decode": "decode inference test_lm.py cli/test_cli_suggest.py cli/test_cli_generate.py contract/test_laws.py",
    "serve": "serve",
}
"""The tests of each package, in tests/."""
SMALL = {"decode/top.py": "decode/test_top.py"}
ENOUGH = 60.0
"""Seconds of tests for one mutant."""
_NO_TESTS = 5
"""The exit code of pytest where there are no tests: a file without examples."""

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

    # types, messages, text and words for the decorators of classes decide nothing that a test should hold
    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        if node.value is not None:
            node.value = self.visit(node.value)
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.stmt:
        node.body = [self.visit(part) for part in node.body]
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


@dataclass(frozen=True)
class Reach:
    """Which tests of a package reach which of its lines, in a copy of the source in `folder`."""

    seconds: dict[str, float]
    lines: dict[str, list[str]]

    @classmethod
    def of(cls, place: str, tests: str, folder: Path, kept: Path, forks: Forks) -> Reach:
        """Run the tests of a package without a fault, and watch the lines; or read what was `kept` of that."""
        kept.mkdir(parents=True, exist_ok=True)
        file = kept / f"reached-{place.replace('/', '-').replace('.', '-')}-{_digest(place, tests)}.json"
        with file.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another part may be at it
            if not file.exists():
                part = file.with_suffix(".part")
                told = {PLACE: str(folder / "chainrule" / place), FILE: str(part)}
                words = ["-p", "reliability.reached", *(f"tests/{one}" for one in tests.split())]
                _, said = forks.run(words, None, **told)
                if not part.exists():
                    raise RuntimeError(said[-2000:])
                part.write_text(part.read_text().replace(f"{folder}{os.sep}chainrule{os.sep}", ""))
                part.replace(file)
        return cls(**json.loads(file.read_text()))

    def tests(self, mutant: Mutant) -> list[str]:
        """The tests that reach the line of a mutant, those that last least first, for about a minute.

        Where the line belongs to no test, which is so of what is run on import or compiled, any test may tell.
        """
        found = {test for test in self.lines.get(f"{mutant.file}:{mutant.line}", ()) if test}
        found = found | {*self.lines.get("a process", ())} if found else {*self.seconds}
        ordered = sorted(found & {*self.seconds}, key=self.seconds.__getitem__)
        ends = accumulate(self.seconds[test] for test in ordered)
        return [test for test, end in zip(ordered, ends, strict=True) if end < ENOUGH] or ordered[:1]


def _digest(place: str, tests: str) -> str:
    """What a package and its tests are, in a few letters."""
    roots = [SOURCE / place, *(ROOT / "tests" / one for one in tests.split())]
    files = (file for root in roots for file in ([root] if root.suffix else sorted(root.rglob("*.py"))))
    return sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


def run(trial: Trial) -> None:
    """Plant faults that the seed chooses, as many in each package."""
    tests = SMALL if trial.small else TESTS
    generator = random.Random(trial.seed)
    chosen = {place: generator.sample(found := [*mutants(place)], len(found)) for place in tests}
    with tempfile.TemporaryDirectory(prefix="trial-") as name, Forks(folder := Path(name)) as forks:
        shutil.copytree(SOURCE, folder / "chainrule")  # with compiled kernels, and the times of files
        kept = folder if trial.small else KEPT
        reach = cache(lambda place: Reach.of(place, tests[place], folder, kept, forks))
        known = {} if trial.small or not KNOWN.exists() else dict(map(json.loads, KNOWN.read_text().splitlines()))
        for number in trial:
            place = [*tests][number % len(tests)]
            mutant = chosen[place][number // len(tests) % len(chosen[place])]
            key = f"{_digest(place, tests[place])} {mutant}"
            if key not in known:
                if place in trial.left_out:
                    continue
                try:
                    found = caught(mutant, reach(place), folder, forks)
                except RuntimeError as error:  # such as a package that is missing here
                    trial.left_out[place] = f"its tests cannot be run: {' '.join(str(error).split())[-200:]}"
                    continue
                known[key] = found
                if not trial.small:
                    with KNOWN.open("a") as file:  # to which other parts add lines
                        file.write(json.dumps([key, found]) + "\n")
            trial.note(place, None if known[key] else f"lives: {mutant}")


def caught(mutant: Mutant, reach: Reach, folder: Path, forks: Forks) -> bool:
    """Whether a test fails with a fault in a copy of the source in `folder`, and not without it."""
    file = folder / "chainrule" / mutant.file
    chosen, content = [str(file), *reach.tests(mutant)], file.read_bytes()
    while True:
        file.write_text(mutated(mutant.file, mutant.place), encoding="utf-8")
        try:
            code, said = _run_tests(chosen, reach, forks)
        finally:
            file.write_bytes(content)
        failed = re.search(r"^FAILED (.+?)(?: - |$)", said, re.MULTILINE)
        if code < 0 or code in (0, _NO_TESTS):  # a loop without end, or nothing failed
            return code < 0
        again = [failed[1]] if failed and failed[1] in chosen else chosen
        code, said = _run_tests(again, reach, forks)
        if code in (0, _NO_TESTS):
            return True
        if again == chosen:
            raise RuntimeError(f"tests fail without a fault: {said[-2000:]}")
        chosen.remove(again[0])


def _run_tests(tests: Sequence[str], reach: Reach, forks: Forks) -> tuple[int, str]:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(tests))
        file.flush()
        seconds = {test: reach.seconds.get(test, 0.0) for test in tests}
        return forks.run(["-m", "", "-x", f"@{file.name}"], seconds)


class Forks:
    """A process that has imported packages, and whose forks run tests of the source in `folder` (forks.py)."""

    def __init__(self, folder: Path, packages: Sequence[str] = ("numba", "torch")) -> None:
        here = Path(__file__).parents[1]  # of the plug-in
        self.environment = {"PYTHONPATH": f"{folder}{os.pathsep}{here}", "PYTHONDONTWRITEBYTECODE": "1"}
        self.process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("forks.py"), *packages],
            cwd=ROOT,
            text=True,
            stdin=PIPE,
            stdout=PIPE,
        )

    def __enter__(self) -> Forks:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.communicate()

    def run(self, words: Sequence[str], seconds: dict[str, float] | None, **environment: str) -> tuple[int, str]:
        """Run tests that took so many seconds before; return their exit code, and what they said.

        The code is negative if they were killed, since they took far longer than before.
        """
        assert self.process.stdin and self.process.stdout
        with tempfile.NamedTemporaryFile("r", suffix=".txt") as said:
            request = {
                "words": words,
                "seconds": seconds,
                "said": said.name,
                "environment": self.environment | environment,
            }
            print(json.dumps(request), file=self.process.stdin, flush=True)
            if not (code := self.process.stdout.readline()):
                raise RuntimeError("the process whose forks run tests has ended")
            return int(code), said.read()
