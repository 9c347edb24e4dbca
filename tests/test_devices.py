"""Tests of the choice of a device."""

from __future__ import annotations

import sys
import warnings

import pytest

import chainrule as cr
from chainrule.errors import MissingExtraError, SettingsError
from chainrule.system.devices import choose_device, expect_slow_bfloat16


def test_the_cpu_needs_no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert choose_device("cpu") == choose_device("auto") == "cpu"
    with pytest.raises(MissingExtraError, match="cuda"):
        choose_device("cuda")


def test_a_device_that_cannot_be_used_is_one_clear_line() -> None:
    for name in ("nowhere", "meta"):
        with pytest.raises(
            SettingsError, match=f"the device '{name}' cannot be used here .*: use cpu or auto"
        ) as no:
            cr.train("ngram", cr.Corpus.from_text("i love cats\n"), device=name, tokenizer="word")
        assert "\n" not in str(no.value) and len(str(no.value)) < 160


@pytest.mark.parametrize(
    ("device", "shown"), [("cpu", ["another"]), ("cuda", ["mkldnn_matmul failed: ...", "another"])]
)
def test_torchs_page_on_slow_bfloat16_is_not_shown(device: str, shown: list[str]) -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        expect_slow_bfloat16(device)
        warnings.warn("mkldnn_matmul failed: ...", stacklevel=1)
        warnings.warn("another", stacklevel=1)
    assert [str(one.message) for one in seen] == shown


@pytest.mark.parametrize(("there", "chosen"), [(True, "cuda"), (False, "cpu")])
def test_auto_is_an_accelerator_where_there_is_one(
    there: bool, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: there)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    assert choose_device("auto") == chosen


def test_a_build_of_torch_for_cpus_alone_is_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr("importlib.metadata.version", lambda name: "2.13.0+cpu")
    assert choose_device("auto") == "cpu"
    assert "torch" not in sys.modules
