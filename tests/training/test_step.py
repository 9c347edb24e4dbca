"""Gradients of a step: in parts as at once, and when memory does not suffice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch._dynamo.exc import TorchDynamoException
from torch._inductor.exc import InductorError, InvalidCxxCompiler
from trainables import TOKENIZER, Bigram, Recurrent, data, seeded, text

from chainrule.errors import TrainingError
from chainrule.settings import parse
from chainrule.training.batches import HostSource
from chainrule.training.layouts import Rows, Size, Step, Windows, choose_layout
from chainrule.training.loop import train_network
from chainrule.training.plan import TrainingSettings
from chainrule.training.state import Place
from chainrule.training.step import Stepper, is_out_of_memory, propose

CPU = torch.device("cpu")
IDS = text().ids


def gradients(network: Any, context: Any, at_once: int, steps: int = 2) -> tuple[list[float], list[torch.Tensor]]:
    """Of a few steps together, with the memory carried on."""
    layout = choose_layout(IDS, TOKENIZER.eos, context, network.window, Size(8, 96, at_once), seed=0)
    source, stepper = HostSource(IDS, TOKENIZER, context, CPU), Stepper(network, CPU)
    epoch, memories, losses = layout.epoch(0), [], []
    for number in range(steps):
        loss, after = stepper.gradients(epoch[number], source, memories)
        memories = after if layout.carries else []
        losses.append(loss.item())
    return losses, [parameter.grad for parameter in network.parameters()]


@pytest.mark.parametrize("context", ["line", "stream"])
@pytest.mark.parametrize("make", [Bigram, Recurrent])
@pytest.mark.parametrize("at_once", [8, 24, 40])
def test_parts_give_the_gradients_of_one_batch(make: Any, context: Any, at_once: int) -> None:
    """Parts are of different sizes and lengths; Bigram's penalty is a mean over all places, so it is left out."""
    one, other = seeded(make).eval(), seeded(make).eval()
    losses, whole = gradients(one, context, 96)
    losses_of_parts, parts = gradients(other, context, at_once)
    assert losses == pytest.approx(losses_of_parts, abs=1e-6)
    for expected, found in zip(whole, parts, strict=True):
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


def test_a_penalty_counts_by_its_share_of_the_tokens() -> None:
    """Full windows of equal size: the mean of the parts' means is the mean of all."""
    one, other = seeded(Bigram), seeded(Bigram)
    rows = Rows(np.arange(0, 96, 8), np.full(12, 8), np.zeros(12, np.int64), 8)
    parts = [Rows(rows.starts_B[i : i + 3], rows.lengths_B[:3], rows.skips_B[:3], 8) for i in range(0, 12, 3)]
    source = HostSource(IDS, TOKENIZER, "stream", CPU)
    Stepper(one, CPU).gradients(Step([rows]), source, [])
    Stepper(other, CPU).gradients(Step(parts), source, [])
    for whole, part in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(part.grad, whole.grad, atol=1e-6, rtol=0)


def test_rows_of_padding_change_nothing() -> None:
    """What fills up a batch so that compiled code sees one shape."""
    one, other = seeded(Bigram).eval(), seeded(Bigram).eval()
    layout, source = Windows(len(IDS), Size(8, 8 * 50, 8 * 50), 0), HostSource(IDS, TOKENIZER, "stream", CPU)
    step = layout.epoch(0)[layout.count(0) - 1]
    assert len(step.parts[-1].starts_B) < 50
    stepper = Stepper(other, CPU)
    assert stepper.filled(step, layout) is step
    stepper.compiled = True  # only the shape is of interest
    filled = stepper.filled(step, layout)
    assert len(filled.parts[-1].starts_B) == 50
    assert filled.targets == step.targets
    loss, _ = Stepper(one, CPU).gradients(step, source, [])
    loss_filled, _ = stepper.gradients(filled, source, [])
    assert loss_filled.item() == pytest.approx(loss.item(), abs=1e-6)
    for expected, found in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(found.grad, expected.grad, atol=1e-6, rtol=0)


class Greedy(Bigram):
    """Has memory for so many tokens only."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def loss(self, inputs_BT: Any, targets_BT: Any, memory: Any = None) -> Any:
        if inputs_BT.numel() > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return super().loss(inputs_BT, targets_BT, memory)


@pytest.mark.parametrize(("most", "expected"), [(47, 40), (40, 40), (39, 16), (8, 8)])
def test_too_little_memory_is_answered_by_what_fits(most: int, expected: int) -> None:
    """Ten rows of eight are halved: 5, 2 and 1 rows are tried."""
    layout, source = Windows(len(IDS), Size(8, 80, 80), 0), HostSource(IDS, TOKENIZER, "stream", CPU)
    network = Greedy(most)
    error = propose(Stepper(network, CPU), layout.epoch(None)[0], source, Place(1, 0, 0))
    assert "80 tokens at once do not fit" in str(error)
    assert str(error).endswith(f"set device_batch={expected}")
    assert all(parameter.grad is None for parameter in network.parameters())


def test_a_row_that_does_not_fit_is_said() -> None:
    layout, source = Windows(len(IDS), Size(8, 80, 80), 0), HostSource(IDS, TOKENIZER, "stream", CPU)
    error = propose(Stepper(Greedy(7), CPU), layout.epoch(None)[0], source, Place(1, 0, 0))
    assert "not even one row of 8 tokens" in str(error)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (InvalidCxxCompiler(), r"cannot compile .* \(No working C\+\+ compiler found.*\): set compile=no"),
        (
            TorchDynamoException("backend='x' raised:\nno such thing\nand more"),
            r"\(backend='x' raised: no such thing\)",
        ),
        (InductorError(torch.OutOfMemoryError("CUDA out of memory"), Bigram), "not even one row .* fits"),
    ],
)
def test_a_compiler_that_gives_up_is_said(error: Exception, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(function: Any) -> Any:
        def fails(*arguments: Any) -> None:
            raise error

        return fails

    monkeypatch.setattr(torch, "compile", compiled)
    with pytest.raises(TrainingError, match=said):
        train_network(seeded(Bigram), parse(TrainingSettings, {"compile": "yes", "steps": 2}), data())


def test_what_is_out_of_memory() -> None:
    cpu = "[enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate memory: you tried ..."
    assert is_out_of_memory(RuntimeError(cpu))
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
