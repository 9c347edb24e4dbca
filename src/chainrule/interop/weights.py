"""Weights under the names and in the shapes that others publish them with: what all architectures share.

An architecture is a table of names, of settings and of weights, which is read both ways. A weight of ours may be
made of several published ones, stacked row upon row. What a design of ours leaves out (the gains of a norm, the
biases of a product) is written as ones and zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from chainrule.errors import SettingsError
from chainrule.interop.shards import Shards
from chainrule.networks.transformer.config import TransformerConfig
from chainrule.networks.transformer.stack import Stack

N = TypeVar("N", bound=nn.Module)

ACTIVATIONS = {"gelu": "gelu_new", "gelu_erf": "gelu", "relu": "relu", "relu2": "relu2"}
"""Activations without a gate, by our names: what transformers calls them."""
USUAL_SIZES = {
    "max_position_embeddings": "window",
    "hidden_size": "width",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "intermediate_size": "hidden",
}
"""The names of sizes in most configurations, and ours."""
WITH_LAYERNORM: Mapping[str, Sequence[Any]] = {
    "norm": ("layernorm",),
    "placement": ("post",),
    "residual": (True,),
    "positions": ("learned", "sinusoidal", "none"),
    "activation": tuple(ACTIVATIONS),
    "qk_norm": (False,),
    "embedding_norm": (True,),
}
"""What BERT and BART can express, and GPT-2 with its norms in other places."""
_OURS = {"gelu_pytorch_tanh": "gelu", **{theirs: ours for ours, theirs in ACTIVATIONS.items()}}


class Pair(NamedTuple):
    """A weight of ours, and the published weights that it is made of."""

    ours: str
    theirs: list[str]
    is_transposed: bool = False
    is_table: bool = False
    """True if it has a row for each token; ours then has padding rows as well."""
    skipped: int = 0
    """How many rows theirs has before the first one of ours."""
    is_left_out: bool = False
    """True if this network does without it: a tied head, or gains that are all one."""


_TABLES = ("embedding", "head.weight", "head.bias")

_MOST = 1e19
"""The largest weight: the square of a larger one is infinite in single precision."""


@dataclass(frozen=True)
class Architecture:
    """A class of models of transformers: its names of our settings and weights, to write and to read them."""

    name: str
    """The name of the class."""
    title: str
    """What errors in its configuration call it."""
    model_type: str
    sizes: Mapping[str, str]
    """Settings that every configuration has, as whole numbers: their name, and ours."""
    options: Mapping[str, tuple[str, Any]]
    """Settings that a configuration may leave out: their name, ours, and the value that is then meant."""
    weights: Mapping[str, str]
    """The weights: our name, and theirs.

    {} is the number of a block and * stands for weight and bias. [q|k|v] are the published weights that ours is
    stacked of. A ᵀ at the end marks matrices that are [in, out] there, and [out, in] here.
    """
    allowed: Mapping[str, Sequence[Any]]
    """The values of our settings that the architecture can express."""
    expected: Mapping[str, Any] = field(default_factory=dict)
    """Settings that no network here has otherwise: their name, and the only value that can be read."""
    activation: tuple[str, str] | None = None
    """Their name of the activation, and the value that is meant where it is left out; None: it has a gate."""
    unread: tuple[str, ...] = ()
    """How the names of weights end that a network here does without."""
    skipped: int = 0
    """How many rows its positions have before the first one that is used."""

    def settings(self, described: Mapping[str, Any]) -> dict[str, Any]:
        """Our settings for a published configuration; one that no network here has is refused."""
        for name in self.sizes:
            value = described[name]
            if isinstance(value, bool) or not isinstance(value, int):
                raise SettingsError(f"{name} should be a whole number, not {value!r}")
        for name, value in self.expected.items():
            if described.get(name, value) != value:
                raise SettingsError(f"{name} of a {self.title} should be {value}, not {described[name]!r}")
        for name, (_, default) in self.options.items():
            if isinstance(default, (int, float)) and not isinstance(described.get(name, default), (int, float)):
                raise SettingsError(f"{name} should be a number or a truth value, not {described[name]!r}")
        found = {ours: described[theirs] for theirs, ours in self.sizes.items()}
        found |= {ours: described.get(theirs, default) for theirs, (ours, default) in self.options.items()}
        if self.activation is not None:
            activation = described.get(*self.activation)
            if activation not in _OURS:
                known = ", ".join(_OURS)
                raise SettingsError(
                    f"the activation of a {self.title} should be one of {known}, not {activation!r}"
                )
            found["activation"] = _OURS[activation]
        return found

    def pairs(self, config: TransformerConfig, *, bias: bool = True) -> list[Pair]:
        """Return every weight of a network with its published ones; without `bias`, products have none."""
        return [
            Pair(
                ours.format(layer).replace("*", kind),
                [name.format(layer).replace("*", kind) for name in stacked(theirs.removesuffix("ᵀ"))],
                is_transposed=theirs.endswith("ᵀ") and kind == "weight",
                is_table=ours.endswith(_TABLES),
                skipped=self.skipped if ours.endswith("positions.added_TD") else 0,
                is_left_out=(ours == "head.weight" and config.tied) or ("gain" in ours and not config.qk_gain),
            )
            for ours, theirs in self.weights.items()
            if config.qk_norm or "gain" not in ours
            for layer in range(config.layers if "{}" in ours else 1)
            for kind in (("weight", "bias") if bias and "*" in ours else ("weight",))
        ]

    def published(
        self, state: Mapping[str, Tensor], pairs: Iterable[Pair], config: TransformerConfig, rows: int, **more: Any
    ) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the published weights of a network with these, and its configuration; an open dropout is 0 there.

        Tables have `rows` rows; `more` is what else the configuration says.
        """
        weights = {}
        for pair in pairs:
            if pair.is_left_out and pair.ours in state:  # the table of a tied head, which has another name too
                continue
            weight = state[pair.ours] if pair.ours in state else _without_effect(pair.ours, state, config)
            weight = weight[:rows] if pair.is_table else weight
            if pair.skipped:
                weight = torch.cat([weight.new_zeros(pair.skipped, weight.shape[1]), weight])
            if len(pair.theirs) == 3:
                sizes = [heads * config.head_size for heads in (config.heads, config.kv_heads, config.kv_heads)]
            else:
                sizes = [len(weight) // len(pair.theirs)] * len(pair.theirs)
            for name, part in zip(pair.theirs, torch.split(weight, sizes), strict=True):
                weights[name] = (part.T if pair.is_transposed else part).float().cpu().contiguous().clone()
        names = {**self.sizes, **{theirs: ours for theirs, (ours, _) in self.options.items()}}
        found = {theirs: getattr(config, ours) for theirs, ours in names.items()}
        if self.activation is not None:
            found[self.activation[0]] = ACTIVATIONS[config.activation]
        found = {name: 0.0 if value is None else value for name, value in found.items()}
        described = {
            "model_type": self.model_type,
            "architectures": [self.name],
            "vocab_size": rows,
            **more,
            **found,
        }
        return weights, described

    def network(self, make: Callable[[], N], weights: Mapping[str, Tensor], every: Sequence[Pair], rows: int) -> N:
        """Return the network of `make` with published weights; names, types and shapes are checked first.

        Published tables have `rows` rows. A weight that no pair names would be lost: it is refused unless `unread`.
        """
        with torch.device("meta"):
            shapes = {name: weight.shape for name, weight in make().state_dict().items()}
        pairs = [pair for pair in every if not pair.is_left_out]
        for pair in pairs:
            _check(pair, shapes[pair.ours], weights, rows)
        named = {name for pair in every for name in pair.theirs}
        lost = [name for name in weights if name not in named and not name.endswith(self.unread)]
        if lost:
            raise SettingsError(f"the configuration has no place for {lost[0]!r}, one of {len(lost)} such weights")
        with torch.random.fork_rng([]):
            network = make()
        state = network.state_dict()
        for pair in pairs:
            parts = [weights[name].T if pair.is_transposed else weights[name] for name in pair.theirs]
            weight = torch.cat([part.float() for part in parts])[pair.skipped :]
            if pair.is_table:
                weight = _with_rows(weight[: len(state[pair.ours])], len(state[pair.ours]))
            if not bool((weight.abs() < _MOST).all()):  # NaN is not less either
                found = f"{weight.abs().max():.0e}" if bool(weight.isfinite().all()) else "NaN or infinity"
                raise SettingsError(
                    f"{', '.join(pair.theirs)} should be finite numbers below 1e19, but has {found}"
                )
            state[pair.ours].copy_(weight)
        return network


def stacked(name: str) -> list[str]:
    """Return the names that one with [a|b] in it stands for: one with a, and one with b."""
    before, _, rest = name.partition("[")
    parts, _, after = rest.partition("]")
    return [before + part + after for part in parts.split("|")]


def _without_effect(name: str, state: Mapping[str, Tensor], config: TransformerConfig) -> Tensor:
    """Return what stands for a weight that a design leaves out: ones for a gain, zeros for a bias."""
    stem, _, kind = name.rpartition(".")
    if kind == "bias":
        return torch.zeros(len(state[f"{stem}.weight"]) if f"{stem}.weight" in state else config.width)
    return torch.ones(config.width if kind == "weight" else config.head_size)


def state_of(network: Stack) -> dict[str, Tensor]:
    """Return the weights of a network, with the positions that it computes, and the embedding after scaling."""
    config, state = network.config, {name: weight.detach() for name, weight in network.state_dict().items()}
    if "positions.added_TD" not in state:
        computed = network.positions.added_TD
        state["positions.added_TD"] = torch.zeros(config.window, config.width) if computed is None else computed
    if config.scaled_embedding:  # allowed for tables of their own only
        state["embedding"] = state["embedding"] * config.width**0.5
    return state


def _check(pair: Pair, shape: torch.Size, weights: Mapping[str, Tensor], rows: int) -> None:
    """Refuse published weights that are missing, that are no numbers, or that do not make the weight of ours."""
    missing = [name for name in pair.theirs if name not in weights]
    if missing:
        names = sorted(weights)
        some = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        raise SettingsError(f"the weights should have {missing[0]!r}, but have only {some}")
    sizes = []
    for name in pair.theirs:
        size, dtype = _header(weights, name)
        if dtype not in _DTYPES:
            raise SettingsError(
                f"{name} should be {' or '.join(_DTYPES)}, not {dtype}: quantised weights are not read"
            )
        sizes.append(size[::-1] if pair.is_transposed else size)
    found = [sum(size[0] for size in sizes) - pair.skipped, *sizes[0][1:]]
    expected = [rows if pair.is_table else shape[0], *shape[1:]]
    if found != expected:
        raise SettingsError(f"{', '.join(pair.theirs)} should make {expected}, not {found}")


def _header(weights: Mapping[str, Tensor], name: str) -> tuple[list[int], str]:
    """Return the shape of a weight and the type of its numbers; of one in a file, without reading it."""
    if isinstance(weights, Shards):
        return weights.header(name)
    weight = weights[name]
    return list(weight.shape), _NAMES.get(weight.dtype, str(weight.dtype))


_NAMES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.float64: "F64"}
_DTYPES = tuple(_NAMES.values())


def _with_rows(table_VD: Tensor, rows: int) -> Tensor:
    """Return the table, padded to `rows` rows with the mean of its own.

    New rows have the mean of all logits, and e^mean(z) <= mean(e^z): none is more likely than the average token.
    """
    mean = table_VD.mean(dim=0, keepdim=True)
    return torch.cat([table_VD, mean.expand(rows - len(table_VD), *table_VD.shape[1:])])


def expect(config: TransformerConfig, architecture: str, allowed: Mapping[str, Sequence[Any]]) -> None:
    """Refuse, by their names, the settings that an architecture cannot express."""
    found = {name: getattr(config, name) for name in allowed}
    if config.scaled_embedding and config.tied:
        found, allowed = {**found, "scaled_embedding": True}, {**allowed, "scaled_embedding": (False,)}
    refuse(architecture, found, allowed)


def even_heads(config: TransformerConfig) -> dict[str, tuple[float, ...]]:
    """Return what `expect` allows of heads that share no keys and divide the width among them."""
    size = config.width / config.heads
    return {"kv_heads": (config.heads,), "head_size": (int(size) if size.is_integer() else size,)}


def refuse(architecture: str, found: Mapping[str, Any], allowed: Mapping[str, Sequence[Any]]) -> None:
    """Refuse all values by name that are not as expected, in one line."""
    different = [
        f"{name}={' or '.join(map(str, values))}, this network {name}={found[name]}"
        for name, values in allowed.items()
        if found[name] not in values
    ]
    if different:
        raise SettingsError(f"a {architecture} has {'; '.join(different)}")
