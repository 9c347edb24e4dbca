"""Where a run stands, tensors apart: plain figures, which a checkpoint keeps as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Decisions:
    """What was decided, and by which measurements."""

    bfloat16: bool
    compiled: bool
    recorded: bool
    """Whether steps are played back as a whole: on a GPU, where that is faster."""
    total: int
    """Steps of the run."""
    validate_every: int
    measured: dict[str, Any]


class Place(NamedTuple):
    """Which step: the first is 1, the first epoch and its first batch are 0."""

    step: int
    epoch: int
    batch: int

    def __str__(self) -> str:
        return f"step {self.step} (epoch {self.epoch}, batch {self.batch})"


@dataclass
class State:
    """Where a run stands."""

    decisions: Decisions
    step: int = 0
    """Steps that are done."""
    epoch: int = 0
    batch: int = 0
    """The next step of the epoch."""
    tokens: int = 0
    seconds: float = 0.0
    loss_sum: float = 0.0
    """Of the steps since the last validation."""
    loss_count: int = 0
    best_loss: float | None = None
    stalled: int = 0
    """Validations since the best one."""
    stopped: bool = False
    """Whether it ended before its last step: nothing got better any more."""
    history: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> State:
        """What `to_json` gave."""
        return cls(**{**values, "decisions": Decisions(**values["decisions"])})

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return asdict(self)

    @property
    def total(self) -> int:
        """Steps of the run."""
        return self.decisions.total

    @property
    def is_finished(self) -> bool:
        """Whether no step is left."""
        return self.stopped or self.step >= self.total

    @property
    def is_validation_due(self) -> bool:
        """Whether the step that was done is one after which to validate; the last one is."""
        return self.step % self.decisions.validate_every == 0 or self.step >= self.total

    def advance(self, targets: int, steps_of_epoch: int) -> None:
        """A step is done."""
        self.step += 1
        self.tokens += targets
        self.batch += 1
        if self.batch == steps_of_epoch:
            self.epoch, self.batch = self.epoch + 1, 0

    def note_validation(self, loss: float | None, patience: int | None) -> bool:
        """Keep what was found; whether it is the best so far (without text to validate on, the last is)."""
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
        """Whether so many validations found nothing better."""
        return patience is not None and self.stalled >= patience
