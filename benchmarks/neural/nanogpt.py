"""nanoGPT's model and optimiser, trained by the steps of its training script, which cannot be imported."""

from __future__ import annotations

import contextlib
import io
import math
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.harness import load_module
from benchmarks.neural.lab import Lab


@dataclass(frozen=True)
class Plan:
    """The settings of its configuration files."""

    layers: int
    heads: int
    width: int
    context: int
    rows: int
    learning_rate: float
    iterations: int
    """The steps in which the learning rate falls to a tenth."""
    warmup: int
    beta2: float
    dropout: float = 0.0
    weight_decay: float = 0.1
    clip: float = 1.0
    log_every: int = 10

    @property
    def tokens(self) -> int:
        """The tokens of a step."""
        return self.rows * self.context

    def rate(self, step: int) -> float:
        """Return the learning rate of a step: a rise, then a cosine down to a tenth."""
        if step < self.warmup:
            return self.learning_rate * (step + 1) / (self.warmup + 1)
        done = min((step - self.warmup) / max(self.iterations - self.warmup, 1), 1.0)
        return self.learning_rate * (0.1 + 0.9 * (1 + math.cos(math.pi * done)) / 2)


class NanoGPT:
    """A model under training."""

    def __init__(self, lab: Lab, checkout: Path, plan: Plan, ids: np.ndarray, vocab_size: int) -> None:
        module = load_module(checkout / "model.py", "nanogpt_model")
        self.lab, self.plan, self.path = lab, plan, lab.folder / "nanogpt.bin"
        ids.astype(np.uint16).tofile(self.path)
        torch.manual_seed(1337)
        torch.set_float32_matmul_precision("high")  # as its script does: TF32
        lab.forget_compiled()
        with contextlib.redirect_stdout(io.StringIO()):  # it prints its sizes
            config = module.GPTConfig(
                block_size=plan.context,
                vocab_size=vocab_size,
                n_layer=plan.layers,
                n_head=plan.heads,
                n_embd=plan.width,
                dropout=plan.dropout,
                bias=False,
            )
            self.raw = module.GPT(config).to(lab.device)
            self.optimiser = self.raw.configure_optimizers(
                plan.weight_decay, plan.learning_rate, (0.9, plan.beta2), "cuda" if lab.on_gpu else "cpu"
            )
        self.model = torch.compile(self.raw) if lab.on_gpu else self.raw  # it advises not to compile on a CPU
        self.done = 0
        self.next_batch = self._batch()

    @classmethod
    def compiled(
        cls, lab: Lab, checkout: Path, plan: Plan, ids: np.ndarray, vocab_size: int, warm_up: int = 1
    ) -> tuple[NanoGPT, float]:
        """Return a model after its first steps, which compile it, and the seconds until then."""
        began = time.perf_counter()
        peer = cls(lab, checkout, plan, ids, vocab_size)
        lab.seconds(lambda: peer.steps(warm_up))
        return peer, time.perf_counter() - began

    def steps(self, count: int) -> None:
        """Take some steps of training."""
        self.raw.train()
        for _ in range(count):
            loss = self._step()
            if self.done % self.plan.log_every == 0:
                loss.item()  # its script prints the loss, and so waits for the device
            self.done += 1

    def _step(self) -> Tensor:
        for group in self.optimiser.param_groups:
            group["lr"] = self.plan.rate(self.done)
        inputs_BT, targets_BT = self.next_batch
        with self.lab.autocast():
            _, loss = self.model(inputs_BT, targets_BT)
        self.next_batch = self._batch()  # while the GPU is busy
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.raw.parameters(), self.plan.clip)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        detached: Tensor = loss.detach()
        return detached

    def _batch(self) -> tuple[Tensor, Tensor]:
        """Return rows from random places; as in its script, each batch maps the text again."""
        ids, length = np.memmap(self.path, dtype=np.uint16, mode="r"), self.plan.context
        starts = torch.randint(len(ids) - length, (self.plan.rows,)).tolist()
        inputs_BT, targets_BT = (
            torch.stack([torch.from_numpy(ids[i + shift : i + shift + length].astype(np.int64)) for i in starts])
            for shift in (0, 1)
        )
        if self.lab.on_gpu:
            inputs_BT, targets_BT = inputs_BT.pin_memory(), targets_BT.pin_memory()
        device = self.lab.device
        return inputs_BT.to(device, non_blocking=True), targets_BT.to(device, non_blocking=True)

    def loss(self, ids: np.ndarray) -> float:
        """Return mean nats per token of a text, in windows as long as its context."""
        self.raw.eval()
        found = self.lab.loss_in_windows(self.nats, ids, self.plan.context)
        self.raw.train()
        return found

    def nats(self, inputs_BT: Tensor, targets_BT: Tensor) -> Tensor:
        """Return Σ -ln p of the targets."""
        mean: Tensor = self.raw(inputs_BT, targets_BT)[1]
        return mean * targets_BT.numel()
