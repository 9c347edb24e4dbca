"""From gradients to weights: optimisers by name, clipping, and averages of the weights over the steps of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, RMSprop

from chainrule.networks.network import Trainable
from chainrule.networks.training_settings import STALLED, Averaging, TrainingSettings, is_between_features, shrinks
from chainrule.training.optim.muon import Muon

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
    if name == "sgd":
        return SGD(groups, lr=rate, fused=fused)
    if name == "momentum":
        return SGD(groups, lr=rate, momentum=settings.beta1, nesterov=settings.beta1 > 0, fused=fused)
    if name == "rmsprop":
        return RMSprop(groups, lr=rate, foreach=True)
    if name == "adam":
        return Adam(groups, lr=rate, betas=betas, fused=fused)
    return AdamW(groups, lr=rate, betas=betas, fused=fused)


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
        """Drop, after `step` steps, a tail average whose last fifth was that of a run of `before` steps.

        The run has `now` steps, and its last fifth begins later.
        """
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
