"""Layers that several networks share: products, the embedding table, hidden layers, the head, a norm."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from chainrule.networks.config import LEAK, HiddenLayersConfig, padded_size
from chainrule.networks.loss import best_nats, nats_of_targets
from chainrule.networks.precision import PlainProducts
from chainrule.networks.regularise import Dropout

_FEW = range(4, 33)
_MANY_WEIGHTS = 100_000  # with fewer, two more calls take longer than the product
_HAS_MKL: bool = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]

ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "leaky-relu": partial(functional.leaky_relu, negative_slope=LEAK),
}


def linear(x: Tensor, weight_NK: Tensor, bias_N: Tensor | None = None) -> Tensor:
    """Return x Wᵀ + b, [..., N].

    For a few rows on a CPU, as when several texts are written at once, it is (W xᵀ + b)ᵀ: Intel's library takes two
    to three times as long for x Wᵀ.
    """
    if x.device.type != "cpu" or not _turns(x, weight_NK):
        return functional.linear(x, weight_NK, bias_N)
    y_NB = weight_NK @ x.reshape(-1, x.shape[-1]).T
    if bias_N is not None:
        y_NB += bias_N[:, None]
    return y_NB.T.contiguous().view(*x.shape[:-1], -1)


def _turns(x: Tensor, weight_NK: Tensor) -> bool:
    few = x.shape[:-1].numel() in _FEW and weight_NK.numel() >= _MANY_WEIGHTS
    plain = x.dtype == weight_NK.dtype == torch.float32 and not torch.is_grad_enabled()
    return few and plain and _HAS_MKL


class Linear(nn.Linear):
    """torch's layer, which computes its product by `linear`."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


class Table(NamedTuple):
    """The embedding table of a network, which may be filled with pretrained word vectors."""

    weight_VD: nn.Parameter
    scale: float
    """The factor that vectors are multiplied by at the lookup."""
    setting: str
    """The name of the setting for its width."""


class Embedding(nn.Module):
    """E x: a vector for each token, initialised with variance 1.

    A table tied to the head is initialised with a smaller variance, because its products are logits; its vectors
    are scaled up at the lookup instead.
    """

    def __init__(self, vocab_size: int, width: int, *, tied: bool) -> None:
        super().__init__()
        self.scale = math.sqrt(width) if tied else 1.0
        self.weight = nn.Parameter(torch.empty(padded_size(vocab_size), width))
        nn.init.normal_(self.weight, std=1 / self.scale)

    def forward(self, ids: Tensor) -> Tensor:
        return functional.embedding(ids, self.weight) * self.scale

    def table(self) -> Table:
        return Table(self.weight, self.scale, "embedding")


class HiddenLayers(nn.Module):
    """h_1 = f(W_1 x + b_1), then h_l = h_{l-1} + f(W_l h_{l-1} + b_l)."""

    def __init__(self, config: HiddenLayersConfig) -> None:
        super().__init__()
        self.f, self.dropout = ACTIVATIONS[config.activation], Dropout(config.dropout)
        sizes = [config.inputs, *[config.hidden] * (config.layers - 1)]
        linears = [Linear(size, config.hidden, bias=config.bias) for size in sizes]
        name = "leaky_relu" if config.activation == "leaky-relu" else config.activation
        gain = nn.init.calculate_gain(name, LEAK)
        for layer in linears:
            nn.init.xavier_normal_(layer.weight, gain=gain)
            if config.bias:
                nn.init.zeros_(layer.bias)
        self.linears = nn.ModuleList(linears)

    def forward(self, features: Tensor) -> Tensor:
        for i, layer in enumerate(self.linears):
            new = self.dropout(self.f(layer(features)))
            features = features + new if i else new
        return features


class Head(PlainProducts):
    """logits = W h + b; W may be the table of the embedding (tied).

    W has a few rows more than there are tokens, for speed. These padding rows are part of the softmax in training,
    where their probability soon is close to 0, and are cut off when the loss is measured or probabilities are
    computed. So are `extra` ids above the vocabulary, such as that of [MASK].
    """

    def __init__(
        self,
        width: int,
        vocab_size: int,
        *,
        tied_to: nn.Parameter | None = None,
        bias: bool = False,
        extra: int = 0,
    ) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.measured = vocab_size
        """The number of ids in the measured loss; a network that learns to predict extra ones adds them."""
        self.float8 = False  # True: training multiplies in 8 bits, as only the newest GPUs can
        rows = padded_size(vocab_size + extra)
        self.weight = nn.Parameter(torch.empty(rows, width)) if tied_to is None else tied_to
        if tied_to is None:
            nn.init.normal_(self.weight, std=0.02)
        elif tied_to.shape != (rows, width):
            raise ValueError(f"a tied table should be {[rows, width]}, not {list(tied_to.shape)}")
        self.bias = nn.Parameter(torch.zeros(rows)) if bias else None

    def forward(self, features: Tensor) -> Tensor:
        """Return the logits of the vocabulary, without the padding rows: [..., V]."""
        return linear(features, self.weight, self.bias)[..., : self.vocab_size]

    def nats(self, features_BTD: Tensor, targets_BT: Tensor, base_BTV: Tensor | None = None) -> Tensor:
        """Return Σ -ln softmax(logits + base)[target], over the targets that are tokens."""
        features_ND, targets_N = features_BTD.flatten(0, -2), targets_BT.flatten()
        if base_BTV is not None:
            logits_NV = self(features_ND).to(base_BTV.dtype) + base_BTV.flatten(0, -2)
            return nats_of_targets(logits_NV, targets_N).sum()
        if self.training:
            return best_nats(features_ND, self.weight, self.bias, targets_N, self.float8)
        bias_V = None if self.bias is None else self.bias[: self.measured]
        return best_nats(features_ND, self.weight[: self.measured], bias_V, targets_N)


def make_head(
    width: int, vocab_size: int, tied_to: nn.Parameter | None, extra: int = 0, *, bias: bool = True
) -> tuple[nn.Module, Head]:
    """Return the head, after a projection of the features to the width of the table that it is tied to, if any."""
    inner = width if tied_to is None else tied_to.shape[1]
    projection = nn.Identity() if inner == width else nn.Linear(width, inner, bias=False)
    return projection, Head(inner, vocab_size, tied_to=tied_to, bias=bias, extra=extra)


def last_of_rows(features_BTD: Tensor, lengths_B: Tensor | None, before_BD: Tensor) -> Tensor:
    """Return the features of each row's last token; those of `before_BD` where a row has none.

    Row b has `lengths_B[b]` tokens, then padding; None: there is no padding.
    """
    if lengths_B is None:
        return features_BTD[:, -1]
    last_B11 = (lengths_B - 1).clamp(min=0)[:, None, None].expand(-1, 1, features_BTD.shape[2])
    last_BD = features_BTD.gather(1, last_B11)[:, 0]
    return torch.where(lengths_B[:, None] > 0, last_BD, before_BD.to(features_BTD.dtype))


def rms_norm(x: Tensor, eps: float) -> Tensor:
    """y = x / sqrt(mean(x²) + ε), over the last axis."""
    # on a CPU torch has no kernel of its own for it
    has_kernel = x.device.type != "cpu" or torch.compiler.is_compiling()
    if has_kernel or x.dtype not in (torch.float32, torch.float64):
        return functional.rms_norm(x, x.shape[-1:], eps=eps)
    normed: Tensor = _RmsNorm.apply(x, eps)  # type: ignore[no-untyped-call]
    return normed


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float) -> Tensor:
        mean_square = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_().div_(x.shape[-1])
        # r = 1 / sqrt(mean(x²) + ε),  y = r x
        r = mean_square.add_(eps).rsqrt_()
        y: Tensor = x * r
        ctx.save_for_backward(y, r)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None]:
        y, r = ctx.saved_tensors
        # dr/dx_j = -r³ x_j / n, so that  dx = r (dy - y mean(dy ⊙ y))
        dx = torch.addcmul(dy, y, (dy * y).mean(dim=-1, keepdim=True), value=-1).mul_(r)
        return dx, None
