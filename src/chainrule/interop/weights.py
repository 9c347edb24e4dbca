"""Weights under the names and in the shapes that others publish them with: what all architectures share.

An architecture is a list of pairs: one weight of ours, and the published weights stacked in it, row upon row.
What a design of ours leaves out (the gains of a norm, the biases of a product) is written as ones and zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from chainrule.errors import SettingsError
from chainrule.networks.transformer.config import TransformerConfig
from chainrule.networks.transformer.stack import Stack

N = TypeVar("N", bound=nn.Module)

ACTIVATIONS = {"gelu": "gelu_new", "gelu_erf": "gelu", "relu": "relu", "relu2": "relu2"}
"""Activations without a gate, by our names: what transformers calls them."""
_OURS = {"gelu_pytorch_tanh": "gelu", **{theirs: ours for ours, theirs in ACTIVATIONS.items()}}


class Pair(NamedTuple):
    """A weight of ours, and the published weights that it is made of."""

    ours: str
    theirs: list[str]
    is_transposed: bool = False
    is_table: bool = False
    """Whether it has a row for each token; ours then has padding rows as well."""
    skipped: int = 0
    """How many rows theirs has before the first one of ours."""


def to_published(
    state: Mapping[str, Tensor], pairs: Iterable[Pair], rows: int, config: TransformerConfig
) -> dict[str, Tensor]:
    """The published weights of a network with these weights; tables with that many rows."""
    weights = {}
    for pair in pairs:
        weight = state[pair.ours][:rows] if pair.is_table else state[pair.ours]
        if len(pair.theirs) == 3:
            sizes = [heads * config.head_size for heads in (config.heads, config.kv_heads, config.kv_heads)]
        else:
            sizes = [len(weight) // len(pair.theirs)] * len(pair.theirs)
        if pair.skipped:
            weight, sizes = (
                torch.cat([weight.new_zeros(pair.skipped, weight.shape[1]), weight]),
                [len(weight) + pair.skipped],
            )
        for name, part in zip(pair.theirs, torch.split(weight, sizes), strict=True):
            weights[name] = (part.T if pair.is_transposed else part).float().cpu().contiguous().clone()
    return weights


def completed(network: Stack) -> dict[str, Tensor]:
    """The weights of a network, with the gains, biases and positions that its design leaves out."""
    config, state = network.config, {name: weight.detach() for name, weight in network.state_dict().items()}
    like = state["embedding"]
    norms = ["norm", *(f"blocks.{i}.{part}_norm" for i in range(config.layers) for part in _PARTS)]
    for norm in [*norms, *(["embedding_norm"] if config.embedding_norm else [])]:
        complete_norm(state, norm, config.width)
    for name in [name for name in state if name.startswith("blocks.") and state[name].dim() == 2]:
        complete_product(state, name)
    if "positions.added_TD" not in state:
        computed = network.positions.added_TD
        state["positions.added_TD"] = like.new_zeros(config.window, config.width) if computed is None else computed
    if config.scaled_embedding:  # allowed for tables of their own only
        state["embedding"] = like * config.width**0.5
    return state


_PARTS = ("attention", "cross", "feedforward")


def complete_norm(state: dict[str, Tensor], name: str, width: int) -> None:
    """Give a norm the gains and the shift that it lacks."""
    like = next(iter(state.values()))
    state.setdefault(f"{name}.weight", like.new_ones(width))
    state.setdefault(f"{name}.bias", like.new_zeros(width))


def complete_product(state: dict[str, Tensor], name: str) -> None:
    """Give a product, by the name of its matrix, the bias that it lacks."""
    state.setdefault(name.removesuffix("weight") + "bias", state[name].new_zeros(len(state[name])))


def from_published(
    make: Callable[[], N],
    weights: Mapping[str, Tensor],
    pairs: Sequence[Pair],
    *,
    rows: int,
    unread: Sequence[str] = (),
) -> N:
    """The network that `make` makes, with published weights; names, types and shapes are checked before it is made.

    Published tables have `rows` rows. `unread` are endings of the names that a network here does without; any other
    weight that no pair names would be lost, and is refused.
    """
    with torch.device("meta"):
        shapes = {name: weight.shape for name, weight in make().state_dict().items()}
    for pair in pairs:
        _check(pair, shapes[pair.ours], weights, rows)
    read = {name for pair in pairs for name in pair.theirs}
    lost = [name for name in weights if name not in read and not name.endswith(tuple(unread))]
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
        if not bool(weight.isfinite().all()):
            raise SettingsError(f"{', '.join(pair.theirs)} should be finite numbers, but has NaN or infinity")
        state[pair.ours].copy_(weight)
    return network


def _check(pair: Pair, shape: torch.Size, weights: Mapping[str, Tensor], rows: int) -> None:
    """Refuse published weights that are missing, that are no numbers, or that do not make the weight of ours."""
    missing = [name for name in pair.theirs if name not in weights]
    if missing:
        raise SettingsError(f"the weights should have {missing[0]!r}, but have only {_some(weights)}")
    for name in pair.theirs:
        if (dtype := dtype_of(weights, name)) not in _DTYPES:
            raise SettingsError(
                f"{name} should be {' or '.join(_DTYPES)}, not {dtype}: quantised weights are not read"
            )
    sizes = [list(shape_of(weights, name)) for name in pair.theirs]
    if pair.is_transposed:
        sizes = [size[::-1] for size in sizes]
    found = [sum(size[0] for size in sizes) - pair.skipped, *sizes[0][1:]]
    expected = [rows if pair.is_table else shape[0], *shape[1:]]
    if found != expected:
        raise SettingsError(f"{', '.join(pair.theirs)} should make {expected}, not {found}")


def shape_of(weights: Mapping[str, Tensor], name: str) -> Sequence[int]:
    """The shape of a weight; of one that is still in a file, without reading it."""
    shape: Callable[[str], Sequence[int]] | None = getattr(weights, "shape", None)
    return weights[name].shape if shape is None else shape(name)


def dtype_of(weights: Mapping[str, Tensor], name: str) -> str:
    """The type of a weight's numbers, as safetensors names it; of one in a file, without reading it."""
    dtype: Callable[[str], str] | None = getattr(weights, "dtype", None)
    if dtype is not None:
        return dtype(name)
    found = weights[name].dtype
    return _NAMES.get(found, str(found))


_NAMES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.float64: "F64"}
_DTYPES = tuple(_NAMES.values())


def _some(weights: Mapping[str, Any]) -> str:
    names = sorted(weights)
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _with_rows(table_VD: Tensor, rows: int) -> Tensor:
    """The table, padded to `rows` rows with the mean of its own.

    New rows have the mean of all logits, and e^mean(z) <= mean(e^z): none is more likely than the average token.
    """
    mean = table_VD.mean(dim=0, keepdim=True)
    return torch.cat([table_VD, mean.expand(rows - len(table_VD), *table_VD.shape[1:])])


def described_by(config: Any, names: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of our settings under the names of a published configuration; an open dropout is 0."""
    found = {theirs: getattr(config, ours) for theirs, ours in names.items()}
    return {name: 0.0 if value is None else value for name, value in found.items()}


def settings_of(
    described: Mapping[str, Any], names: Mapping[str, str], defaults: Mapping[str, Any]
) -> dict[str, Any]:
    """Return our settings by the names of a published configuration; one without default must be there."""
    return {
        ours: described.get(theirs, defaults[ours]) if ours in defaults else described[theirs]
        for theirs, ours in names.items()
    }


def expect(config: TransformerConfig, architecture: str, allowed: Mapping[str, Sequence[Any]]) -> None:
    """Refuse, by their names, the settings that an architecture cannot express."""
    found = {name: getattr(config, name) for name in allowed}
    if config.scaled_embedding and config.tied:
        found, allowed = {**found, "scaled_embedding": True}, {**allowed, "scaled_embedding": (False,)}
    refuse(architecture, found, allowed)


def even_heads(config: TransformerConfig) -> dict[str, tuple[float, ...]]:
    """What `expect` allows of heads that share no keys and divide the width among them."""
    size = config.width / config.heads
    return {"kv_heads": (config.heads,), "head_size": (int(size) if size.is_integer() else size,)}


def refuse(architecture: str, found: Mapping[str, Any], allowed: Mapping[str, Sequence[Any]]) -> None:
    """The same for values by name: all that disagree, in one line."""
    different = [
        f"{name}={' or '.join(map(str, values))}, this network {name}={found[name]}"
        for name, values in allowed.items()
        if found[name] not in values
    ]
    if different:
        raise SettingsError(f"a {architecture} has {'; '.join(different)}")


def activation_of(name: Any, architecture: str) -> str:
    """Our name of an activation."""
    if name not in _OURS:
        raise SettingsError(f"the activation of a {architecture} should be one of {', '.join(_OURS)}, not {name!r}")
    return _OURS[name]


def whole_numbers(described: Mapping[str, Any], names: Iterable[str]) -> None:
    """Refuse a size of a published configuration that is no whole number; whether it is there, others ask."""
    for name in names:
        value = described.get(name, 0)
        if isinstance(value, bool) or not isinstance(value, int):
            raise SettingsError(f"{name} should be a whole number, not {value!r}")


def expect_values(described: Mapping[str, Any], architecture: str, expected: Mapping[str, Any]) -> None:
    """Refuse, by its name, a value of a published configuration that no network here has."""
    for name, value in expected.items():
        if described.get(name, value) != value:
            raise SettingsError(f"{name} of a {architecture} should be {value}, not {described[name]!r}")
