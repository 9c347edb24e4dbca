"""Figures of a run for programs that draw curves: wandb, trackio, MLflow and TensorBoard, beside metrics.jsonl.

A logger gets the settings of the run and, at each record of metrics.jsonl, its numbers by names such as steps/loss.
Where the numbers go is up to the program and its own variables, such as WANDB_MODE=offline, TRACKIO_DIR or
MLFLOW_TRACKING_URI; TensorBoard's files are in the run folder.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from chainrule.errors import MissingExtraError, SettingsError

PROJECT = "chainrule"
"""The project, or the experiment, of runs for which the program's own variable names none."""


class Logger(NamedTuple):
    """Takes the records of a run."""

    write: Callable[[str, Mapping[str, Any]], Any]
    """Takes the name of a record, such as validation, and its figures, among them `step`."""
    close: Callable[[], Any]


@dataclass(frozen=True)
class Run:
    """The run that a logger records."""

    folder: Path | None
    settings: Mapping[str, Any]
    step: int = 0
    """The steps that are done; more for a run that is resumed."""

    @property
    def name(self) -> str:
        return PROJECT if self.folder is None else self.folder.name.removesuffix(".run")


def _wandb(module: Any, run: Run, project: str | None) -> Logger:
    """wandb, and trackio, which has its functions."""
    module.init(project=project or PROJECT, name=run.name, config=dict(run.settings), resume="allow")
    return Logger(lambda what, figures: module.log(numbers(what, figures), step=figures["step"]), module.finish)


def _mlflow(module: Any, run: Run, project: str | None) -> Logger:
    """Start a run of MLflow; inside one that the caller has started, a nested one."""
    is_nested = module.active_run() is not None
    if not is_nested and project is None:
        module.set_experiment(PROJECT)
    module.start_run(run_name=run.name, nested=is_nested)
    module.log_params(dict(run.settings))
    write = lambda what, figures: module.log_metrics(numbers(what, figures), step=figures["step"])  # noqa: E731
    return Logger(write, module.end_run)


def _tensorboard(module: Any, run: Run, project: str | None) -> Logger:
    assert run.folder is not None
    # events from the step `purge_step` on are hidden
    board = module.SummaryWriter(str(run.folder / "tensorboard"), purge_step=run.step + 1 if run.step else 0)

    def write(what: str, figures: Mapping[str, Any]) -> None:
        for name, value in numbers(what, figures).items():
            board.add_scalar(name, value, figures["step"])

    return Logger(write, board.close)


class _Service(NamedTuple):
    module: str
    extra: str
    start: Callable[[Any, Run, str | None], Logger]
    variables: tuple[str, ...] = ()
    """The variables of the environment that name the project."""
    writes_files: bool = False
    """True if it needs a run folder."""


_SERVICES = {
    "wandb": _Service("wandb", "loggers", _wandb, ("WANDB_PROJECT",)),
    "trackio": _Service("trackio", "loggers", _wandb, ("TRACKIO_PROJECT",)),
    "mlflow": _Service("mlflow", "loggers", _mlflow, ("MLFLOW_EXPERIMENT_NAME", "MLFLOW_EXPERIMENT_ID")),
    "tensorboard": _Service("torch.utils.tensorboard", "tensorboard", _tensorboard, writes_files=True),
}


def check_logger(name: str) -> None:
    """Refuse a logger whose package is not installed, before a text is read."""
    if name != "none":
        _module(name)


def open_logger(name: str, run: Run) -> Logger:
    """Start a run with the logger of that name."""
    service = _SERVICES[name]
    if service.writes_files and run.folder is None:
        raise SettingsError(f"{name}=true takes a run folder for its files (run=...)")
    module = _module(name)
    project = next((os.environ[one] for one in service.variables if os.environ.get(one)), None)
    try:
        return service.start(module, run, project)
    except Exception as error:  # each program has errors of its own: no account, no server, a store it cannot open
        raise SettingsError(f"logger={name} could not begin: {in_a_line(error)}") from error


def numbers(what: str, figures: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a record, by the names that loggers show.

    >>> numbers("steps", {"step": 3, "loss": 2.5, "text": "a cat"})
    {'steps/loss': 2.5}
    """
    return {
        f"{what}/{name}": value
        for name, value in figures.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool) and name != "step"
    }


def in_a_line(error: Exception) -> str:
    """Return the message of an error in one line."""
    return " ".join(str(error).split()) or type(error).__name__


def _module(name: str) -> Any:
    try:
        return importlib.import_module(_SERVICES[name].module)
    except ImportError:
        raise MissingExtraError(name, _SERVICES[name].extra, f"the setting logger={name}") from None
