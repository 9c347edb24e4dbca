"""The log of a run: a line under the progress bar, metrics.jsonl, TensorBoard or another logger if asked for."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from chainrule.errors import MissingExtraError, SettingsError
from chainrule.folder import to_json
from chainrule.system.disk import replaced_file
from chainrule.system.progress import Progress, Task
from chainrule.training.checkpoints.run_folder import METRICS
from chainrule.training.engines.base import Engine
from chainrule.training.tracking.loggers import PROJECT, Logger, in_a_line, numbers, open_logger


class MetricsLog:
    """Shows and records the measurements of a run."""

    def __init__(self, engine: Engine, progress: Progress) -> None:
        self.engine, self.progress = engine, progress
        self.flops, self.peak = engine.flops_per_token(), engine.peak_flops()
        self.validation_loss: float | None = None
        self._file: IO[str] | None = None
        self._board: Any = None
        self._logger: Logger | None = None
        self._since, self._tokens = time.perf_counter(), 0

    def open(
        self,
        run: Path | None,
        *,
        tensorboard: bool,
        step: int,
        tokens: int,
        logger: str = "none",
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """Start writing into a run folder; records of steps after `step`, written before a crash, are dropped.

        `logger` is one of loggers.py, which is told the `settings` too.
        """
        self._tokens = tokens
        tensorboard = tensorboard or logger == "tensorboard"
        if run is None:
            if tensorboard:
                raise SettingsError("tensorboard=true takes a run folder for its files (run=...)")
            self._logger = open_logger(logger, PROJECT, settings or {})
            return
        self._logger = open_logger(logger, run.name.removesuffix(".run"), settings or {})
        run.mkdir(parents=True, exist_ok=True)
        if tensorboard:
            self._board = _board(run / "tensorboard", step)
        path = run / METRICS
        kept = _until(path, step) if step and path.exists() else ""
        with replaced_file(path) as file:  # atomic: a crash here loses nothing
            file.write(kept.encode())
        self._file = path.open("a", encoding="utf-8")

    def close(self) -> None:
        """Close the files; nothing is written from then on."""
        for sink in (self._file, self._board):
            if sink is not None:
                with contextlib.suppress(OSError):  # a full disk, already reported, fails here again
                    sink.close()
        self._file = self._board = None
        self._to_logger(lambda logger: logger.close())
        self._logger = None

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
        try:
            if self._file is not None:
                self._file.write(to_json({"what": what, **figures}) + "\n")
                self._file.flush()
            if self._board is not None:
                for name, value in figures.items():
                    if isinstance(value, float):
                        self._board.add_scalar(f"{what}/{name}", value, figures["step"])
        except OSError as error:  # a log that cannot be written is no reason to stop
            self.progress.note(f"measurements are no longer written: {error}")
            self.close()
        self._to_logger(lambda logger: logger.write(numbers(what, figures), figures["step"]))

    def _to_logger(self, tell: Callable[[Logger], None]) -> None:
        """Tell the logger something; if it fails, say so and go on without it."""
        if self._logger is not None:
            try:
                tell(self._logger)
            except Exception as error:  # of the program's own kinds, such as a lost connection
                self._logger = None
                self.progress.note(f"the logger gets no more figures: {in_a_line(error)}")


def _until(path: Path, step: int) -> str:
    """The records up to a step; lines that are no records, such as one cut short by a crash, are left out."""
    kept = []
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        try:
            if json.loads(line)["step"] <= step:
                kept.append(line + "\n")
        except (ValueError, KeyError, TypeError):
            continue
    return "".join(kept)


def _board(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise MissingExtraError("tensorboard", "tensorboard", "the setting tensorboard=true") from None
    return SummaryWriter(str(folder), purge_step=step + 1 if step else 0)  # hides events from that step on
