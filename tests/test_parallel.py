"""Tests of threads: results come in order, and exceptions of workers reach the caller."""

from __future__ import annotations

import pytest

from chainrule.system.parallel import Background, at_once, in_order, stretches


def fail(piece: object = None) -> None:
    raise ValueError(f"piece {piece}")


def test_results_come_in_the_order_of_the_pieces() -> None:
    assert list(in_order(lambda piece: piece * 2, range(20))) == [(piece, 2 * piece) for piece in range(20)]
    assert at_once(lambda piece: piece * 2, range(20)) == [2 * piece for piece in range(20)]


def test_an_exception_of_a_worker_reaches_the_caller() -> None:
    with pytest.raises(ValueError, match="piece 0"):
        list(in_order(fail, range(4)))
    with pytest.raises(ValueError, match="piece"):
        at_once(fail, range(4))


def test_an_exception_in_the_background_is_raised_even_if_no_result_is_asked_for() -> None:
    with pytest.raises(ValueError, match="piece 7"), Background[None]() as background:
        background.start(fail, 7)


def test_an_exception_of_the_block_itself_comes_first() -> None:
    with pytest.raises(KeyError), Background[None]() as background:
        background.start(fail, 7)
        raise KeyError


def test_pieces_cover_the_range() -> None:
    assert stretches(10, 3) == [(0, 3), (3, 6), (6, 10)]
    assert stretches(2, 5) == [(0, 1), (1, 2)]
    assert stretches(0, 2) == [(0, 0)]
