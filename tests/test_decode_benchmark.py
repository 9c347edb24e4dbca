"""Tests that each part of the benchmark of writing and scoring runs at a very small size; and of its figures."""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
from pathlib import Path

import pytest
from benchmarks.decode import PARTS, main
from benchmarks.decode.models import random_model
from benchmarks.decode.results import OutOfTime, Results
from benchmarks.neural.lab import Lab

SAID = {
    "strategies": "repetition penalty 1.2, top-k 50, 3 rows",
    "families": "seq2seq, Transformer, 5 rows",
    "beam": "LSTM, width 4, 2 prompts",
    "scoring": "bagofwords, lines",
    "startup": "translate: first token",
    "ngrams": "any length, scoring",
    "mixture": "the sum of its parts",
    "llama": "Llama, 10 M parameters",
    "large": "GPT-2, small, 2 rows",
}


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_a_part_runs(part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "rows.json"
    main([part, "--small", "--device", "cpu", "--json", str(kept)])
    printed = " ".join(capsys.readouterr().out.split())
    assert SAID[part] in printed
    rows = json.loads(kept.read_text())["rows"]
    assert rows and all(row["rate"] > 0 and not row["error"] for row in rows)


def results(until: float, **others: bool) -> Results:
    lab = Lab(Path(), Path(), "cpu", True, {}, argparse.Namespace())
    return Results(lab, 3, until, None, **{"is_alone": False, **others})


def test_rates_come_after_the_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock goes on by 8 seconds in the first call, then by 1, 2, 4, 1, ...; a call writes 8 tokens."""
    found, seconds = results(math.inf), itertools.chain([8.0], itertools.cycle([1.0, 2.0, 4.0]))
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])

    def write() -> int:
        clock[0] += next(seconds)
        return 8

    found.measure("part", "work", lambda: write)
    (row,) = found.rows
    assert (row.first, row.rate, row.slowest, row.fastest) == (8.0, 4.0, 2.0, 8.0)


def test_a_side_that_fails_does_not_end_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    def fails() -> int:
        raise ValueError("no memory\nfor this")

    found = results(math.inf)
    found.measure("part", "work", lambda: fails, {"peer": lambda: lambda: 3})
    assert [row.error for row in found.rows] == ["ValueError: no memory", ""]
    assert found.failures == 1
    found.show()
    assert "no memory" in capsys.readouterr().out


def test_nothing_begins_after_the_time_is_over() -> None:
    with pytest.raises(OutOfTime, match="part: work"):
        results(time.monotonic() - 1).measure("part", "work", lambda: lambda: 1)


def test_peers_are_left_out_on_request() -> None:
    found = results(math.inf, is_alone=True)
    found.measure("part", "work", lambda: lambda: 1, {"peer": lambda: lambda: 1})
    assert [row.side for row in found.rows] == ["chainrule"]


def test_random_models_are_the_same_every_time_and_say_something() -> None:
    settings = {"hidden": 16, "embedding": 8}
    one, other = (random_model("gru", 50, settings, spread=4.0) for _ in range(2))
    assert one.log_prob("w1 w2") == other.log_prob("w1 w2")
    assert 1 < one.next_logits(one.start(1))[:, 3:].std() < 16
