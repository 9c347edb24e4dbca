"""Faults planted in the source by a small tool: the tests of that package must catch them.

A mutant has one operator, comparison, number or condition changed. All mutants of a run are in one copy of the
source, and a switch says which of them is at work (switch.py), so that tests are collected once. Each test that
the table below names, of the fast run (`make test`) and of the docstrings there, runs once without a fault, by
which it is known what it reaches. For each mutant, tests that reach it run in a fork until one fails: those in
files of the same name first, then the short ones; a test that fails without the fault too does not count.
"""

from __future__ import annotations

import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from queue import SimpleQueue
from subprocess import PIPE

from . import switch
from .frame import Trial

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "chainrule"
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
TOGETHER = ("tests/serve/",)
"""Folders of tests whose fixtures take seconds to make: one process runs all of them."""
ENOUGH = 60.0
"""Seconds of tests for one mutant; twice as long with fixtures that a fork makes anew."""
NONE = -1
"""The number of no mutant."""
NOTES = "reached.txt"
"""The file for what tests reach."""

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
    """Finds the changes that are possible in a file, and puts those that have a number behind the switch."""

    def __init__(self, numbers: Mapping[int, int]) -> None:
        self.numbers = numbers
        """The number of the mutant at each place."""
        self.found: list[tuple[int, str, str]] = []

    def _offer(self, node: ast.expr, other: ast.expr) -> ast.expr:
        place = len(self.found)
        self.found.append((node.lineno, ast.unparse(node), ast.unparse(other)))
        return ast.IfExp(_asked(self.numbers[place]), other, node) if place in self.numbers else node

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

    def visit_MatchValue(self, node: ast.MatchValue) -> ast.MatchValue:
        return node

    def visit_Raise(self, node: ast.Raise) -> ast.stmt:
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        return node


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _asked(number: int) -> ast.expr:
    """The question whether a mutant is at work."""
    return ast.Call(ast.Attribute(ast.Name("_switch", ast.Load()), "at", ast.Load()), [ast.Constant(number)], [])


def mutants(place: str) -> Iterator[Mutant]:
    """Yield all mutants of a file or package."""
    path = SOURCE / place
    for file in [path] if path.suffix else sorted(path.rglob("*.py")):
        changes = _Change({})
        changes.visit(ast.parse(file.read_text(encoding="utf-8")))
        for number, (line, before, after) in enumerate(changes.found):
            yield Mutant(str(file.relative_to(SOURCE)), line, before[:80], after[:80], number)


def mutated(file: str, numbers: Mapping[int, int], entered: int) -> str:
    """Return the source of a file with the mutants of these places and numbers.

    Its functions say that they run by the number `entered`.
    """
    tree = ast.parse((SOURCE / file).read_text(encoding="utf-8"))
    _Change(numbers).visit(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.body.insert(1 if ast.get_docstring(node) else 0, ast.Expr(_asked(entered)))
    first = [one for one in tree.body if isinstance(one, ast.ImportFrom) and one.module == "__future__"]
    place = tree.body.index(first[-1]) + 1 if first else int(ast.get_docstring(tree) is not None)
    tree.body.insert(place, ast.parse("from reliability import switch as _switch").body[0])
    return ast.unparse(ast.fix_missing_locations(tree))


def plant(chosen: Sequence[Mutant], folder: Path) -> dict[str, int]:
    """Plant mutants in a copy of the source in `folder`, by their numbers; return the number of each file."""
    places: dict[str, dict[int, int]] = defaultdict(dict)
    for number, mutant in enumerate(chosen):
        places[mutant.file][mutant.place] = number
    files = {file: len(chosen) + number for number, file in enumerate(places)}
    for file, numbers in places.items():
        (folder / "chainrule" / file).write_text(mutated(file, numbers, files[file]), encoding="utf-8")
    return files


class Forks:
    """A process whose forks run tests of the source in `folder` (forks.py)."""

    def __init__(self, folder: Path, how: str, *words: str) -> None:
        self.folder, self.notes = folder, str(folder / NOTES)
        path, here = f"{folder}{os.pathsep}{ROOT}", {**os.environ}
        here.pop("PYTEST_CURRENT_TEST", None)  # of the test that runs this
        self.process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("forks.py"), how, *words],
            cwd=ROOT,
            env={**here, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", switch.REACHED: self.notes},
            text=True,
            stdin=PIPE,
            stdout=PIPE,
        )
        there = json.loads(self._answer())
        self.tests: list[str] = there["tests"]
        self.errors: dict[str, str] = there["errors"]

    def _answer(self) -> str:
        assert self.process.stdout
        if not (line := self.process.stdout.readline()):
            raise RuntimeError("the process whose forks run tests has ended")
        return line

    def end(self) -> None:
        self.process.communicate()

    def run(
        self, tests: Sequence[str], fault: int, seconds: Mapping[str, float] | None
    ) -> tuple[list[str], dict[str, float]] | None:
        """Run tests with a fault; return those that failed, and the seconds of each.

        `seconds` are those that they took before: then the first failure ends the run, and a test that takes far
        longer is killed, which gives None. Without them all tests run, and what they reach is noted.
        """
        assert self.process.stdin
        with tempfile.NamedTemporaryFile("r", dir=self.folder, suffix=".json") as answer:
            request = {
                "tests": tests,
                "fault": fault,
                "seconds": None if seconds is None else {test: seconds.get(test, 0.0) for test in tests},
                "enough": 2 * ENOUGH,
                "answer": answer.name,
                "reached": self.notes if seconds is None else "",
            }
            print(json.dumps(request), file=self.process.stdin, flush=True)
            self._answer()
            said = answer.read()
        return (found["failed"], found["seconds"]) if (found := json.loads(said or "null")) else None


@dataclass
class Hunt:
    """The mutants in the source in `folder`, the processes that run tests, and what each test reaches."""

    folder: Path
    tests: Mapping[str, str]
    """The tests of each package."""
    workers: int
    forks: dict[str, SimpleQueue[Forks]] = field(default_factory=dict)
    """Processes of each sort that are free."""
    seconds: dict[str, float] = field(default_factory=dict)
    reached: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    errors: dict[str, str] = field(default_factory=dict)

    def start(self, pool: ThreadPoolExecutor, count: int) -> None:
        """Collect the tests, and run all of them once without one of the `count` faults."""
        files = {f"tests/{one}" for tests in self.tests.values() for one in tests.split()}
        sources = {str(self.folder / "chainrule" / place) for place in self.tests}
        # a folder of tests includes its files
        words = sorted(one for one in files | sources if not {str(p) for p in Path(one).parents} & files)
        started = [pool.submit(Forks, self.folder, "collect", *words) for _ in range(self.workers)]
        self._offer("collect", [one.result() for one in started])
        forks = self.forks["collect"].get()
        self.forks["collect"].put(forks)
        self.errors = forks.errors
        groups: dict[str, list[str]] = defaultdict(list)
        for test in forks.tests:
            groups[next((one for one in TOGETHER if test.startswith(one)), test.partition("::")[0])].append(test)
        # the largest first, so that no process waits for the other at the end
        for failed, seconds in pool.map(
            lambda tests: self._run("collect", tests, NONE, None) or ([], {}),
            sorted(groups.values(), key=len, reverse=True),
        ):
            self.seconds.update({test: took for test, took in seconds.items() if test not in failed})
        for line in (self.folder / NOTES).read_text(encoding="utf-8").splitlines():
            number, _, test = line.partition("\t")
            self.reached[int(number)].append(test)
        if any("" in self.reached[number] for number in range(count)):
            self._offer("import", [Forks(self.folder, "import", "numba", "torch") for _ in range(self.workers)])

    def _offer(self, sort: str, found: Iterable[Forks]) -> None:
        self.forks[sort] = SimpleQueue()
        for one in found:
            self.forks[sort].put(one)

    def _run(
        self, sort: str, tests: Sequence[str], fault: int, seconds: Mapping[str, float] | None
    ) -> tuple[list[str], dict[str, float]] | None:
        forks = self.forks[sort].get()
        try:
            return forks.run(tests, fault, seconds)
        finally:
            self.forks[sort].put(forks)

    def end(self) -> None:
        """End the processes."""
        for queue in self.forks.values():
            for _ in range(self.workers):
                queue.get().end()

    def missing(self, place: str) -> str | None:
        """Return why tests of a package cannot be run; None if all can."""
        names = tuple(f"tests/{one}" for one in self.tests[place].split())
        found = [f"{test}: {said}" for test, said in self.errors.items() if test.startswith(names)]
        return f"its tests cannot be run: {' '.join(found[0].split())[-200:]}" if found else None

    def caught(self, mutant: Mutant, number: int, entered: int, place: str) -> bool:
        """Return True if a test fails with a mutant, and not without it."""
        on_import = "" in self.reached[number]
        sort, found = ("import", self._tests(entered, place)) if on_import else ("collect", self.reached[number])
        tests = self._in_order(found, mutant.file)
        while tests:
            result = self._run(sort, tests, number, self.seconds)
            if result and not result[0]:
                return False
            failed = result[0][:1] if result else tests  # which were killed
            without = self._run(sort, failed, NONE, self.seconds)
            if without and not without[0]:
                return True
            tests = tests[tests.index(failed[-1]) + 1 :]
        return False

    def _tests(self, entered: int, place: str) -> list[str]:
        """The tests that run a function of a file; all of its package if there are none."""
        names = tuple(f"tests/{one}" for one in self.tests[place].split())
        return [*filter(None, self.reached[entered])] or [test for test in self.seconds if test.startswith(names)]

    def _in_order(self, tests: Iterable[str], file: str) -> list[str]:
        """The tests in files that are named after the changed one, then the short ones, as many as are enough."""
        name = Path(file).stem

        def turn(test: str) -> tuple[bool, float]:
            return name not in test.partition("::")[0], self.seconds[test]

        ordered = sorted({*tests} & {*self.seconds}, key=turn)
        ends = accumulate(self.seconds[test] for test in ordered)
        return [test for test, end in zip(ordered, ends, strict=True) if end < ENOUGH] or ordered[:1]


def run(trial: Trial) -> None:
    """Plant faults that the seed chooses, as many in each package."""
    tests = SMALL if trial.small else TESTS
    generator = random.Random(trial.seed)
    shuffled = {place: generator.sample(found := [*mutants(place)], len(found)) for place in tests}
    places = [[*tests][number % len(tests)] for number in range(trial.count)]
    chosen = [shuffled[place][number // len(tests)] for number, place in enumerate(places)]
    workers = 1 if trial.small else len(os.sched_getaffinity(0))
    with (
        tempfile.TemporaryDirectory(prefix="trial-") as name,
        ThreadPoolExecutor(workers) as pool,
    ):
        folder = Path(name)
        (folder / NOTES).touch()
        shutil.copytree(SOURCE, folder / "chainrule")  # with compiled kernels, and the times of files
        files = plant(chosen, folder)
        hunt = Hunt(folder, tests, workers)
        try:
            hunt.start(pool, len(chosen))
            trial.left_out.update({place: why for place in tests if (why := hunt.missing(place))})

            def judged(number: int) -> bool | None:
                mutant, place = chosen[number], places[number]
                is_tried = place not in trial.left_out and not trial.is_over
                return hunt.caught(mutant, number, files[mutant.file], place) if is_tried else None

            for number, found in enumerate(pool.map(judged, range(len(chosen)))):
                if found is not None:
                    trial.note(places[number], None if found else f"lives: {chosen[number]}")
        finally:
            hunt.end()
