"""Schedules, optimisers and averaged weights."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn
from trainables import Bigram, V, seeded

from chainrule.errors import SettingsError
from chainrule.networks.network import BatchLoss, Trainable
from chainrule.networks.training_settings import Schedule, TrainingSettings
from chainrule.settings import parse
from chainrule.training.optimisers import Muon, Optimiser, WeightAverage, make_optimiser, orthogonal
from chainrule.training.schedule import factor

# -- the learning rate over a run, by values ------------------------------------------------------------


def values(schedule: Schedule, total: int, warmup: float = 0.0) -> list[float]:
    return [factor(schedule, step, total, warmup) for step in range(total)]


def test_constant() -> None:
    assert values("constant", 4) == [1, 1, 1, 1]
    assert values("constant", 4, warmup=0.5) == [0.5, 1, 1, 1]


def test_linear_falls_to_nothing() -> None:
    assert values("linear", 4) == [1, 0.75, 0.5, 0.25]
    assert values("linear", 8, warmup=0.5) == [0.25, 0.5, 0.75, 1, 1, 0.75, 0.5, 0.25]


def test_cosine_is_half_in_the_middle() -> None:
    assert values("cosine", 4) == pytest.approx([1, (1 + math.sqrt(0.5)) / 2, 0.5, (1 - math.sqrt(0.5)) / 2])


def test_stable_decay_falls_in_the_last_fifth() -> None:
    assert values("stable-decay", 10) == pytest.approx([1] * 9 + [0.5])
    assert values("stable-decay", 20, warmup=0.1) == pytest.approx([0.5] + [1] * 16 + [0.75, 0.5, 0.25])


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine", "stable-decay"])
@pytest.mark.parametrize("total", [1, 2, 3, 7])
@pytest.mark.parametrize("warmup", [0.0, 0.05, 0.9])
def test_every_step_of_a_short_run_has_a_rate(schedule: Schedule, total: int, warmup: float) -> None:
    assert all(0 < value <= 1 for value in values(schedule, total, warmup))


# -- optimisers take the steps that the literature says, and remember them ------------------------------


OPTIMISERS = ["sgd", "momentum", "rmsprop", "adam", "adamw", "muon"]


def settings(**values: object) -> TrainingSettings:
    return parse(TrainingSettings, values)


class One(Trainable):
    """A single matrix of one number."""

    window = 1

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([[2.0]]))

    def loss(self, inputs: Any, targets_BT: torch.Tensor, memory: Any = None) -> BatchLoss:
        raise NotImplementedError


def stepped(gradient: float, factor: float = 1.0, **values: object) -> float:
    one = One()
    optimiser = make_optimiser(one, settings(**values))
    one.weight.grad = torch.tensor([[gradient]])
    optimiser.step(factor)
    assert one.weight.grad is None
    return one.weight.item()


def test_steps_by_hand() -> None:
    # w - η g
    assert stepped(3.0, optimiser="sgd", learning_rate=0.1, clip=0) == pytest.approx(2 - 0.1 * 3)
    # the schedule's factor is a factor of η
    assert stepped(3.0, 0.5, optimiser="sgd", learning_rate=0.1, clip=0) == pytest.approx(2 - 0.05 * 3)
    # a gradient of norm 3 becomes one of norm 1
    assert stepped(3.0, optimiser="sgd", learning_rate=0.1, clip=1) == pytest.approx(2 - 0.1 * 1, abs=1e-5)
    # Nesterov: the first step is η (g + 0.9 g)
    assert stepped(3.0, optimiser="momentum", learning_rate=0.1, clip=0) == pytest.approx(2 - 0.1 * 1.9 * 3)
    # Adam's first step is η sign(g), whatever the gradient is
    assert stepped(3.0, optimiser="adam", learning_rate=0.1, clip=0) == pytest.approx(2 - 0.1)
    # AdamW shrinks the weight by η λ first
    decayed = stepped(3.0, optimiser="adamw", learning_rate=0.1, weight_decay=0.5, clip=0)
    assert decayed == pytest.approx(2 * (1 - 0.1 * 0.5) - 0.1)


def test_only_matrices_that_are_no_embeddings_shrink() -> None:
    network = seeded(Bigram)
    named = {id(parameter): name for name, parameter in network.named_parameters()}
    groups = make_optimiser(network, settings(optimiser="adamw", weight_decay=0.3)).groups
    shrinking = {named[id(p)] for group in groups for p in group["params"] if group["weight_decay"] == 0.3}
    assert shrinking == {"hidden.weight", "head.weight"}
    assert sum(len(group["params"]) for group in groups) == len(named)


def test_a_table_that_gives_the_logits_too_shrinks() -> None:
    network = seeded(Bigram)
    network.head = nn.Linear(6, V)
    network.head.weight = network.embed.weight
    groups = make_optimiser(network, settings(optimiser="adamw", weight_decay=0.3)).groups
    decays = [group["weight_decay"] for group in groups for p in group["params"] if p is network.embed.weight]
    assert decays == [0.3]


def test_what_is_kept_of_gradients_can_be_set() -> None:
    # Nesterov with β: the first step is η (g + β g)
    kept = stepped(3.0, optimiser="momentum", learning_rate=0.1, beta1=0.5, clip=0)
    assert kept == pytest.approx(2 - 0.1 * 1.5 * 3)
    (group,) = make_optimiser(One(), settings(beta1=0.8, beta2=0.99)).groups
    assert group["betas"] == (0.8, 0.99)
    with pytest.raises(SettingsError, match="beta2 should be at least 0 and below 1, not 1"):
        settings(beta2=1)


def test_muon_is_for_matrices_between_features() -> None:
    network = seeded(Bigram)
    named = {id(parameter): name for name, parameter in network.named_parameters()}
    muon, rest = make_optimiser(network, settings(optimiser="muon")).parts
    assert isinstance(muon, Muon)
    assert {named[id(p)] for group in muon.param_groups for p in group["params"]} == {"hidden.weight"}
    assert sum(len(group["params"]) for group in rest.param_groups) == len(named) - 1


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_a_network_may_ask_for_smaller_steps_of_some_parameters(optimiser: str) -> None:
    class Careful(Bigram):
        def step_scale(self, name: str) -> float:
            return 0.1 if name.startswith("hidden") else 1.0

    network, same = seeded(Careful), seeded(Bigram)
    for one in (network, same):
        made = make_optimiser(one, settings(optimiser=optimiser, learning_rate=0.5, weight_decay=0.0))
        for parameter in one.parameters():
            parameter.grad = torch.ones_like(parameter)
        made.step(0.2)
        rates = {id(p): group["lr"] for group in made.groups for p in group["params"]}
        scale = 0.1 if one is network else 1.0
        assert rates[id(one.hidden.weight)] == pytest.approx(scale * 0.5 * 0.2)
        assert rates[id(one.embed.weight)] == pytest.approx(0.5 * 0.2)
    began = seeded(Bigram)
    small, usual = (one.hidden.weight - began.hidden.weight for one in (network, same))
    torch.testing.assert_close(small, 0.1 * usual)
    torch.testing.assert_close(network.embed.weight, same.embed.weight)


class WithTables(One):
    """Matrices that are no products' factors."""

    def __init__(self) -> None:
        super().__init__()
        del self.weight
        self.positions = nn.Embedding(4, 6)
        self.starts = nn.ParameterList([torch.zeros(1, 6)])
        self.hidden = nn.Linear(6, 6, bias=False)


def test_positions_and_first_states_are_no_matrices_between_features() -> None:
    network: Any = WithTables()
    muon, _ = make_optimiser(network, settings(optimiser="muon")).parts
    assert [p is network.hidden.weight for group in muon.param_groups for p in group["params"]] == [True]
    shrinking, _ = make_optimiser(network, settings(optimiser="adamw", weight_decay=0.3)).groups
    assert shrinking["weight_decay"] == 0.3 and [p is network.hidden.weight for p in shrinking["params"]] == [True]


@pytest.mark.parametrize("shape", [(8, 8), (12, 5), (5, 12)])
def test_muon_is_that_of_torch(shape: tuple[int, int]) -> None:
    """To a few hundredths of a step: torch's computes in bfloat16, which has hardly three digits."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    some, others = ([nn.Parameter(torch.ones(shape, device=device)) for _ in range(3)] for _ in range(2))
    ours = Muon(some, lr=0.01, weight_decay=0.1)
    theirs = torch.optim.Muon(others, lr=0.01, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    for _ in range(3):
        for one, other in zip(some, others, strict=True):
            one.grad = torch.randn(shape, device=device)
            other.grad = one.grad.clone()
        ours.step()
        theirs.step()
    size = 0.01 * 0.2 * max(shape) ** 0.5
    for one, other in zip(some, others, strict=True):
        torch.testing.assert_close(one, other, atol=0.06 * size, rtol=0)


def test_many_matrices_become_orthogonal_as_one_does() -> None:
    torch.manual_seed(0)
    for shape in ((4, 7, 3), (4, 3, 7)):
        matrices = torch.randn(shape, dtype=torch.float64)
        torch.testing.assert_close(orthogonal(matrices), torch.stack([orthogonal(matrix) for matrix in matrices]))


def test_singular_values_become_about_one() -> None:
    torch.manual_seed(0)
    values = torch.linalg.svdvals(orthogonal(torch.randn(6, 20)))
    assert 0.5 < values.min() <= values.max() < 1.5


def test_l2_is_off_unless_it_is_set() -> None:
    for name in ("sgd", "momentum", "rmsprop", "adam"):
        assert all(
            group["weight_decay"] == 0 for group in make_optimiser(seeded(Bigram), settings(optimiser=name)).groups
        )


def trained(network: Bigram, optimiser: Optimiser, first: int, last: int) -> None:
    for number in range(first, last):
        torch.manual_seed(number)
        for parameter in network.parameters():
            parameter.grad = torch.randn_like(parameter)
        optimiser.step(1.0)


@pytest.mark.parametrize("name", OPTIMISERS)
def test_what_is_remembered_goes_on(name: str) -> None:
    """Three steps and then two, with the state put into a new optimiser between, are five steps."""
    whole, parts = seeded(Bigram), seeded(Bigram)
    trained(whole, make_optimiser(whole, settings(optimiser=name)), 0, 5)
    first = make_optimiser(parts, settings(optimiser=name))
    trained(parts, first, 0, 3)
    second = make_optimiser(parts, settings(optimiser=name))
    second.load({key: tensor.clone() for key, tensor in first.tensors().items()})
    trained(parts, second, 3, 5)
    for one, other in zip(whole.parameters(), parts.parameters(), strict=True):
        assert torch.equal(one, other)


def test_the_norm_is_that_before_clipping() -> None:
    network = seeded(Bigram)
    optimiser = make_optimiser(network, settings(clip=0.5))
    for parameter in network.parameters():
        parameter.grad = torch.ones_like(parameter)
    count = sum(parameter.numel() for parameter in network.parameters())
    assert optimiser.step(1.0).item() == pytest.approx(count**0.5)


# -- averages of weights, by hand -----------------------------------------------------------------------


def followed(
    average: WeightAverage, weight: torch.Tensor, values: list[float], total: int, stalled: int = 0
) -> float | None:
    for step, value in enumerate(values, start=1):
        weight.fill_(value)
        average.update(step, total, stalled)
    return average.values["w"].item() if average.is_on else None


def test_without_averaging_the_weights_are_the_weights() -> None:
    weight = torch.zeros(1)
    average = WeightAverage("none", {"w": weight})
    assert followed(average, weight, [1, 2, 3], 10) is None
    with average.applied():
        assert weight.item() == 3


def test_ema_is_the_mean_at_first_and_then_forgets() -> None:
    weight = torch.zeros(1)
    # of 40 steps a twentieth is 2: the factors are 1, 1/2, 1/2
    average = WeightAverage("ema", {"w": weight})
    assert followed(average, weight, [4, 8, 2], 40) == pytest.approx(((4 + 8) / 2 + 2) / 2)


def test_tail_is_the_mean_of_the_last_fifth() -> None:
    weight = torch.zeros(1)
    # steps 8, 9 and 10 of 10
    average = WeightAverage("tail", {"w": weight})
    assert followed(average, weight, list(range(1, 11)), 10) == pytest.approx((8 + 9 + 10) / 3)


def test_tail_begins_when_validation_stalls() -> None:
    weight = torch.zeros(1)
    assert followed(WeightAverage("tail", {"w": weight}), weight, [1, 2, 6], 100, stalled=4) is None
    assert followed(WeightAverage("tail", {"w": weight}), weight, [1, 2, 6], 100, stalled=5) == pytest.approx(3)


def test_the_average_is_applied_and_taken_back() -> None:
    weight = torch.zeros(1)
    average = WeightAverage("tail", {"w": weight})
    followed(average, weight, [1, 3], 1)
    with average.applied():
        assert (weight.item(), average.values["w"].item()) == (2, 3)
    assert (weight.item(), average.values["w"].item()) == (3, 2)
