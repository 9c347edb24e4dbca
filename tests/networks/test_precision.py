"""Tests of the library that multiplies matrices on a CPU."""

from __future__ import annotations

import pytest
import torch

from chainrule.networks import precision
from chainrule.networks.precision import plain_products


def is_on() -> bool:
    return torch._C._get_mkldnn_enabled()


@pytest.mark.parametrize("before", [True, False])
def test_onednn_is_left_out_on_arm_and_put_back(before: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "IS_ARM", True)
    usual = is_on()
    torch._C._set_mkldnn_enabled(before)
    try:
        with plain_products():
            assert not is_on()
            with plain_products():
                assert not is_on()
            assert not is_on()  # the outer block is still open
        assert is_on() == before
        with pytest.raises(ValueError, match="step"), plain_products():
            raise ValueError("a step failed")
        assert is_on() == before
    finally:
        torch._C._set_mkldnn_enabled(usual)


def test_elsewhere_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "IS_ARM", False)
    before = is_on()
    with plain_products():
        assert is_on() == before
