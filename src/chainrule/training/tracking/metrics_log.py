"""The log of a run: a line under the progress bar, metrics.jsonl, and loggers if they are asked for."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from chainrule.folder import to_json
from chainrule.system.disk import replaced_file
from chainrule.system.progress import Progress, Task
from chainrule.training.checkpoints.run_folder import METRICS, records_of
from chainrule.training.engines.base import Engine
from chainrule.training.tracking.loggers import Logger, Run, in_a_line, open_logger


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
