"""What all kinds of exercises share: verdicts, wrong answers with their hints, faults in a student's code."""

from __future__ import annotations

import ast
import re
import sysconfig
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

from chainrule.course.graders.difference import difference

State = Literal["right", "wrong", "not yet"]
_NOT_OF_STUDENT = (str(Path(__file__).parents[2]), *sysconfig.get_paths().values(), "<string>", "<frozen")
"""The beginnings of the names of files that the student did not write."""


class Verdict(NamedTuple):
    """What a grader says of an answer."""

    state: State
    message: str = ""


NOT_YET = Verdict("not yet")


@dataclass(frozen=True, kw_only=True)
class Grader(ABC):
    """Grades the answers to one exercise. Its fields are the keys of the exercise's table."""

    is_typed: ClassVar[bool] = False
    """True if an answer is a value, which a student can type into a field; else it is code."""

    id: str
    names: Mapping[str, Any] = field(repr=False)
    """The names that expressions may use."""
    wrong: Sequence[Mapping[str, str]] = ()
    """Known wrong answers: the expression of a value, and the hint for a student who gives it."""
    hint: str = ""
    """The hint for any other wrong answer."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the answer in the student's file."""

    @property
    @abstractmethod
    def blank(self) -> str:
        """The code that the student's file begins with."""

    @abstractmethod
    def grade(self, answer: Any) -> Verdict:
        """Grade an answer."""

    def value(self, expression: str, **more: Any) -> Any:
        """Compute an expression of the lesson."""
        return eval(expression, {**self.names, **more})

    def wrong_verdict(
        self, is_answer: Callable[[Any], bool], otherwise: str, is_like: Callable[[Any], bool] | None = None
    ) -> Verdict:
        """Return the hint of the known wrong answer that was given; else the general one, and `otherwise`.

        `is_like` is asked next: it is True if the given answer has the fault of a known one, and others perhaps.
        """
        for is_known in filter(None, (is_answer, is_like)):
            for known in self.wrong:
                if is_known(self.value(known["value"])):
                    return Verdict("wrong", filled(known["hint"], self.names))
        return Verdict("wrong", "; ".join(filter(None, [otherwise, filled(self.hint, self.names)])))


@dataclass(frozen=True, kw_only=True)
class CodeGrader(Grader):
    """Grades code that a student writes; `code` has what the student's file begins with."""

    code: str

    @property
    def blank(self) -> str:
        return self.code.strip()

    @property
    def name(self) -> str:
        definitions = [one for one in ast.parse(self.code).body if isinstance(one, (ast.FunctionDef, ast.ClassDef))]
        return definitions[-1].name

    def grade(self, answer: Any) -> Verdict:
        """Grade code; an exception in it is a wrong answer that names the line."""
        if not callable(answer):
            return Verdict("wrong", f"expected code, a function or a class, found {type(answer).__name__}")
        try:
            return self.grade_code(answer)
        except NotImplementedError:
            return NOT_YET
        except (Exception, SystemExit) as error:
            return Verdict("wrong", fault(error))

    @abstractmethod
    def grade_code(self, answer: Any) -> Verdict:
        """Grade code, which may raise any error."""


def filled(text: str, names: Mapping[str, Any]) -> str:
    """Replace each {{expression}} of a text by its value.

    >>> filled("1 + 2 is {{a + b}}", {"a": 1, "b": 2})
    '1 + 2 is 3'
    """
    return re.sub(r"\{\{(.+?)\}\}", lambda found: str(eval(found[1], dict(names))), text)


def fault(error: BaseException) -> str:
    """Say in one line where a student's code failed, and why."""
    if isinstance(error, SyntaxError):
        place = _place(error.filename, error.lineno) if error.filename else "the file"
        return f"{place}: {type(error).__name__}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(_NOT_OF_STUDENT)]
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return f"{_place(own[-1].filename, own[-1].lineno)}: {what}" if own else what


def _place(file: str, line: int | None) -> str:
    return f"line {line} of the cell" if "ipykernel" in file else f"{Path(file).name}, line {line}"


def close(results: Iterable[Any], others: Iterable[Any], tolerance: float) -> bool:
    """Return True if two lists of results are the same."""
    return all(not difference(one, other, tolerance) for one, other in zip(results, others, strict=True))
