"""The configuration of a Transformer, and presets known by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

from chainrule.errors import SettingsError
from chainrule.networks.config import Checked, positive, share, size
from chainrule.settings import setting

T = TypeVar("T")
Preset: TypeAlias = Literal["lecture", "gpt2", "llama", "bert", "bart", "fast"]
Activation: TypeAlias = Literal["gelu", "gelu_erf", "relu", "relu2", "swiglu"]

# the encoder of BERT, and both halves of BART: post-norm, and a norm of the embeddings
_BERT = {
    "norm": "layernorm",
    "placement": "post",
    "activation": "gelu_erf",
    "positions": "learned",
    "embedding_norm": True,
    "initial_std": 0.02,
}
PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        # the block of "Attention is all you need", a decoder alone
        "lecture": {
            "norm": "layernorm",
            "placement": "post",
            "activation": "relu",
            "positions": "sinusoidal",
            "scaled_embedding": True,
        },
        "gpt2": {"norm": "layernorm", "activation": "gelu", "positions": "learned", "initial_std": 0.02},
        "llama": {"activation": "swiglu", "bias": False, "tied": False, "initial_std": 0.02},
        "bert": _BERT,
        "bart": _BERT,
        # the design that trains fastest
        "fast": {"gain": False, "activation": "relu2", "bias": False, "qk_norm": True, "zero_init": True},
    }
)
AS_PRESET: Any = None
"""The default of a field that is filled in at construction, from the preset or from other fields."""


def as_preset(otherwise: T, explanation: str) -> T:
    """Return a field that is filled in from the preset; with this value if the preset says nothing of it."""
    made: Any = setting(otherwise, explanation)
    field: T = dataclasses.field(default=AS_PRESET, metadata={**made.metadata, "otherwise": otherwise})
    return field


@dataclass(frozen=True)
class TransformerConfig(Checked):
    """The configuration of a Transformer decoder.

    Fields that are not set are filled in at construction, so that a configuration is always explicit.

    >>> config = TransformerConfig("llama", width=192, heads=6)
    >>> config.head_size, config.hidden, config.norm, config.activation
    (32, 512, 'rmsnorm', 'swiglu')
    """

    preset: Preset = setting("fast", "the design, for settings that are not set", common=True)  # noqa: RUF009
    layers: int = size(4, "how many blocks", most=1000, common=True)
    width: int = size(256, "features of a token", common=True)
    heads: int = size(4, "heads of queries in each block", common=True)
    kv_heads: int = size(AS_PRESET, "heads of keys and values (default: heads; 1: all queries share one)")
    head_size: int = size(AS_PRESET, "features of a head (default: width / heads)")
    window: int = size(256, "the most tokens it reads at once", most=1 << 20, common=True)
    hidden: int = size(AS_PRESET, "features inside a block (default: 4 width; 8/3 width with swiglu)")
    norm: Literal["layernorm", "rmsnorm"] = as_preset("rmsnorm", "how features are brought to one size")
    placement: Literal["pre", "post"] = as_preset("pre", "normalise before each part of a block, or after it")
    residual: bool = setting(True, "add the input of each part of a block to its output")
    gain: bool = as_preset(True, "whether norms scale each feature by a learned number")
    activation: Activation = as_preset("gelu", "the activation of the feed-forward part")  # noqa: RUF009
    positions: Literal["learned", "sinusoidal", "rotary", "alibi", "none"] = as_preset(
        "rotary", "how it knows the position of a token"
    )
    bias: bool = as_preset(True, "whether products add a bias")
    tied: bool = as_preset(True, "use one table for the embeddings and the logits")
    qk_norm: bool = as_preset(False, "normalise queries and keys, so that scores stay small")
    qk_gain: bool = setting(False, "whether these norms scale each feature by a learned number")
    zero_init: bool = as_preset(
        False, "zeros in output layers at first, so that each block begins by adding nothing"
    )
    scaled_embedding: bool = as_preset(False, "multiply embeddings by sqrt(width)")
    embedding_norm: bool = as_preset(False, "normalise the sum of embedding and position")
    initial_std: float = positive(AS_PRESET, "standard deviation of the first weights (default: 1/sqrt(width))")
    rotary_base: float = positive(10000.0, "the base of the rotary angles, t / base^(2i/K)")
    norm_eps: float = positive(1e-5, "a small number that keeps norms from dividing by zero")
    dropout: float = share(0.0, "share of the features of a block's output that are dropped", common=True)
    embedding_dropout: float = share(AS_PRESET, "share of the embeddings' features dropped (default: dropout)")
    token_dropout: float = share(0.0, "share of tokens whose embedding is left out, everywhere in a batch")
    attention_dropout: float = share(AS_PRESET, "share of attention weights dropped (default: dropout)")
    hidden_dropout: float = share(0.0, "share of hidden features dropped")
    layer_dropout: float = share(0.0, "how often a row skips attention, or the feed-forward part, of a block")

    def __post_init__(self) -> None:
        super().__post_init__()
        if AS_PRESET in (self.layers, self.width, self.heads, self.window):
            self._check_heads()  # sizes are left open: the rest is filled in once they are chosen
            return
        if not self.residual:
            self._fill({"zero_init": False})
        self._fill(PRESETS.get(self.preset, {}))
        self._fill({one.name: one.metadata.get("otherwise", AS_PRESET) for one in dataclasses.fields(self)})
        for name, hint in get_type_hints(TransformerConfig).items():
            if get_origin(hint) is Literal and getattr(self, name) not in get_args(hint):
                raise SettingsError(f"{name} should be {'|'.join(get_args(hint))}, not {getattr(self, name)!r}")
        if not self.residual and self.zero_init:
            raise SettingsError(
                "zero_init=true and residual=false: blocks would only ever give zeros; set one of them otherwise"
            )
        if not self.residual and self.layer_dropout:
            raise SettingsError("layer_dropout leaves out what is added to a residual: set residual=true with it")
        self._fill(
            {
                "kv_heads": self.heads,
                "head_size": self._width_by_heads(),
                # swiglu has three matrices instead of two: 2/3 as wide, they have as many parameters
                "hidden": -(-8 * self.width // 3 // 64) * 64 if self.activation == "swiglu" else 4 * self.width,
                "initial_std": self.width**-0.5,
                "embedding_dropout": self.dropout,
                "attention_dropout": self.dropout,
            }
        )
        self._check_heads()

    @property
    def added_scale(self) -> float:
        """The factor of the first weights whose output is added to x."""
        if not self.residual:
            return 1.0
        # the variance of a sum of 2L parts is 2L times theirs
        return 0.0 if self.zero_init else (2 * self.layers) ** -0.5

    def _fill(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            if getattr(self, name) is AS_PRESET:
                object.__setattr__(self, name, value)

    def _check_heads(self) -> None:
        if AS_PRESET in (self.width, self.heads):
            return
        if self.kv_heads is not AS_PRESET and self.heads % self.kv_heads:
            raise SettingsError(f"kv_heads should divide heads ({self.heads}), not be {self.kv_heads}")
        K = self._width_by_heads() if self.head_size is AS_PRESET else self.head_size
        if self.positions == "rotary" and K % 2:
            name = "width / heads" if K * self.heads == self.width else "head_size"
            raise SettingsError(f"rotary positions turn pairs of features: {name} should be even, not {K}")
        if self.qk_gain and not self.qk_norm:
            raise SettingsError("qk_gain belongs to the norms of qk_norm: set qk_norm=true as well")

    def _width_by_heads(self) -> int:
        if self.width % self.heads:
            raise SettingsError(f"width should be a multiple of heads ({self.heads}), not {self.width}")
        return self.width // self.heads
