"""A job: everything about a run that does not change while it trains, such as its texts, cut into batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from chainrule.contract.kinds import TrainingData
from chainrule.errors import SettingsError
from chainrule.networks.training_settings import TrainingSettings
from chainrule.training.checkpoints.checkpoint import Checkpoints
from chainrule.training.checkpoints.compatibility import identity
from chainrule.training.engines.base import Engine, Feed
from chainrule.training.examples import Texts
from chainrule.training.planning.autotune import Autotune


@dataclass(frozen=True)
class Job:
    """Everything about a run that does not change while it trains."""

    engine: Engine
    settings: TrainingSettings
    data: TrainingData
    train: Feed
    valid: Feed | None
    """All of the held-out text."""
    texts: Texts
    identity: dict[str, Any]
    """Settings, network, objective and data, which resuming compares with those of the checkpoint."""
    checkpoints: Checkpoints | None
    sample: Callable[[], str] | None
    is_kept: bool
    """Whether there are checkpoints, which only the first of many processes writes."""

    @property
    def autotune(self) -> Autotune:
        return Autotune(self.engine, self.settings, self.train, self.valid)

    def held_out(self, tokens: int | None) -> Feed | None:
        """The held-out text, or a sample of about so many tokens."""
        if tokens is None or self.texts.valid is None:
            return self.valid
        return self.texts.valid.sampled(tokens).feed(self.engine, self.settings, self.data.seed)


def open_job(
    engine: Engine,
    settings: TrainingSettings,
    data: TrainingData,
    texts: Texts,
    sample: Callable[[], str] | None,
) -> Job:
    """The job of training on these examples."""
    train, valid = (None if one is None else one.feed(engine, settings, data.seed) for one in texts)
    assert train is not None
    if settings.vary_length and not train.layout.carries:
        raise SettingsError("vary_length is for a network that carries its memory on, and for --context stream")
    checkpoints = None if data.run is None else Checkpoints(data.run, data.progress)
    made_of = identity(engine.shapes(), settings, data, texts.train.objective)
    is_kept = engine.agree(checkpoints is not None)
    return Job(engine, settings, data, train, valid, texts, made_of, checkpoints, sample, is_kept)
