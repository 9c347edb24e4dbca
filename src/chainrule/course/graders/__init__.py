"""The kinds of exercises, and how each grades an answer.

grader.py       what all kinds share: verdicts, wrong answers with their hints, faults in a student's code
difference.py   the first difference of two results, in words
value.py        a number, a word, or a list or table of these
function.py     a function, against the reference on random inputs
module.py       a module of the tape: its value, and its gradients by finite differences
model.py        a language model of the student's own: the laws, and its place among others
claim.py        which of two models is better: the student's comparison, with its interval
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chainrule.course.graders.grader import Grader
from chainrule.course.markdown import Exercise
from chainrule.errors import CourseError
from chainrule.system.plugins import import_object

_KINDS = {
    "value": "value:Value",
    "function": "function:Function",
    "module": "module:TapeModule",
    "model": "model:StudentModel",
    "claim": "claim:Claim",
}
"""Where the grader of each kind is; it is imported for a lesson that has such an exercise."""


def grader_of(exercise: Exercise, names: Mapping[str, Any], where: str) -> Grader:
    """Return the grader of an exercise; its expressions may use `names`."""
    spec = dict(exercise.spec)
    kind = spec.pop("kind", "value")
    if kind not in _KINDS:
        raise CourseError(f"{where}, line {exercise.line}: kind should be {'|'.join(_KINDS)}, not {kind}")
    try:
        grader: Grader = import_object(f"chainrule.course.graders.{_KINDS[kind]}")(
            id=exercise.id, names=names, **spec
        )
    except TypeError as error:
        reason = str(error).partition("__init__() ")[2]
        raise CourseError(f"{where}, line {exercise.line}: {reason}") from error
    return grader
