"""Arrays that are used again from step to step: nothing changes but the memory that is taken."""

from __future__ import annotations

import tracemalloc

import numpy as np

from chainrule.autodiff import Embedding, Linear, Parameter, SoftmaxCrossEntropy, Tanh, Tape, tape_bwd
from chainrule.autodiff.tape.pool import Pool


def step(tape: Tape, table: Parameter, head: Parameter, ids: np.ndarray) -> float:
    for p in (table, head):
        p.forget()
    with tape:
        h = Tanh().apply_fwd(Embedding().apply_fwd(table, ids))
        loss = SoftmaxCrossEntropy().apply_fwd(Linear().apply_fwd(h, head), ids)
        tape_bwd()
    return float(loss.out_tensor)


def parameters() -> tuple[Parameter, Parameter]:
    rng = np.random.default_rng(0)
    return Parameter("E", rng.normal(size=(500, 64))), Parameter("U", rng.normal(size=(500, 64)))


def test_gives_the_same_loss_and_gradients() -> None:
    table, head = parameters()
    tape, rng = Tape(reuse=True), np.random.default_rng(1)
    for _ in range(4):
        ids = rng.integers(0, 500, 200)
        loss = step(Tape(), table, head, ids)
        expected = [p.dense_gradient().copy() for p in (table, head)]
        assert step(tape, table, head, ids) == loss
        for p, gradient in zip((table, head), expected, strict=True):
            assert np.array_equal(p.dense_gradient(), gradient)


def test_parameter_gradients_outlive_the_tape() -> None:
    table, head = parameters()
    tape, ids = Tape(reuse=True), np.arange(200)
    step(tape, table, head, ids)
    before = [p.dense_gradient().copy() for p in (table, head)]
    with tape:  # writes over what the tape lent before
        Tanh().apply_fwd(np.full((200, 500), 9.0))
        Tanh().apply_fwd(np.full((200, 64), 9.0))
    for p, gradient in zip((table, head), before, strict=True):
        assert np.array_equal(p.dense_gradient(), gradient)


def test_a_parameter_has_one_array_for_its_gradient() -> None:
    table, head = parameters()
    tape, ids = Tape(reuse=True), np.arange(200)
    step(tape, table, head, ids)
    first = head.out_gradient
    step(tape, table, head, ids)
    assert head.out_gradient is first


def test_memory_does_not_grow() -> None:
    table, head = parameters()
    tape, rng = Tape(reuse=True), np.random.default_rng(2)
    sizes = [400, 130, 257, 399, 400, 200]

    def steps() -> None:
        for size in sizes:
            step(tape, table, head, rng.integers(0, 500, size))

    steps()
    held = tape.bytes_held
    assert held > 0
    tracemalloc.start()
    try:
        steps()
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(5):
            steps()
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert tape.bytes_held == held
    # less than one array of logits: 400 x 500 numbers of 8 bytes
    assert after - before < 100_000 and peak - before < 400 * 500 * 8


def test_the_pool_gives_no_array_twice() -> None:
    pool = Pool()
    first, second = pool.empty((100, 100), np.float64), pool.empty((100, 100), np.float64)
    assert not np.may_share_memory(first, second)
    pool.take_back()
    again = pool.empty((99, 100), np.float64)  # of another shape, in the same room
    assert np.may_share_memory(again, first) or np.may_share_memory(again, second)
