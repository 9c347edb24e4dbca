"""Figures of a run: a line under the progress bar, metrics.jsonl, and programs that draw curves.

The programs are wandb, trackio, MLflow and TensorBoard. A logger gets the settings of the run and, at each record
of metrics.jsonl, its numbers by names such as steps/loss. Where the numbers go is up to the program and its own
variables, such as WANDB_MODE=offline, TRACKIO_DIR or MLFLOW_TRACKING_URI; TensorBoard's are in the run folder.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from chainrule.errors import MissingExtraError, SettingsError
from chainrule.folder import to_json
from chainrule.system.disk import replaced_file
from chainrule.system.progress import Progress, Task
from chainrule.training.checkpoints.run_folder import METRICS, records_of
from chainrule.training.engines.base import Engine

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


def _open_file(run: Path, step: int) -> Logger:
    """Open metrics.jsonl of a run folder, without the records of steps after `step`."""
    run.mkdir(parents=True, exist_ok=True)
    path = run / METRICS
    kept = [one for one in records_of(path) if one.get("step", math.inf) <= step] if step and path.exists() else []
    with replaced_file(path) as file:  # atomic: a crash here loses nothing
        file.write("".join(to_json(one) + "\n" for one in kept).encode())
    lines = path.open("a", encoding="utf-8")

    def write(what: str, figures: Mapping[str, Any]) -> None:
        try:
            lines.write(to_json({"what": what, **figures}) + "\n")
            lines.flush()
        except OSError:
            with contextlib.suppress(OSError):  # a full disk fails here again
                lines.close()
            raise

    return Logger(write, lines.close)


# -- the log ----------------------------------------------------------------------------------------------


class MetricsLog:
    """Shows and records the measurements of a run."""

    def __init__(self, engine: Engine, progress: Progress) -> None:
        self.engine, self.progress = engine, progress
        self.flops, self.peak = engine.flops_per_token(), engine.peak_flops()
        self.validation_loss: float | None = None
        self._loggers: dict[str, Logger] = {}
        self._since, self._tokens = time.perf_counter(), 0

    def open(self, run: Run, tokens: int, loggers: Iterable[str] = ()) -> None:
        """Start to record a run that has read `tokens` tokens, in its folder and for the loggers of these names.

        Records of later steps than its step are dropped from the folder; a crash left them.
        """
        self._tokens = tokens
        for name in loggers:
            self._loggers[name] = open_logger(name, run)
        if run.folder is not None:
            self._loggers[METRICS] = _open_file(run.folder, run.step)

    def close(self) -> None:
        """Close the files; nothing is written from then on."""
        for name, logger in list(self._loggers.items()):
            self._try(name, logger.close)
        self._loggers = {}

    def ignore_time(self) -> None:
        """Leave the time since the last record out of tokens per second: it was not spent on steps."""
        self._since = time.perf_counter()

    def steps(self, task: Task, figures: dict[str, Any]) -> None:
        """Log finished steps: `figures` has step, tokens, seconds, loss, learning_rate and grad_norm."""
        now = time.perf_counter()
        speed = (figures["tokens"] - self._tokens) / max(1e-9, now - self._since)
        self._since, self._tokens = now, figures["tokens"]
        mfu = None if self.peak is None else speed * self.flops / self.peak
        record = {
            **figures,
            "tokens_per_second": round(speed, 1),
            "mfu": mfu,
            "memory_bytes": self.engine.memory_bytes(),
        }
        self._write("steps", record)
        task.show(self._line(record))

    def record(self, what: str, figures: dict[str, Any]) -> None:
        """Log anything but steps: a validation, decisions, a sample."""
        if what == "validation":
            self.validation_loss = figures["validation_loss"]
        self._write(what, figures)

    def _line(self, record: dict[str, Any]) -> str:
        parts = [f"loss {record['loss']:.3f}"]
        if self.validation_loss is not None:
            parts.append(f"validation {self.validation_loss:.3f}")
        parts.append(f"{record['tokens_per_second']:,.0f} tokens/s")
        if record["mfu"] is not None:
            parts.append(f"MFU {record['mfu']:.0%}")
        parts.append(f"{record['memory_bytes'] / 1e9:.1f} GB")
        return "  ".join(parts)

    def _write(self, what: str, figures: dict[str, Any]) -> None:
        for name, logger in list(self._loggers.items()):
            self._try(name, lambda logger=logger: logger.write(what, figures))  # type: ignore[misc]

    def _try(self, name: str, tell: Callable[[], Any]) -> None:
        """Tell a logger something; if it fails, say so and go on without it."""
        try:
            tell()
        except Exception as error:  # of the program's own kinds, such as a lost connection
            del self._loggers[name]
            lost = "measurements are no longer written" if name == METRICS else "the logger gets no more figures"
            self.progress.note(f"{lost}: {in_a_line(error)}")
