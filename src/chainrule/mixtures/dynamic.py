"""Dynamic evaluation (Krause and others 2018): networks that learn from a text while it is scored.

The text is read in segments. Each segment is scored first, and then the network takes one step on its loss, so that
it knows the names and the style of this text when it scores the next segment:

    sgd   θ ← θ - η g + λ (θ_0 - θ)
    rms   θ ← θ - η g / (r + ε r̄) + λ (θ_0 - θ) r / r̄        r = √(mean of g²), r̄ = mean of r over all weights

g is the gradient of the segment's mean loss, θ_0 the weights as they were trained, to which they are drawn back.
The score of a token depends on the text before it and on nothing after it: it is causal, as all scores are. But the
text before it has changed the weights, which no state carries: so this is a way to evaluate, not a kind of model.
The model itself is not changed: copies of its networks learn.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from chainrule.arrays import PAD, checked, to_numpy
from chainrule.contract.lm import LanguageModel, State, offered, read
from chainrule.errors import MissingExtraError, ModelError, SettingsError
from chainrule.mixtures.gates import Floats
from chainrule.mixtures.mixture import Mixture, MixtureState
from chainrule.system.devices import has_torch
from chainrule.system.progress import Task

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule.inference.neural_model import NeuralModel
    from chainrule.inference.state import NeuralState

Found = TypeVar("Found")
ReadPiece = Callable[[Any, Any, np.ndarray], tuple[Found, State]]


@dataclass(frozen=True)
class Dynamic:
    """The settings by which networks learn while they score."""

    rate: float = 1e-4
    """η, the size of a step."""
    decay: float = 1e-3
    """λ, the share of the difference to the trained weights that each step takes back."""
    segment: int = 70
    """Tokens that are scored before the next step."""
    method: Literal["rms", "sgd"] = "rms"
    epsilon: float = 0.1
    """ε of `rms`, as a share of the mean r: bounds the steps of weights that rarely get a gradient."""

    def __post_init__(self) -> None:
        if not (self.rate >= 0 and 0 <= self.decay <= 1 and self.epsilon > 0):
            raise SettingsError(
                "dynamic evaluation needs a rate of 0 or more, a decay from 0 to 1, epsilon above 0"
            )
        if self.segment < 1:
            raise SettingsError(f"a segment should have 1 token or more, not {self.segment}")
        if self.method not in ("rms", "sgd"):
            raise SettingsError(f"the method should be rms or sgd, not {self.method!r}")


def dynamic_scores(lm: LanguageModel, ids: np.ndarray, dynamic: Dynamic) -> Iterator[np.ndarray]:
    """Return ln p of each token of a text, segment by segment, by networks that learn from the segments before."""
    for scores in _while_learning(lm, ids, *lm.bounds(ids), dynamic, read):
        yield checked(to_numpy(scores)[0], normalised=lm.normalised)


def dynamic_columns(
    lm: Mixture, ids: np.ndarray, starts: np.ndarray, ends: np.ndarray, dynamic: Dynamic, task: Task
) -> tuple[Floats, Floats]:
    """Return the same as `Mixture.columns`, by networks that learn from the segments before."""
    columns, values = [], []
    read_columns = partial(Mixture.read_columns, goes_on=True)
    for found in _while_learning(lm, ids, starts, ends, dynamic, read_columns):
        columns.append(np.stack([to_numpy(scores)[0] for scores in found.scores], axis=-1).astype(np.float64))
        values.append(found.values_BT[0])
        task.advance(len(values[-1]))
    return np.concatenate(columns), np.concatenate(values)


def _while_learning(
    lm: LanguageModel,
    ids: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
    dynamic: Dynamic,
    read_piece: ReadPiece[Found],
) -> Iterator[Found]:
    """Yield the result of `read_piece` for each segment; the networks learn from the segment after that."""
    copied, learners = _copied(lm, dynamic)
    if not learners:
        raise ModelError("dynamic evaluation is for networks, which can learn while they score: here is none")
    for start, end in zip(starts, ends, strict=True):
        state = copied.start(1)
        for first in range(int(start), int(end), dynamic.segment):
            piece_BT = np.asarray(ids[None, first : min(first + dynamic.segment, int(end))], dtype=np.int64)
            found, after = read_piece(copied, state, piece_BT)
            yield found
            for learner in learners:
                learner.learn(state, piece_BT)
            state = after


def _copied(lm: Any, dynamic: Dynamic, path: tuple[int, ...] = ()) -> tuple[LanguageModel, list[_Learner]]:
    """Return a copy of a model with networks of its own, and the learners that change these networks."""
    if isinstance(lm, Mixture):
        found = [_copied(one, dynamic, (*path, place)) for place, one in enumerate(lm.models)]
        return lm.with_models([copied for copied, _ in found]), [one for _, some in found for one in some]
    if (as_torch := offered(lm, "as_torch")) is None:
        return lm, []
    if not has_torch():
        raise MissingExtraError("torch", "neural", "dynamic evaluation")
    from chainrule.networks.recurrent.fused_layer import FusedLayer

    lm = as_torch()
    network = copy.deepcopy(lm.network)
    for module in network.modules():
        if isinstance(module, FusedLayer):
            module.lay_out()
    learner = _Learner(lm.with_network(network), dynamic, path)
    return learner.lm, [learner]


class _Learner:
    """A network that takes a step on each segment it is shown."""

    def __init__(self, lm: NeuralModel, dynamic: Dynamic, path: tuple[int, ...]) -> None:
        """`path` leads from the state of the whole model to that of this network, through mixtures."""
        import torch

        self.lm, self.dynamic, self.path = lm, dynamic, path
        self.weights = [weight.requires_grad_() for weight in lm.network.parameters()]
        self.trained = [weight.detach().clone() for weight in self.weights]
        self.squares = [torch.zeros_like(weight) for weight in self.trained]
        self.steps = 0

    def learn(self, state: State, ids_BT: np.ndarray) -> None:
        """Take a step on the loss of a segment that follows what the state has read."""
        import torch

        for place in self.path:
            assert isinstance(state, MixtureState)
            state = state.states[place]
        ids = torch.from_numpy(ids_BT).to(self.lm.torch_device)
        with torch.enable_grad():
            loss = self._nats(state, ids) / ids.numel()  # type: ignore[arg-type]
            gradients = torch.autograd.grad(loss, self.weights, allow_unused=True, materialize_grads=True)
        with torch.no_grad():
            self._step(gradients)

    def _nats(self, state: NeuralState, ids_BT: Tensor) -> Tensor:
        """Return the loss of a segment, whose gradients reach back to its first token."""
        import torch

        network, width = self.lm.network, ids_BT.shape[1]
        if network.window is not None:
            assert state.window is not None
            known_BT = state.window.ids_BW[:, : state.window.longest]
            inputs_BT = torch.cat([known_BT, ids_BT[:, :-1]], dim=1)[:, -network.window :]
            targets_BT = torch.full_like(inputs_BT, PAD)
            some = min(width, inputs_BT.shape[1])
            targets_BT[:, -some:] = ids_BT[:, -some:]
            return network.loss(inputs_BT, targets_BT).nats
        # what was made in inference mode has to be copied before gradients can flow
        state = state.select(np.zeros(1, dtype=np.int64))
        features = [state.features_BD[:, None]]
        if width > 1:
            features.append(network(ids_BT[:, :-1], state.memory).features_BTD)
        return network.head.nats(torch.cat(features, dim=1), ids_BT)

    def _step(self, gradients: tuple[Tensor, ...]) -> None:
        import torch

        # all weights in one call each: a GPU would wait for the host to launch thousands of small kernels
        rate, decay, grads = self.dynamic.rate, self.dynamic.decay, list(gradients)
        back = torch._foreach_sub(self.trained, self.weights)
        if self.dynamic.method == "sgd":
            # θ ← θ - η g + λ (θ_0 - θ)
            torch._foreach_add_(self.weights, back, alpha=decay)
            torch._foreach_add_(self.weights, grads, alpha=-rate)
            return
        self.steps += 1
        torch._foreach_addcmul_(self.squares, grads, grads)
        sizes = torch._foreach_div(self.squares, self.steps)
        torch._foreach_sqrt_(sizes)
        mean = torch.stack([size.sum() for size in sizes]).sum() / sum(size.numel() for size in sizes)
        below = torch._foreach_add(sizes, self.dynamic.epsilon * mean + 1e-30)
        # θ ← θ - η g / (r + ε r̄) + λ (θ_0 - θ) r / r̄
        torch._foreach_mul_(sizes, decay / (mean + 1e-30))
        torch._foreach_clamp_max_(sizes, 1.0)
        torch._foreach_addcmul_(self.weights, sizes, back)
        torch._foreach_addcdiv_(self.weights, grads, below, value=-rate)
