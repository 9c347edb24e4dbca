"""Figures of a run for programs that draw curves: wandb, trackio and MLflow, beside metrics.jsonl.

Each is told the settings of the run and, at each record of metrics.jsonl, its numbers by names such as steps/loss.
Where they go is the program's own business, by its own variables, such as WANDB_MODE=offline, TRACKIO_DIR or
MLFLOW_TRACKING_URI. TensorBoard, which wants files in the run folder, is in metrics_log.py.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import Any, Protocol

from chainrule.errors import MissingExtraError, SettingsError

PROJECT = "chainrule"
"""The project, or the experiment, of runs for which the program's own variable names none."""

_VARIABLES = {
    "wandb": ("WANDB_PROJECT",),
    "trackio": ("TRACKIO_PROJECT",),
    "mlflow": ("MLFLOW_EXPERIMENT_NAME", "MLFLOW_EXPERIMENT_ID"),
}
"""The variables that name the project, for each program."""


class Logger(Protocol):
    """Takes the figures of a run."""

    def write(self, figures: Mapping[str, float], step: int) -> None:
        """Numbers that were measured at a step."""

    def close(self) -> None:
        """The run is over, or has stopped."""


class WandbShaped:
    """A module with `init`, `log` and `finish`, such as wandb and trackio."""

    def __init__(self, module: Any, name: str, settings: Mapping[str, Any]) -> None:
        variables = _VARIABLES.get(module.__name__, ())
        project = next((os.environ[variable] for variable in variables if os.environ.get(variable)), PROJECT)
        self.module = module
        module.init(project=project, name=name, config=dict(settings), resume="allow")

    def write(self, figures: Mapping[str, float], step: int) -> None:
        self.module.log(dict(figures), step=step)

    def close(self) -> None:
        self.module.finish()


class Mlflow:
    """MLflow's own run; inside one that the caller has begun, a nested one."""

    def __init__(self, module: Any, name: str, settings: Mapping[str, Any]) -> None:
        self.module = module
        is_nested = module.active_run() is not None
        if not is_nested and not any(os.environ.get(variable) for variable in _VARIABLES["mlflow"]):
            module.set_experiment(PROJECT)
        module.start_run(run_name=name, nested=is_nested)
        module.log_params(dict(settings))

    def write(self, figures: Mapping[str, float], step: int) -> None:
        self.module.log_metrics(dict(figures), step=step)

    def close(self) -> None:
        self.module.end_run()


def check_logger(name: str) -> None:
    """Refuse a logger whose package is not installed, before a text is read."""
    if name in _VARIABLES:
        _module(name)


def open_logger(name: str, run: str, settings: Mapping[str, Any]) -> Logger | None:
    """The logger of that name, which begins a run under the name `run`; None for those that are no program's."""
    if name not in _VARIABLES:
        return None
    module = _module(name)
    try:
        return Mlflow(module, run, settings) if name == "mlflow" else WandbShaped(module, run, settings)
    except Exception as error:  # each program has errors of its own: no account, no server, a store it cannot open
        raise SettingsError(f"logger={name} could not begin: {in_a_line(error)}") from error


def numbers(what: str, figures: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a record, by the names that loggers show."""
    return {
        f"{what}/{name}": value
        for name, value in figures.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool) and name != "step"
    }


def in_a_line(error: Exception) -> str:
    """What an error says, in a line."""
    return " ".join(str(error).split()) or type(error).__name__


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise MissingExtraError(name, "loggers", f"the setting logger={name}") from None
