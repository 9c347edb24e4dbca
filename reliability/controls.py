"""Something broken in chainrule that a trial must find: a trial that could find nothing would show nothing."""

from __future__ import annotations

import operator
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np

from chainrule.decode.randomness import Uniforms
from chainrule.ngram.estimate import smooth
from chainrule.ngram.ngram_model import NgramModel
from chainrule.system.disk import atomic
from chainrule.text import corpus


def _swallowing(path: Path, sync: Callable[[Path], None] = atomic.sync) -> None:
    with suppress(OSError):
        sync(path)


def _deleting_first(new: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    new.rename(folder)


@contextmanager
def _in_place(folder: Path) -> Iterator[Path]:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    yield folder


def _losing(pieces: Iterable[bytes], *args: Any, spool: Callable[..., Any] = corpus._spooled) -> Any:
    return spool(list(pieces)[:-1], *args)


def _leaking(self: NgramModel, state: Any, log_probs: Callable[..., Any] = NgramModel.next_log_probs) -> Any:
    return log_probs(self, state) - 1e-4


def _late(self: NgramModel, *args: Any, score: Callable[..., Any] = NgramModel.score) -> Any:
    return np.roll(score(self, *args), 1, axis=-1)


def _unseeded(self: Uniforms, rows: Any, steps: int) -> Any:
    return np.random.default_rng().random((len(rows), steps))


def _too_small(seen: Any, discounts: Any, discount: Callable[..., Any] = smooth.absolute_discounting) -> Any:
    return discount(seen, 0.9 * discounts)


@contextmanager
def _unescaped() -> Iterator[None]:
    from chainrule.report import pages

    pages._environment.cache_clear()  # of templates that were read already
    pages._environment().autoescape = False
    yield
    pages._environment.cache_clear()


@contextmanager
def _larger() -> Iterator[None]:
    from chainrule.interop import huggingface

    def larger(*args: Any, read: Callable[..., Any] = huggingface.from_weights) -> Any:
        network = read(*args)
        for weight in network.parameters():
            weight.data.mul_(1.001)
        return network

    with patch.object(huggingface, "from_weights", larger):
        yield


def _on_the_loop() -> AbstractContextManager[Any]:
    from benchmarks.serve.largest import OnTheLoop

    return patch.multiple("chainrule.serve.api.pieces", _WORKERS=OnTheLoop(), _TURN_SECONDS=float("inf"))


@contextmanager
def _patient() -> Iterator[None]:
    from chainrule.serve import guard, run

    with (
        patch.object(guard, "DEADLINE", 1e6),
        patch.multiple(run, DEADLINE=1e6, UNREAD_SECONDS=1e6),
    ):
        yield


def _without_states(*args: Any) -> None:
    """Leave the state of random generators as it is."""


BROKEN: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "nothing is synced": lambda: patch.object(atomic, "sync", lambda path: None),
    "an error of a sync is swallowed": lambda: patch.object(atomic, "sync", _swallowing),
    "the old folder is deleted first": lambda: patch.object(atomic, "_put_in_place", _deleting_first),
    "folders are written in place": lambda: patch("chainrule.folder.manifest.new_folder", _in_place),
    "signatures are not checked": lambda: patch("chainrule.folder.manifest.is_signed", lambda content: True),
    "checksums are not checked": lambda: patch("chainrule.folder.manifest.check_file", lambda *args: None),
    "weights of mixtures are not checked": lambda: patch("chainrule.mixtures.kind._SUM", 1e300),
    "a format is trusted": lambda: patch("chainrule.text.tagged.CorpusError", RuntimeError),
    "values of other programs are trusted": lambda: patch("chainrule.interop.huggingface.reading", nullcontext),
    "damaged parquet files are not told": lambda: patch("chainrule.text.records.CorpusError", RuntimeError),
    "checksums of checkpoints are not checked": lambda: patch(
        "chainrule.training.checkpoints.checkpoint.check_file", lambda *args, **options: None
    ),
    "a resumed run has other random numbers": lambda: patch("torch.set_rng_state", _without_states),
    "probabilities leak": lambda: patch.object(NgramModel, "next_log_probs", _leaking),
    "scores are one token late": lambda: patch.object(NgramModel, "score", _late),
    "random numbers are not seeded": lambda: patch.object(Uniforms, "draw", _unseeded),
    "a stop has another exit code": lambda: patch("chainrule.cli.main.end_process", lambda code: os._exit(1)),
    "output must be encodable": lambda: patch("chainrule.cli.main.io", SimpleNamespace(TextIOWrapper=int)),
    "invalid UTF-8 is taken for text": lambda: patch("chainrule.text.files.EncodingError", RuntimeError),
    "discounts are too small": lambda: patch.object(smooth, "absolute_discounting", _too_small),
    "every host is taken for this one": lambda: patch("chainrule.serve.guard._name", lambda host: "localhost"),
    "texts of reports are not escaped": _unescaped,
    "imported weights are a thousandth too large": _larger,
    "all work is done on the event loop": _on_the_loop,
    "slow clients are waited for": _patient,
    "clients that leave are not noticed": lambda: patch(
        "chainrule.serve.batching.requests.Ticket.cancel", lambda self: None
    ),
    "keys are compared up to the first difference": lambda: patch(
        "chainrule.serve.guard.hmac.compare_digest", operator.eq
    ),
    "no test can fail": lambda: patch("reliability.mutants.Hunt.caught", lambda *args: False),
    "the last piece of a pipe is lost": lambda: patch.object(corpus, "_spooled", _losing),
}


@contextmanager
def broken(name: str) -> Iterator[None]:
    """Break something inside the block; nothing if the name is empty."""
    if not name:
        yield
        return
    with BROKEN[name]():
        yield


def command(control: str) -> list[str]:
    """The words that start `chainrule`, with something broken in it."""
    return [sys.executable, "-m", *(["reliability.controls", control] if control else ["chainrule"])]


if __name__ == "__main__":
    from chainrule.cli.main import run_process

    chosen = sys.argv.pop(1)
    with broken(chosen):
        run_process()
