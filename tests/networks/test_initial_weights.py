from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import chainrule as cr
from chainrule.inference.neural_model import NeuralModel
from chainrule.networks.config import RecurrentConfig
from chainrule.networks.initial_weights import WithoutInitialWeights, is_without_numbers, orthogonal_
from chainrule.networks.recurrent.rnn import Recurrent
from chainrule.networks.transformer import positions

TEXT = ["i love cats", "i love dogs"] * 5
DESIGNS: dict[str, dict[str, Any]] = {
    "lstm": {"hidden": 8, "embedding": 8},
    "qrnn": {"hidden": 8, "embedding": 8},
    "feedforward": {"hidden": 8},
    "bagofwords": {"hidden": 8},
    **{
        f"transformer positions={name}": {"positions": name, "layers": 1, "width": 8, "heads": 2, "window": 8}
        for name in ("learned", "sinusoidal", "rotary", "alibi")
    },
}
LOAD = """
import sys
import chainrule as cr
for folder in sys.argv[1:]:
    cr.load(folder, device="cpu")
    print(folder, sorted({"torch._dynamo", "sympy"} & set(sys.modules)))
"""


def made() -> Recurrent:
    return Recurrent(RecurrentConfig(hidden=8, embedding=8, tied=False), 20, 1)


def test_an_orthogonal_matrix_is_that_of_torch() -> None:
    torch.manual_seed(1)
    expected = nn.init.orthogonal_(torch.empty(5, 3))
    torch.manual_seed(1)
    assert torch.equal(orthogonal_(torch.empty(5, 3)), expected)


def test_parameters_and_their_parts_are_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "empty", torch.zeros)
    assert all(weight.any() for name, weight in made().named_parameters() if weight.dim() == 2)
    state = torch.get_rng_state()
    with WithoutInitialWeights():
        network = made()
        drawn = torch.zeros(9).normal_()
    assert not any(weight.any() for weight in network.parameters() if weight.dim() == 2)
    assert drawn.all(), "no weight of the network is drawn, and other numbers are"
    torch.set_rng_state(state)
    assert torch.equal(torch.zeros(9).normal_(), drawn)


@pytest.mark.parametrize("table", [positions.rotary_tables, positions.sinusoidal_table])
def test_tables_without_numbers_have_the_same_shapes(table: Any) -> None:
    def shapes() -> list[Any]:
        made = table(7, 6, 10_000.0) if table is positions.rotary_tables else table(7, 6)
        return [(one.shape, one.dtype) for one in ([made] if isinstance(made, Tensor) else made)]

    assert not is_without_numbers()
    expected = shapes()
    with torch.device("meta"):
        assert is_without_numbers()
        assert shapes() == expected


@pytest.mark.slow
def test_to_load_a_network_imports_no_compiler(tmp_path: Path) -> None:
    """The compiler of torch and its algebra take seconds of CPU time."""
    folders = []
    for name, settings in DESIGNS.items():
        lm = cr.train(name.split()[0], TEXT, steps=1, engine="torch", tokenizer="word", **settings)
        assert isinstance(lm, NeuralModel)
        lm.save(tmp_path / name)
        folders.append(str(tmp_path / name))
    pairs = cr.Pairs.of([("a b", "b a"), ("b", "b")] * 5)
    for cell in ("gru", "transformer"):
        size = {"layers": 1, "width": 8, "heads": 2} if cell == "transformer" else {"layers": 1, "width": 8}
        cr.train("seq2seq", pairs, steps=1, cell=cell, tokenizer="word", **size).save(tmp_path / cell)
        folders.append(str(tmp_path / cell))
    command = [sys.executable, "-c", LOAD, *folders]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == [f"{folder} []" for folder in folders]
