"""The modules as a lecture writes them: backward(a, b, g), lists of inputs, in_gradients, layers applied again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from chainrule.autodiff import (
    Add,
    CrossEntropy,
    Embedding,
    Linear,
    MatMul,
    Module,
    Multiply,
    Parameter,
    Scale,
    Sigmoid,
    Slice,
    Softmax,
    Sum,
    Tanh,
    Tape,
    Value,
    current_tape,
    no_grad,
    tape_bwd,
)
from chainrule.autodiff.tape.gradcheck import check
from chainrule.errors import AutodiffError
from chainrule.explanation.pictures.graph import differentiate

Array = np.ndarray
RNG = np.random.default_rng(3)


class Logistic(Module):
    def forward(self, a: Array) -> Array:
        return 1 / (1 + np.exp(-a))

    def backward(self, a: Array, b: Array, gb: Array) -> Array:
        return gb * b * (1 - b)


class Matrix(Module):
    def forward(self, a: Array, w: Array) -> Array:
        return w @ a

    def backward(self, a: Array, w: Array, b: Array, gb: Array) -> tuple[Array, Array]:
        return w.T @ gb, np.outer(gb, a)


class Normalised(Module):
    def forward(self, a: Array) -> Array:
        return np.exp(a) / np.exp(a).sum()

    def backward(self, a: Array, b: Array, gb: Array) -> Array:
        return gb @ (np.diag(b) - np.outer(b, b))


class Nats(Module):
    def forward(self, a: Array, p: Array) -> Array:
        return -a @ np.log(p)

    def backward(self, a: Array, p: Array, b: Array, gb: Array) -> list[Any]:
        return [None, -gb * a / p]


class Network(Module):
    """Two layers, made once and used for every example."""

    def __init__(self, linear: type[Module], sigmoid: type[Module], softmax: type[Module], loss: type[Module]):
        self.first, self.sigmoid, self.second = linear(), sigmoid(), linear()
        self.softmax, self.loss = softmax(), loss()

    def forward(self, x: Any, y: Any, alpha: Any, beta: Any) -> Array:
        z = self.sigmoid.apply_fwd([self.first.apply_fwd([x, alpha])])
        self.p = self.softmax.apply_fwd([self.second.apply_fwd([z, beta])])
        return self.loss.apply_fwd([y, self.p]).out_tensor

    def backward(self, x: Any, y: Any, alpha: Any, beta: Any) -> tuple[Array, Array]:
        tape_bwd()
        return self.first.in_gradients[1], self.second.in_gradients[1]


STUDENTS = (Matrix, Logistic, Normalised, Nats)
OURS = (Linear, Sigmoid, Softmax, CrossEntropy)
# exclusive or; the third number is always 1, in place of a bias
XOR = [(np.array([a, b, 1.0]), np.eye(2)[int(a != b)]) for a in (0.0, 1.0) for b in (0.0, 1.0)]


def learn(kinds: tuple[type[Module], ...], rounds: int) -> tuple[list[float], list[int]]:
    """The losses of each round, and the classes found in the end."""
    rng = np.random.default_rng(3)
    alpha, beta = Parameter("alpha", rng.normal(size=(4, 3))), Parameter("beta", rng.normal(size=(2, 4)))
    net, losses = Network(*kinds), []
    for _ in range(rounds):
        losses.append(0.0)
        for x, y in XOR:
            losses[-1] += float(net.forward(x, y, alpha, beta))
            for parameter, gradient in zip((alpha, beta), net.backward(x, y, alpha, beta), strict=True):
                parameter.out_tensor -= gradient
        with no_grad():  # evaluation in between disturbs nothing
            net.forward(*XOR[0], alpha, beta)
    found = []
    with no_grad():
        for x, y in XOR:
            net.forward(x, y, alpha, beta)
            found.append(int(net.p.out_tensor.argmax()))
    return losses, found


def test_the_network_of_the_lecture_learns_exclusive_or() -> None:
    losses, found = learn(STUDENTS, 60)
    assert losses[0] > 2.5 and losses[-1] < 0.15
    assert found == [0, 1, 1, 0]


def test_the_students_modules_and_ours_learn_the_same() -> None:
    np.testing.assert_allclose(learn(STUDENTS, 5)[0], learn(OURS, 5)[0], rtol=1e-12)


@pytest.mark.parametrize(
    ("kind", "tensors"),
    [
        (Logistic, {"a": RNG.normal(size=4)}),
        (Matrix, {"a": RNG.normal(size=3), "w": RNG.normal(size=(2, 3))}),
        (Normalised, {"a": RNG.normal(size=4)}),
        (Nats, {"a": np.eye(3, dtype=int)[1], "p": RNG.uniform(0.1, 1, size=3)}),
    ],
)
def test_gradients_of_the_students_modules(kind: type[Module], tensors: dict[str, Array]) -> None:
    assert check(lambda *inputs: kind().apply_fwd(list(inputs)), tensors).passed


def test_the_picture_of_a_students_module() -> None:
    with Tape() as tape:
        Logistic().apply_fwd(Parameter("x", np.zeros(4)))
        graph = differentiate(tape)
    [edge] = graph.edges
    assert edge.gradient == pytest.approx(np.sqrt(4) / 4)  # σ'(0) = 1/4, four times


class TestLists:
    def test_of_nodes_and_arrays_are_inputs(self) -> None:
        a, b = Parameter("a", np.ones(2)), np.full(2, 3.0)
        with Tape():
            assert Multiply().apply_fwd([a, b]).out_tensor.tolist() == [3, 3]
            assert Tanh().apply_fwd((b,)).out_tensor.shape == (2,)

    def test_of_numbers_are_data(self) -> None:
        with Tape():
            assert Sum().apply_fwd([1.0, 2.0]).out_tensor == 3
            assert Sum().apply_fwd([[1.0], [2.0]]).in_modules[0].out_tensor.shape == (2, 1)

    def test_that_are_no_array(self) -> None:
        with Tape(), pytest.raises(AutodiffError, match="value: cannot make an array of this list"):
            Sum().apply_fwd([[1.0], [2.0, 3.0]])


class TestInGradients:
    def test_are_those_of_the_module_not_the_sum_of_all_uses(self) -> None:
        W = Parameter("W", np.ones((1, 2)))
        with Tape():
            first, second = (Linear().apply_fwd(np.full(2, value), W) for value in (1.0, 5.0))
            Sum().apply_fwd(Add().apply_fwd(first, second))
            tape_bwd()
        assert first.in_gradients[1].tolist() == [[1, 1]] and second.in_gradients[1].tolist() == [[5, 5]]
        assert W.dense_gradient().tolist() == [[6, 6]]

    def test_of_a_table_and_of_a_slice_are_dense(self) -> None:
        E = Parameter("E", np.ones((3, 2)))
        with Tape():
            part = Slice(np.s_[:, 1]).apply_fwd(E)
            rows = Embedding().apply_fwd(E, np.array([2, 0, 2]))
            Add().apply_fwd(Sum().apply_fwd(part), Sum().apply_fwd(rows))
            tape_bwd()
        assert part.in_gradients[0].tolist() == [[0, 1]] * 3
        assert rows.in_gradients[0].tolist() == [[1, 1], [0, 0], [2, 2]]

    def test_of_data_by_a_students_module(self) -> None:
        with Tape():
            module = Matrix().apply_fwd(np.array([1, 2]), Parameter("w", np.ones((1, 2))))
            tape_bwd()
        assert next(iter(module.in_gradients)).tolist() == [1, 1]

    def test_of_data(self) -> None:
        with Tape():
            module = Linear().apply_fwd(np.ones(2), Parameter("W", np.ones((1, 2))))
            tape_bwd()
        with pytest.raises(AutodiffError, match=r"Linear: input 0 has no gradient: it is data \(make it a"):
            module.in_gradients[0]

    @pytest.mark.parametrize(
        ("tape", "weights", "message"),
        [
            (
                Tape(),
                np.ones((1, 2)),
                r'all its inputs are data; make the weights parameters, .*\("W", W\)',
            ),
            (Tape(reuse=True), Parameter("W", np.ones((1, 2))), "its tape reuses arrays"),
        ],
    )
    def test_that_are_not_there(self, tape: Tape, weights: Any, message: str) -> None:
        with tape:
            module = Linear().apply_fwd(np.ones(2), weights)
            Sum().apply_fwd(module)
            tape_bwd()
        with pytest.raises(AutodiffError, match=message):
            _ = module.in_gradients

    def test_before_backward_or_beside_the_loss(self) -> None:
        W = Parameter("W", np.ones(2))
        module = Tanh()
        for _ in range(2):
            with pytest.raises(AutodiffError, match="Tanh: there are no in_gradients: run apply_fwd, then"):
                _ = module.in_gradients
            if len(current_tape()) == 0:
                module.apply_fwd(W)
        Sum().apply_fwd(W)
        tape_bwd()
        with pytest.raises(AutodiffError, match="the loss does not depend on it"):
            _ = module.in_gradients


class TestLayerAppliedAgain:
    def test_in_one_pass_gradients_are_added(self) -> None:
        W = Parameter("W", np.array([[2.0]]))
        layer = Linear()
        with Tape():
            first = layer.apply_fwd(np.array([3.0]), W)
            second = layer.apply_fwd(first, W)
            tape_bwd()
        assert first.out_tensor == 6 and second.out_tensor == 12
        # d(w² x)/dw = 2 w x
        assert W.dense_gradient() == layer.in_gradients[1] == 2 * 2 * 3
        with pytest.raises(AutodiffError, match=r"input 0 has no gradient: .*differs between the applications"):
            layer.in_gradients[0]
        assert second.in_gradients[0] == 2

    def test_in_the_next_pass_gradients_begin_anew(self) -> None:
        W, layer = Parameter("W", np.array([[2.0]])), Linear()
        for value in (3.0, 5.0, 7.0):
            with Tape():
                out = layer.apply_fwd(np.array([value]), W)
                tape_bwd()
            assert layer.in_gradients[1] == out.in_gradients[1] == value
        assert W.dense_gradient() == 3 + 5 + 7

    def test_settings_stay_and_results_are_apart(self) -> None:
        triple = Scale(3)
        with Tape(), no_grad():
            values = [triple.apply_fwd(np.array([value])) for value in (1.0, 2.0)]
            assert Add().apply_fwd(values).out_tensor == 3 + 6

    def test_evaluation_does_not_touch_gradients(self) -> None:
        W, layer = Parameter("W", np.ones(1)), Scale(4)
        with Tape():
            layer.apply_fwd(W)
            tape_bwd()
            with no_grad():
                layer.apply_fwd(W)
        assert layer.in_gradients[0] == 4

    def test_a_failed_application_does_not_count(self) -> None:
        W, layer = Parameter("W", np.ones((1, 2))), Linear()
        with Tape():
            layer.apply_fwd(np.ones(2), W)
            with pytest.raises(AutodiffError, match="do not fit"):
                layer.apply_fwd(np.ones(3), W)
            tape_bwd()
        assert layer.in_gradients[1].tolist() == [[1, 1]]

    def test_the_layer_is_not_what_it_returned(self) -> None:
        x, layer = Parameter("x", np.ones(1)), Tanh()
        for _ in range(2):
            with Tape():
                layer.apply_fwd(x)
                tape_bwd()
        with (
            Tape(),
            pytest.raises(AutodiffError, match="Sum: input 0, Tanh, was applied again: give what that apply_fwd"),
        ):
            Sum().apply_fwd(layer)


class TestWrongClasses:
    def test_gradients_in_another_order(self) -> None:
        class Swapped(Matrix):
            def backward(self, a: Array, w: Array, b: Array, gb: Array) -> tuple[Array, Array]:
                return super().backward(a, w, b, gb)[::-1]

        with Tape():
            Swapped().apply_fwd(np.ones(3), Parameter("w", np.ones((2, 3))))
            with pytest.raises(
                AutodiffError, match=r"Swapped: gave value a gradient of \[2, 3\].*keep the order of the inputs"
            ):
                tape_bwd()

    def test_one_gradient_for_two_inputs(self) -> None:
        class Short(Nats):
            def backward(self, a: Array, p: Array, b: Array, gb: Array) -> Array:  # type: ignore[override]
                return -gb * a / p

        with Tape():
            Short().apply_fwd(np.eye(2)[0], Parameter("p", np.full(2, 0.5)))
            with pytest.raises(AutodiffError, match="Short: 1 gradients for 2 inputs: return one for each"):
                tape_bwd()

    @pytest.mark.parametrize(
        ("methods", "message"),
        [
            ({"backward": lambda self, g: g}, r"has no forward: write forward\(self, a\)"),
            ({"forward": lambda self, a: a}, r"has no backward: write backward\(self, g\)"),
            ({"forward": lambda self, a: None}, "forward returned None; is there a return"),
            (
                {"forward": lambda self, a: a, "backward": lambda self, g: None},
                "backward returned None; is there a return",
            ),
        ],
    )
    def test_a_method_or_a_return_that_is_missing(self, methods: dict[str, Any], message: str) -> None:
        """A backward without a return would be a gradient of 0, which nobody notices."""
        kind = type("Unfinished", (Module,), methods)
        with Tape() as tape, pytest.raises(AutodiffError, match=f"Unfinished.*{message}"):
            kind().apply_fwd(Parameter("x", np.ones(2)))
            tape.backward(np.ones(2))

    def test_too_few_arguments(self) -> None:
        with Tape():
            net = Network(*OURS)
            net.apply_fwd(np.ones(3), np.eye(2)[0], np.ones((4, 3)), np.ones((2, 4)))
            with pytest.raises(
                AutodiffError,
                match=r"Network: backward takes 4 .* the 4 inputs, the value and g, 6 arguments",
            ):
                tape_bwd()


class TestOneHot:
    @pytest.mark.parametrize("inputs", ["yp", "py", "ip", "pi"])
    def test_targets_first_or_second(self, inputs: str) -> None:
        p = Parameter("p", np.array([[0.2, 0.8], [0.5, 0.5]]))
        given = {"p": p, "y": Value(np.array([[0.0, 1.0], [1.0, 0.0]])), "i": Value(np.array([1, 0]))}
        with Tape():
            loss = CrossEntropy().apply_fwd(*(given[letter] for letter in inputs))
            names = loss.equation(*inputs)
            tape_bwd()
        assert loss.out_tensor == pytest.approx(-np.log(0.8 * 0.5) / 2)
        # -y / p, for the mean of two rows
        assert p.dense_gradient() == pytest.approx(-np.array([[0, 1 / 0.8], [1 / 0.5, 0]]) / 2)
        assert names == f"-ln p[{inputs.replace('p', '')}]"

    def test_a_sure_prediction(self) -> None:
        sure = np.eye(3)[[0]]
        with Tape():
            assert CrossEntropy().apply_fwd(sure, sure).out_tensor == 0
            assert CrossEntropy().apply_fwd(np.eye(3)[[1]], sure).out_tensor == np.inf
        p = Parameter("p", sure)
        with Tape():
            CrossEntropy().apply_fwd(p, sure)
            tape_bwd()
        assert p.dense_gradient().tolist() == [[-1, 0, 0]]

    def test_a_product_with_a_table_is_a_row(self) -> None:
        table, ids = RNG.normal(size=(4, 3)), np.array([2, 0, 2])
        found = []
        for by_product in (True, False):
            E = Parameter("E", table)
            with Tape():
                rows = MatMul().apply_fwd(np.eye(4)[ids], E) if by_product else Embedding().apply_fwd(E, ids)
                tape_bwd()
            found.append(E.dense_gradient())
            assert np.array_equal(rows.out_tensor, table[ids])
        # L = Σ z: the count of each id, in all three columns
        assert found[0].tolist() == found[1].tolist() == [[n] * 3 for n in np.bincount(ids, minlength=4)]
