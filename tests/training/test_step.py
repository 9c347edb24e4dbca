"""Gradients of a step: in parts as at once, and when memory does not suffice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch._dynamo.exc import TorchDynamoException
from torch._inductor.exc import InductorError, InvalidCxxCompiler
from trainables import Bigram, Recurrent, data, feed, gatherer, seeded, text, train

from chainrule.errors import TrainingError
from chainrule.networks.training_settings import TrainingSettings
from chainrule.settings import parse
from chainrule.training.engines.cuda_graph import copied
from chainrule.training.engines.torch_step import MOST_SHAPES, Stepper, is_out_of_memory
from chainrule.training.layouts import Lines, Rows, Size, Step, Streams, Windows
from chainrule.training.run_state import Mode, Place

CPU = torch.device("cpu")
IDS = text().ids


def gradients(network: Any, context: Any, at_once: int, steps: int = 2) -> tuple[list[float], list[torch.Tensor]]:
    """Of a few steps together, with the memory carried on."""
    some, stepper = feed(IDS, context, network.window, Size(8, 96, at_once)), Stepper(network, CPU, Mode())
    epoch, memories, losses = some.layout.epoch(0), [], []
    for number in range(steps):
        loss, after = stepper.gradients(epoch[number], some.gatherer, memories)
        memories = after if some.layout.carries else []
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
    batches = gatherer(IDS, "stream")
    Stepper(one, CPU, Mode()).gradients(Step([rows]), batches, [])
    Stepper(other, CPU, Mode()).gradients(Step(parts), batches, [])
    for whole, part in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(part.grad, whole.grad, atol=1e-6, rtol=0)


def test_rows_of_padding_change_nothing() -> None:
    """What fills up a batch so that compiled code sees one shape."""
    one, other = seeded(Bigram).eval(), seeded(Bigram).eval()
    layout, batches = Windows(len(IDS), Size(8, 8 * 50, 8 * 50), 0), gatherer(IDS, "stream")
    step = layout.epoch(0)[layout.count(0) - 1]
    assert len(step.parts[-1].starts_B) < 50
    stepper = Stepper(other, CPU, Mode())
    assert stepper.filled(step, layout) is step
    stepper.mode = Mode(compiled=True)  # only the shape is of interest
    filled = stepper.filled(step, layout)
    assert len(filled.parts[-1].starts_B) == 50
    assert filled.targets == step.targets
    loss, _ = Stepper(one, CPU, Mode()).gradients(step, batches, [])
    loss_filled, _ = stepper.gradients(filled, batches, [])
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
    step, network = Windows(len(IDS), Size(8, 80, 80), 0).epoch(None)[0], Greedy(most)
    error = Stepper(network, CPU, Mode()).smaller_batch(step, gatherer(IDS, "stream"), Place(1, 0, 0))
    assert "80 tokens at once do not fit" in str(error)
    assert str(error).endswith(f"set device_batch={expected}")
    assert all(parameter.grad is None for parameter in network.parameters())


def test_a_row_that_does_not_fit_is_said() -> None:
    step = Windows(len(IDS), Size(8, 80, 80), 0).epoch(None)[0]
    error = Stepper(Greedy(7), CPU, Mode()).smaller_batch(step, gatherer(IDS, "stream"), Place(1, 0, 0))
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
    def compiled(function: Any, dynamic: bool) -> Any:
        def fails(*arguments: Any) -> None:
            raise error

        return fails

    monkeypatch.setattr(torch, "compile", compiled)
    with pytest.raises(TrainingError, match=said):
        train(seeded(Bigram), parse(TrainingSettings, {"compile": "yes", "steps": 2}), data())


def test_what_is_out_of_memory() -> None:
    cpu = "[enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate memory: you tried ..."
    assert is_out_of_memory(RuntimeError(cpu))
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


def test_a_graph_refuses_a_memory_it_would_not_see_change() -> None:
    memory = torch.ones(2), [torch.zeros(1)]
    found = copied(memory)
    assert torch.equal(found[0], memory[0]) and found[0] is not memory[0]
    with pytest.raises(RuntimeError, match="a memory of tensors"):
        copied((torch.ones(2), 3))


def test_compiled_code_serves_few_shapes_whatever_the_lines() -> None:
    """Else torch would stop compiling after some, and which ones they are would depend on where a run begins."""
    lengths = np.random.default_rng(0).integers(1, 90, 3000)
    ends = np.cumsum(lengths)
    layout = Lines(ends - lengths, ends, 8, Size(64, 512, 256), 0)
    stepper, shapes = Stepper(seeded(Bigram), CPU, Mode()), set()
    stepper.mode = Mode(compiled=True)
    for step in (layout.epoch(0)[number] for number in range(layout.count(0))):
        filled = stepper.filled(step, layout)
        assert filled.targets == step.targets
        for part, whole in zip(step.parts, filled.parts, strict=True):
            assert len(whole.starts_B) >= len(part.starts_B) and whole.width >= part.width
            shapes.add((len(whole.starts_B), whole.width))
    assert 1 < len(shapes) <= MOST_SHAPES


def test_rows_of_random_length_are_padded_to_few_widths() -> None:
    layout = Streams(20_000, Size(40, 400, 400), 0, vary=True)
    stepper, shapes = Stepper(seeded(Bigram), CPU, Mode()), set()
    stepper.mode = Mode(compiled=True)
    for number in range(layout.count(0)):
        (part,) = stepper.filled(layout.epoch(0)[number], layout).parts
        shapes.add((len(part.starts_B), part.width))
    assert 1 <= len(shapes) <= 3
