"""Numbers of a few bits: every way to read a packed stream returns the numbers that were packed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from chainrule.ngram.store import bitstream as packed
from chainrule.ngram.store.bitstream import bits_for, pack, read_bits, words_for
from chainrule.ngram.store.kernels import bits_at
from chainrule.system import parallel


def numbers(size: int, bits: int) -> np.ndarray:
    values = np.random.default_rng(bits).integers(0, 1 << bits, size)
    values[: min(size, 2)] = [0, (1 << bits) - 1][: min(size, 2)]
    return values


@pytest.mark.parametrize("bits", range(1, 33))
def test_every_width_goes_round(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "_NUMBERS_AT_ONCE", 32)
    for size in (0, 1, 2, 31, 32, 33, 100):
        values = numbers(size, bits)
        stream = pack(values, bits)
        assert stream.dtype == np.uint32
        assert len(stream) == words_for(size, bits)
        np.testing.assert_array_equal(read_bits(stream, np.arange(size) * bits, bits), values)
        assert [int(bits_at(stream, place * bits, bits)) for place in range(size)] == values.tolist()
        monkeypatch.setattr(parallel, "SLOW_NANOSECONDS", 0)
        np.testing.assert_array_equal(pack(values, bits), stream)
        monkeypatch.undo()
        monkeypatch.setattr(packed, "_NUMBERS_AT_ONCE", 32)


@pytest.mark.parametrize("bits", [1, 5, 8, 17, 31, 32])
def test_torch_has_the_same_bits(bits: int) -> None:
    values = numbers(70, bits)
    stream = pack(torch.as_tensor(values), bits)
    np.testing.assert_array_equal(stream.numpy().view(np.uint32), pack(values, bits))
    np.testing.assert_array_equal(read_bits(stream, torch.arange(70) * bits, bits).numpy(), values)


@given(st.integers(1, 32), st.lists(st.integers(0, (1 << 32) - 1), max_size=80))
def test_any_numbers_go_round(bits: int, values: list[int]) -> None:
    fitting = np.asarray([value & ((1 << bits) - 1) for value in values], dtype=np.int64)
    np.testing.assert_array_equal(read_bits(pack(fitting, bits), np.arange(len(fitting)) * bits, bits), fitting)


@pytest.mark.parametrize(("values", "bits"), [([4], 2), ([-1], 5), ([0], 0), ([0], 33)])
def test_what_does_not_fit_is_an_error(values: list[int], bits: int) -> None:
    with pytest.raises(ValueError, match="bits"):
        pack(np.asarray(values), bits)


def test_how_many_bits_a_number_takes() -> None:
    assert [bits_for(largest) for largest in (0, 1, 2, 3, 4, 255, 256, (1 << 32) - 1)] == [1, 1, 2, 2, 3, 8, 9, 32]
