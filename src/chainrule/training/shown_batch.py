"""A batch as training makes it: each row's inputs beside its targets, which are the inputs shifted by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from chainrule.arrays import PAD
from chainrule.contract.lm import LanguageModel
from chainrule.errors import ModelError
from chainrule.networks.training_settings import TrainingSettings
from chainrule.text.given import Text, as_corpus
from chainrule.tokens.base import encode_in_parallel
from chainrule.training.layouts import Size, choose_layout
from chainrule.training.objectives import Gatherer, NextToken


@dataclass(frozen=True)
class ShownBatch:
    """The rows of one step of training, as tokens; None is padding, which is neither read nor predicted."""

    inputs: list[list[str | None]]
    targets: list[list[str | None]]
    steps: int
    """The steps of an epoch."""

    @property
    def padding(self) -> float:
        """The share of the positions whose target does not count."""
        every = [token for row in self.targets for token in row]
        return every.count(None) / len(every)


def shown_batch(lm: LanguageModel, text: Text, *, seed: int = 0) -> ShownBatch:
    """Return the first batch of an epoch over a text, as the network of `lm` would be trained on it.

    Its size, order and context are those of the model's settings; `seed` orders the rows as that of `train`.

    >>> import chainrule as cr
    >>> text = "i love cats\\ni run\\n"
    >>> lm = cr.train("elman", text, valid=text, tokenizer="word", engine="tape", steps=1, hidden=4)
    >>> batch = shown_batch(lm, text)
    >>> for inputs, targets in zip(batch.inputs, batch.targets):
    ...     print(inputs, targets)
    ['<s>', 'i', 'run', None] ['i', 'run', '</s>', None]
    ['<s>', 'i', 'love', 'cats'] ['i', 'love', 'cats', '</s>']
    """
    settings: Any = getattr(lm, "settings", None)
    if not isinstance(lm, LanguageModel) or not isinstance(settings, TrainingSettings):
        raise ModelError(
            f"a model of the kind {lm.kind} is not trained on batches; language models of networks are"
        )
    tokenizer = lm.tokenizer
    ids = np.concatenate([encode_in_parallel(tokenizer, block) for block in as_corpus(text).blocks()])
    window = getattr(lm, "network").window  # noqa: B009 (a torch network or one of the tape)
    length, at_once = settings.row_length(window, lm.context), settings.device_batch or settings.batch
    size = Size(length, settings.batch, at_once, settings.examples)
    layout = choose_layout(ids, tokenizer.eos, lm.context, window, size, seed, vary=settings.vary_length)
    gatherer = Gatherer(ids, NextToken.of(tokenizer, lm.context))
    epoch = layout.epoch(0)
    batches = [gatherer.batch(rows) for rows in epoch[0].parts]

    def tokens(rows_BT: np.ndarray) -> list[list[str | None]]:
        return [[None if one == PAD else tokenizer.token(one) for one in row] for row in rows_BT.tolist()]

    inputs = [row for batch in batches for row in tokens(batch.inputs)]
    return ShownBatch(inputs, [row for batch in batches for row in tokens(batch.targets_BT)], len(epoch))
