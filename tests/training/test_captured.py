"""Steps of sources and targets as graphs: few shapes, and what a graph computes, on a CPU without a graph.

Here a replay calls the step again, on the tensors at fixed addresses that a graph would read and write.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from trainables import Bigram, seeded

import chainrule as cr
from chainrule.arrays import PAD
from chainrule.networks.training_settings import TrainingSettings
from chainrule.settings import parse
from chainrule.training.engines import cuda_graph
from chainrule.training.engines.torch_engine import TorchEngine
from chainrule.training.engines.torch_step import Stepper
from chainrule.training.layouts import Lines, Size, rounded_widths
from chainrule.training.objectives import Gatherer, NextToken, Sequences, TargetOfSource
from chainrule.training.optimisers import make_optimiser
from chainrule.training.run_state import Mode

PAIRS = [(" ".join("abcdefgh"[: 1 + i % 8]), " ".join("abcdefgh"[: 1 + i * 5 % 7])) for i in range(120)]
SETTINGS: dict[str, Any] = {
    "layers": 1,
    "width": 16,
    "heads": 2,
    "window": 16,
    "batch": 64,
    "steps": 20,
    "validate_every": 10,
    "dropout": 0,
    "attention_dropout": 0,
    "token_dropout": 0,
    "average": "ema",
}


class Replayed:
    """A step that is called again, as a graph is replayed: gradients are made anew each time."""

    def __init__(self, step: Callable[[], None], drop_gradients: Callable[[], None]) -> None:
        self.step, self.drop_gradients = step, drop_gradients

    def replay(self) -> None:
        self.drop_gradients()
        self.step()
        self.drop_gradients()


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Let engines on a CPU take recorded steps; the graphs that are made."""
    made: list[Any] = []

    def recorded(step: Any, warm_up: Any, drop_gradients: Any, device: Any, beside: Any = None) -> Replayed:
        made.append(beside)
        return Replayed(step, drop_gradients)

    start = TorchEngine.start

    def started(engine: TorchEngine, mode: Mode, **others: Any) -> None:
        start(engine, mode, **others)
        made.clear()  # those of a trial
        engine.stepper.mode = mode._replace(recorded=True)
        engine.optimiser.prepare_capture()

    monkeypatch.setattr(cuda_graph, "recorded", recorded)
    monkeypatch.setattr(TorchEngine, "start", started)
    monkeypatch.setattr(TorchEngine, "prefers_few_shapes", True)
    return made


@pytest.mark.parametrize("optimiser", ["muon", "adamw"])
def test_replayed_steps_are_those_of_plain_training(optimiser: str, graphs: list[Any]) -> None:
    """Filled batches, rates and counts on the device, one graph for each shape; the first step is a plain one."""
    settings = {**SETTINGS, "optimiser": optimiser}
    replayed = cr.train("seq2seq", PAIRS, valid=PAIRS[:20], tokenizer="word", **settings)
    assert len(graphs) == 3  # widths of 4, 8 and 12
    assert graphs[0] is None and all(graphs[1:])  # all share the memory of the first
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Stepper, "_is_recordable", lambda *_: False)
        patched.setattr(Stepper, "filled", lambda stepper, step, layout: step)
        plain = cr.train("seq2seq", PAIRS, valid=PAIRS[:20], tokenizer="word", **settings)
    assert not graphs
    for one, other in zip(plain.metrics["history"], replayed.metrics["history"], strict=True):
        assert one["validation_loss"] == pytest.approx(other["validation_loss"], abs=1e-4)
        assert one["loss"] == pytest.approx(other["loss"], abs=1e-4)
    for name, weight in plain.tensors().items():
        np.testing.assert_allclose(replayed.tensors()[name], weight, atol=2e-4)


def test_an_update_with_rates_on_the_device_is_the_same() -> None:
    one, other = seeded(Bigram), seeded(Bigram)
    settings = parse(TrainingSettings, {"optimiser": "muon"})
    plain, ready = make_optimiser(one, settings), make_optimiser(other, settings)
    assert not ready.can_be_captured
    ready.prepare_capture()
    assert ready.can_be_captured and not ready.has_state
    for factor in (0.5, 1.0, 0.25):
        for network in (one, other):
            for parameter in network.parameters():
                parameter.grad = torch.sin(torch.arange(parameter.numel()) + factor).reshape(parameter.shape)
        torch.testing.assert_close(plain.step(factor), ready.step(factor))
        assert plain.rate == ready.rate == factor * settings.rate
    assert ready.has_state
    for expected, found in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(found, expected)


def test_an_optimiser_that_counts_on_the_host_is_not_captured() -> None:
    found = make_optimiser(seeded(Bigram), parse(TrainingSettings, {"optimiser": "momentum"}))
    found.prepare_capture()
    assert not found.can_be_captured


def test_widths_are_few_and_not_much_larger() -> None:
    lengths = np.arange(1, 257)
    widths = rounded_widths(lengths)
    assert (widths >= lengths).all() and (widths <= np.maximum(lengths * 1.25, lengths + 3)).all()
    assert len(set(widths.tolist())) <= 24


def test_lines_of_few_shapes_have_room_for_their_rows() -> None:
    ends = np.cumsum(1 + np.random.default_rng(0).integers(1, 40, 300))
    starts = np.append(0, ends[:-1])
    layout = Lines(starts, ends, 0, Size(40, 256, 256), 0, most=40)
    assert layout.few_shapes and layout.is_capturable
    rooms, seen = set(), 0
    for epoch in (0, 1):
        steps = layout.epoch(epoch)
        for number in range(len(steps)):
            (rows,) = steps[number].parts
            assert rows.room is not None and rows.room[0] >= len(rows.starts_B) and rows.room[1] >= rows.width
            rooms.add(rows.room)
            seen += rows.targets
    assert seen == 2 * int(ends[-1])
    assert len(rooms) == len({columns for _, columns in rooms}) <= 9
    assert not Lines(starts, ends, 0, Size(40, 256, 256, examples=4), 0, most=40).few_shapes


def test_rows_that_fill_a_batch_up_read_one_token() -> None:
    """Attention to no token at all would be 0/0, and such a row would spoil the gradients of the others."""
    ids = np.asarray([5, 2, 6, 7, 2])
    starts, ends = np.asarray([0, 2]), np.asarray([2, 5])
    sources = Sequences(np.asarray([8, 8, 8, 2, 9, 2]), np.asarray([0, 4]), np.asarray([4, 6]))
    objective = TargetOfSource(NextToken(1, 2), sources, starts)
    layout = Lines(starts, ends, 0, Size(3, 16, 16), 0, np.asarray([4, 3]), most=16)
    stepper = Stepper(seeded(Bigram), torch.device("cpu"), Mode())
    stepper.mode = Mode(recorded=True)
    (rows,) = stepper.filled(layout.epoch(None)[0], layout).parts
    (sources_BS, inputs_BT), targets_BT = Gatherer(ids, objective).batch(rows)
    assert sources_BS.shape == inputs_BT.shape == targets_BT.shape == (4, 4)
    padding = [8, PAD, PAD, PAD]
    assert sources_BS.tolist() == [[8, 8, 8, 2], [9, 2, PAD, PAD], padding, padding]
    assert targets_BT.tolist() == [[5, 2, PAD, PAD], [6, 7, 2, PAD], [PAD] * 4, [PAD] * 4]
