"""Models of the hub, from a cache as `huggingface_hub` keeps it; the hub itself is not called."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.interop.conftest import small

from chainrule.errors import ForeignFileError
from chainrule.interop import huggingface
from chainrule.interop.conversion import import_model
from chainrule.tokens.base import Tokenizer

pytest.importorskip("huggingface_hub")
TEXT = "The value of\nthe expression  is\n"
REVISION = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(bpe: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of a machine without a network that has one model."""
    top = tmp_path / "hub"
    model = top / "models--owner--name"
    huggingface.export(small(bpe, preset="llama"), tmp_path / "ours")
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text(REVISION)
    shutil.copytree(tmp_path / "ours", model / "snapshots" / REVISION)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(top))
    return tmp_path / "ours"


def test_a_model_in_the_cache_is_read(cache: Path) -> None:
    expected = huggingface.load(cache).log_prob(TEXT)
    assert import_model("hf://owner/name").log_prob(TEXT) == expected
    assert import_model(f"hf://owner/name@{REVISION}").log_prob(TEXT) == expected


@pytest.mark.usefixtures("cache")
def test_what_is_not_there_is_one_line() -> None:
    with pytest.raises(
        ForeignFileError, match=r"^hf://owner/other: not in the cache of this machine, and"
    ) as caught:
        import_model("hf://owner/other")
    assert "\n" not in str(caught.value)
    with pytest.raises(ForeignFileError, match=r"expected hf://OWNER/NAME or hf://OWNER/NAME@REVISION"):
        import_model("hf://name")
