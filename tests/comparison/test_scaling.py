"""Scaling laws: a fit finds known constants again; a tiny grid is trained, stopped and continued."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from chainrule.comparison.scaling import grid
from chainrule.comparison.scaling.grid import RECORD, Cell, Size, _is_too_late, parse_shares, parse_sizes, scale
from chainrule.comparison.scaling.law import Law, fit_law, fit_without_each
from chainrule.errors import ChainruleError, FolderError, SettingsError
from chainrule.runs.prepare import TokenizerChoice

TRUE = Law(E=1.69, A=406.4, a=0.34, B=410.7, b=0.28, error=0.0)  # Hoffmann et al. (2022)
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


def test_every_loss_is_left_out_once() -> None:
    laws = fit_without_each(N.tolist(), D.tolist(), TRUE.loss(N, D).tolist())
    assert len(laws) == len(N)
    assert all(law.a == pytest.approx(TRUE.a, rel=0.02) for law in laws)


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

    monkeypatch.setattr(grid, "_fitting", lambda *_: 1.0)  # no test is about how fast this machine is
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
    with pytest.raises(FolderError, match="another grid"):
        scale(texts(), out, **{**how, "seed": 1})  # type: ignore[arg-type]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(FolderError, match=r"no scale\.json"):
        scale(texts(), tmp_path / "other", **how)  # type: ignore[arg-type]


def test_too_little_time_is_an_error_before_any_training(tmp_path: Path) -> None:
    with pytest.raises(ChainruleError, match="minutes are too few for these sizes"):
        scale(texts(), tmp_path / "grid", minutes=1e-4, sizes=["1x8", "1x16", "2x16"])
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
    assert not _is_too_late(cells, sizes[0], 1.0, spent)  # 40 s more, of which the time allows 15 %
    assert _is_too_late(cells, sizes[3], 1.0, spent)
    assert not _is_too_late(cells, sizes[3], 1.0, spent + 200)
    assert not _is_too_late(cells[:8], sizes[3], 0.5, 1.0)  # two shares are too few for a law
