"""Laws of every network: each law takes a network in double precision, and fails if the network breaks it."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from chainrule.arrays import PAD
from chainrule.networks.network import Network

VOCABULARY, BOS = 11, 1
IDS_BT = torch.tensor([[1, 4, 2, 9, 7, 3], [1, 5, 5, 10, 0, 2], [1, 8, 6, 4, 3, 2]])


def check(network: Network) -> None:
    """Every law there is."""
    network.double().eval()
    pieces_are_the_whole(network)
    padding_changes_nothing(network)
    rows_can_be_selected(network)
    memory_is_a_value(network)
    nothing_leaks_from_the_future(network)
    gradients_are_slopes(network)
    loss_is_that_of_the_logits(network)


def memories(memory: Any) -> list[Tensor]:
    """The tensors in a memory."""
    if isinstance(memory, Tensor):
        return [memory]
    parts = memory if isinstance(memory, tuple) else vars(memory).values()
    return [tensor for part in parts for tensor in memories(part)]


def same(got: Any, expected: Any) -> None:
    for one, other in zip(memories(got), memories(expected), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def pieces_are_the_whole(network: Network) -> None:
    whole = network(IDS_BT, network.begin(3))
    same(network(IDS_BT).features_BTD, whole.features_BTD)
    for sizes in ([1, 1, 1, 1, 1, 1], [2, 4], [5, 1]):
        memory, features = network.begin(3), []
        for piece_BT in IDS_BT.split(sizes, dim=1):
            reading = network(piece_BT, memory)
            features.append(reading.features_BTD)
            memory = reading.memory
        same(torch.cat(features, dim=1), whole.features_BTD)
        same(memory, whole.memory)


def padding_changes_nothing(network: Network) -> None:
    first_BT, second_BT = IDS_BT.split([2, 4], dim=1)
    memory = network(first_BT, network.begin(3)).memory
    for lengths in ([4, 0, 2], [1, 3, 0], [4, 4, 4], [0, 0, 0]):
        is_token_BT = torch.arange(4) < torch.tensor(lengths)[:, None]
        together = network(second_BT, memory, is_token_BT)
        for row, length in enumerate(lengths):
            before = memory.select(torch.tensor([row]))
            alone = network(second_BT[row : row + 1, :length], before) if length else None
            after = before if alone is None else alone.memory
            same(together.memory.select(torch.tensor([row])), after)
            if alone is not None:
                same(together.features_BTD[row : row + 1, :length], alone.features_BTD)
    step = network(second_BT[:, :1], memory, torch.tensor([[True], [False], [True]]))
    every = network(second_BT[:, :1], memory)
    same(step.memory.select(torch.tensor([0, 2])), every.memory.select(torch.tensor([0, 2])))
    same(step.memory.select(torch.tensor([1])), memory.select(torch.tensor([1])))


def rows_can_be_selected(network: Network) -> None:
    memory = network(IDS_BT, network.begin(3)).memory
    rows_B, next_BT = torch.tensor([2, 0, 0, 1]), torch.tensor([[3], [4], [5], [6]])
    selected = network(next_BT, memory.select(rows_B))
    for i, row in enumerate(rows_B.tolist()):
        alone = network(torch.cat([IDS_BT[row : row + 1], next_BT[i : i + 1]], dim=1), network.begin(1))
        same(selected.features_BTD[i : i + 1], alone.features_BTD[:, -1:])


def memory_is_a_value(network: Network) -> None:
    memory = network(IDS_BT, network.begin(3)).memory
    before = [tensor.clone() for tensor in memories(memory)]
    network(IDS_BT, memory)
    same(tuple(memories(memory)), tuple(before))
    detached = memory.detach()
    same(detached, memory)
    assert not any(tensor.requires_grad for tensor in memories(detached))


def nothing_leaks_from_the_future(network: Network) -> None:
    features_BTD = network(IDS_BT).features_BTD
    for place in range(1, 6):
        changed_BT = IDS_BT.clone()
        changed_BT[:, place] = 9 - changed_BT[:, place].clamp(max=9)
        changed_BTD = network(changed_BT).features_BTD
        assert torch.equal(changed_BTD[:, :place], features_BTD[:, :place])
        assert not torch.allclose(changed_BTD[:, place], features_BTD[:, place])


def gradients_are_slopes(network: Network) -> None:
    """The gradient of the whole loss by every parameter is its slope, by finite differences."""
    inputs_BT, targets_BT = IDS_BT[:2, :4], IDS_BT[:2, 1:5]
    with torch.no_grad():
        # off the zeros that biases begin with, where a rectifier has no slope
        for parameter in network.parameters():
            parameter += 0.1 * torch.randn_like(parameter)

    def loss(*parameters: Tensor) -> Tensor:
        logits_BTV = network.head(network(inputs_BT).features_BTD)
        return functional.cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten())

    # the numbers are changed in place, so that the network sees them
    assert torch.autograd.gradcheck(loss, tuple(network.parameters()))


def loss_is_that_of_the_logits(network: Network) -> None:
    targets_BT = IDS_BT.roll(-1, dims=1)
    targets_BT[:, -1] = PAD
    padded_BT = torch.cat([IDS_BT, torch.full((3, 2), PAD)], dim=1)
    padded_targets_BT = torch.cat([targets_BT, torch.full((3, 2), PAD)], dim=1)
    nats = network.loss(IDS_BT, targets_BT).nats
    # -ln p(y), summed over the targets
    log_probs_BTV = torch.log_softmax(network.head(network(IDS_BT).features_BTD), dim=-1)
    tokens_only = -log_probs_BTV[:, :-1].gather(2, targets_BT[:, :-1, None]).sum()
    torch.testing.assert_close(nats, tokens_only)
    # in training the spare rows of the table have some probability
    network.head.train()
    rows = len(network.head.weight)
    assert 0 < network.loss(IDS_BT, targets_BT).nats - tokens_only < 15 * 2 * math.log(rows / VOCABULARY)
    network.head.eval()
    torch.testing.assert_close(network.loss(padded_BT, padded_targets_BT).nats, nats)
