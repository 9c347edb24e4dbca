from __future__ import annotations

import dataclasses

import pytest

from chainrule.errors import SettingsError
from chainrule.inference.gpu.step import suits
from chainrule.networks.transformer.config import PRESETS, TransformerConfig
from chainrule.settings import describe, parse


def test_a_preset_fills_settings_that_are_not_set() -> None:
    config = TransformerConfig(preset="llama", width=192, heads=6, kv_heads=2)
    assert (config.norm, config.positions, config.bias, config.activation) == ("rmsnorm", "rotary", False, "swiglu")
    assert config.hidden == 512  # 8/3 of 192
    assert (TransformerConfig(preset="gpt2", width=192).hidden, config.kv_heads) == (768, 2)


def test_a_preset_does_not_change_settings() -> None:
    config = TransformerConfig(preset="gpt2", bias=False, tied=False, dropout=0.3, attention_dropout=0.0, hidden=5)
    assert (config.bias, config.tied, config.hidden) == (False, False, 5)
    assert (config.embedding_dropout, config.attention_dropout, config.hidden_dropout) == (0.3, 0.0, 0.0)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_configuration_is_explicit(preset: str) -> None:
    """Every value is there, so that a saved one means the same when presets change."""
    config = parse(TransformerConfig, {"preset": preset})
    values = dataclasses.asdict(config)
    assert None not in values.values()
    assert parse(TransformerConfig, values) == config
    others = {**values, "preset": "fast"}
    assert dataclasses.replace(config, preset="fast") == TransformerConfig(**others)


def test_positions_may_be_none() -> None:
    assert parse(TransformerConfig, {"positions": "none"}).positions == "none"


def test_every_field_is_explained() -> None:
    assert all(field["help"] for field in describe(TransformerConfig))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"preset": "gpt5"}, "preset should be lecture|gpt2|llama|bert|bart|fast, not 'gpt5'"),
        ({"width": 10, "heads": 4}, "width should be a multiple of heads"),
        ({"heads": 4, "kv_heads": 3}, "kv_heads should divide heads"),
        ({"width": 12, "heads": 4}, "width / heads should be even, not 3"),
        ({"layers": 0}, "layers should be at least 1, not 0"),
        ({"heads": 0}, "heads should be at least 1, not 0"),
        ({"kv_heads": 0}, "kv_heads should be at least 1, not 0"),
        ({"dropout": 1.0}, "dropout should be at least 0 and below 1, not 1.0"),
        ({"norm_eps": 0.0}, "norm_eps should be a finite number above 0"),
        ({"norm": "batchnorm"}, "norm should be layernorm|rmsnorm, not 'batchnorm'"),
    ],
)
def test_impossible_designs_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError) as refused:
        TransformerConfig(**settings)  # type: ignore[arg-type]
    assert message in str(refused.value)


@pytest.mark.parametrize("preset", PRESETS)
def test_designs_that_the_kernels_of_a_gpu_compute(preset: str) -> None:
    """A part of a block has one norm before it: a second one of the embeddings has no place."""
    config = TransformerConfig(preset=preset, layers=1, width=32, heads=2, window=8)  # type: ignore[arg-type]
    assert suits(config)
    assert suits(dataclasses.replace(config, embedding_norm=True)) == (config.placement == "post")
    assert not suits(dataclasses.replace(config, residual=False, zero_init=False))
    assert not suits(dataclasses.replace(config, qk_norm=True, qk_gain=True))
    assert not suits(dataclasses.replace(config, head_size=8))
