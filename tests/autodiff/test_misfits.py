"""Inputs that do not fit: the message names the module, both shapes and the axis."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from chainrule.autodiff import (
    Add,
    Concat,
    Convolution,
    CrossEntropy,
    Divide,
    Embedding,
    LayerNorm,
    Linear,
    MatMul,
    Maximum,
    MaxPool,
    MeanPool,
    MergeHeads,
    Module,
    Multiply,
    Parameter,
    Power,
    ReLU,
    Reshape,
    RMSNorm,
    Rotate,
    ScaledDotProductAttention,
    Sigmoid,
    Slice,
    Softmax,
    SoftmaxCrossEntropy,
    SplitHeads,
    Stack,
    Subtract,
    Sum,
    Tanh,
    Tape,
    Transpose,
    tape_bwd,
)
from chainrule.errors import AutodiffError

X = np.ones((2, 3))
MISFITS: list[tuple[Module, list[np.ndarray], str]] = [
    (Linear(), [X, np.ones((4, 5))], r"Linear: .*\[2, 3\] and \[4, 5\].*axis -1 .*axis 1 .*3 and 5"),
    (Linear(), [X, np.ones((4, 3)), np.ones(5)], r"Linear: .*\[4, 3\] and \[5\].*axis 0 .*4 and 5"),
    (Linear(), [np.ones(()), X], r"Linear: expected at least 1 axes, found 0 in \[\]"),
    (Linear(), [X, np.ones((2, 3, 3))], r"Linear: expected 2 axes, found 3 in \[2, 3, 3\]"),
    (MatMul(), [np.ones(3), np.ones((3, 2))], r"MatMul: expected at least 2 axes, found 1 in \[3\]"),
    (Softmax(), [np.ones(())], r"Softmax: expected at least 1"),
    (MatMul(), [X, X], r"MatMul: .*\[2, 3\] and \[2, 3\].*axis -1 .*axis -2 .*3 and 2"),
    (
        MatMul(),
        [np.ones((2, 1, 3)), np.ones((4, 3, 1))],
        r"MatMul: .*\[2, 1, 3\] and \[4, 3, 1\].*axis -3 .*2 and 4",
    ),
    (Add(), [X, np.ones(2)], r"Add: .*\[2, 3\] and \[2\].*axis -1 .*3 and 2"),
    (Multiply(), [X, np.ones((4, 1))], r"Multiply: .*\[2, 3\] and \[4, 1\].*axis -2 .*2 and 4"),
    (Concat(), [X, np.ones((3, 3))], r"Concat: .*\[2, 3\] and \[3, 3\].*axis 0 .*2 and 3"),
    (Concat(), [X, np.ones(3)], r"Concat: .*\[2, 3\] and \[3\].*axis 1"),
    (Stack(0), [X, np.ones((2, 2))], r"Stack: .*\[2, 3\] and \[2, 2\].*axis 1 .*3 and 2"),
    (Reshape(4, 2), [X], r"Reshape: \[2, 3\] has 6 .*\[4, 2\]"),
    (Transpose(), [np.ones(3)], r"Transpose: \[3\] .*axes -2 and -1"),
    (Slice(np.s_[:, 3]), [X], r"Slice: \[2, 3\] has no part"),
    (Slice(np.array([0, 0])), [X], r"Slice: takes numbers and slices"),
    (Embedding(), [X, np.array([0, 2])], r"Embedding: ids \[2\] .*axis 0 of \[2, 3\], 0 to 1: found 0 to 2"),
    (Embedding(), [X, np.array([-1])], r"Embedding: .*found -1 to -1"),
    (Embedding(), [X, np.array([0.0])], r"Embedding: ids should be whole numbers, not float64"),
    (LayerNorm(), [X, np.ones(2), np.ones(3)], r"LayerNorm: .*\[2, 3\] and \[2\].*axis -1 .*3 and 2"),
    (RMSNorm(), [X, np.ones(2)], r"RMSNorm: .*\[2, 3\] and \[2\].*axis -1 .*3 and 2"),
    (SplitHeads(2), [X], r"SplitHeads: axis -1 of \[2, 3\] should be a multiple of 2"),
    (MergeHeads(), [X], r"MergeHeads: expected at least 3 axes, found 2"),
    (Rotate(X, X), [X], r"Rotate: \[2, 3\] should have 6 features"),
    (ScaledDotProductAttention(), [X, np.ones((2, 4)), X], r"ScaledDot.*\[2, 3\] and \[2, 4\].*axis -1 .*3 and 4"),
    (ScaledDotProductAttention(), [X, X, np.ones((4, 3))], r"ScaledDot.*\[2, 3\] and \[4, 3\].*axis -2 .*2 and 4"),
    (
        SoftmaxCrossEntropy(),
        [X, np.array([0, 3])],
        r"SoftmaxCrossEntropy: targets \[2\] .*\[2, 3\], 0 to 2.*0 to 3",
    ),
    (
        SoftmaxCrossEntropy(),
        [X, np.array([0, 1, 2])],
        r"SoftmaxCrossEntropy: .*\[2, 3\] and \[3\].*axis 0 .*2 and 3",
    ),
    (CrossEntropy(), [X, np.zeros((2, 3), int)], r"CrossEntropy: .*\[2, 3\] and \[2, 3\].*but the last, axis -1"),
    (CrossEntropy(), [X, np.eye(4)[[0, 1]]], r"CrossEntropy: .*\[2, 3\] and \[2, 4\].*axis 1 .*3 and 4"),
    (CrossEntropy(), [np.full((3, 1), 0.3), np.eye(3)[[0]].T], r"CrossEntropy: .*or one-hot rows: a single 1"),
    (SoftmaxCrossEntropy(), [X, X / 3], r"SoftmaxCrossEntropy: .*targets should be ids, .*or one-hot rows"),
    (Subtract(), [X, np.ones(2)], r"Subtract: .*\[2, 3\] and \[2\].*axis -1 .*3 and 2"),
    (Divide(), [X, np.ones((4, 1))], r"Divide: .*axis -2 .*2 and 4"),
    (Power(), [X, np.ones(2)], r"Power: .*axis -1 .*3 and 2"),
    (Maximum(), [X, np.ones(2)], r"Maximum: .*axis -1 .*3 and 2"),
    (Convolution(), [X, np.ones((2, 3))], r"Convolution: expected at least 3 axes, found 2 in \[2, 3\]"),
    (Convolution(), [X, np.ones((1, 2, 3, 3))], r"Convolution: expected at least 3 axes, found 2 in \[2, 3\]"),
    (Convolution(), [X, np.ones((1, 4, 3))], r"Convolution: .*axis -2 .*axis 1 .*2 and 4"),
    (Convolution(), [X, np.ones((4, 2, 3)), np.ones(5)], r"Convolution: .*\[4, 2, 3\] and \[5\].*4 and 5"),
    (Convolution(dilation=2), [X, np.ones((1, 2, 3))], r"Convolution: a window of \[5\] does not fit .*\[2, 3\]"),
    (Convolution(), [X, np.ones((1, 2, 0))], r"Convolution: a window of \[0\] does not fit"),
    (MaxPool(3, 3), [X], r"MaxPool: a window of \[3, 3\] does not fit into the last axes of \[2, 3\]"),
    (MeanPool(2), [np.ones(())], r"MeanPool: expected at least 1 axes, found 0"),
    (CrossEntropy(), [np.ones(()), np.array(0)], r"CrossEntropy: .*\[\] and \[\] do not fit"),
    (CrossEntropy(), [np.ones((0, 3)), np.zeros(0)], r"CrossEntropy: targets \[0\] should be ids.*found float64"),
    (CrossEntropy(weights=np.ones(3)), [X, np.array([0, 1])], r"CrossEntropy: .*\[3\] and \[2\].*axis 0 .*3 and 2"),
]


@pytest.mark.parametrize(("module", "tensors", "message"), MISFITS, ids=lambda part: getattr(part, "name", ""))
def test_shapes_that_do_not_fit(module: Module, tensors: list[np.ndarray], message: str) -> None:
    with Tape() as tape, pytest.raises(AutodiffError, match=message):
        module.apply_fwd(*tensors)
    assert len(tape) == 0


@pytest.mark.parametrize(
    ("module", "tensors", "message"),
    [
        (Concat(), [], "Concat: cannot compute anything of nothing: "),
        (Concat(), [np.ones(())], r"Concat: cannot compute anything of value \[\]: "),
        (Stack(3), [X, X], r"Stack: cannot compute anything of value \[2, 3\], value \[2, 3\]: axis 3 "),
        (Softmax(), [np.ones((2, 0))], r"Softmax: cannot compute anything of value \[2, 0\]: "),
        (Linear(), [X], r"Linear: cannot compute anything of value \[2, 3\]: .*missing 1 .*'W'"),
        (Sum(), [X, X], r"Sum: cannot compute anything of value \[2, 3\], value \[2, 3\]: .*takes 2"),
    ],
    ids=lambda part: getattr(part, "name", ""),
)
def test_what_no_check_foresees_names_module_and_shapes(
    module: Module, tensors: list[np.ndarray], message: str
) -> None:
    with Tape() as tape, pytest.raises(AutodiffError, match=message):
        module.apply_fwd(*tensors)
    assert len(tape) == 0


@pytest.mark.parametrize("kind", [Sigmoid, Tanh, ReLU, Softmax])
def test_whole_numbers_are_accepted(kind: type[Module]) -> None:
    x = np.array([[1, -2, 3]])
    with Tape():
        found, expected = kind().apply_fwd(x), kind().apply_fwd(x.astype(float))
    assert found.out_tensor.dtype == np.float64
    assert np.array_equal(found.out_tensor, expected.out_tensor)


def test_a_matrix_of_whole_numbers() -> None:
    x = Parameter("x", np.ones((1, 2)))
    with Tape():
        Sum().apply_fwd(Linear().apply_fwd(x, np.array([[1, 2], [3, 4]])))
        tape_bwd()
    assert x.dense_gradient().tolist() == [[1 + 3, 2 + 4]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Convolution(stride=0), "Convolution: stride should be a whole number of at least 1, not 0"),
        (lambda: Convolution(padding=-1), "Convolution: padding should be a whole number of at least 0, not -1"),
        (lambda: Convolution(dilation=1.5), "Convolution: dilation should be .*, not 1.5"),
        (MaxPool, r"MaxPool: the size should be .*, such as MaxPool\(2, 2\), not \[\]"),
        (lambda: MaxPool((2, 2)), r"MaxPool: the size should be .*, not \[\(2, 2\)\]"),  # type: ignore[arg-type]
        (lambda: MaxPool(2, 0), r"MaxPool: the size should be .*, not \[2, 0\]"),
        (lambda: MeanPool(2, stride=0), "MeanPool: stride should be .*, not 0"),
    ],
)
def test_windows_that_cannot_be(make: Callable[[], Module], message: str) -> None:
    with pytest.raises(AutodiffError, match=message):
        make()


class TestPrecision:
    def test_data_takes_the_parameters_precision(self) -> None:
        W = Parameter("W", np.ones((2, 3), np.float32))
        with Tape():
            z = Linear().apply_fwd(np.ones((4, 3)), W)
            both = Concat().apply_fwd(z, np.zeros((4, 1)))
            assert both.out_tensor.dtype == np.float32
            Sum().apply_fwd(both)
            tape_bwd()
        assert W.dense_gradient().dtype == np.float32
        assert W.dense_gradient() == pytest.approx(np.full((2, 3), 4))

    def test_two_precisions_do_not_mix(self) -> None:
        narrow, wide = Parameter("a", np.ones(2, np.float32)), Parameter("b", np.ones(2))
        with Tape():
            with pytest.raises(
                AutodiffError, match="Add: expected inputs of one precision, found a float32, b float64"
            ):
                Add().apply_fwd(narrow, wide)
            with pytest.raises(AutodiffError, match="Multiply: made float64 of float32"):
                Multiply().apply_fwd(narrow, np.array([0, 1]))  # NumPy's product of whole numbers and float32
