"""From gradients to weights: optimisers by name, clipping, and averages of the weights over the steps of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, RMSprop

from chainrule.networks.network import Trainable
from chainrule.networks.training_settings import (
    MUON_ITERATIONS,
    MUON_MOMENTUM,
    MUON_POLYNOMIAL,
    MUON_TINY,
    STALLED,
    Averaging,
    TrainingSettings,
    is_between_features,
    muon_size,
    shrinks,
)

_FUSED = {"cpu", "cuda"}


class Optimiser:
    """One or two of torch's optimisers, stepped together."""

    def __init__(self, parts: list[torch.optim.Optimizer], clip: float) -> None:
        self.parts, self.clip = parts, clip
        self.rates = [group["lr"] for group in self.groups]
        self.factor = 1.0
        """The share of the learning rate of the last step."""
        self.parameters = [parameter for group in self.groups for parameter in group["params"]]

    @property
    def groups(self) -> list[dict[str, Any]]:
        """The parameter groups of all parts; not stored, since loading a state replaces them."""
        return [group for part in self.parts for group in part.param_groups]

    def step(self, factor: float) -> Tensor:
        """Step at `factor` times the learning rate and drop the gradients; returns their norm before clipping."""
        self.set_rate(factor)
        norm = self.update()
        self.forget()
        return norm

    def set_rate(self, factor: float) -> None:
        """Set the learning rate to `factor` times what it was at the beginning."""
        self.factor = factor
        for group, rate in zip(self.groups, self.rates, strict=True):
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate * factor)
            else:
                group["lr"] = rate * factor

    def update(self) -> Tensor:
        """Step at the learning rate that is set, and keep the gradients; returns their norm before clipping."""
        norm = nn.utils.clip_grad_norm_(self.parameters, self.clip or float("inf"), foreach=True)
        for part in self.parts:
            part.step()
        return norm

    @property
    def rate(self) -> float:
        """The learning rate of the last step."""
        rate: float = self.rates[0] * self.factor
        return rate

    # -- updates that a CUDA graph can hold ---------------------------------------------------------------

    @property
    def can_be_captured(self) -> bool:
        """True if a CUDA graph can hold an update: nothing in it is decided, or counted, on the host."""
        return all(isinstance(group["lr"], Tensor) for group in self.groups)

    @property
    def has_state(self) -> bool:
        """True if every part has the state that its first step makes."""
        return all(part.state for part in self.parts)

    def prepare_capture(self) -> None:
        """Keep the learning rate on the device, where each replay reads it, if the optimiser can do so."""
        if not all(isinstance(part, (Adam, AdamW, Muon)) for part in self.parts):
            return
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = torch.tensor(group["lr"], device=group["params"][0].device)
                if "capturable" in group:
                    group["capturable"] = True  # steps are counted on the device
            # torch would warn of steps outside a graph: the first step is one, and that of a rare shape
            part._warned_capturable_if_run_uncaptured = True

    def forget(self) -> None:
        """Drop the gradients."""
        for part in self.parts:
            part.zero_grad(set_to_none=True)

    def tensors(self) -> dict[str, Tensor]:
        """Return the optimiser's state, each tensor under the name PART.PARAMETER.NAME."""
        found = {}
        for number, part in enumerate(self.parts):
            for parameter, values in part.state_dict()["state"].items():
                for name, value in values.items():
                    if value is not None:  # momentum that is not used
                        found[f"{number}.{parameter}.{name}"] = torch.as_tensor(value)
        return found

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the state that `tensors` returned."""
        for number, part in enumerate(self.parts):
            state: dict[int, dict[str, Tensor]] = {}
            for key, tensor in tensors.items():
                which, parameter, name = key.split(".")
                if int(which) == number:
                    state.setdefault(int(parameter), {})[name] = tensor
            part.load_state_dict({"state": state, "param_groups": part.state_dict()["param_groups"]})


def make_optimiser(network: Trainable, settings: TrainingSettings) -> Optimiser:
    """Return the optimiser of these settings, for the parameters of a network that require gradients."""
    named = {name: parameter for name, parameter in network.named_parameters() if parameter.requires_grad}
    shrinking, hidden = _shrinking(network), {}
    if settings.optimiser == "muon":
        hidden = {name: parameter for name, parameter in named.items() if is_between_features(name, parameter.ndim)}
    rest = {name: parameter for name, parameter in named.items() if name not in hidden}
    parts: list[torch.optim.Optimizer] = []
    if hidden:
        parts.append(Muon(_groups(network, hidden, set(hidden.values()), settings), settings.rate, settings.decay))
    if rest:
        parts.append(_plain(settings, _groups(network, rest, shrinking, settings), settings.rate))
    return Optimiser(parts, settings.clip)


def _plain(settings: TrainingSettings, groups: list[dict[str, Any]], rate: float) -> torch.optim.Optimizer:
    """Return the torch optimiser of these settings; with optimiser=muon, AdamW for the parameters without Muon."""
    name, betas = settings.optimiser, (settings.beta1, settings.beta2)
    fused = all(parameter.device.type in _FUSED for group in groups for parameter in group["params"]) or None
    if name in ("sgd", "momentum") and any(
        hasattr(one, "device_mesh") for group in groups for one in group["params"]
    ):
        fused = None  # torch has no such code for weights that are divided among processes
    if name in ("sgd", "momentum"):
        momentum = settings.beta1 if name == "momentum" else 0.0
        return SGD(groups, lr=rate, momentum=momentum, nesterov=momentum > 0, fused=fused)
    if name == "rmsprop":
        return RMSprop(groups, lr=rate, foreach=True)
    return (Adam if name == "adam" else AdamW)(groups, lr=rate, betas=betas, fused=fused)


def _shrinking(network: Trainable) -> set[nn.Parameter]:
    every = network.named_parameters(remove_duplicate=False)
    return {parameter for name, parameter in every if shrinks(name, parameter.ndim)}


def _groups(
    network: Trainable, named: Mapping[str, nn.Parameter], shrinking: set[nn.Parameter], settings: TrainingSettings
) -> list[dict[str, Any]]:
    """Parameters with the same learning rate and weight decay, those that shrink first."""
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in sorted(named.items(), key=lambda pair: pair[1] not in shrinking):
        decay = settings.decay if parameter in shrinking else 0.0
        groups.setdefault((network.step_scale(name) * settings.rate, decay), []).append(parameter)
    return [{"params": found, "lr": rate, "weight_decay": decay} for (rate, decay), found in groups.items()]


# -- Muon -----------------------------------------------------------------------------------------------


class Muon(torch.optim.Optimizer):
    """Of matrices from features to features: a step is the smoothed gradient, made orthogonal (Jordan et al. 2024).

    Its steps are as large as those of AdamW. torch has a Muon too, and tests hold this one equal to it. Torch's
    takes one matrix after the other and always computes in bfloat16: a GPU waits for the host to launch many small
    kernels, and a CPU without bfloat16 instructions takes a hundred times as long. Here matrices of one shape are
    made orthogonal together on a GPU, and a CPU computes in full precision.
    """

    def __init__(
        self, parameters: list[nn.Parameter] | list[dict[str, Any]], lr: float, weight_decay: float
    ) -> None:
        super().__init__(parameters, {"lr": lr, "weight_decay": weight_decay})
        self.orthogonal_all: Callable[[Sequence[Tensor]], list[Tensor]] = _orthogonal_all
        """Makes matrices of one shape orthogonal; another function where they are divided among processes."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update every matrix that has a gradient."""
        for group in self.param_groups:
            alike: dict[tuple[Any, ...], list[Tensor]] = {}
            for weight in group["params"]:
                if weight.grad is not None:
                    # a CPU gains nothing from doing several at once
                    key = (id(weight),) if weight.device.type == "cpu" else (weight.shape, weight.device)
                    alike.setdefault(key, []).append(weight)
            for weights in alike.values():
                self._step(weights, group["lr"], group["weight_decay"])

    def _step(self, weights: list[Tensor], rate: float | Tensor, decay: float) -> None:
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        momenta = [self._momentum(weight) for weight in weights]
        # m = μ m + (1 - μ) g, and Nesterov's look ahead: u = μ m + (1 - μ) g
        torch._foreach_lerp_(momenta, gradients, 1 - MUON_MOMENTUM)
        updates = self.orthogonal_all(torch._foreach_lerp(gradients, momenta, MUON_MOMENTUM))
        size = muon_size(weights[0].shape)
        # the rate may be a tensor on the device, which a captured step reads anew in each replay
        torch._foreach_mul_(weights, 1 - rate * decay)
        torch._foreach_mul_(updates, -rate * size)
        torch._foreach_add_(weights, updates)

    def _momentum(self, weight: Tensor) -> Tensor:
        state = self.state[weight]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(weight)
        momentum: Tensor = state["momentum_buffer"]
        return momentum


def _orthogonal_all(matrices: Sequence[Tensor]) -> list[Tensor]:
    """Return matrices of one shape, made orthogonal: on a GPU in one batch in bfloat16, which is precise enough."""
    if matrices[0].device.type == "cpu":
        return [orthogonal(matrix) for matrix in matrices]
    together = orthogonal(torch.stack([matrix.bfloat16() for matrix in matrices]))
    return list(together.to(matrices[0].dtype).unbind())


def orthogonal(matrix: Tensor) -> Tensor:
    """Return about U Vᵀ, where the matrix is U S Vᵀ: all singular values become about 1. Takes batches, too."""
    is_tall = matrix.shape[-2] > matrix.shape[-1]
    X = matrix.mT if is_tall else matrix
    X = X / X.norm(dim=(-2, -1), keepdim=True).clamp(min=MUON_TINY)
    add_product = torch.addmm if X.ndim == 2 else torch.baddbmm
    a, b, c = MUON_POLYNOMIAL
    for _ in range(MUON_ITERATIONS):
        gram = X @ X.mT
        X = add_product(X, add_product(gram, gram, gram, beta=b, alpha=c), X, beta=a)
    return X.mT if is_tall else X


# -- averaged weights -----------------------------------------------------------------------------------


EMA_SHARE, TAIL_SHARE = 0.05, 0.2


class WeightAverage:
    """The average of some weights over the last steps, often better than the weights of any one of them.

    ema    a_t = a_{t-1} + (w_t - a_{t-1}) / min(t, τ), τ a twentieth of the steps: the plain mean at first, then
           one that forgets what is more than about τ steps old
    tail   the plain mean since validation stopped getting better: none of the last five validations was the best
           (Merity et al. 2018), at the latest since the last fifth of the steps began
    """

    def __init__(self, kind: Averaging, weights: Mapping[str, Tensor]) -> None:
        self.kind, self.weights = kind, dict(weights)
        self.values: dict[str, Tensor] = {}
        self.count = 0

    @property
    def is_on(self) -> bool:
        """True if there is an average yet."""
        return self.count > 0

    def update(self, step: int, expected: float, stalled: int) -> None:
        """Add the weights after `step` steps of `expected` ones; the last `stalled` validations were no better."""
        if self.kind == "none":
            return
        is_late = stalled >= STALLED or step >= (1 - TAIL_SHARE) * expected
        if self.kind == "tail" and not self.is_on and not is_late:
            return
        if not self.values:
            self.values = {name: torch.zeros_like(weight) for name, weight in self.weights.items()}
        self.count += 1
        horizon = max(1.0, EMA_SHARE * expected) if self.kind == "ema" else self.count
        now = [weight.detach() for weight in self.weights.values()]
        torch._foreach_lerp_(list(self.values.values()), now, 1 / min(self.count, horizon))

    def replan(self, step: int, before: float, now: float) -> None:
        """Drop, after `step` steps, a tail average that began in the last fifth of `before` steps, not of `now`."""
        began, late = step - self.count + 1, 1 - TAIL_SHARE
        if self.kind == "tail" and began >= late * before and step < late * now:
            self.count, self.values = 0, {}

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Return a block in which the weights are the average, if there is one."""
        if not self.is_on:
            yield
            return
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for name, weight in self.weights.items():
            now = weight.detach().clone()
            weight.copy_(self.values[name])
            self.values[name].copy_(now)

    def load(self, values: Mapping[str, Tensor], count: int) -> None:
        """Continue from saved averages over `count` steps."""
        self.count = count
        self.values = {name: values[name].to(self.weights[name]) for name in self.weights} if count else {}
