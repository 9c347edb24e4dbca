"""The kinds of exercises: what each says of right, wrong and broken answers."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from chainrule.autodiff import Module
from chainrule.comparison.results import Comparison, Result
from chainrule.contract.kinds import Figures
from chainrule.course.graders import grader_of
from chainrule.course.graders.difference import difference
from chainrule.course.markdown import Exercise, parts_of
from chainrule.course.own_model import OwnModel
from chainrule.errors import CourseError

TEXTS = ["i love cats", "i love dogs", "cats chase mice"]


def grade(given: Any, /, **spec: Any) -> tuple[str, str]:
    names = {"math": math, "np": np, "texts": TEXTS, "sigmoid": lambda x: 1 / (1 + np.exp(-x))}
    return tuple(grader_of(Exercise("1", "Title", 1, "?", spec, 1), names, "a.md").grade(given))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (25, "write the probability, not per cent"),
        (-0.25, "the sign is wrong"),
        (4, "this is 1 divided by the answer"),
        (math.log(0.25), "this is the logarithm of the answer"),
        (0.4, "0.4 is too large"),
        (0.3, "this is rounded too much: a number may be off by 0.5 %, so give three digits"),
        ("0.25", "expected a number, found str: write it without quotes"),
        ("a quarter", "expected a number, found str: write it without quotes"),
        (None, "expected a number, found NoneType"),
        ([0.25], "expected a number, found list"),
        (math.nan, "nan is no number"),
    ],
)
def test_a_wrong_number_gets_a_hint_that_depends_on_it(answer: Any, said: str) -> None:
    assert grade(answer, answer="1 / 4") == ("wrong", said)


def test_numbers_may_be_rounded_and_counts_may_not() -> None:
    assert grade(0.333, answer="1 / 3")[0] == "right"
    assert grade(np.float32(1 / 3), answer="1 / 3")[0] == "right"
    rule = "a number may be off by 0.5 %, so give three digits"
    assert grade(0.34, answer="1 / 3") == ("wrong", f"0.34 is too large, but close: {rule}")
    assert grade(0.3, answer="1 / 3") == ("wrong", f"this is rounded too much: {rule}")
    assert grade([0.333, 0.013], answer="[1 / 3, 0.012]")[0] == "right"  # 0.5 % of the largest
    assert grade([0.33, 0.01], answer="[1 / 3, 0.012]")[1].startswith(
        "this is rounded too much: a number may be off"
    )
    assert grade({"a": 0.333, "b": 0.013}, answer="{'a': 1 / 3, 'b': 0.012}") == ("wrong", "the entry 'b' is wrong")
    assert grade(10**6 + 1, answer="10**6") == ("wrong", "1000001 is too large, but close: a count has to be exact")
    assert grade(10.0**6 + 1, answer="10**6")[0] == "wrong"
    assert grade(math.inf, answer="math.inf")[0] == "right"
    assert grade(..., answer="0") == ("not yet", "")


def test_a_rounded_wrong_answer_gets_its_hint_too() -> None:
    number = {"answer": "1 / 4", "wrong": [{"value": "1 / 6", "hint": "bigrams"}]}
    assert grade(0.17, **number) == ("wrong", "bigrams")
    assert grade(0.2, answer="2 / 5", wrong=number["wrong"]) == ("wrong", "0.2 is too small")  # 1/6? perhaps 1/5
    assert grade(-1.38, answer="1 / 4") == (
        "wrong",
        "this is the logarithm of the answer",
    )  # three digits of -1.386
    values = {"answer": "[-0.353, 0.321, 0.032]", "wrong": [{"value": "[0.647, 0.321, 0.032]", "hint": "p alone"}]}
    assert grade([0.65, 0.32, 0.03], **values) == ("wrong", "p alone")
    near = {"answer": "0.1672", "wrong": [{"value": "1 / 6", "hint": "bigrams"}]}
    assert grade(0.17, **near)[1].startswith("this is rounded too much")


class Odd:
    """An answer that cannot be shown."""

    def __repr__(self) -> str:
        raise ValueError("no")


def test_odd_answers_are_wrong_and_no_error() -> None:
    assert grade(10**400, answer="0.5") == ("wrong", "the number is too large")
    assert grade([Odd()], answer="['a']")[1].endswith(": ValueError: no")
    assert grade(1j, answer="0.5") == ("wrong", "expected a number, found complex")
    assert grade(["0.5", "0.5"], answer="[0.5, 0.5]") == (
        "wrong",
        "the answer: expected numbers, found words in quotes",
    )
    assert grade([0.5, math.nan], answer="[0.5, 0.5]") == ("wrong", "the answer, entry 1 (counted from 0) is wrong")
    assert grade(lambda x: sys.exit(3), **FUNCTION)[0] == "wrong"


def test_of_a_list_or_table_the_wrong_place_is_named_and_not_the_answer() -> None:
    assert grade([1, 2, 4], answer="[1, 2, 3]") == (
        "wrong",
        "the answer: the largest difference is 1 at entry 2 (counted from 0)",
    )
    assert grade({"a": 0.5}, answer="{'a': 0.5, 'b': 0.5}") == ("wrong", "the answer: there is no entry 'b'")
    assert grade({"a": 0.1, "b": 0.5}, answer="{'a': 0.5, 'b': 0.5}") == ("wrong", "the entry 'a' is wrong")
    assert grade({"a": 1, "b": 1}, answer="{'a': 1}") == ("wrong", "the answer: 'b' should not be there")
    assert grade("dogs", answer="'cats'") == ("wrong", "it is not 'dogs'")
    assert grade(" Cats", answer="'cats'")[0] == "right"


FUNCTION = {
    "kind": "function",
    "code": "def steps(x): raise NotImplementedError",
    "reference": "lambda x: {'square': x**2, 'sum': (x**2).sum(), 'root': np.sqrt((x**2).sum())}",
    "inputs": "rng.normal(size=3)",
}


def test_the_first_step_that_differs_is_named() -> None:
    def steps(x: Any, wrong: float = 0.0, axis: Any = None) -> Any:
        total = np.sum(x**2, axis=axis) + wrong
        return {"square": x**2, "sum": total, "root": np.sqrt(total)}

    assert grade(steps, **FUNCTION)[0] == "right"
    state, said = grade(lambda x: steps(x, wrong=0.5), **FUNCTION)
    assert state == "wrong" and " sum: yours is 0.943401, expected 0.443401" in said
    assert (
        "square: expected a vector of 3, found a matrix of 1 x 3"
        in grade(lambda x: {"square": (x**2)[None]}, **FUNCTION)[1]
    )
    assert "the result: expected a dict, found NoneType" in grade(lambda x: None, **FUNCTION)[1]
    assert grade(0.5, **FUNCTION)[0] == "wrong"


def test_a_hint_belongs_to_the_first_wrong_step_whatever_follows() -> None:
    known = {"value": "lambda x: {'square': x**2, 'sum': x.sum(), 'root': 0.0}", "hint": "sum the squares"}
    spec = {**FUNCTION, "wrong": [known]}
    for root in (0.0, 1.0):
        answer = lambda x, root=root: {"square": x**2, "sum": x.sum(), "root": root}  # noqa: E731
        assert grade(answer, **spec) == ("wrong", "sum the squares")
    assert grade(lambda x: {"square": x, "sum": x.sum(), "root": 0.0}, **spec)[1] != "sum the squares"


def test_a_function_that_changes_its_input_is_told_so() -> None:
    """Its own copy only: the reference reads the input as it was, so that the results are the same."""

    def steps(x: Any) -> Any:
        x **= 2
        return {"square": x, "sum": x.sum(), "root": np.sqrt(x.sum())}

    state, said = grade(steps, **FUNCTION)[:2]
    assert state == "wrong" and "changes an argument: leave it as it was" in said


def test_a_function_may_move_its_input_and_put_it_back() -> None:
    """x + ε - 2ε + ε is x up to rounding: so do students write a finite difference."""

    def slope(x: Any) -> float:
        x += 1e-5
        up = x.sum()
        x -= 2e-5
        down = x.sum()
        x += 1e-5
        return float((up - down) / 2e-5)

    spec = {"kind": "function", "code": "def slope(x): ...", "reference": "lambda x: float(x.size)"}
    assert grade(slope, **spec, inputs="rng.normal(size=3)")[0] == "right"


MODULE = {
    "kind": "module",
    "code": "class Sigmoid(Module): ...",
    "reference": "sigmoid",
    "inputs": "{'x': rng.normal(size=(2, 3))}",
}


class Sigmoid(Module):
    slope = 1.0
    shift = 0.0

    def forward(self, x: Any) -> Any:
        return 1 / (1 + np.exp(-x)) + self.shift

    def backward(self, g: Any) -> Any:
        return (self.slope * g * self.out_tensor * (1 - self.out_tensor),)


def test_a_module_is_graded_forward_then_backward() -> None:
    assert grade(Sigmoid, **MODULE)[0] == "right"
    state, said = grade(type("Shifted", (Sigmoid,), {"shift": 1.0}), **MODULE)
    assert state == "wrong" and said.startswith("forward: the largest difference is 1 at ")
    state, said = grade(type("Turned", (Sigmoid,), {"slope": -1.0}), **MODULE)
    assert state == "wrong" and said.startswith("backward: the gradient of x, a matrix of 2 x 3, is ")


class _TwoFaults(Module):
    """x y, with two wrong gradients."""

    def forward(self, x: Any, y: Any) -> Any:
        return x * y

    def backward(self, x: Any, y: Any, out: Any, g: Any) -> Any:
        return g, 3 * g


def test_a_hint_belongs_to_one_wrong_gradient_whatever_the_others_are() -> None:
    known = type("Known", (_TwoFaults,), {"backward": lambda self, x, y, out, g: (g, x * g)})
    names = {"np": np, "known": known}
    spec = {
        "kind": "module",
        "code": "class Times(Module): ...",
        "reference": "lambda x, y: x * y",
        "inputs": "{'x': rng.normal(size=3), 'y': rng.normal(size=3)}",
        "wrong": [{"value": "known", "hint": "the gradient of x is y g"}],
    }
    grader = grader_of(Exercise("1", "Title", 1, "?", spec, 1), names, "a.md")
    assert grader.grade(_TwoFaults) == ("wrong", "the gradient of x is y g")
    right = type("Right", (_TwoFaults,), {"backward": lambda self, x, y, out, g: (y * g, x * g)})
    assert grader.grade(right)[0] == "right"


class Uniform(OwnModel):
    share = 1.0

    def probabilities(self, words: list[str]) -> dict[str, float]:
        return dict.fromkeys(self.vocabulary, self.share / len(self.vocabulary))


def test_a_model_keeps_the_laws_and_has_a_place_among_others() -> None:
    peers = {"mine": "__import__('chainrule').train('ngram', texts, order=2, smoothing='mle', tokenizer='word')"}
    spec = {"kind": "model", "code": "class M: ...", "train": "texts", "test": "texts", "peers": peers}
    state, said = grade(Uniform, **spec)
    assert state == "right" and said.startswith("it keeps the laws (bits per byte: ")
    state, said = grade(Uniform, **spec, beats="mine")
    assert state == "wrong" and "but mine is better" in said
    state, said = grade(type("Leaks", (Uniform,), {"share": 0.9}), **spec)
    assert state == "wrong" and said.startswith("it breaks the law sums_to_one")
    assert grade(len, **spec) == ("wrong", "expected a LanguageModel, found int")
    known = [{"value": "__import__('tests.course.test_graders').course.test_graders.Uniform", "hint": "count"}]
    assert grade(Uniform, **spec, beats="mine", wrong=known) == ("wrong", "count")
    first = {"probabilities": lambda self, words: {"i": 1.0}}
    assert "probability 0" in grade(type("Sure", (Uniform,), first), **spec, beats="mine")[1]


def unigrams(k: float) -> str:
    return f"__import__('chainrule').train('ngram', texts, order=1, smoothing='add-k', k={k}, tokenizer='word')"


def test_a_model_that_is_better_by_a_hair_is_not_better() -> None:
    """Unigrams with another smoothing are still unigrams."""
    spec = {"kind": "model", "code": "class M: ...", "train": "texts", "test": "texts", "beats": "unigrams"}
    spec["peers"] = {"unigrams": unigrams(0.501)}
    answer = eval(f"lambda texts: {unigrams(0.5)}")
    state, said = grade(answer, **spec)
    assert state == "wrong" and said.startswith(
        "it keeps the laws, but is hardly better than unigrams (bits per byte"
    )
    known = [{"value": f"lambda texts: {unigrams(0.501)}", "hint": "unigrams again"}]
    assert grade(answer, **spec, wrong=known) == ("wrong", "unigrams again")


def comparison(spread: float = 0.1, **losses: float) -> Comparison:
    """A comparison of models with these losses, whose differences have an interval four times `spread` wide."""
    results = [
        Result(name, "ngram", {}, name, Figures({}, loss, 1.0), 1.0, 1.0, "") for name, loss in losses.items()
    ]
    random = np.random.default_rng(0)
    draws = {name: loss + spread / math.sqrt(2) * random.normal(size=10_000) for name, loss in losses.items()}
    return Comparison("", "word", 9, "line", {}, results, {}, draws=draws)


CLAIM = {"kind": "claim", "code": "def compare(folder): ...", "models": ["bigram", "trigram"]}


def test_a_claim_is_read_from_the_interval() -> None:
    both = comparison(bigram=0.0, trigram=0.4)
    measured = "bigram is better by 0.400 bits per byte (0.203 to 0.596)"
    assert grade(lambda folder: (both, "bigram"), **CLAIM) == ("right", measured)
    assert grade(lambda folder: (both, "trigram"), **CLAIM) == ("wrong", f"{measured}, not trigram")
    state, said = grade(lambda folder: (comparison(bigram=0.0, trigram=0.1), "bigram"), **CLAIM)
    assert state == "wrong" and "the interval covers 0" in said


def test_a_claim_is_of_two_models_whatever_others_are_compared() -> None:
    """The best of all is neither of the two; and one that is no model of the claim cannot be claimed."""
    more = comparison(mixture=0.0, bigram=0.5, trigram=0.9)
    assert grade(lambda folder: (more, "bigram"), **CLAIM)[0] == "right"
    assert grade(lambda folder: (more, "mixture"), **CLAIM) == (
        "wrong",
        "the second thing is the name of the better one of bigram and trigram, not 'mixture'",
    )


def test_a_claim_that_was_foreseen_gets_its_hint() -> None:
    spec = {**CLAIM, "wrong": [{"value": "'trigram'", "hint": "its contexts are rarely seen"}]}
    both = comparison(bigram=0.0, trigram=0.4)
    assert grade(lambda folder: (both, "trigram"), **spec) == ("wrong", "its contexts are rarely seen")
    assert grade(lambda folder: (both, "bigram"), **spec)[0] == "right"


def test_a_comparison_that_decides_nothing_is_told_why() -> None:
    assert grade(lambda folder: (comparison(bigram=0.0), "bigram"), **CLAIM)[1].startswith(
        "compare bigram and trigram; yours has bigram"
    )
    without = replace(comparison(bigram=0.0, trigram=0.4), draws={})
    assert "too few documents" in grade(lambda folder: (without, "bigram"), **CLAIM)[1]
    endless = replace(comparison(bigram=0.0, trigram=math.inf), draws={})
    assert grade(lambda folder: (endless, "bigram"), **CLAIM)[1].startswith("trigram gives a token")
    assert grade(lambda folder: "bigram", **CLAIM)[1].startswith("return two things")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("```exercise\n```\n", "line 1: a line such as '### Exercise 1 ★ Title' is missing"),
        ("### Exercise 1 ★ One\n\n### Exercise 2 ★ Two\n", "line 3: the exercise before it has no block"),
        ("### Exercise 1 ★ One\n\n```exercise\nanswer = 1 +\n```\n", "line 3: the block is not TOML"),
        ("text\n\n```output\n1\n```\n", "line 3: ```output belongs right below the code"),
    ],
)
def test_a_lesson_that_is_not_well_formed_is_refused_by_line(text: str, said: str) -> None:
    with pytest.raises(CourseError, match=said):
        parts_of(text, "a.md")


def test_a_table_of_an_exercise_that_does_not_fit_is_refused_by_line() -> None:
    with pytest.raises(CourseError, match=r"line 1: kind should be value\|function"):
        grade(1, kind="essay")
    with pytest.raises(CourseError, match=r"line 1: .*unexpected keyword argument 'anwser'"):
        grade(1, anwser="1")
    with pytest.raises(CourseError, match="line 1: missing 1 required keyword-only argument: 'answer'"):
        grade(1)


def test_nan_differs_from_every_number() -> None:
    assert difference([math.nan], [1.0], 1e-6) != ""
    assert difference([math.inf, -math.inf], [math.inf, -math.inf], 1e-6) == ""
