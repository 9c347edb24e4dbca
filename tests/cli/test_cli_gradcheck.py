"""`chainrule gradcheck`: what is right passes, and what is wrong is named."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from chainrule.autodiff import Node, Tanh, Value
from chainrule.autodiff.checks import every_check
from chainrule.autodiff.networks import cells
from listening import Listening

from .running import Fails, Run, strict_json, without_torch


def test_everything_passes(run: Run) -> None:
    ran = run("gradcheck")
    assert ran.code == 0, ran.err
    rows = [line for line in ran.out.splitlines() if line.endswith("pass")]
    assert "FAIL" not in ran.out
    assert ran.out.splitlines()[-1] == f"{len(rows)} of {len(rows)} pass (tolerance 1e-06)"
    first = [row.split("  ")[0] for row in rows]
    assert {"Linear", "Softmax", "SoftmaxCrossEntropy", "Concat", "LayerNorm"} <= set(first)
    assert {"feedforward", "elman, not tied", "lstm, two layers", "gru, learned start"} <= set(first)
    assert {"RMSNorm", "Rotate", "ScaledDotProductAttention, causal", "transformer, gpt2"} <= set(first)


def test_some_can_be_named(run: Run) -> None:
    ran = run("gradcheck", "Linear", "gru")
    assert [line.split("  ")[0] for line in ran.out.splitlines()[2:-1]] == [
        "Linear",
        "Linear without bias",
        "gru, reset before, one bias",
        "gru, learned start",
    ]
    assert "x, W, b" in ran.out and "8 parameters" in ran.out


def test_torch_is_not_imported() -> None:
    done = without_torch(["gradcheck", "transformer"], is_installed=True)
    assert done.returncode == 0, done.stderr
    assert "2 of 2 pass" in done.stdout


def test_as_json(run: Run) -> None:
    (report,) = run("gradcheck", "Embedding", "--json", "--seed", 3, "--tolerance", 1e-5).json
    assert (report["name"], report["passed"], report["tolerance"]) == ("Embedding", True, 1e-5)
    (entry,) = report["inputs"]  # ids have no gradient
    assert (entry["input"], entry["shape"], entry["entries"], entry["passed"]) == ("E", [5, 3], 15, True)
    assert entry["backward"] == pytest.approx(entry["small_step"], abs=1e-8)


def test_a_wrong_module_is_caught_and_its_worst_entry_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def backward(self: Tanh, x: np.ndarray, z: np.ndarray, g: np.ndarray) -> np.ndarray:
        return g * (1 + z**2)  # it should be 1 - z²

    monkeypatch.setattr(Tanh, "backward", backward)
    ran = run("gradcheck", "Tanh", "Sigmoid", "elman")
    assert (ran.code, ran.err) == (1, "")
    verdicts = {line.split("  ")[0]: line.split()[-1] for line in ran.out.splitlines()[2:5]}
    assert verdicts == {"Sigmoid": "pass", "Tanh": "FAIL", "elman, not tied": "FAIL"}
    assert "1 of 3 pass" in ran.out
    (line,) = (line for line in ran.out.splitlines() if line.startswith("Tanh: "))
    assert line.startswith("Tanh: of x [3, 4] the entry [")
    assert "backward gives " in line and ", a small step " in line
    (report,) = strict_json(run("gradcheck", "Tanh", "--json").out)
    assert not report["passed"]
    worst = report["inputs"][0]
    assert f"backward gives {worst['backward']:.9g}, a small step {worst['small_step']:.9g}" in line


def test_a_cell_that_forgets_a_gate_s_gradient_is_caught(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value taken out of the graph: forward is right, backward misses a way."""
    plain = cells.lstm

    def detached(Wx: Node, U_d: Sequence[Node], state: cells.CellState) -> cells.CellState:
        h, c = state
        return plain(Wx, U_d, (h, Value(c.out_tensor)))

    monkeypatch.setattr(cells, "lstm", detached)
    assert run("gradcheck", "lstm").code == 1


def test_a_step_too_small_to_be_seen_fails(run: Run) -> None:
    assert run("gradcheck", "Linear", "--eps", 1e-30).code == 1


@pytest.mark.parametrize("option", ["--eps", "--tolerance"])
@pytest.mark.parametrize("value", ["0", "-1e-6", "nan", "inf"])
def test_figures_that_mean_nothing(fails: Fails, option: str, value: str) -> None:
    assert f"{option.removeprefix('--')} should be a positive number" in fails("gradcheck", "Sum", option, value)


def test_unknown_names_are_refused(fails: Fails) -> None:
    message = fails("gradcheck", "Linaer")
    assert "there is no module 'Linaer'; did you mean 'Linear'?" in message
    assert "SoftmaxCrossEntropy" in message and "lstm" in message
    assert "did you mean" not in fails("gradcheck", "xyzzy")


def test_progress_is_reported_module_by_module() -> None:
    heard = Listening()
    reports = every_check(["Linear", "Tanh"], progress=heard)
    assert heard.tasks == [("checking", 3, "modules")]  # Linear with and without bias
    assert heard.done == len(reports) == 3
    assert heard.shown == ["Linear", "Linear", "Tanh"]
