"""Configurations of feed-forward, bag-of-words and recurrent networks, whichever engine computes them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from chainrule.errors import SettingsError
from chainrule.settings import Groups, setting

Activation: TypeAlias = Literal["tanh", "sigmoid", "relu"]
CellName: TypeAlias = Literal["elman", "lstm", "gru"]

GATES: dict[CellName, int] = {"elman": 1, "lstm": 4, "gru": 3}
"""The number of gates of a cell, whose matrices are stacked one below the other."""
PARTS: dict[CellName, int] = {"elman": 1, "lstm": 2, "gru": 1}
"""The number of vectors in the state of a cell."""


_MOST = {"layers": 1000, "window": 1 << 20}
"""The largest sizes by name, so that a wrong one takes neither hours nor all memory; of others 2^31."""


def check_sizes(**sizes: int | None) -> None:
    """Refuse sizes below 1, and far too large ones, by name; None is a size that is not chosen yet."""
    for name, size in sizes.items():
        most = _MOST.get(name, 1 << 31)
        if size is None:
            continue
        if size < 1:
            raise SettingsError(f"{name} should be at least 1, not {size}")
        if size > most:
            raise SettingsError(f"{name} should be at most {most:,}, not {size:,}")


def check_shares(**shares: float | None) -> None:
    """Refuse shares outside [0, 1), by name; None is a share that is not chosen yet."""
    for name, share in shares.items():
        if share is not None and not 0 <= share < 1:
            raise SettingsError(f"{name} should be at least 0 and below 1, not {share}")


def padded_size(vocab_size: int) -> int:
    """The number of rows of a token table, padded: products are fast at multiples of 64, small ones of 8."""
    multiple = 64 if vocab_size >= 4096 else 8
    return -(-vocab_size // multiple) * multiple


def count_parameters(shapes: Mapping[str, Sequence[int]], vocab_size: int) -> int:
    """The number of learned parameters, from the shapes of the tensors; padding rows of tables do not count."""
    missing = padded_size(vocab_size) - vocab_size
    return sum(
        math.prod(shape) - missing * math.prod(shape[1:]) * (name.partition(".")[0] in ("embedding", "head"))
        for name, shape in shapes.items()
    )


@dataclass(frozen=True)
class FeedforwardConfig:
    """The configuration of a feed-forward network."""

    GROUPS: ClassVar[Groups] = {
        "size": ("order", "embedding", "hidden", "layers"),
        "design": ("activation", "direct", "tied"),
        "regularisation": ("dropout", "token_dropout"),
    }

    order: int = setting(5, "tokens in an n-gram; the network reads one less")
    embedding: int = setting(128, "numbers in the vector of a token")
    hidden: int = setting(512, "units of a hidden layer")
    layers: int = setting(1, "hidden layers; from the second on each adds to the one below")
    activation: Activation = setting("relu", "what a hidden unit does with its sum")  # noqa: RUF009
    direct: bool = setting(False, "connect the embeddings to the logits as well, past the hidden layers")
    tied: bool = setting(False, "use one table for the embeddings and the logits")
    dropout: float = setting(0.1, "share of the numbers in embeddings and hidden layers left out in training")
    token_dropout: float = setting(0.0, "share of tokens whose embedding is left out in training")

    def __post_init__(self) -> None:
        if not 2 <= self.order <= 1000:
            raise SettingsError(f"order should be from 2 to 1000, not {self.order}")
        check_sizes(embedding=self.embedding, hidden=self.hidden, layers=self.layers)
        check_shares(dropout=self.dropout, token_dropout=self.token_dropout)


@dataclass(frozen=True)
class BagOfWordsConfig:
    """The configuration of a deep averaging network (a bag of words)."""

    GROUPS: ClassVar[Groups] = {
        "size": ("window", "embedding", "hidden", "layers"),
        "design": ("activation", "tied"),
        "regularisation": ("dropout",),
    }

    # of more tokens, the mean does not show which one came last (docs/defaults.md)
    window: int | None = setting(2, "the most tokens that the mean covers; none: all that were read")
    embedding: int = setting(256, "numbers in the vector of a token")
    hidden: int = setting(512, "units of a hidden layer")
    layers: int = setting(2, "hidden layers; from the second on each adds to the one below")
    activation: Activation = setting("relu", "what a hidden unit does with its sum")  # noqa: RUF009
    tied: bool = setting(False, "use one table for the embeddings and the logits")
    dropout: float = setting(0.1, "share of the hidden units left out in training")

    def __post_init__(self) -> None:
        window = 1 if self.window is None else self.window
        check_sizes(window=window, embedding=self.embedding, hidden=self.hidden, layers=self.layers)
        check_shares(dropout=self.dropout)


@dataclass(frozen=True)
class RecurrentConfig:
    """The configuration of a recurrent network."""

    GROUPS: ClassVar[Groups] = {
        "size": ("embedding", "hidden", "layers", "last"),
        "design": ("cell", "activation", "tied", "learned_start"),
        "regularisation": (
            "input_dropout",
            "hidden_dropout",
            "output_dropout",
            "embedding_dropout",
            "weight_dropout",
            "alpha",
            "beta",
        ),
    }

    cell: CellName = setting("lstm", "what a layer is made of")  # noqa: RUF009
    activation: Literal["tanh", "relu"] = setting("tanh", "elman: what a unit does with its sum")
    embedding: int = setting(256, "numbers in the vector of a token")
    hidden: int = setting(512, "units of a layer; multiples of 8 are fast on a GPU")
    layers: int = setting(2, "layers, each reading what the one below gives out")
    last: int | None = setting(
        None,
        "units of the last layer; none: those of an embedding if tied with several layers, else hidden",
    )
    tied: bool = setting(True, "use one table for the embeddings and the logits")
    learned_start: bool = setting(False, "learn the state before the first token, rather than begin with zeros")
    input_dropout: float = setting(0.2, "share of the embeddings' numbers left out, the same all along a sequence")
    hidden_dropout: float = setting(
        0.2, "share of the numbers between layers left out, the same all along a sequence"
    )
    output_dropout: float = setting(
        0.2, "share of the last layer's outputs left out, the same all along a sequence"
    )
    embedding_dropout: float = setting(0.0, "share of tokens whose embedding is left out")
    weight_dropout: float = setting(0.0, "share of the weights from a state to the next left out")
    alpha: float = setting(0.0, "penalty on large outputs of the last layer")
    beta: float = setting(0.0, "penalty on outputs of the last layer that change fast")

    def __post_init__(self) -> None:
        check_sizes(embedding=self.embedding, hidden=self.hidden, layers=self.layers)
        check_sizes(last=self.last)
        names = ("input_dropout", "hidden_dropout", "output_dropout", "embedding_dropout", "weight_dropout")
        check_shares(**{name: getattr(self, name) for name in names})
        for name in ("alpha", "beta"):
            penalty = getattr(self, name)
            if penalty is not None and not penalty >= 0:
                raise SettingsError(f"{name} should be at least 0, not {penalty}")
        if self.activation != "tanh" and self.cell != "elman":
            raise SettingsError(f"activation={self.activation} goes with cell=elman, not with cell={self.cell}")

    @property
    def widths(self) -> list[int]:
        """The number of units of each layer."""
        last = self.last
        if last is None:
            last = self.embedding if self.tied and self.layers > 1 else self.hidden
        return [self.hidden] * (self.layers - 1) + [last]
