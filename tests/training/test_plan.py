"""What can be set of training."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from chainrule.errors import SettingsError
from chainrule.networks.training_settings import TrainingSettings
from chainrule.settings import describe, parse, setting


@dataclass(frozen=True)
class Architecture:
    width: int = setting(4, "features")

    def __post_init__(self) -> None:
        if self.width < 1:
            raise SettingsError(f"width should be at least 1, not {self.width}")


@dataclass(frozen=True)
class Both(TrainingSettings, Architecture):
    """As kinds have it."""


def test_settings_of_an_architecture_stand_beside_those_of_training() -> None:
    both = parse(Both, {"width": "8", "batch": "64", "epochs": "2.5", "learning_rate": "none"})
    assert (both.width, both.batch, both.epochs, both.learning_rate) == (8, 64, 2.5, None)
    with pytest.raises(SettingsError, match="width should be at least 1"):
        parse(Both, {"width": 0})
    with pytest.raises(SettingsError, match="batch should be at least 1, not 0"):
        parse(Both, {"batch": 0})


def test_every_setting_is_explained() -> None:
    assert all(row["help"] for row in describe(TrainingSettings))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch", 0),
        ("length", 0),
        ("device_batch", -1),
        ("steps", 0),
        ("epochs", 0.0),
        ("minutes", -1.0),
        ("minutes", float("nan")),
        ("learning_rate", float("inf")),
        ("weight_decay", -0.1),
        ("clip", -1.0),
        ("warmup", 1.0),
        ("patience", 0),
        ("validate_every", 0),
        ("sample_every", -1),
        ("checkpoint_minutes", float("nan")),
        ("optimiser", "adagrad"),
        ("schedule", "step"),
        ("precision", "float16"),
        ("average", "polyak"),
    ],
)
def test_what_makes_no_sense_is_refused(name: str, value: object) -> None:
    with pytest.raises(SettingsError, match=name):
        parse(TrainingSettings, {name: value})


def test_an_average_of_the_tail_needs_patience() -> None:
    with pytest.raises(SettingsError, match="patience should be more than that, not 5"):
        parse(TrainingSettings, {"average": "tail", "patience": 5})
    parse(TrainingSettings, {"average": "tail", "patience": 6})


def test_the_length_of_rows() -> None:
    settings = TrainingSettings()
    assert settings.row_length(32, "line") == settings.row_length(32, "stream") == 32
    assert (settings.row_length(None, "stream"), settings.row_length(None, "line")) == (64, 256)
    assert (
        TrainingSettings(length=5).row_length(None, "line") == TrainingSettings(length=5).row_length(8, "line") == 5
    )
    # 32 rows of a stream, if they have 16 tokens or more
    assert [TrainingSettings(batch=n).row_length(None, "stream") for n in (256, 512, 1024, 2048)] == [
        16,
        16,
        32,
        64,
    ]
    with pytest.raises(SettingsError, match=r"at most 8, .*: 9"):
        TrainingSettings(length=9).row_length(8, "line")
