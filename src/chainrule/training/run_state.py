"""The state of a run apart from its arrays: plain values, which a checkpoint keeps as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from chainrule.system.display import PlainResult
from chainrule.training.regularisation import Overfitting


class Mode(NamedTuple):
    """How an engine computes steps; the tape has only the default mode."""

    bfloat16: bool = False
    """True if matrix products are computed in bfloat16 (autocast)."""
    compiled: bool = False
    """True if the loss is compiled by torch.compile."""
    recorded: bool = False
    """True if the gradients of a step are captured as a CUDA graph and replayed."""


@dataclass(frozen=True)
class Decisions:
    """Choices made before the first step, and the measurements behind them."""

    bfloat16: bool
    compiled: bool
    recorded: bool
    total: int | None
    """Steps of the run; None: it ends with its time."""
    validate_every: int | None
    """Steps between validations; None: they are spread over the time of the run."""
    measured: dict[str, Any]
    validations: int = 10
    """Validations of a run that ends with its time."""
    validation_tokens: int | None = None
    """The size of the sample of the held-out text that validations read; None: all of it."""

    @property
    def mode(self) -> Mode:
        """The mode in which steps are computed."""
        return Mode(self.bfloat16, self.compiled, self.recorded)


class Place(NamedTuple):
    """The position of a step in a run: steps count from 1, epochs and the batches of an epoch from 0."""

    step: int
    epoch: int
    batch: int

    def __str__(self) -> str:
        return f"step {self.step} (epoch {self.epoch}, batch {self.batch})"


@dataclass
class RunState(PlainResult):
    """The progress of a run: its position, its losses, and the decisions before its first step."""

    decisions: Decisions
    step: int = 0
    """Steps that are done."""
    epoch: int = 0
    batch: int = 0
    """Index of the next step within the epoch."""
    tokens: int = 0
    """Targets seen so far."""
    seconds: float = 0.0
    loss_sum: float = 0.0
    """The sum of the losses of the steps since the last validation."""
    loss_count: int = 0
    best_loss: float | None = None
    stalled: int = 0
    """Validations since the best one."""
    stopped: bool = False
    """True if the run ended before its last step, because the validation loss got no better."""
    validated: float = 0.0
    """The value of `seconds` at the last validation."""
    overfitting: Overfitting = field(default_factory=Overfitting)
    history: list[dict[str, Any]] = field(default_factory=list)
    """Loss in training and in validation, at each validation."""

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> RunState:
        """Return the state that `to_json` described."""
        overfitting = Overfitting(**values.get("overfitting", {}))
        return cls(**{**values, "decisions": Decisions(**values["decisions"]), "overfitting": overfitting})

    @property
    def total(self) -> int | None:
        """Steps of the run; None: it ends with its time."""
        return self.decisions.total

    @property
    def is_finished(self) -> bool:
        """True if no step is left; a run that ends with its time has steps left until then."""
        return self.stopped or (self.total is not None and self.step >= self.total)

    def advance(self, targets: int, steps_of_epoch: int) -> None:
        """Count a step that is done."""
        self.step += 1
        self.tokens += targets
        self.batch += 1
        if self.batch == steps_of_epoch:
            self.epoch, self.batch = self.epoch + 1, 0

    def note_validation(self, loss: float | None, patience: int | None) -> bool:
        """Record a validation loss; returns whether it is the best so far (without held-out text, the last is)."""
        mean = self.loss_sum / max(1, self.loss_count)
        self.history.append({"step": self.step, "tokens": self.tokens, "loss": mean, "validation_loss": loss})
        self.loss_sum, self.loss_count = 0.0, 0
        if loss is None or self.best_loss is None or loss < self.best_loss:
            self.best_loss, self.stalled = loss, 0
            return True
        self.stalled += 1
        self.stopped = self.is_stalled(patience)
        return False

    def is_stalled(self, patience: int | None) -> bool:
        """Return True if the last `patience` validations were no better than one before them."""
        return patience is not None and self.stalled >= patience
