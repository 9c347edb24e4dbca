"""Small parts of the server, without a server."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import chainrule as cr
from chainrule.decode.healing import _log_sum
from chainrule.errors import CourseError
from chainrule.serve.api.lessons import _grade
from chainrule.serve.api.reading import READ_AT_ONCE, read_in_parts


@pytest.mark.parametrize("length", [1, READ_AT_ONCE, 2 * READ_AT_ONCE + 3])
def test_a_prompt_that_is_read_in_parts_is_read_whole(length: int) -> None:
    lm = cr.train("ngram", ["a b a c b"], order=2, tokenizer="char")
    ids = np.random.default_rng(0).choice(lm.tokenizer.encode("abc "), length)
    reading, pauses = read_in_parts(lm, ids.tolist()), 0
    while True:
        try:
            next(reading)
            pauses += 1
        except StopIteration as end:
            state: Any = end.value
            break
    assert pauses == (length - 1) // READ_AT_ONCE
    whole = lm.extend(lm.start(1), ids[None])
    np.testing.assert_array_equal(lm.next_log_probs(state), lm.next_log_probs(whole))


@pytest.mark.parametrize("count", [3, 100])
def test_sums_of_logarithms(count: int) -> None:
    log_probs = np.log(np.arange(1.0, count + 1))
    assert _log_sum(log_probs - 2000) == pytest.approx(np.log(count * (count + 1) / 2) - 2000)


def test_code_is_not_graded_by_the_server() -> None:
    one = cr.lesson(3)
    code = next(name for name, grader in one.graders.items() if not grader.is_typed)
    with pytest.raises(CourseError, match="asks for code, which the server does not run"):
        _grade(one, code, "1")
    typed = next(name for name, grader in one.graders.items() if grader.is_typed)
    assert _grade(one, typed, "-12345").id == typed
