"""Scaling laws: a fit finds known constants and says how sure it is; a tiny grid is trained and continued."""

from __future__ import annotations

import json
import math
import time
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from chainrule.comparison.scaling import grid
from chainrule.comparison.scaling.grid import (
    RECORD,
    SHARES,
    Cell,
    Scaling,
    Size,
    Speed,
    _conclude,
    _is_too_late,
    _plan,
    parse_shares,
    parse_sizes,
    scale,
)
from chainrule.comparison.scaling.law import EXPONENTS, Law, fit_law, interval, predict_larger, refit
from chainrule.errors import ChainruleError, FolderError, SettingsError
from chainrule.runs.prepare import TokenizerChoice
from chainrule.system.progress import SILENT

TRUE = Law(1.69, 406.4, 0.34, 410.7, 0.28, 0.0, 1e10, 4e11, 2.4e22)  # Hoffmann et al. (2022)
N, D = (x.ravel() for x in np.meshgrid(np.geomspace(4e7, 1e10, 6), np.geomspace(5e8, 4e11, 6)))


def test_known_constants_are_found_again() -> None:
    found = fit_law(N, D, TRUE.loss(N, D))
    for name in ("E", "a", "b"):
        assert getattr(found, name) == pytest.approx(getattr(TRUE, name), rel=0.01)
    assert (pytest.approx(TRUE.A, rel=0.1), pytest.approx(TRUE.B, rel=0.1)) == (found.A, found.B)
    assert found.error < 1e-4


def test_a_few_wild_losses_change_little() -> None:
    noise = np.random.default_rng(0).normal(0, 5e-4, len(N))
    losses = TRUE.loss(N, D) * np.exp(noise)
    losses[[3, 20]] *= (1.3, 0.8)  # two runs that went wrong
    found = fit_law(N, D, losses)
    assert found.a == pytest.approx(TRUE.a, abs=0.05) and found.b == pytest.approx(TRUE.b, abs=0.05)
    assert pytest.approx(TRUE.E, rel=0.05) == found.E


def test_the_best_size_is_the_lowest_point_of_its_budget() -> None:
    for flops in (1e18, 1e21, 5.76e23):
        size, tokens = TRUE.best_size(flops)
        assert 6 * size * tokens == pytest.approx(flops)
        others = size * np.geomspace(0.1, 10, 401)
        losses = TRUE.loss(others, flops / 6 / others)
        assert TRUE.loss(size, tokens) <= losses.min() + 1e-12


def test_intervals_cover_the_truth_and_contain_the_estimate() -> None:
    small_N, small_D = (x.ravel() for x in np.meshgrid(np.geomspace(4e4, 1e6, 5), np.geomspace(3e4, 2.4e5, 4)))
    covered = []
    for seed in range(8):
        noise = np.random.default_rng(seed).normal(0, 0.005, len(small_N))
        losses = TRUE.loss(small_N, small_D) * np.exp(noise)
        law = fit_law(small_N, small_D, losses)
        refits = refit(law, small_N, small_D, losses)
        for name in ("E", "a", "b"):
            low, high = interval(law, refits, attrgetter(name))
            assert low <= getattr(law, name) <= high
            covered.append(low <= getattr(TRUE, name) <= high)
    assert np.mean(covered) > 0.8


def test_intervals_are_narrow_where_the_grid_is_wide_and_exact() -> None:
    losses = TRUE.loss(N, D) * np.exp(np.random.default_rng(0).normal(0, 1e-3, len(N)))
    law = fit_law(N, D, losses)
    refits = refit(law, N, D, losses)
    low, high = interval(law, refits, lambda one: one.b)
    assert 0 < high - low < 0.05


def test_constants_that_losses_do_not_determine_lie_at_a_bound() -> None:
    assert fit_law(N, D, TRUE.loss(N, D)).at_bound == ()
    steep = fit_law(N, D, 2 + 1e12 / N**1.5 + 400 / D**0.28)  # steeper than any network
    assert steep.a == EXPONENTS[1] and "a" in steep.at_bound
    sizeless = fit_law(N, D, 2 + 400 / D**0.28)
    assert "A" in sizeless.at_bound


def test_far_beyond_the_grid_there_is_a_warning() -> None:
    law = fit_law(N, D, TRUE.loss(N, D))
    assert law.warning(1e10, 4e11) == law.warning(1e11, 4e11) == law.warning(1e10, 4e12) == ""
    assert "20 times the parameters" in law.warning(2e11, 1e10)
    assert "100 times the tokens and 100 times the operations" in law.warning(1e10, 4e13)
    assert "25 times the operations" in law.warning(5e10, 2e12)  # neither N nor D alone is far


def test_the_smaller_half_predicts_the_larger() -> None:
    exact = predict_larger(N, D, TRUE.loss(N, D))
    assert exact is not None and (exact.fitted, exact.predicted) == (18, 18) and exact.error < 1e-3
    losses, is_larger = TRUE.loss(N, D), np.median(N * D) < N * D
    losses[is_larger] *= 1.1  # large networks that went wrong: the smaller ones do not foresee it
    broken = predict_larger(N, D, losses)
    assert broken is not None and broken.error == pytest.approx(1 - 1 / 1.1, abs=0.005)
    assert predict_larger(N[:6], D[:6], losses[:6]) is None


def made_up(losses: np.ndarray) -> Scaling:
    cells = [
        Cell("1x8", 1.0, int(n), int(d), float(loss), 1.0, 1.0) for n, d, loss in zip(N, D, losses, strict=True)
    ]
    return Scaling({}, ["1x8"], 1.0, 128, cells)


def test_the_advice_has_intervals_and_warns_beyond_ten_times_the_grid() -> None:
    found = made_up(TRUE.loss(N, D) * np.exp(np.random.default_rng(0).normal(0, 1e-3, len(N))))
    _conclude(found, (), seed=0)
    largest = 6 * N.max() * D.max()
    assert [one["flops"] for one in found.advice] == pytest.approx([largest, 10 * largest])
    assert not any(one["warning"] for one in found.advice) and found.warnings == []
    for one in found.advice:
        size, tokens = TRUE.best_size(one["flops"])
        assert one["least_parameters"] <= one["parameters"] <= one["most_parameters"]
        assert one["least_nats"] <= float(TRUE.loss(size, tokens)) <= one["most_nats"]
    _conclude(found, [100 * largest], seed=0)
    assert "100 times the operations" in found.advice[0]["warning"]
    _conclude(found := made_up(2 + 400 / D**0.28), (), seed=0)
    assert "does not determine" in found.warnings[0] and "A" in found.warnings[0]


def test_too_few_losses_are_refused() -> None:
    with pytest.raises(ChainruleError, match="at least 6 losses, of three sizes and three amounts"):
        fit_law([1, 2, 3], [1, 2, 3], [3, 2, 1])
    with pytest.raises(ChainruleError, match="finite"):
        fit_law(N, D, [math.inf] * len(N))


def test_sizes_and_shares_are_checked() -> None:
    assert parse_sizes(["2x64", "1x32", "3x96"])[0] == Size(1, 32)
    assert [size.heads for size in parse_sizes(["1x32", "2x48", "3x128"])] == [1, 1, 4]
    for names, message in (
        (["2x64"], "at least three sizes"),
        (["2", "2x64", "3x4"], "such as 4x128"),
        (["1x3"], "even"),
    ):
        with pytest.raises(SettingsError, match=message):
            parse_sizes(names)
    for names, message in (
        (["1/2", "1"], "three shares"),
        (["2", "1", "0.5"], "at most 1"),
        (["x"], "such as 1/4"),
    ):
        with pytest.raises(SettingsError, match=message):
            parse_shares(names)


def texts() -> list[str]:
    words, draws = ["the", "cat", "sat", "on", "a", "mat", "and", "saw", "one", "dog"], np.random.default_rng(1)
    return [" ".join(draws.choice(words, 8)) for _ in range(60)]


def test_a_grid_that_was_stopped_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    how = {
        "sizes": ["1x8", "1x16", "2x16"],
        "shares": ["1/4", "1/2", "1"],
        "minutes": 3.0,
        "tokenizer": TokenizerChoice("word"),
        "context": "line",
    }
    out, trained = tmp_path / "grid", []
    original = grid._trained

    def stops(*arguments: object) -> object:
        if len(trained) == 4:
            raise KeyboardInterrupt
        trained.append(arguments[2:])
        return original(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(grid, "_speed", lambda *_: Speed(1000, 1e-6))  # no test is about how fast this machine is
    monkeypatch.setattr(grid, "_trained", stops)
    with pytest.raises(KeyboardInterrupt):
        scale(texts(), out, **how)  # type: ignore[arg-type]
    kept = json.loads((out / RECORD).read_text())["cells"]
    assert len(kept) == 4
    monkeypatch.setattr(grid, "_trained", original)
    found = scale(texts(), out, budgets=[1e12], **how)  # type: ignore[arg-type]
    record = json.loads((out / RECORD).read_text())
    assert record["cells"][:4] == kept and len(found.cells) == 9 and record["is_finished"]
    assert found.law is not None and [one["flops"] for one in found.advice] == [1e12]
    assert len({(cell.parameters, cell.tokens) for cell in found.cells}) == 9
    tokens = sorted({cell.tokens for cell in found.cells})
    for name in ("bigram", "5-gram"):
        assert [cell.tokens for cell in found.ngrams if cell.size == name] == tokens
    with pytest.raises(FolderError, match="another grid"):
        scale(texts(), out, **{**how, "seed": 1})  # type: ignore[arg-type]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(FolderError, match=r"no scale\.json"):
        scale(texts(), tmp_path / "other", **how)  # type: ignore[arg-type]


def test_a_grid_of_an_earlier_version_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / RECORD).write_text('{"format": "chainrule-scale-1", "cells": []}')
    with pytest.raises(FolderError, match="a grid of an earlier version; choose another folder, or overwrite it"):
        scale(texts(), tmp_path)


def planned(
    monkeypatch: pytest.MonkeyPatch, seconds: float, minutes: float, named: list[Size] | None = None
) -> tuple[list[str], float]:
    """Plan a grid on a text of a million tokens; `seconds` are what a million tokens and parameters take."""

    def speed(data: object, size: Size, batch: int) -> Speed:
        parameters = 2000 * size.width + 12 * size.layers * size.width**2
        return Speed(parameters, seconds * 1e-12 * parameters)

    monkeypatch.setattr(grid, "_speed", speed)
    encoded = SimpleNamespace(tokens=10**6)
    data: Any = SimpleNamespace(train=encoded, device="cuda", progress=SILENT)
    return _plan(data, 8000, named, parse_shares(SHARES), minutes, time.perf_counter())


def test_the_grid_fits_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    slow, part = planned(monkeypatch, 300, 2)
    assert slow == ["1x16", "1x32", "2x48", "2x64"] and part < 1
    assert part * 1e6 / 8 > 8192
    shorter, of_text = planned(monkeypatch, 300, 0.3)
    assert shorter == slow[:3] and of_text * 1e6 / 8 > 8192
    longer, of_text = planned(monkeypatch, 300, 6)
    assert longer[:4] == slow and (len(longer), of_text) > (len(slow), part)
    fast, of_text = planned(monkeypatch, 1, 6)
    assert len(fast) > len(longer) and of_text == 1
    named = parse_sizes(["1x32", "2x64", "4x128"])
    assert planned(monkeypatch, 30, 2, named)[0] == ["1x32", "2x64", "4x128"]


def test_too_little_time_says_how_much_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        ChainruleError, match=r"0\.1 minutes are too few for networks of 1x16, .* needs about (\d+)"
    ) as error:
        planned(monkeypatch, 300, 0.1)
    needed = float(str(error.value).split()[-1])
    assert planned(monkeypatch, 300, needed)[1] > 0


def test_too_little_time_is_an_error_before_any_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "_speed", lambda *_: Speed(1000, 1.0))
    with pytest.raises(ChainruleError, match="minutes are too few for networks of 1x8, 1x16, 2x16"):
        scale(texts(), tmp_path / "grid", minutes=1, sizes=["1x8", "1x16", "2x16"])
    assert not (tmp_path / "grid" / RECORD).exists()


def test_cells_are_left_out_when_the_time_is_up() -> None:
    """A slower machine than was measured: the largest share of large networks goes first."""
    sizes = parse_sizes(("1x16", "1x32", "2x32", "2x64"))
    cells = [
        Cell(size.name, share, 1000 * (i + 1), int(1e5 * share), 3.0, 1.0, 40 * (i + 1) * share)
        for share in (0.125, 0.25, 0.5, 0.6)
        for i, size in enumerate(sizes)
    ]
    spent = sum(cell.seconds for cell in cells)
    found = Scaling({}, [size.name for size in sizes], 1.0, 128, cells)
    assert not _is_too_late(found, sizes[0], 1.0, spent + 10)  # 40 s more
    assert _is_too_late(found, sizes[3], 1.0, spent + 10)
    assert not _is_too_late(found, sizes[3], 1.0, spent + 200)
    found.cells = cells[:8]
    assert not _is_too_late(found, sizes[3], 0.5, 1.0)  # two shares are too few for a law
