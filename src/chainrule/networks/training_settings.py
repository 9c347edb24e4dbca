"""The settings of the training of any network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from chainrule.errors import SettingsError
from chainrule.networks.config import Checked, from_zero, positive, share, size
from chainrule.settings import Groups, setting

Optimiser = Literal["sgd", "momentum", "rmsprop", "adam", "adamw", "muon"]
Schedule = Literal["constant", "cosine", "linear", "stable-decay"]
Precision = Literal["auto", "float32", "bfloat16", "float8"]
Averaging = Literal["none", "ema", "tail"]
Regularise = Literal["always", "as-needed"]
Logger = Literal["none", "tensorboard", "wandb", "trackio", "mlflow"]

LEARNING_RATES = {"sgd": 1.0, "momentum": 0.3, "rmsprop": 1e-3, "adam": 2e-3, "adamw": 2e-3, "muon": 4e-3}
"""The learning rate of each optimiser where none is set. In 250 steps of a small Transformer and a small LSTM on
characters, adam, adamw and muon did best at two to four times these rates; longer runs and larger networks need
lower ones."""

DECAYING = {"adamw": 0.1, "muon": 0.1}
"""The weight decay of each optimiser where none is set; 0 for the others."""

MUON_MOMENTUM = 0.95
MUON_POLYNOMIAL, MUON_ITERATIONS = (3.4445, -4.7750, 2.0315), 5
"""a, b and c of X ← a X + b (X Xᵀ) X + c (X Xᵀ)² X, and how often: it moves the singular values of X towards 1."""
MUON_TINY = 1e-7

EPOCHS = 10
"""The number of passes over the text where neither epochs nor steps nor minutes are set."""

HOW_LONG = ("steps", "epochs", "minutes")
"""The settings that decide how long a run is."""

HOW_COMPUTED = ("precision", "compile")
"""The settings that decide how steps are computed."""

STALLED = 5
"""The number of successive validations without improvement after which average=tail begins."""

LOOKED_UP = ("embed", "positions", "starts")
"""Parts of the names of parameters that are not matrices of products: tables of vectors, and initial states."""

STREAM_LENGTH, LINE_LENGTH = 64, 256
"""The most tokens of a row, with stream and line context, where a network has no window and no length is set."""

_ROWS, _SHORTEST = 32, 16
"""Rows of a stream that a batch should have, as products of fewer are slow on a CPU; the fewest tokens of a row."""


@dataclass(frozen=True)
class TrainingSettings(Checked):
    """The settings of the training of a network; those of its design are apart. On the command line: --set."""

    GROUPS: ClassVar[Groups] = {
        "duration": ("epochs", "steps", "minutes", "patience"),
        "batches": ("batch", "examples", "length", "vary_length"),
        "optimisation": ("optimiser", "learning_rate", "beta1", "beta2", "clip", "average"),
        "regularisation": ("weight_decay", "regularise"),
        "schedule": ("schedule", "warmup"),
        "hardware": ("device_batch", "precision", "compile", "parallel"),
        "records of the run": ("validate_every", "checkpoint_minutes", "sample_every", "logger", "tensorboard"),
    }

    batch: int = size(4096, "tokens of one optimiser step", common=True)
    examples: int | None = size(
        None,
        "lines of one step in random order (in a stream: rows), such as 1; none: as many as batch has room for",
    )
    length: int | None = size(
        None,
        "tokens of a row, through which gradients flow; none: the network's window, or 16 to 64 (of lines 256)",
    )
    vary_length: bool = setting(
        False, "rows of another length at each step, for networks that carry their memory on"
    )
    device_batch: int | None = size(
        None, "tokens in memory at once, of each process; none: the whole batch, or a process' share of it"
    )
    epochs: float | None = positive(None, "passes over the text, at most", common=True)
    steps: int | None = size(None, "optimiser steps; if given, epochs do not count", common=True)
    minutes: float | None = positive(
        None, "the time to train, validations included; none: 5, unless steps or epochs are given", common=True
    )
    optimiser: Optimiser = setting("adamw", "how gradients become steps", common=True)  # noqa: RUF009
    learning_rate: float | None = positive(None, "the size of steps", common=True)
    weight_decay: float | None = from_zero(
        None,
        "how fast matrices shrink; sgd, momentum, rmsprop, adam: the weight of L2; none: 0.1 for adamw and muon",
    )
    regularise: Regularise = setting(  # noqa: RUF009
        "always", "dropout and penalties all along; as-needed: in proportion to the overfitting that is measured"
    )
    beta1: float = share(0.9, "share of the mean gradient that momentum, adam and adamw keep at a step")
    beta2: float = share(0.95, "share of the mean squared gradient that adam and adamw keep at a step")
    clip: float = from_zero(1.0, "the largest norm of a gradient; 0 is no bound")
    schedule: Schedule = setting("stable-decay", "how the learning rate falls after the warm-up")  # noqa: RUF009
    warmup: float = share(0.02, "share of the steps in which the learning rate rises")
    precision: Precision = setting(  # noqa: RUF009
        "auto",
        "of matrix products; auto: bfloat16 where it is faster; float8: bfloat16, and 8 bits in the output layer",
    )
    compile: Literal["auto", "yes", "no"] = setting(
        "auto", "torch.compile; auto: if the run is long and it is faster"
    )
    parallel: Literal["ddp", "fsdp"] = setting(
        "ddp", "under torchrun: ddp: each process has the whole network; fsdp: each has a part of every weight"
    )
    validate_every: int | None = size(
        None, "steps between validations; none: ten validations a run, or one an epoch"
    )
    patience: int | None = size(None, "validations without a better one before training stops; none: never stop")
    average: Averaging = setting(  # noqa: RUF009
        "none", "ema: a moving mean of the weights; tail: their mean since validation got no better"
    )
    checkpoint_minutes: float = from_zero(10.0, "minutes between checkpoints")
    sample_every: int = from_zero(0, "validations between samples of text; 0: none")
    logger: Logger = setting("none", "a program that gets the figures too, beside metrics.jsonl")  # noqa: RUF009
    tensorboard: bool = setting(False, "the same as logger=tensorboard, also beside another logger")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.average == "tail" and self.patience is not None and self.patience <= STALLED:
            raise SettingsError(
                f"average=tail begins after {STALLED} validations without a better one: patience should be more "
                f"than that, not {self.patience}"
            )

    @property
    def rate(self) -> float:
        """The learning rate; the default of the optimiser if none is set."""
        return self.learning_rate or LEARNING_RATES[self.optimiser]

    @property
    def decay(self) -> float:
        """The weight decay; the default of the optimiser if none is set."""
        return DECAYING.get(self.optimiser, 0.0) if self.weight_decay is None else self.weight_decay

    def row_length(self, window: int | None, context: str) -> int:
        """Return the tokens of a row, for a network that reads at most `window` at once; None: any number."""
        if window is None:
            in_stream = min(STREAM_LENGTH, max(_SHORTEST, self.batch // _ROWS))
            return self.length or (LINE_LENGTH if context == "line" else in_stream)
        if self.length is not None and self.length > window:
            raise SettingsError(
                f"length should be at most {window}, the tokens that the network reads at once: {self.length}"
            )
        return self.length or window


def shrinks(name: str, axes: int) -> bool:
    """Return True if weight decay applies to a parameter of that name; a tied one decays if any of its names does.

    Matrices decay. Vectors (biases, norms, initial states) do not, nor does a table that is only looked up, of
    which few rows are used at a time; a table that is tied to the head decays as the head's matrix.
    """
    return axes >= 2 and not any(word in name for word in LOOKED_UP)


def is_between_features(name: str, axes: int) -> bool:
    """Return True if Muon updates a parameter: a matrix from features to features, so no table and not the head."""
    return axes == 2 and not any(word in name for word in (*LOOKED_UP, "head"))


def muon_size(shape: Sequence[int]) -> float:
    """Return the factor of Muon's steps, which makes them as large as those of AdamW (Liu et al. 2025)."""
    return 0.2 * math.sqrt(max(shape))
