"""Rows of a weight matrix as a picture: what a unit is given by each of its inputs, or the vectors of tokens."""

from __future__ import annotations

import re

import numpy as np

from chainrule.contract.model import Model
from chainrule.errors import DiagnosisError
from chainrule.explanation.reading import one_token, word
from chainrule.system.pictures import Cells, cells_picture

ROWS = 16
"""The rows that are drawn where none are named: the first of them."""


def weights_picture(model: Model, name: str, rows: str | None = None) -> str:
    """Return rows of the array `name` of a model's folder as coloured cells: the text of an SVG file.

    `rows` are numbers and ranges of them, such as 0-9,12; or words, where the array has a row for each token.
    """
    arrays = {key: array for key, array in model.content().tensors.items() if array.ndim <= 2}
    if name not in arrays:
        raise DiagnosisError(f"the model has no array {name!r} with rows; it has {', '.join(arrays) or 'none'}")
    array = np.atleast_2d(np.asarray(arrays[name], dtype=np.float64))
    tokenizer = next(iter(model.tokenizers.values()))
    is_table = (len(array) >= tokenizer.vocab_size and "embed" in name) or name == "head.weight"
    chosen: list[int] = []
    for part in (f"0-{min(ROWS, len(array)) - 1}" if rows is None else rows).split(","):
        if place := re.fullmatch(r"(\d+)(?:-(\d+))?", part):
            chosen += range(int(place[1]), int(place[2] or place[1]) + 1)
        elif is_table:
            chosen.append(one_token(tokenizer, part, "word"))
        else:
            raise DiagnosisError(f"{part!r} is not a row of {name}: rows are numbers such as 0-9,12")
    if not chosen or max(chosen) >= len(array):
        raise DiagnosisError(f"{name} has rows 0 to {len(array) - 1}; there is no row {max(chosen, default='')}")
    labels = [word(tokenizer, row) if is_table and row < tokenizer.vocab_size else str(row) for row in chosen]
    title = f"{name}, {len(chosen)} of {len(array)} rows x {array.shape[1]}: blue above 0, red below"
    return cells_picture(name, [Cells(title, array[chosen], labels, size=10 if array.shape[1] > 40 else 16)])
