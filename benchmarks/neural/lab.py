"""What the parts share: texts as ids, our training with its measurements, and one loss for all sides."""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from benchmarks.harness import existing
from chainrule.contract.data import TrainingData
from chainrule.contract.kinds import find_kind
from chainrule.errors import ChainruleError
from chainrule.inference.neural_model import NeuralModel
from chainrule.networks.settings import EngineSettings
from chainrule.settings import closed, parse
from chainrule.system.progress import SILENT, Silent, Task
from chainrule.text.corpus import Corpus
from chainrule.tokens.base import Tokenizer
from chainrule.tokens.ids import Encoded, encode_corpus
from chainrule.training.checkpoints.run_folder import METRICS

T = TypeVar("T")
Sums = Callable[[Tensor, Tensor], Tensor]
"""A function of inputs and targets as [B, T] that returns Σ -ln p of the targets."""

_TOKENS_AT_ONCE = 1 << 15
_FEW = 2000  # tokens of a text where all is small


@dataclass(frozen=True)
class Texts:
    """A text to train on and a held-out one, in the ids of a tokenizer."""

    tokenizer: Tokenizer
    train: Encoded
    valid: Encoded


@dataclass(frozen=True)
class Lab:
    """The folders, the device and the size of a run."""

    folder: Path
    data: Path
    device: str
    small: bool
    settings: Mapping[str, str]
    """Settings of our side that replace those of a part."""
    options: argparse.Namespace

    def pick(self, full: T, small: T) -> T:
        """Return the full or the small size."""
        return small if self.small else full

    def text(self, name: str) -> Path:
        """Return the path of a file of the data."""
        return existing(self.data / name)

    def peer(self, name: str) -> Path | None:
        """Return the checkout of a peer; if no option names one, print that and return None."""
        option = f"--{name.lower()}"
        folder: Path | None = getattr(self.options, option.strip("-").replace("-", "_"))
        if folder is None:
            print(f"{name} is left out: name a checkout of it with {option}", flush=True)
        elif not folder.is_dir():
            raise ChainruleError(f"{option} {folder}: no such folder")
        return folder

    def encode(self, tokenizer: Tokenizer, train: Corpus, valid: Corpus) -> Texts:
        """Encode two texts as ids, in files."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))

        def encoded(name: str, text: Corpus) -> Encoded:
            found = encode_corpus(text, tokenizer, folder / name)
            return replace(found, ids=found.ids[: self.pick(None, _FEW)])

        return Texts(tokenizer, encoded("train", train), encoded("valid", valid))

    def train(
        self,
        kind: str,
        texts: Texts,
        settings: Mapping[str, Any],
        *,
        validate: bool = False,
        keep: bool = True,
        chooses: bool = False,
    ) -> Run:
        """Train one of our networks; with `keep`, keep the measurements, which takes a moment at the end.

        Other settings have fixed values; with `chooses`, training chooses them, as `chainrule train` does.
        """
        the_kind, clock = find_kind(kind), _Clock()
        run = Path(tempfile.mkdtemp(dir=self.folder)) if keep else None
        valid = texts.valid if validate else None
        where: dict[str, Any] = {"progress": clock, "device": self.device, "run": run}
        data = TrainingData(texts.tokenizer, texts.train, valid, context="stream", **where)
        self.forget_compiled()
        began = time.perf_counter()
        engine = {"engine": "torch"} if issubclass(the_kind.settings, EngineSettings) else {}
        wanted = parse(the_kind.settings, {**engine, **settings, **self.settings})
        lm = the_kind.train(wanted if chooses else closed(wanted), data)
        assert isinstance(lm, NeuralModel)
        records = []
        if run is not None:
            records = [json.loads(line) for line in (run / METRICS).read_text(encoding="utf-8").splitlines()]
            shutil.rmtree(run)
        return Run(lm, clock.training - began, records)

    def forget_compiled(self) -> None:
        """Drop compiled code: a second network of other sizes would be compiled for any size, which is slower."""
        if self.on_gpu:
            torch._dynamo.reset()

    @property
    def on_gpu(self) -> bool:
        """Return True if the device is one of CUDA's."""
        return self.device.startswith("cuda")

    def wait(self) -> None:
        """Wait until the device has done all its work."""
        if self.on_gpu:
            torch.cuda.synchronize(self.device)

    def autocast(self) -> AbstractContextManager[Any]:
        """Compute products in bfloat16 on a GPU; on a CPU change nothing."""
        if not self.on_gpu:
            return nullcontext()
        return torch.autocast("cuda", torch.bfloat16)

    def seconds(self, work: Callable[[], object]) -> float:
        """Return the seconds of some work, that of the device included."""
        self.wait()
        began = time.perf_counter()
        work()
        self.wait()
        return time.perf_counter() - began

    @torch.no_grad()
    def loss_in_windows(self, nats: Sums, ids: np.ndarray, length: int) -> float:
        """Return mean nats per token of a text in windows side by side, each without context before it."""
        every = torch.from_numpy(np.asarray(ids, dtype=np.int64)).to(self.device)
        inputs, targets = every[:-1], every[1:]
        whole = len(targets) // length * length
        total, rows = 0.0, max(_TOKENS_AT_ONCE // length, 1)
        with self.autocast():
            for first in range(0, whole, rows * length):
                piece = slice(first, min(first + rows * length, whole))
                total += float(nats(inputs[piece].view(-1, length), targets[piece].view(-1, length)))
            if whole < len(targets):
                total += float(nats(inputs[None, whole:], targets[None, whole:]))
        return total / len(targets)


@dataclass(frozen=True)
class Run:
    """A training of ours, and its measurements."""

    lm: NeuralModel
    startup: float
    """Seconds before the first step, in which code is compiled and the fastest way is chosen."""
    records: list[dict[str, Any]]

    @property
    def parameters(self) -> int:
        """The number of parameters."""
        return sum(weight.numel() for weight in self.lm.network.parameters())

    @property
    def rate(self) -> float:
        """Tokens per second: the median of the records without the first, which includes the warm-up."""
        rates: list[float] = [record["tokens_per_second"] for record in self._of("steps")]
        return statistics.median(rates[1:] or rates)

    def seconds_until(self, step: int) -> float:
        """Return the seconds of all steps up to a step, without validations."""
        seconds, tokens = 0.0, 0
        for record in self._of("steps"):
            if record["step"] <= step:
                seconds += (record["tokens"] - tokens) / record["tokens_per_second"]
            tokens = record["tokens"]
        return seconds

    @property
    def validations(self) -> list[tuple[int, float]]:
        """Steps and losses."""
        return [(record["step"], record["validation_loss"]) for record in self._of("validation")]

    def nats(self, inputs_BT: Tensor, targets_BT: Tensor) -> Tensor:
        """Return Σ -ln p of the targets."""
        return self.lm.network.loss(inputs_BT, targets_BT).nats

    def _of(self, what: str) -> list[dict[str, Any]]:
        return [record for record in self.records if record["what"] == what]


class _Clock(Silent):
    """Notes the time at which training starts."""

    training = 0.0

    @contextmanager
    def task(self, description: str, total: float | None = None, unit: str = "") -> Iterator[Task]:
        if description == "training":
            self.training = time.perf_counter()
        with SILENT.task(description, total, unit) as task:
            yield task


def ratio(ours: float, theirs: float | None) -> str:
    """Return the ratio of our rate to theirs, as text."""
    return "" if theirs is None else f"{ours / theirs:.2f}x"
