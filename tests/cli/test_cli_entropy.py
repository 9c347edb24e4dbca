"""`chainrule entropy`: the lectures' numbers from the command line."""

from __future__ import annotations

import math

import pytest

from .running import Fails, Run


def test_the_lecture_s_example(run: Run) -> None:
    found = run("entropy", 0.5, 0.3, 0.2, "--json").json
    assert found["bits"] == pytest.approx(1.48548, abs=1e-5)
    assert found["nats"] == pytest.approx(found["bits"] * math.log(2))
    assert found["perplexity"] == pytest.approx(2**1.48548, abs=1e-4)
    assert found["questions"] == pytest.approx(1.5)
    assert run("entropy", 5, 3, 2, "--counts", "--json").json == found
    shown = run("entropy", 0.5, 0.3, 0.2).out
    assert "1.485" in shown and "1.500" in shown


def test_a_model_against_the_truth(run: Run) -> None:
    found = run("entropy", 0.5, 0.3, 0.2, "--against", "0.4,0.4,0.2", "--json").json
    crossed = -(0.5 * math.log2(0.4) + 0.3 * math.log2(0.4) + 0.2 * math.log2(0.2))
    assert found["cross_entropy_bits"] == pytest.approx(crossed)
    assert found["kl_bits"] == pytest.approx(crossed - found["bits"])
    assert found["model_perplexity"] == pytest.approx(2**crossed)
    assert "KL(p || q)" in run("entropy", 0.5, 0.5, "--against", "1 0").out


def test_branching_factors_of_the_lectures(run: Run) -> None:
    assert run("entropy", "0.1x10", "--json").json["perplexity"] == pytest.approx(10)
    operator = run("entropy", "1/4", "1/4", "1/4", "1/120000x30000", "--json").json
    assert (operator["outcomes"], round(operator["perplexity"])) == (30_003, 53)


def test_what_is_wrong_is_said(fails: Fails) -> None:
    assert "sum to 0.99, not to 1" in fails("entropy", 0.7, 0.29)
    assert "sum to 0.9, not to 1" in fails("entropy", 0.5, 0.5, "--against", "0.5,0.4")
    assert "same outcomes: 2 and 3" in fails("entropy", 0.5, 0.5, "--against", "0.4,0.4,0.2")
    assert "1/4x2" in fails("entropy", 0.5, "half")
    assert "at least 0" in fails("entropy", "--counts", "--", 2, -1)
    assert "at least 0" in fails("entropy", "--", 1.5, -0.5)
