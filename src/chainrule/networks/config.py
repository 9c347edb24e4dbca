"""Configurations of feed-forward, bag-of-words and recurrent networks, and the kinds of fields that they have.

Torch and the tape read the same configurations.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar

from chainrule.errors import SettingsError
from chainrule.settings import left_open, setting

T = TypeVar("T")
Activation: TypeAlias = Literal["tanh", "sigmoid", "relu", "leaky-relu"]
Reset: TypeAlias = Literal["before", "after"]
CellName: TypeAlias = Literal["elman", "lstm", "gru", "qrnn"]

GATES: dict[CellName, int] = {"elman": 1, "lstm": 4, "gru": 3, "qrnn": 3}
"""The number of gates of a cell, whose matrices are stacked one below the other."""
PARTS: dict[CellName, int] = {"elman": 1, "lstm": 2, "gru": 1, "qrnn": 1}
"""The number of vectors in the state of a cell; a QRNN also keeps its last inputs."""
LEAK = 0.01
"""The slope of leaky ReLU below 0: f(x) = max(x, LEAK x)."""


# -- fields -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bounds:
    """The values that a number may have. A call returns a field of a settings class, like `setting`.

    >>> @dataclass(frozen=True)
    ... class Example(Checked):
    ...     layers: int = size(2, "how many layers", most=1000)
    >>> Example(layers=0)
    Traceback (most recent call last):
    chainrule.errors.SettingsError: layers should be at least 1, not 0
    """

    words: str
    hold: Callable[[float], bool]
    group: str = ""
    """The group of its settings in help; `Checked.GROUP` if it is empty."""

    def __call__(
        self, default: T, explanation: str, *, most: int = 1 << 31, common: bool = False, chosen: bool = False
    ) -> T:
        """Return a field; with `chosen`, a rule chooses its value when training begins, unless it is set."""
        made: Any = setting(default, explanation, common=common)
        metadata = {**made.metadata, "bounds": self, "group": self.group}
        metadata |= {"most": most, "open": chosen, "fixed": default}
        field: T = dataclasses.field(default=typing.cast(T, None) if chosen else default, metadata=metadata)
        return field


size = Bounds("at least 1", lambda value: value >= 1, "size")
share = Bounds("at least 0 and below 1", lambda value: 0 <= value < 1, "regularisation")
positive = Bounds("a finite number above 0", lambda value: 0 < value < math.inf)
from_zero = Bounds("at least 0", lambda value: 0 <= value < math.inf, "regularisation")
_order = Bounds("from 2 to 1000", lambda value: 2 <= value <= 1000, "size")


class Checked:
    """The base of frozen dataclasses of settings: it checks the bounds of their fields; None is not chosen yet."""

    GROUP: ClassVar[str] = "design"
    """The group in help of settings for which neither `GROUPS` nor their bounds name another one."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value, bounds = getattr(self, field.name), field.metadata.get("bounds")
            if bounds is None or value is None:
                continue
            if not bounds.hold(value):
                raise SettingsError(f"{field.name} should be {bounds.words}, not {value}")
            if value > field.metadata["most"]:  # it would take hours, or all memory
                raise SettingsError(f"{field.name} should be at most {field.metadata['most']:,}, not {value:,}")
        if (others := getattr(super(), "__post_init__", None)) is not None:
            others()  # the checks of another class that the settings derive from


def leaves_open(*names: str) -> Callable[[type[T]], type[T]]:
    """Return a decorator for a class of settings, below @dataclass: a rule chooses these settings of its bases."""

    def decorate(cls: type[T]) -> type[T]:
        annotations = dict(vars(cls).get("__annotations__", {}))
        for name in names:
            base = next(base for base in cls.__mro__[1:] if name in getattr(base, "__dataclass_fields__", {}))
            annotations[name] = typing.get_type_hints(base)[name]
            setattr(cls, name, left_open(base, name))
        cls.__annotations__ = annotations
        return cls

    return decorate


# -- regularisation ---------------------------------------------------------------------------------------


def regularisers(config: Any) -> list[str]:
    """Return the names of a configuration's fields for dropout, penalties and label smoothing.

    >>> regularisers(FeedforwardConfig())
    ['dropout', 'token_dropout']
    """
    names = [field.name for field in dataclasses.fields(config)]
    others = ("alpha", "beta", "label_smoothing")
    return [name for name in names if name.endswith("dropout") or name in others]


def weakened(config: T, strength: float) -> T:
    """Return a configuration whose dropout and penalties are `strength` times as strong."""
    shares = {name: getattr(config, name) for name in regularisers(config)}
    return dataclasses.replace(config, **{name: strength * value for name, value in shares.items() if value})  # type: ignore[type-var]


# -- sizes of tables --------------------------------------------------------------------------------------


def padded_size(vocab_size: int) -> int:
    """Return the number of rows of a token table with padding, which makes products fast.

    >>> padded_size(67), padded_size(5000)
    (72, 5056)
    """
    multiple = 64 if vocab_size >= 4096 else 8
    return -(-vocab_size // multiple) * multiple


def count_parameters(shapes: Mapping[str, Sequence[int]], vocab_size: int) -> int:
    """Count the learned parameters, from the shapes of the tensors; padding rows of tables do not count."""
    missing = padded_size(vocab_size) - vocab_size
    return sum(math.prod(shape) - missing * math.prod(shape[1:]) * is_table(name) for name, shape in shapes.items())


def is_table(name: str) -> bool:
    """Return True if the tensor of that name has a row for each token."""
    return name.partition(".")[0] in ("embedding", "head")


# -- configurations ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HiddenLayersConfig(Checked):
    """The configuration of a network that has hidden layers over one vector, and no other layers."""

    embedding: int = size(128, "numbers in the vector of a token", common=True)
    hidden: int = size(512, "units of a hidden layer", common=True)
    layers: int = size(1, "hidden layers; from the second on each adds to the one below", most=1000, common=True)
    activation: Activation = setting("relu", "the activation of hidden units")  # noqa: RUF009
    bias: bool = setting(True, "add a bias to the sums of hidden units, and to the logits")
    tied: bool = setting(False, "use one table for the embeddings and the logits", common=True)
    dropout: float = share(
        0.1, "share of hidden units (feedforward: and embeddings) left out in training", common=True
    )

    @property
    def inputs(self) -> int:
        """The size of the vector that the first hidden layer reads."""
        return self.embedding


@dataclass(frozen=True)
class FeedforwardConfig(HiddenLayersConfig):
    """The configuration of a feed-forward network."""

    order: int = _order(5, "tokens in an n-gram; the network reads one less", common=True)
    direct: bool = setting(False, "connect the embeddings to the logits as well, past the hidden layers")
    token_dropout: float = share(0.0, "share of tokens whose embedding is left out in training")

    @property
    def inputs(self) -> int:
        return (self.order - 1) * self.embedding


@dataclass(frozen=True)
class BagOfWordsConfig(HiddenLayersConfig):
    """The configuration of a bag of words (a deep averaging network)."""

    # the mean of more tokens does not show which one came last (docs/defaults.md)
    window: int | None = size(
        2, "the most tokens that the mean covers; none: all that were read", most=1 << 20, common=True
    )
    embedding: int = size(256, "numbers in the vector of a token", common=True)
    layers: int = size(2, "hidden layers; from the second on each adds to the one below", most=1000, common=True)


@dataclass(frozen=True)
class RecurrentConfig(Checked):
    """The configuration of a recurrent network."""

    cell: CellName = setting("lstm", "the kind of cells in a layer")  # noqa: RUF009
    activation: Activation = setting("tanh", "elman: the activation of units")  # noqa: RUF009
    reset: Reset = setting(  # noqa: RUF009
        "after", "gru: the reset gate multiplies the state before, or its product with a matrix after (as cuDNN)"
    )
    biases: Literal[1, 2] = setting(
        2, "elman, lstm, gru: biases of a sum: one, or one beside each matrix as torch and cuDNN have it"
    )
    orthogonal: bool = setting(
        True,
        "elman, lstm, gru: begin with orthogonal matrices from state to state, which keep the length of a vector",
    )
    embedding: int = size(256, "numbers in the vector of a token", common=True)
    hidden: int = size(512, "units of a layer; multiples of 8 are fast on a GPU", common=True)
    layers: int = size(2, "layers, each reading the outputs of the one below", most=1000, common=True)
    last: int | None = size(
        None, "units of the last layer; none: those of an embedding if tied with several layers, else hidden"
    )
    tied: bool = setting(True, "use one table for the embeddings and the logits", common=True)
    learned_start: bool = setting(False, "learn the state before the first token, instead of zeros")
    input_dropout: float = share(
        0.2, "share of the embeddings' numbers left out, the same all along a sequence", common=True
    )
    hidden_dropout: float = share(
        0.2, "share of the numbers between layers left out, the same all along a sequence", common=True
    )
    output_dropout: float = share(
        0.2, "share of the last layer's outputs left out, the same all along a sequence", common=True
    )
    embedding_dropout: float = share(0.0, "share of tokens whose embedding is left out")
    weight_dropout: float = share(0.0, "share of the weights from a state to the next left out")
    alpha: float = from_zero(0.0, "penalty on large outputs of the last layer")
    beta: float = from_zero(0.0, "penalty on outputs of the last layer that change fast")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.activation != "tanh" and self.cell != "elman":
            raise SettingsError(f"activation={self.activation} goes with cell=elman, not with cell={self.cell}")
        if self.reset != "after" and self.cell != "gru":
            raise SettingsError(f"reset={self.reset} goes with cell=gru, not with cell={self.cell}")

    @property
    def widths(self) -> list[int]:
        """The number of units of each layer."""
        last = self.last
        if last is None:
            last = self.embedding if self.tied and self.layers > 1 else self.hidden
        return [self.hidden] * (self.layers - 1) + [last]


@dataclass(frozen=True)
class QrnnConfig(RecurrentConfig):
    """The configuration of a quasi-recurrent network."""

    cell: Literal["qrnn"] = setting("qrnn", "the kind of cells in a layer")
    kernel: int = size(2, "tokens that a gate sees: this one and those just before it", most=1000, common=True)
