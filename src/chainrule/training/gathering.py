"""From rows of a text to arrays: inputs are the tokens before the targets."""

from __future__ import annotations

import numpy as np

from chainrule.arrays import PAD
from chainrule.lm import Context, beginning
from chainrule.tokens.base import Tokenizer
from chainrule.training.layouts import Rows


class Text:
    """The ids of a text, in memory or a mapped file, from which batches are gathered."""

    def __init__(self, ids: np.ndarray, tokenizer: Tokenizer, context: Context) -> None:
        self.ids = np.asarray(ids)  # a view: indexing what NumPy maps goes through slow Python
        self.first, self.eos = beginning(tokenizer, context), tokenizer.eos if context == "line" else None

    def batch(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and targets as [B, T], PAD where a row is shorter."""
        columns_T = np.arange(rows.width)
        # one column more: the token before the first target
        places = rows.starts_B[:, None] + np.arange(-1, rows.width)
        ids = self.ids.take(places, mode="clip").astype(np.int64)
        first_B = rows.starts_B == 0
        if self.eos is not None:
            first_B = first_B | (ids[:, 0] == self.eos)
        ids[first_B, 0] = self.first
        inputs_BT, targets_BT = ids[:, :-1], ids[:, 1:]
        if not rows.is_full:
            outside_BT = columns_T >= rows.lengths_B[:, None]
            inputs_BT = np.where(outside_BT, PAD, inputs_BT)
            targets_BT = np.where(outside_BT | (columns_T < rows.skips_B[:, None]), PAD, targets_BT)
        return inputs_BT, targets_BT
