from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import pytest
import torch
from network_laws import BOS, IDS_BT, VOCABULARY, check, memories, same
from torch import Tensor

from chainrule.arrays import PAD
from chainrule.errors import SettingsError
from chainrule.networks.config import QrnnConfig, RecurrentConfig, padded_size
from chainrule.networks.recurrent.fused_layer import FusedLayer
from chainrule.networks.recurrent.qrnn import Qrnn, QrnnLayer
from chainrule.networks.recurrent.rnn import Recurrent, RecurrentMemory

CELLS: list[dict[str, Any]] = [
    {"cell": "elman"},
    {"cell": "elman", "activation": "relu"},
    {"cell": "elman", "activation": "sigmoid", "biases": 1},
    {"cell": "elman", "activation": "leaky-relu"},
    {"cell": "lstm"},
    {"cell": "lstm", "biases": 1},
    {"cell": "gru"},
    {"cell": "gru", "biases": 1},
    {"cell": "gru", "reset": "before"},
    {"cell": "qrnn"},
    {"cell": "qrnn", "kernel": 3},
]


def made(**settings: Any) -> Recurrent:
    torch.manual_seed(3)
    network, config = (Qrnn, QrnnConfig) if settings.get("cell") == "qrnn" else (Recurrent, RecurrentConfig)
    return network(config(**{"embedding": 3, "hidden": 4, **settings}), VOCABULARY, BOS)


DESIGNS: list[dict[str, Any]] = [
    {"layers": 2, "last": 2, "tied": False},
    {"learned_start": True, "weight_dropout": 0.5},
    {"layers": 1},
]


@pytest.mark.parametrize(
    ("cell", "settings"),
    [
        pytest.param(cell, settings, marks=[] if i % 3 == j else [pytest.mark.slow], id=f"{cell} {settings}")
        for i, cell in enumerate(CELLS)
        for j, settings in enumerate(DESIGNS)
    ],
)
def test_laws(cell: dict[str, Any], settings: dict[str, Any]) -> None:
    check(made(**cell, **settings))


@contextmanager
def reading_by_cells() -> Iterator[None]:
    """Networks read step by step, by the equations of cells.py."""
    with ExitStack() as stack:
        for layer in (FusedLayer, QrnnLayer):
            stack.enter_context(patch.object(layer, "forward", layer.read_by_cells))
        yield


def gradients(network: Recurrent, memory: RecurrentMemory, *, by_cells: bool) -> tuple[Tensor, ...]:
    """The results of a training step: features, memory, penalty, and the gradient of every parameter."""
    torch.manual_seed(7)  # the same masks
    network.zero_grad()
    lengths_B = torch.tensor([6, 2, 4])
    is_token_BT = torch.arange(6) < lengths_B[:, None]
    with reading_by_cells() if by_cells else nullcontext():
        reading = network(IDS_BT, memory, is_token_BT)
    features_BTD = torch.where(is_token_BT[..., None], reading.features_BTD, 0)
    loss = network.head(features_BTD).square().mean() + sum(m.square().sum() for m in memories(reading.memory))
    loss.backward()
    parameters = [p.grad for p in network.parameters() if p.grad is not None]
    return features_BTD, *memories(reading.memory), *parameters


@pytest.mark.parametrize("cell", CELLS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_fused_layers_are_the_lectures_cells(cell: dict[str, Any], dtype: torch.dtype) -> None:
    """In training, with every dropout there is, rows that end early, and gradients."""
    dropouts = {f"{name}_dropout": 0.3 for name in ("input", "hidden", "output", "embedding", "weight")}
    network = made(layers=3, learned_start=True, **dropouts, **cell).to(dtype)
    close = 1e-5 if dtype == torch.float32 else 1e-10
    memory = network(IDS_BT).memory.detach()
    fused, by_cells = (gradients(network, memory, by_cells=way) for way in (False, True))
    assert len(fused) > 12
    for one, other in zip(fused, by_cells, strict=True):
        torch.testing.assert_close(one, other, rtol=close, atol=close)


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_fused_layers_are_the_cells_for_full_rows_too(cell: dict[str, Any]) -> None:
    network = made(layers=2, **cell).double().eval()
    fused = network(IDS_BT)
    with reading_by_cells():
        by_cells = network(IDS_BT)
    same(fused.features_BTD, by_cells.features_BTD)
    same(fused.memory, by_cells.memory)


@pytest.mark.parametrize(("cell", "gates"), [("elman", 1), ("lstm", 4), ("gru", 3)])
def test_parameters(cell: str, gates: int) -> None:
    """Each layer has g matrices from below, g from the state before, and two biases for each of the g gates."""
    rows, d, m = padded_size(VOCABULARY), 3, 4

    def layer(below: int, width: int) -> int:
        return gates * (below * width + width * width + 2 * width)

    def count(**settings: Any) -> int:
        return sum(p.numel() for p in made(cell=cell, **settings).parameters())

    # tied: the last of several layers is as wide as an embedding, and V d serves twice
    assert count(layers=3) == rows * d + layer(d, m) + layer(m, m) + layer(m, d) + rows
    # a single layer keeps its width, and is brought to d by a matrix
    assert count(layers=1) == rows * d + layer(d, m) + m * d + rows
    assert count(layers=2, tied=False) == rows * d + layer(d, m) + layer(m, m) + m * rows + rows
    parts = 2 if cell == "lstm" else 1
    assert count(layers=3, learned_start=True) == count(layers=3) + parts * (m + m + d)


@pytest.mark.parametrize("kernel", [1, 2, 3])
def test_parameters_of_a_qrnn(kernel: int) -> None:
    """Each layer has three matrices from the last inputs, three biases, and nothing from the state before."""
    rows, d, m = padded_size(VOCABULARY), 3, 4
    count = sum(p.numel() for p in made(cell="qrnn", kernel=kernel, layers=2, learned_start=True).parameters())
    assert count == rows * d + 3 * (kernel * d * m + m + kernel * m * d + d) + (m + d) + rows


def test_awd_shape() -> None:
    """Embedding 400 and layers of 1150, 1150 and 400 over 10,000 words: the 24 M of the AWD-LSTM paper."""
    config = RecurrentConfig(embedding=400, hidden=1150, layers=3)
    assert config.widths == [1150, 1150, 400]
    layers = 4 * (1150 * (400 + 1150 + 2) + 1150 * (1150 + 1150 + 2) + 400 * (1150 + 400 + 2))
    with torch.device("meta"):
        network = Recurrent(config, 10_000, BOS)
    assert sum(p.numel() for p in network.layers.parameters()) == layers == 20_211_600
    assert sum(p.numel() for p in network.parameters()) == layers + 10_048 * 401 == 24_240_848


def test_the_start_is_learned() -> None:
    network = made(learned_start=True, layers=2)
    network.loss(IDS_BT[:, :-1], IDS_BT[:, 1:]).nats.backward()
    assert len(network.starts) == 2
    assert all(start.grad is not None and (start.grad != 0).all() for start in network.starts)


def test_gradients_end_where_memory_is_detached() -> None:
    network = made(learned_start=True, layers=1)
    memory = network(IDS_BT).memory
    network(IDS_BT, memory.detach()).features_BTD.sum().backward()
    assert network.starts[0].grad is None
    network(IDS_BT, memory).features_BTD.sum().backward()
    assert network.starts[0].grad is not None


def test_recurrent_weights_begin_orthogonal_and_forget_gates_open() -> None:
    (layer,) = made(layers=1, hidden=6).layers
    for U in layer.weights.weight_hh_l0.detach().chunk(4):
        torch.testing.assert_close(U @ U.T, torch.eye(6))
    assert layer.weights.bias_ih_l0.tolist() == [0.0] * 6 + [1.0] * 6 + [0.0] * 12
    assert layer.weights.bias_hh_l0.tolist() == [0.0] * 24


def test_weights_are_left_out_in_training_only() -> None:
    network = made(layers=1, weight_dropout=0.5, input_dropout=0.0, output_dropout=0.0)
    first, second = (network.train()(IDS_BT).features_BTD for _ in range(2))
    # nothing was remembered before the first token, so that no recurrent weight matters there
    torch.testing.assert_close(first[:, 0], second[:, 0])
    assert not torch.allclose(first[:, 1:], second[:, 1:])
    network.eval()
    assert torch.equal(network(IDS_BT).features_BTD, network(IDS_BT).features_BTD)


def test_the_penalty_is_for_training() -> None:
    network = made(alpha=2.0, beta=1.0, layers=1, tied=False, input_dropout=0.0, output_dropout=0.0)
    reading = network.train()(IDS_BT)
    h = reading.features_BTD  # nothing is dropped, and there is no projection: these are the layer's outputs
    # α mean h² + β mean (h_t - h_{t-1})²
    expected = 2 * (h**2).mean() + ((h[:, 1:] - h[:, :-1]) ** 2).mean()
    torch.testing.assert_close(network.loss(IDS_BT, IDS_BT).penalty, expected)
    assert network.eval().loss(IDS_BT, IDS_BT).penalty is None
    assert made().train().loss(IDS_BT, IDS_BT).penalty is None


def test_padding_changes_no_loss_and_no_penalty() -> None:
    network = made(alpha=2.0, beta=1.0, input_dropout=0.0, hidden_dropout=0.0, output_dropout=0.0).train()
    padded_BT = torch.cat([IDS_BT, torch.full((len(IDS_BT), 5), PAD)], dim=1)
    expected, found = (network.loss(ids_BT, ids_BT) for ids_BT in (IDS_BT, padded_BT))
    torch.testing.assert_close(found.nats, expected.nats)
    torch.testing.assert_close(found.penalty, expected.penalty)


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_autocast_computes_in_its_precision(cell: dict[str, Any]) -> None:
    network = made(**cell, weight_dropout=0.2)
    with torch.autocast("cpu", torch.bfloat16):
        reading = network(IDS_BT, None, torch.arange(6) < torch.tensor([[6], [2], [0]]))
    assert {m.dtype for m in memories(reading.memory)} == {reading.features_BTD.dtype} == {torch.bfloat16}
    reading.features_BTD.sum().backward()
    assert {p.grad.dtype for p in network.parameters() if p.grad is not None} == {torch.float32}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("cell", CELLS, ids=str)
@pytest.mark.parametrize("dropped", [0.0, 0.4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_gpu_takes_the_weights_as_they_lie(
    cell: dict[str, Any], dropped: float, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """cuDNN warns where weights are not in one piece, and warnings are errors here."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)  # products of ten bits, which are not compared
    no_other = {"input_dropout": 0.0, "hidden_dropout": 0.0, "output_dropout": 0.0}  # its masks depend on the type
    network = made(layers=2, hidden=8, embedding=8, weight_dropout=dropped, **no_other, **cell).cuda()
    close = 1e-4 if dtype == torch.float32 else 5e-2
    for is_token_BT in (None, torch.arange(6, device="cuda") < torch.tensor([[6], [2], [4]], device="cuda")):
        readings = []
        for way in (nullcontext, reading_by_cells):
            torch.manual_seed(7)
            with way(), torch.autocast("cuda", dtype, enabled=dtype != torch.float32):
                readings.append(network(IDS_BT.cuda(), None, is_token_BT))
        fused, reference = readings
        for one, other in zip(memories(fused.memory), memories(reference.memory), strict=True):
            torch.testing.assert_close(one.float(), other.float(), rtol=close, atol=close)
        fused.features_BTD.float().sum().backward()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("cell", CELLS, ids=str)
@pytest.mark.parametrize("width", [8, 24, 31])
def test_a_gpu_takes_weights_of_sixteen_bits_as_they_lie(cell: dict[str, Any], width: int) -> None:
    """torch's own modules leave them in pieces, which cuDNN warns of."""
    network = made(layers=2, hidden=width, embedding=width, tied=False, **cell).eval().to("cuda", torch.bfloat16)
    with torch.no_grad():
        found = network(IDS_BT.cuda()).features_BTD
        with reading_by_cells():
            torch.testing.assert_close(found, network(IDS_BT.cuda()).features_BTD, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("cell", ["elman", "lstm", "gru"])
def test_weights_are_laid_out_one_after_the_other(cell: str, dtype: torch.dtype) -> None:
    """In the order of cuDNN, whose check is this one."""
    layer = copy.deepcopy(made(cell=cell).layers[0]).to(dtype)
    before = {name: weight.clone() for name, weight in layer.named_parameters()}
    weights = list(layer.parameters())

    def is_in_one_piece() -> bool:
        places = [weights[0].data_ptr()]
        for weight in weights:
            places.append(places[-1] + weight.numel() * weight.element_size())
        return [weight.data_ptr() for weight in weights] == places[:-1]

    assert not is_in_one_piece()
    layer.lay_out()
    assert is_in_one_piece()
    assert all(one is other for one, other in zip(layer.parameters(), weights, strict=True))
    assert all(torch.equal(weight, before[name]) for name, weight in layer.named_parameters())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layers": 0}, "layers should be at least 1, not 0"),
        ({"last": 0}, "last should be at least 1, not 0"),
        ({"weight_dropout": 1.5}, "weight_dropout should be at least 0 and below 1, not 1.5"),
        ({"alpha": -1.0}, "alpha should be at least 0, not -1.0"),
        ({"activation": "relu"}, "activation=relu goes with cell=elman, not with cell=lstm"),
        ({"reset": "before"}, "reset=before goes with cell=gru, not with cell=lstm"),
    ],
)
def test_settings_that_make_no_network(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        made(**settings)


def test_a_dropout_that_was_never_chosen_changes_nothing_outside_training() -> None:
    torch.manual_seed(0)
    plain = made(cell="qrnn").eval()
    other = made(cell="qrnn", weight_dropout=None).eval()
    other.load_state_dict(plain.state_dict())
    ids_BT = torch.tensor([[1, 2, 3]])
    assert torch.equal(other(ids_BT, other.begin(1))[0], plain(ids_BT, plain.begin(1))[0])
