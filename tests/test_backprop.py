"""The code of docs/backprop.md runs, and its gradients by hand equal those of the tape."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chainrule.autodiff import Linear, Parameter, Softmax, SoftmaxCrossEntropy, Tape
from chainrule.cli.main import main

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "backprop.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.fixture(scope="module")
def lesson() -> list[dict[str, Any]]:
    """Run the blocks of the page in order; return the names that they define."""
    names: dict[str, Any] = {"__name__": "lesson"}
    after = []
    for number, block in enumerate(blocks("python"), 1):
        exec(compile(block, f"docs/backprop.md, block {number}", "exec"), names)
        after.append(dict(names))
    return after


def test_every_block_runs(lesson: list[dict[str, Any]]) -> None:
    assert len(lesson) == 14


@pytest.mark.parametrize(("block", "letters"), [(5, "EWbUc"), (8, "EWUbOc"), (10, "QKV")])
def test_by_hand_and_on_the_tape_gradients_agree(lesson: list[dict[str, Any]], block: int, letters: str) -> None:
    names = lesson[block - 1]
    for letter in letters:
        on_tape, by_hand = names[f"t{letter}"].dense_gradient(), names[f"d{letter}"]
        assert np.abs(by_hand).max() > 0.01
        assert np.allclose(on_tape, by_hand, rtol=0, atol=1e-10), letter


def test_a_wrong_module_is_reported(lesson: list[dict[str, Any]]) -> None:
    assert "FAIL" in str(lesson[-2]["report"])


# -- the lecture's shapes, on the tape --------------------------------------------------------------------

X, W, Y = np.array([0.5, -2.0]), np.array([[0.1, 0.2], [0.3, -0.4], [-0.5, 0.6]]), 1


def jacobian(out: type[Linear] | type[Softmax], variable: Parameter, *before: Any) -> np.ndarray:
    """Return the Jacobian: row i has the gradient of output i alone."""
    rows = []
    for i in range(3):
        variable.forget()
        with Tape() as tape:
            out().apply_fwd(*before, variable)
            tape.backward(np.eye(3)[i])
        rows.append(variable.dense_gradient().reshape(-1).copy())
    return np.stack(rows)


def test_the_jacobian_of_the_softmax() -> None:
    z = W @ X
    p = np.exp(z) / np.exp(z).sum()
    found = jacobian(Softmax, Parameter("z", z))
    assert found.shape == (3, 3)
    assert np.allclose(found, np.diag(p) - np.outer(p, p), rtol=0, atol=1e-12)
    # probabilities sum to one whatever the logits are: nothing is left when their changes are summed
    assert np.allclose(found.sum(axis=0), 0, atol=1e-12)


def test_the_jacobian_of_logits_in_weights() -> None:
    found = jacobian(Linear, Parameter("W", W), X)
    assert found.shape == (3, 6)
    assert found.tolist() == [
        [0.5, -2.0, 0.0, 0.0, 0.0, 0.0],
        [0.0, 0.0, 0.5, -2.0, 0.0, 0.0],
        [0.0, 0.0, 0.0, 0.0, 0.5, -2.0],
    ]


def test_the_gradient_of_the_weights_is_p_minus_y_times_x() -> None:
    weights = Parameter("W", W)
    with Tape() as tape:
        SoftmaxCrossEntropy().apply_fwd(Linear().apply_fwd(X, weights), np.array(Y))
        tape.backward()
    # z = (-0.35, 0.95, -1.45)
    p = np.exp([-0.35, 0.95, -1.45]) / np.exp([-0.35, 0.95, -1.45]).sum()
    assert weights.dense_gradient().shape == (3, 2)
    assert np.allclose(weights.dense_gradient(), np.outer(p - [0, 1, 0], X), rtol=0, atol=1e-12)
    # dL/dz · dz/dW, the long way
    long_way = (p - [0, 1, 0]) @ jacobian(Linear, Parameter("W", W), X)
    assert np.allclose(weights.dense_gradient().reshape(-1), long_way, rtol=0, atol=1e-12)


# -- the commands -----------------------------------------------------------------------------------------


def test_the_commands_run_and_print_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("toy.txt").write_text("i love cats\ni love dogs\ncats chase mice\n", encoding="utf-8")
    commands = [shlex.split(line) for line in "".join(blocks("sh")).replace("\\\n", "").splitlines()]
    assert [words[:2] for words in commands] == [
        ["printf", "i love cats\\ni love dogs\\ncats chase mice\\n"],
        ["chainrule", "train"],
        ["chainrule", "explain"],
        ["chainrule", "train"],
    ]
    printed = {}
    for words in commands[1:]:
        with pytest.raises(SystemExit) as ended:
            main(words[1:])
        captured = capsys.readouterr()
        assert ended.value.code == 0, captured.err
        printed[words[1]] = captured.out
    (shown,) = blocks("text")
    # figures may differ in their last digits from machine to machine
    assert without_figures(printed["explain"]) == without_figures(shown)
    assert "p(cats | <s> i love) = 0.693" in printed["explain"]
    drawn = Path("toy.svg").read_text(encoding="utf-8")
    assert without_figures(drawn) == without_figures((ROOT / "docs" / "pictures" / "feedforward.svg").read_text())


def without_figures(text: str) -> str:
    """Return the modules and their equations, without computed values."""
    text = re.sub(r"most likely.*", "", text)
    text = re.sub(r'stroke-width="[\d.]+"', "", text)
    text = re.sub(r'(class="gradient"[^>]*>)[^<]+', r"\1#", text)
    return re.sub(r"\d+\.\d+(e[+-]\d+)?", "#", text)
