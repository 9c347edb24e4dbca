"""Pictures of positions, weights and curves hold the numbers that they are drawn from."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

import chainrule as cr
from chainrule.errors import DiagnosisError
from chainrule.explanation.positions import positions, positions_picture
from chainrule.explanation.weights import weights_picture
from chainrule.system.pictures import Cells, cells_picture, curves_picture, linear_axis, log_axis


def test_axes_cover_their_values() -> None:
    axis = linear_axis("x", [0.03, 0.97])
    assert (axis.low, axis.high) == (0.0, 1.0) and axis.place(0.5) == 0.5
    axis = log_axis("y", [3e-21, 40.0, 0.0])
    assert (axis.low, axis.high) == (1e-21, 100.0)
    assert axis.place(1e-21) == 0 and axis.place(100.0) == pytest.approx(1)
    assert [label for _, label in axis.ticks[:2]] == ["1e2", "1e-1"]
    for empty in (linear_axis("x", []), log_axis("y", []), linear_axis("x", [2.0])):
        assert empty.low < empty.high


def test_what_is_zero_is_not_on_a_log_axis() -> None:
    curve = [(0.0, 1.0), (1.0, 0.0), (2.0, 0.01)]
    picture = curves_picture("a < b", [("n & m", curve)], linear_axis("x", [0, 2]), log_axis("y", [1, 0.01]))
    assert picture.count("<circle") == 2
    assert ET.fromstring(picture).findtext("{http://www.w3.org/2000/svg}title") == "a < b"


def test_cells_are_red_below_zero() -> None:
    picture = cells_picture("c", [Cells("t", np.array([[1.0, -0.5, 0.0]]), ["row"])])
    assert re.findall(r'rect class="(weight|negative)".*?fill-opacity="([\d.]+)"', picture) == [
        ("weight", "1.000"),
        ("negative", "0.500"),
    ]


@pytest.mark.parametrize("kind", ["sinusoidal", "rotary"])
def test_positions_are_bounded_unique_and_alike_at_a_distance(kind: str) -> None:
    found = positions(kind, 200, 32)
    assert found.largest <= 1 and found.nearest > 0.5 and found.shift < 1e-5
    assert found.table_TD.shape == (200, 32)


def test_a_counter_is_not_alike_at_a_distance() -> None:
    found = positions("binary", 32, 8)
    assert found.table_TD[5].tolist() == [1, 0, 1, 0, 0, 0, 0, 0]
    # from 15 to 16 five digits change, from 16 to 17 one
    assert found.shift == pytest.approx(5**0.5 - 1)
    assert positions("binary", 32, 4).nearest == 0  # four digits count to 15
    assert positions_picture([found]).count('class="weight"') == found.table_TD.sum()
    with pytest.raises(DiagnosisError, match="no positions 'roman'; there are binary, sinusoidal, rotary"):
        positions("roman", 8, 8)
    with pytest.raises(DiagnosisError, match="an even width, not 8 and 7"):
        positions("rotary", 8, 7)


def test_rows_of_a_matrix_are_drawn_by_number_and_by_word() -> None:
    lm = cr.train("elman", ["i love cats"] * 3, tokenizer="word", steps=1, embedding=4, hidden=6, engine="tape")
    picture = weights_picture(lm, "embedding.weight", "cats,0-1")
    vector = lm.tensors()["embedding.weight"][lm.tokenizer.encode("cats")[0]]  # type: ignore[attr-defined]
    assert all(f"<title>cats, {n}: {value:.4g}</title>" in picture for n, value in enumerate(vector))
    assert "array" not in weights_picture(lm, "layers.0.weights.weight_hh_l0")
    for name, rows, message in (
        ("nothing", None, "has no array 'nothing' with rows; it has embedding.weight"),
        ("layers.0.weights.weight_hh_l0", "cats", "'cats' is not a row of .*: rows are numbers"),
        ("layers.0.weights.weight_hh_l0", "6", "has rows 0 to 5; there is no row 6"),
    ):
        with pytest.raises(DiagnosisError, match=message):
            weights_picture(lm, name, rows)
