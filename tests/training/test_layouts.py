"""Every token is a target once an epoch, after the tokens that stand before it in its sequence."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from trainables import TOKENIZER, gatherer

from chainrule.arrays import PAD
from chainrule.contract.lm import Context
from chainrule.training.engines.torch_engine import DeviceGatherer, SendingGatherer
from chainrule.training.layouts import Layout, Lines, Size, Streams, Windows, choose_layout
from chainrule.training.objectives import Gatherer, NextToken

BOS, EOS = TOKENIZER.bos, TOKENIZER.eos
CPU = torch.device("cpu")

# Ids that are all different show where each token went.
FIRST_ID = 10


def lines_of(lengths: list[int]) -> np.ndarray:
    """A text of lines of these lengths, </s> included; no two other tokens are the same."""
    ids, number = [], FIRST_ID
    for length in lengths:
        ids += [*range(number, number + length - 1), EOS]
        number += length
    return np.asarray(ids, dtype=np.uint16)


texts = st.lists(st.integers(1, 30), min_size=1, max_size=40).map(lines_of)
sizes = st.builds(Size, length=st.integers(1, 12), step=st.integers(1, 100), at_once=st.integers(1, 100))
any_sizes = st.builds(lambda size, examples: replace(size, examples=examples), sizes, st.sampled_from([None, 1, 3]))
windows = st.sampled_from([None, 12])
contexts: Any = st.sampled_from(["line", "stream"])


def made(ids: np.ndarray, context: Context, window: int | None, size: Size, vary: bool = False) -> Layout:
    return choose_layout(ids, EOS, context, window, size, seed=7, vary=vary)


def rows_of_epoch(layout: Layout, batches: Gatherer, number: int | None) -> list[tuple[list[int], list[int]]]:
    """Inputs and targets of every row of every batch."""
    epoch, found = layout.epoch(number), []
    for step in range(len(epoch)):
        for rows in epoch[step].parts:
            inputs_BT, targets_BT = batches.batch(rows)
            assert int((targets_BT != PAD).sum()) == rows.targets
            found += list(zip(inputs_BT.tolist(), targets_BT.tolist(), strict=True))
    return found


@given(texts, contexts, windows, any_sizes, st.booleans(), st.sampled_from([None, 0, 3]))
def test_every_token_is_a_target_once_an_epoch(
    ids: np.ndarray, context: Context, window: int | None, size: Size, vary: bool, number: int | None
) -> None:
    layout = made(ids, context, window, size, vary)
    rows = rows_of_epoch(layout, gatherer(ids, context), number)
    assert Counter(t for _, targets in rows for t in targets if t != PAD) == Counter(ids.tolist())


@given(texts, contexts, windows, sizes, st.sampled_from([None, 0, 3]))
def test_inputs_stand_right_before_targets_and_lines_do_not_leak(
    ids: np.ndarray, context: Context, window: int | None, size: Size, number: int | None
) -> None:
    layout = made(ids, context, window, size)
    before = dict(zip(ids.tolist()[1:], ids.tolist()[:-1], strict=True))  # </s>, which is not unique, apart
    before[int(ids[0])] = BOS if context == "line" else EOS
    for inputs, targets in rows_of_epoch(layout, gatherer(ids, context), number):
        inside = [(i, t) for i, t in zip(inputs, targets, strict=True) if i != PAD]
        assert inputs[len(inside) :] == targets[len(inside) :] == [PAD] * (len(inputs) - len(inside))
        read = [i for i, _ in inside]
        if context == "line":
            assert BOS not in read[1:]
            assert EOS not in read
        for (i, t), previous in zip(inside[1:], [t for _, t in inside], strict=False):
            assert previous in (i, PAD)  # what was predicted is what is read next
            if t not in (PAD, EOS):
                assert i == before[t]
        if inside and inside[0][1] not in (PAD, EOS):
            first = before[inside[0][1]]
            assert read[0] == (BOS if context == "line" and first == EOS else first)


@given(texts, contexts, windows, sizes)
def test_parts_and_steps_are_no_larger_than_they_may_be(
    ids: np.ndarray, context: Context, window: int | None, size: Size
) -> None:
    epoch = made(ids, context, window, size).epoch(0)
    for step in (epoch[number] for number in range(len(epoch))):
        areas = [len(rows.starts_B) * rows.width for rows in step.parts]
        assert sum(len(rows.starts_B) * int(rows.lengths_B.max()) for rows in step.parts) <= max(
            size.step, size.length
        )
        assert all(area <= max(size.at_once, size.length) for area in areas)
        assert all(rows.width <= size.length for rows in step.parts)


@given(texts, contexts, windows, sizes)
def test_the_gpu_gathers_what_the_host_gathers(
    ids: np.ndarray, context: Context, window: int | None, size: Size
) -> None:
    layout = made(ids, context, window, size)
    objective = NextToken.of(TOKENIZER, context)
    host, device = (make(ids, objective, CPU) for make in (SendingGatherer, DeviceGatherer))
    assert rows_of_epoch(layout, host, 0) == rows_of_epoch(layout, device, 0)


def test_large_ids_keep_their_sign_on_the_device() -> None:
    ids = np.asarray([65_535, 40_000, EOS], dtype=np.uint16)
    on_device = DeviceGatherer(ids, NextToken.of(TOKENIZER, "stream"), CPU)
    (_, targets), *_ = rows_of_epoch(Windows(3, Size(3, 3, 3), 0), on_device, None)
    assert targets == [65_535, 40_000, EOS]


def test_windows_of_a_text_by_hand() -> None:
    """Five tokens in windows of two: </s> a | b c | d, and the last one is filled up."""
    ids = np.asarray([11, 12, 13, 14, 15], dtype=np.uint16)
    rows = rows_of_epoch(Windows(5, Size(2, 4, 4), 0), gatherer(ids, "stream"), None)
    assert rows == [([EOS, 11], [11, 12]), ([12, 13], [13, 14]), ([14, PAD], [15, PAD])]


@pytest.mark.parametrize("window", [None, 8192])
def test_a_row_is_no_longer_than_the_text(window: int | None) -> None:
    layout = made(np.asarray([11, 12, EOS], dtype=np.uint16), "stream", window, Size(8192, 8192, 8192))
    for number in (None, 0, 1):
        epoch = layout.epoch(number)
        assert {part.width for step in range(len(epoch)) for part in epoch[step].parts} == {3}


def test_a_long_line_reads_a_quarter_again() -> None:
    """Nine tokens, rows of four: a later piece begins with one token whose target is not predicted."""
    ids = lines_of([9])  # 10 .. 17, </s>
    rows = rows_of_epoch(made(ids, "line", 4, Size(4, 4, 4)), gatherer(ids, "line"), None)
    assert sorted(rows) == sorted(
        [
            ([BOS, 10, 11, 12], [10, 11, 12, 13]),
            ([12, 13, 14, 15], [PAD, 14, 15, 16]),
            ([15, 16, 17], [PAD, 17, EOS]),
        ]
    )


def test_a_network_with_a_memory_reads_a_long_line_in_pieces_without_overlap() -> None:
    ids = lines_of([6])
    rows = rows_of_epoch(made(ids, "line", None, Size(4, 4, 4)), gatherer(ids, "line"), None)
    assert sorted(rows) == sorted([([BOS, 10, 11, 12], [10, 11, 12, 13]), ([13, 14], [14, EOS])])


@given(texts, sizes, st.booleans())
def test_streams_go_on_where_they_were(ids: np.ndarray, size: Size, vary: bool) -> None:
    """Row r of a step begins where row r of the step before ended: that is why memory can be carried on."""
    epoch = Streams(len(ids), size, 3, vary=vary).epoch(2)
    steps = [epoch[number] for number in range(len(epoch))]
    for step, following in pairwise(steps):
        for rows, later in zip(step.parts, following.parts, strict=True):
            assert np.array_equal(rows.starts_B + rows.width, later.starts_B)
            assert np.array_equal(rows.lengths_B, np.full_like(rows.lengths_B, rows.width))


def test_lengths_that_vary_are_mostly_about_the_length() -> None:
    epoch = Streams(400_000, Size(70, 700, 700), 0, vary=True).epoch(0)
    steps = [epoch[number] for number in range(len(epoch) - 1)]
    widths = np.asarray([step.parts[0].width for step in steps])
    assert widths.min() >= 5
    assert (np.abs(widths - 70) <= 20).mean() == pytest.approx(0.95, abs=0.03)
    assert (np.abs(widths - 35) <= 14).mean() == pytest.approx(0.05, abs=0.03)
    assert [step.scale for step in steps] == pytest.approx((widths / 70).tolist())


def test_a_short_step_of_streams_counts_by_its_tokens() -> None:
    """Ten tokens in two streams, four at once: the second step has one of each."""
    layout = Streams(10, Size(4, 8, 8), 0)
    epoch = layout.epoch(0)
    assert [(step.scale, step.targets) for step in (epoch[0], epoch[1])] == [(1.0, 8), (0.25, 2)]
    assert layout.one_shape and not Streams(10, Size(4, 8, 8), 0, vary=True).one_shape


def test_a_short_text_is_validated_in_few_streams() -> None:
    """100 rows of 4 tokens would each begin without memory: of 96 tokens there are 3 rows of 8 steps."""
    size = Size(4, 400, 400)
    assert [len(Streams(tokens, size, 0).epoch(None)[0].parts[0].starts_B) for tokens in (1, 96, 9600)] == [
        1,
        3,
        100,
    ]
    assert len(Streams(96, size, 0).epoch(0)[0].parts[0].starts_B) == 24  # one step of each


@pytest.mark.parametrize("window", [None, 8])
@pytest.mark.parametrize("context", ["line", "stream"])
def test_epoch_and_seed_are_all_that_chance_depends_on(context: Context, window: int | None) -> None:
    ids = lines_of([5, 9, 3, 8, 8, 8, 2, 9, 9] * 4)
    batches, size = gatherer(ids, context), Size(8, 32, 16)
    layout, again = made(ids, context, window, size), made(ids, context, window, size)
    assert rows_of_epoch(layout, batches, 5) == rows_of_epoch(again, batches, 5)
    if (context, window) != ("stream", None):  # streams are read in order
        assert rows_of_epoch(layout, batches, 5) != rows_of_epoch(layout, batches, 6)
        other = choose_layout(ids, EOS, context, window, size, seed=8)
        assert rows_of_epoch(layout, batches, 5) != rows_of_epoch(other, batches, 5)


@given(texts, contexts, windows, any_sizes)
def test_epochs_as_steps(ids: np.ndarray, context: Context, window: int | None, size: Size) -> None:
    layout = made(ids, context, window, size)
    assert layout.steps(2) == len(layout.epoch(0)) + len(layout.epoch(1))
    assert layout.steps(1.5) == len(layout.epoch(0)) + round(0.5 * len(layout.epoch(1)))
    assert layout.steps(1e-9) == 1


def test_steps_of_so_many_examples_are_shuffled_whatever_their_length() -> None:
    ids = lines_of([length for length in range(1, 9) for _ in range(10)])
    layout = made(ids, "line", 8, Size(8, 40, 40, examples=1))
    epochs = [layout.epoch(number) for number in (0, 1)]
    starts = [[step.parts[0].starts_B.tolist() for step in map(one.make, range(len(one)))] for one in epochs]
    assert all(len(one) == 80 and {len(rows) for rows in one} == {1} for one in starts)
    assert starts[0] != starts[1] and sorted(starts[0]) == sorted(starts[1])
    three = made(ids, "line", 8, replace(layout.size, examples=3)).epoch(0)
    assert sorted(sum(len(rows.starts_B) for rows in three[n].parts) for n in range(len(three))) == [2, *[3] * 26]
    assert len(layout.epoch(None)) < 20  # a validation is not slowed down
    windows = made(ids, "stream", 8, layout.size).epoch(0)
    assert [len(windows[n].parts[0].starts_B) for n in range(3)] == [1, 1, 1]


def test_lines_of_like_length_stand_together() -> None:
    """Lengths 1 to 8, ten times each: hardly anything is padding."""
    ids = lines_of([length for length in range(1, 9) for _ in range(10)])
    layout = made(ids, "line", 8, Size(8, 40, 40))
    assert isinstance(layout, Lines)
    epoch = layout.epoch(0)
    steps = [epoch[number] for number in range(len(epoch))]
    area = sum(len(rows.starts_B) * rows.width for step in steps for rows in step.parts)
    assert area <= 1.1 * len(ids)
