"""The gradient check: what is right passes, and what is wrong by little is caught."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from chainrule.autodiff import Embedding, Linear, Module, Parameter, Scale, Sum, Tanh, Tape
from chainrule.autodiff.checks import Case, module_cases
from chainrule.autodiff.tape import attention, convolution, losses, modules, moves, recurrence
from chainrule.autodiff.tape.gradcheck import check, check_parameters
from chainrule.errors import AutodiffError, NotANumberError

X = np.random.default_rng(0).normal(size=(3, 4))


@pytest.mark.parametrize("case", list(module_cases()), ids=lambda case: case.title)
def test_every_module_passes(case: Case) -> None:
    report = case.check()
    assert report.passed, str(report)
    assert report.error < 1e-8  # far below the tolerance: no case is near it by luck


def test_every_module_has_a_case() -> None:
    files = attention, convolution, losses, modules, moves, recurrence
    kinds = {
        kind for file in files for kind in vars(file).values() if getattr(kind, "__module__", "") == file.__name__
    }
    modules_of_them = {kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Module)}
    names = {kind.name for kind in modules_of_them if not kind.name.startswith("_")}
    assert names == {case.name for case in module_cases()}
    assert names >= {"Linear", "Softmax", "Concat", "SoftmaxCrossEntropy"}


class WrongSign(Module):
    def forward(self, x: np.ndarray) -> np.ndarray:
        return np.tanh(x)

    def backward(self, g: np.ndarray) -> tuple[np.ndarray]:
        return (g * (1 + self.out_tensor**2),)


class ForgottenFactor(Module):
    def forward(self, x: np.ndarray) -> np.ndarray:
        return x**2

    def backward(self, g: np.ndarray) -> tuple[np.ndarray]:
        return (g * self.in_modules[0].out_tensor,)


class WrongInOnePlace(Module):
    def forward(self, x: np.ndarray) -> np.ndarray:
        return x * 1.0

    def backward(self, g: np.ndarray) -> tuple[np.ndarray]:
        wrong = g.copy()
        wrong[2, 1] *= 1.001
        return (wrong,)


@pytest.mark.parametrize("kind", [WrongSign, ForgottenFactor, WrongInOnePlace])
def test_a_wrong_module_is_caught(kind: type[Module]) -> None:
    report = check(lambda x: kind().apply_fwd(x), {"x": X})
    assert not report.passed
    assert "FAIL" in str(report)


def test_a_wrong_module_is_caught_inside_a_network() -> None:
    def network(hidden: type[Module]) -> bool:
        def build(x: Parameter, W: Parameter, b: Parameter) -> Module:
            return Sum().apply_fwd(hidden().apply_fwd(Linear().apply_fwd(x, W, b)))

        rng = np.random.default_rng(1)
        return check(build, {"x": X, "W": rng.normal(size=(2, 4)), "b": rng.normal(size=2)}).passed

    assert network(Tanh)
    assert not network(WrongSign)


def test_the_report_says_where_and_by_how_much() -> None:
    report = check(lambda x: WrongInOnePlace().apply_fwd(x), {"x": X}, name="wrong")
    [found] = report.inputs
    assert (found.name, found.shape, found.entries, found.where) == ("x", (3, 4), 12, (2, 1))
    # the estimate is r itself, backward gives 1.001 r
    assert found.analytic / found.numeric == pytest.approx(1.001, rel=1e-6)
    largest = max(1, abs(found.analytic), abs(found.numeric))
    assert found.error == report.error == pytest.approx(abs(found.analytic - found.numeric) / largest)
    assert str(report).startswith("wrong: FAIL") and "at [2, 1]" in str(report)
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.name = "right"  # type: ignore[misc]


def test_a_gradient_that_is_no_number_fails() -> None:
    class Broken(Module):
        def forward(self, x: np.ndarray) -> np.ndarray:
            return x * 1.0

        def backward(self, g: np.ndarray) -> tuple[np.ndarray]:
            return (g * np.nan,)

    assert not check(lambda x: Broken().apply_fwd(x), {"x": X}).passed


def test_large_inputs_are_sampled_the_same_way_each_time() -> None:
    big = np.random.default_rng(2).normal(size=(40, 50))
    first, second = (check(lambda x: Tanh().apply_fwd(x), {"x": big}, entries=30) for _ in range(2))
    assert first == second
    assert first.inputs[0].entries == 30 and first.passed


def test_a_network_with_parameters_of_its_own() -> None:
    rng = np.random.default_rng(3)
    W, b = Parameter("W", rng.normal(size=(2, 4))), Parameter("b", rng.normal(size=2))
    before = W.out_tensor.copy()
    report = check_parameters(lambda: Tanh().apply_fwd(Linear().apply_fwd(X, W, b)), [W, b])
    assert report.passed and report.name == "Tanh"
    assert [one.name for one in report.inputs] == ["W", "b"]
    assert np.array_equal(W.out_tensor, before) and W.out_gradient is None


def test_what_cannot_be_checked() -> None:
    half = Parameter("W", X.astype(np.float32))
    with pytest.raises(AutodiffError, match="W: finite differences need float64, not float32"):
        check_parameters(lambda: Tanh().apply_fwd(half), [half])

    def not_the_last(x: Parameter) -> Module:
        first = Tanh().apply_fwd(x)
        Scale(2).apply_fwd(first)
        return first

    with Tape(), pytest.raises(AutodiffError, match="Tanh: what is checked should be the last"):
        check(not_the_last, {"x": X})
    with pytest.raises(AutodiffError, match="nothing to check: no input is of floating-point numbers"):
        check(lambda ids: Embedding().apply_fwd(X, ids), {"ids": np.array([0, 1])})


def test_a_step_that_fails_is_taken_back() -> None:
    """ln x of x - ε is no number."""

    class Ln(Module):
        def forward(self, x: np.ndarray) -> np.ndarray:
            return np.log(x)

        def backward(self, g: np.ndarray) -> tuple[np.ndarray]:
            return (g / self.in_modules[0].out_tensor,)

    x = Parameter("x", np.array([1.0, 1e-7]))
    with pytest.raises(NotANumberError, match="Ln"):
        check_parameters(lambda: Ln().apply_fwd(x), [x])
    assert x.out_tensor.tolist() == [1.0, 1e-7]
