"""The modules, with torch as a second opinion; the lecture's Jacobians are in tests/test_backprop.py."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from chainrule.arrays import PAD
from chainrule.autodiff import (
    Add,
    Concat,
    Convolution,
    CrossEntropy,
    Divide,
    Embedding,
    Linear,
    MatMul,
    Maximum,
    MaxPool,
    MeanPool,
    Module,
    Multiply,
    Parameter,
    Power,
    Reshape,
    Rotate,
    Scale,
    ScaledDotProductAttention,
    Slice,
    Softmax,
    SoftmaxCrossEntropy,
    SparseRows,
    Stack,
    Subtract,
    Sum,
    Tanh,
    Tape,
    Transpose,
    Value,
    no_grad,
    tape_bwd,
)
from chainrule.autodiff.checks import Case, module_cases

Build = Callable[..., Module]


def value_and_gradients(build: Build, tensors: dict[str, np.ndarray], seed: int = 0) -> list[np.ndarray]:
    """The value, and the gradients of Σ r ⊙ value in each tensor that has one."""
    nodes = [Parameter(k, t) if t.dtype.kind == "f" else Value(t, k) for k, t in tensors.items()]
    with Tape() as tape:
        out = build(*nodes)
        tape.backward(projection(out.out_tensor.shape, out.out_tensor.dtype, seed))
    return [out.out_tensor, *[node.dense_gradient() for node in nodes if isinstance(node, Parameter)]]


def by_torch(
    function: Callable[..., torch.Tensor], tensors: dict[str, np.ndarray], seed: int = 0
) -> list[np.ndarray]:
    inputs = [torch.tensor(t, requires_grad=t.dtype.kind == "f") for t in tensors.values()]
    out = function(*inputs)
    out.backward(torch.tensor(projection(tuple(out.shape), out.detach().numpy().dtype, seed)))
    return [t.detach().numpy() for t in [out, *[x.grad for x in inputs if x.grad is not None]]]


def projection(shape: tuple[int, ...], dtype: Any, seed: int) -> np.ndarray:
    return np.asarray(np.random.default_rng(seed).normal(size=shape), dtype)


def assert_same(ours: list[np.ndarray], theirs: list[np.ndarray], tolerance: float = 1e-12) -> None:
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def torch_mean_nats(p: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.nll_loss(p.log().reshape(-1, p.shape[-1]), y.reshape(-1), ignore_index=PAD)


def torch_cross_entropy(z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(z.reshape(-1, z.shape[-1]), y.reshape(-1), ignore_index=PAD)


def torch_weighted(z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    case = applied("SoftmaxCrossEntropy, weighted")
    assert isinstance(case, SoftmaxCrossEntropy)
    nats = F.cross_entropy(z.reshape(-1, z.shape[-1]), y.reshape(-1), ignore_index=PAD, reduction="none")
    return (nats * torch.tensor(case.weights).reshape(-1)).sum() / case.count


def torch_rotate(x: torch.Tensor) -> torch.Tensor:
    """Pairs of features as complex numbers, of which e^iθ rotates each by its θ."""
    case = applied("Rotate")
    assert isinstance(case, Rotate)
    first, second = x.chunk(2, dim=-1)
    turned = torch.complex(first, second) * torch.complex(torch.tensor(case.cos), torch.tensor(case.sin))
    return torch.cat([turned.real, turned.imag], dim=-1)


def torch_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    case = applied("ScaledDotProductAttention, bias and dropout")
    assert isinstance(case, ScaledDotProductAttention)
    scores = q @ k.transpose(-2, -1) / 2 + torch.tensor(case.bias)  # sqrt(4) features
    hidden = torch.ones(3, 3, dtype=torch.bool).triu(1)
    return scores.masked_fill(hidden, -math.inf).softmax(dim=-1) * torch.tensor(case.keep) @ v


def applied(title: str) -> Module:
    """The module of a case, applied to its tensors."""
    case = next(case for case in module_cases() if case.title == title)
    with no_grad():
        return case.build(*case.tensors.values())


def steps(
    cell: Callable[..., Any], Wx: torch.Tensor, U: torch.Tensor, d: torch.Tensor, *state: Any
) -> torch.Tensor:
    """Return the outputs of a recurrent layer, one time after the other."""
    outputs = []
    for x in Wx:
        state = cell(x + F.linear(state[0], U, d), state)
        outputs.append(state[0])
    return torch.stack(outputs)


def lstm_step(sums: torch.Tensor, state: Any) -> tuple[torch.Tensor, torch.Tensor]:
    i, f, g, o = sums.chunk(4, -1)
    c = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def gru_steps(Wx: torch.Tensor, U: torch.Tensor, d: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    outputs = []
    for x in Wx:
        (r_x, z_x, n_x), (r_h, z_h, n_h) = x.chunk(3, -1), F.linear(h, U, d).chunk(3, -1)
        n, z = torch.tanh(n_x + torch.sigmoid(r_x + r_h) * n_h), torch.sigmoid(z_x + z_h)
        h = (1 - z) * n + z * h
        outputs.append(h)
    return torch.stack(outputs)


def gru_reset_before_steps(Wx: torch.Tensor, U: torch.Tensor, d: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    outputs, (U_r, U_z, U_n), (d_r, d_z, d_n) = [], U.chunk(3), d.chunk(3)
    for r_x, z_x, n_x in (step.chunk(3, -1) for step in Wx):
        r, z = (r_x + F.linear(h, U_r, d_r)).sigmoid(), (z_x + F.linear(h, U_z, d_z)).sigmoid()
        h = (1 - z) * (n_x + F.linear(r * h, U_n, d_n)).tanh() + z * h
        outputs.append(h)
    return torch.stack(outputs)


def qrnn_steps(sums: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    outputs = []
    for z, f, o in (step.chunk(3, dim=-1) for step in sums):
        c = f.sigmoid() * c + (1 - f.sigmoid()) * z.tanh()
        outputs.append(o.sigmoid() * c)
    return torch.stack(outputs)


def windows(x: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
    """Return each step beside those before it, by torch's own unfolding."""
    every = torch.cat([before, x]).unfold(0, len(before) + 1, 1)  # [T, B, D, n]
    return every.transpose(-1, -2).flatten(-2)


TORCH: dict[str, Callable[..., torch.Tensor]] = {
    "Linear": F.linear,
    "Linear without bias": F.linear,
    "MatMul": torch.matmul,
    "MatMul, one B for all": torch.matmul,
    "Embedding": lambda E, ids: F.embedding(ids, E),
    "Sigmoid": torch.sigmoid,
    "Tanh": torch.tanh,
    "ReLU": torch.relu,
    "LeakyReLU": F.leaky_relu,
    "GELU": lambda x: F.gelu(x, approximate="tanh"),
    "ErfGELU": F.gelu,
    "Add": torch.add,
    "Add, repeated": torch.add,
    "Multiply": torch.mul,
    "Multiply, repeated": torch.mul,
    "Scale": lambda x: 1 - x,
    "Sum": torch.sum,
    "Sum of rows": lambda x: x.sum(dim=0),
    "Mean": torch.mean,
    "RunningMean": lambda x: x.cumsum(dim=1) / torch.arange(1, 4)[:, None],
    "RunningMean, continued": lambda x, s, n: (
        (s[:, None] + x.cumsum(dim=1)) / (n[:, None] + torch.arange(1, 4))[..., None]
    ),
    "LayerNorm": lambda x, gain, shift: F.layer_norm(x, x.shape[-1:], gain, shift),
    "LayerNorm without shift": lambda x, gain: F.layer_norm(x, x.shape[-1:], gain),
    "LayerNorm without gain": lambda x: F.layer_norm(x, x.shape[-1:]),
    "RMSNorm": lambda x, gain: F.rms_norm(x, x.shape[-1:], gain, 1e-5),
    "RMSNorm without gain": lambda x: F.rms_norm(x, x.shape[-1:], eps=0.1),
    "Exp": torch.exp,
    "Log": torch.log,
    "Subtract": torch.sub,
    "Subtract, repeated": torch.sub,
    "Divide": torch.div,
    "Divide, repeated": torch.div,
    "Power": torch.pow,
    "Power, repeated": torch.pow,
    "Power, whole exponents": torch.pow,
    "Maximum": torch.maximum,
    "Maximum, repeated": torch.maximum,
    "Convolution": F.conv2d,
    "Convolution, stride 2, padding 1": lambda *x: F.conv2d(*x, stride=2, padding=1),
    "Convolution, dilation 2": lambda *x: F.conv2d(*x, dilation=2),
    "Convolution along one axis": lambda *x: F.conv1d(*x, stride=3, padding=2),
    "Convolution of one entry": F.conv1d,
    "MaxPool": lambda x: F.max_pool2d(x, 2),
    "MaxPool, overlapping": lambda x: F.max_pool2d(x, (3, 2), stride=1),
    "MaxPool along one axis": lambda x: F.max_pool2d(x, (1, 2)),
    "MeanPool": lambda x: F.avg_pool2d(x, 2),
    "MeanPool, overlapping": lambda x: F.avg_pool2d(x, (3, 2), stride=1),
    "MeanPool along one axis": lambda x: F.avg_pool2d(x, (1, 2)),
    "ElmanLayer": lambda Wx, U, d, h: steps(lambda s, state: (torch.tanh(s),), Wx, U, d, h),
    "ElmanLayer, sigmoid": lambda Wx, U, d, h: steps(lambda s, state: (s.sigmoid(),), Wx, U, d, h),
    "ElmanLayer, leaky-relu": lambda Wx, U, d, h: steps(lambda s, state: (F.leaky_relu(s),), Wx, U, d, h),
    "LstmLayer": lambda Wx, U, d, h, c: steps(lstm_step, Wx, U, d, h, c),
    "GruLayer": gru_steps,
    "GruLayer, reset before": gru_reset_before_steps,
    "QrnnLayer": qrnn_steps,
    "Windows": lambda x, before: windows(x, before.transpose(0, 1)),
    "SplitHeads": lambda x: x.unflatten(-1, (2, 4)).transpose(-3, -2),
    "MergeHeads": lambda x: x.transpose(-3, -2).flatten(-2),
    "Rotate": torch_rotate,
    "ScaledDotProductAttention": F.scaled_dot_product_attention,
    "ScaledDotProductAttention, causal": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    "ScaledDotProductAttention, shared keys": lambda q, k, v: F.scaled_dot_product_attention(
        q, k.expand(q.shape), v.expand(q.shape), is_causal=True
    ),
    "ScaledDotProductAttention, bias and dropout": torch_attention,
    "Concat": lambda *x: torch.cat(x, dim=-1),
    "Stack": lambda *x: torch.stack(x, dim=1),
    "Slice": lambda x: x[..., 1:3],
    "Slice of one step": lambda x: x[:, 1],
    "Reshape": lambda x: x.reshape(2, -1),
    "Transpose": lambda x: x.transpose(-2, -1),
    "Softmax": lambda z: z.softmax(dim=-1),
    "CrossEntropy": torch_mean_nats,
    "CrossEntropy, one-hot": lambda p, y: -(y * p.log()).sum() / 6,
    "CrossEntropy, one-hot first": lambda y, p: -(y * p.log()).sum() / 6,
    "SoftmaxCrossEntropy, one-hot": lambda z, y: -(y * z.log_softmax(dim=-1)).sum() / 6,
    "SoftmaxCrossEntropy": torch_cross_entropy,
    "SoftmaxCrossEntropy, weighted": torch_weighted,
}


@pytest.mark.parametrize("case", list(module_cases()), ids=lambda case: case.title)
class TestTorch:
    def test_agrees_in_float64(self, case: Case) -> None:
        ours = value_and_gradients(case.build, case.tensors)
        assert_same(ours, by_torch(TORCH[case.title], case.tensors))

    def test_stays_in_float32(self, case: Case) -> None:
        narrow = {k: t.astype(np.float32) if t.dtype.kind == "f" else t for k, t in case.tensors.items()}
        ours = value_and_gradients(case.build, narrow)
        assert {a.dtype for a in ours} == {np.dtype(np.float32)}
        wide = value_and_gradients(case.build, case.tensors)
        assert_same([a.astype(np.float64) for a in ours], wide, tolerance=2e-5)

    def test_writes_into_nothing_it_was_given(self, case: Case) -> None:
        tensors = {k: t.copy() for k, t in case.tensors.items()}
        for tensor in tensors.values():
            tensor.setflags(write=False)
        with Tape() as tape:
            nodes = [Parameter(k, t) if t.dtype.kind == "f" else Value(t, k) for k, t in tensors.items()]
            out = case.build(*nodes)
            before = out.out_tensor.copy()
            g = projection(before.shape, before.dtype, 1)
            g.setflags(write=False)
            tape.backward(g)
        assert np.array_equal(out.out_tensor, before)


def test_every_case_has_its_torch_function() -> None:
    assert set(TORCH) == {case.title for case in module_cases()}


class TestAnyShape:
    """Shapes that hypothesis picks, torch as the judge."""

    @given(st.lists(st.integers(1, 3), max_size=2), st.integers(1, 4), st.integers(1, 4))
    def test_linear(self, leading: list[int], width: int, out: int) -> None:
        rng = np.random.default_rng(0)
        tensors = {"x": rng.normal(size=(*leading, width)), "W": rng.normal(size=(out, width))}
        tensors["b"] = rng.normal(size=out)
        assert_same(
            value_and_gradients(lambda *i: Linear().apply_fwd(*i), tensors),
            by_torch(lambda x, W, b: torch.einsum("...i,oi->...o", x, W) + b, tensors),
        )

    @given(st.lists(st.tuples(st.integers(1, 3), st.booleans(), st.booleans()), max_size=3), st.integers(0, 3))
    def test_arithmetic_repeats(self, axes: list[tuple[int, bool, bool]], cut: int) -> None:
        rng = np.random.default_rng(0)
        a = rng.normal(size=[1 if once else n for n, once, _ in axes])
        b = rng.normal(size=[1 if once else n for n, _, once in axes][cut:])
        tensors = {"a": np.asarray(a), "b": np.asarray(b)}
        pairs = ((Add, torch.add), (Multiply, torch.mul), (Subtract, torch.sub), (Divide, torch.div))
        for kind, function in (*pairs, (Maximum, torch.maximum)):
            assert_same(
                value_and_gradients(lambda *i, kind=kind: kind().apply_fwd(*i), tensors),
                by_torch(function, tensors),
            )

    @given(st.tuples(*[st.integers(1, 3)] * 4), st.tuples(*[st.integers(0, 2)] * 3), st.integers(1, 2))
    def test_convolution(self, sizes: tuple[int, ...], extra: tuple[int, ...], stride: int) -> None:
        (C, out, M, N), (down, right, padding), rng = sizes, extra, np.random.default_rng(0)
        tensors = {"x": rng.normal(size=(2, C, M + down, N + right)), "kernels": rng.normal(size=(out, C, M, N))}
        tensors["bias"] = rng.normal(size=out)
        options = {"stride": stride, "padding": padding}
        assert_same(
            value_and_gradients(lambda *i: Convolution(**options).apply_fwd(*i), tensors),
            by_torch(lambda *i: F.conv2d(*i, **options), tensors),
        )

    @given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 3), st.integers(0, 3), st.integers(1, 3))
    def test_pooling(self, M: int, N: int, down: int, right: int, stride: int) -> None:
        tensors = {"x": np.random.default_rng(0).normal(size=(2, M + down, N + right))}
        for kind, function in ((MaxPool, F.max_pool2d), (MeanPool, F.avg_pool2d)):
            assert_same(
                value_and_gradients(lambda x, kind=kind: kind(M, N, stride=stride).apply_fwd(x), tensors),
                by_torch(lambda x, function=function: function(x, (M, N), stride=stride), tensors),
            )

    @given(st.integers(1, 2), st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.booleans())
    def test_attention(self, B: int, T: int, S: int, K: int, causal: bool) -> None:
        S = T if causal else S
        rng = np.random.default_rng(0)
        tensors = {"q": rng.normal(size=(B, 2, T, K)), "k": rng.normal(size=(1, 2, S, K))}
        tensors["v"] = rng.normal(size=(1, 2, S, 3))
        assert_same(
            value_and_gradients(lambda *i: ScaledDotProductAttention(causal=causal).apply_fwd(*i), tensors),
            by_torch(lambda q, k, v: textbook(q, k, v, causal), tensors),
        )

    @given(st.integers(1, 4), st.integers(1, 5), st.data())
    def test_the_fused_loss(self, N: int, V: int, data: st.DataObject) -> None:
        y = np.array(data.draw(st.lists(st.integers(PAD, V - 1), min_size=N, max_size=N)))
        z = np.random.default_rng(0).normal(size=(N, V)) * 5
        ours = value_and_gradients(lambda *i: SoftmaxCrossEntropy().apply_fwd(*i), {"z": z, "y": y})
        if (y == PAD).all():
            assert ours[0] == 0 and not ours[1].any()
        else:
            assert_same(ours, by_torch(torch_cross_entropy, {"z": z, "y": y}))


def textbook(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -math.inf)
    return scores.softmax(dim=-1) @ v


def test_no_images() -> None:
    value, dx, dkernels = value_and_gradients(
        lambda *i: Convolution().apply_fwd(*i), {"x": np.ones((0, 1, 3, 3)), "kernels": np.ones((2, 1, 2, 2))}
    )
    assert value.shape == (0, 2, 2, 2) and dx.shape == (0, 1, 3, 3) and not dkernels.any()


def test_the_largest_of_equal_entries_is_the_first() -> None:
    assert value_and_gradients(lambda x: MaxPool(2).apply_fwd(x), {"x": np.ones(4)})[1].astype(bool).tolist() == [
        *(True, False),
        *(True, False),
    ]
    value, da, db = value_and_gradients(
        lambda a, b: Maximum().apply_fwd(a, b), {"a": np.zeros(1), "b": np.zeros(1)}
    )
    assert value == 0 and da != 0 and db == 0


def test_powers_where_a_logarithm_is_none() -> None:
    """0^0 = 1, 0² = 0 and (-2)³ have slopes in a; a given exponent has none."""
    a = np.array([0.0, 0.0, -2.0])
    with Tape() as tape:
        z = Power().apply_fwd(Parameter("a", a), np.array([0.0, 2.0, 3.0]))
        tape.backward(np.ones(3))
    assert z.out_tensor.tolist() == [1, 0, -8] and z.in_gradients[0].tolist() == [0, 0, 12]
    with Tape() as tape:
        z = Power().apply_fwd(np.array([0.0, 2.0]), Parameter("b", np.array([2.0, 1.0])))
        tape.backward(np.ones(2))
    assert z.in_gradients[1] == pytest.approx([0, 2 * np.log(2)])


class TestComposed:
    rng = np.random.default_rng(5)

    def test_softmax_then_cross_entropy_is_the_fused_one(self) -> None:
        tensors = {"z": self.rng.normal(size=(4, 3, 7)), "y": self.rng.integers(PAD, 7, size=(4, 3))}
        weights = self.rng.uniform(size=(4, 3))

        def composed(z: Parameter, y: Value) -> Module:
            return CrossEntropy(weights=weights).apply_fwd(Softmax().apply_fwd(z), y)

        def fused(z: Parameter, y: Value) -> Module:
            return SoftmaxCrossEntropy(weights=weights).apply_fwd(z, y)

        assert_same(value_and_gradients(composed, tensors), value_and_gradients(fused, tensors), 1e-14)

    def test_the_fused_one_stays_finite_where_p_is_0(self) -> None:
        z = np.array([[0.0, 2000.0]])
        loss, gradient = value_and_gradients(
            lambda z: SoftmaxCrossEntropy().apply_fwd(z, np.array([0])), {"z": z}, seed=0
        )
        assert loss == 2000
        assert np.isfinite(gradient).all() and gradient[0, 0] == -gradient[0, 1] != 0

    def test_a_one_hot_product_is_an_embedding(self) -> None:
        E = self.rng.normal(size=(6, 3))
        ids = np.array([[1, 5], [1, 0]])
        rows = value_and_gradients(lambda E: Embedding().apply_fwd(E, ids), {"E": E})
        one_hot = np.eye(6)[ids]
        product = value_and_gradients(lambda E: MatMul().apply_fwd(one_hot, E), {"E": E})
        # a linear layer stores its weights the other way: W = Eᵀ
        linear = value_and_gradients(lambda E: Linear().apply_fwd(one_hot, Transpose().apply_fwd(E)), {"E": E})
        assert_same(rows, product, 1e-15)
        assert_same(rows, linear, 1e-15)

    def test_the_gradient_of_an_embedding_is_sparse(self) -> None:
        E = Parameter("E", self.rng.normal(size=(1000, 2)))
        with Tape():
            Sum().apply_fwd(Embedding().apply_fwd(E, np.array([7, 3, 7])))
            tape_bwd()
        assert isinstance(E.out_gradient, SparseRows)
        assert E.out_gradient.ids.tolist() == [7, 3, 7]
        assert E.out_gradient.merged().rows.tolist() == [[1, 1], [2, 2]]

    def test_an_embedding_of_a_computed_table(self) -> None:
        E = self.rng.normal(size=(4, 2))
        ids = np.array([2, 2, 0])
        ours = value_and_gradients(lambda E: Embedding().apply_fwd(Tanh().apply_fwd(E), ids), {"E": E})
        assert_same(ours, by_torch(lambda E: F.embedding(torch.tensor(ids), E.tanh()), {"E": E}))

    @pytest.mark.parametrize("causal", [False, True])
    def test_attention_of_its_parts(self, causal: bool) -> None:
        tensors = {name: self.rng.normal(size=(2, 3, 4, 5)) for name in "qkv"}
        mask = np.triu(np.full((4, 4), -np.inf), 1) if causal else np.zeros((4, 4))

        def parts(q: Parameter, k: Parameter, v: Parameter) -> Module:
            scores = Scale(5**-0.5).apply_fwd(MatMul().apply_fwd(q, Transpose().apply_fwd(k)))
            return MatMul().apply_fwd(Softmax().apply_fwd(Add().apply_fwd(scores, mask)), v)

        def whole(q: Parameter, k: Parameter, v: Parameter) -> Module:
            return ScaledDotProductAttention(causal=causal).apply_fwd(q, k, v)

        assert_same(value_and_gradients(parts, tensors), value_and_gradients(whole, tensors), 1e-13)

    def test_gates_out_of_one_product(self) -> None:
        # a gated recurrent unit's step: z and n of one product, h' = (1 - z) n + z h
        tensors = {
            "x": self.rng.normal(size=(3, 2)),
            "W": self.rng.normal(size=(8, 2)),
            "h": self.rng.normal(size=(3, 4)),
        }

        def step(x: Parameter, W: Parameter, h: Parameter) -> Module:
            gates = Linear().apply_fwd(x, W)
            z, n = (Tanh().apply_fwd(Slice(np.s_[..., i : i + 4]).apply_fwd(gates)) for i in (0, 4))
            new = Multiply().apply_fwd(Scale(-1, 1).apply_fwd(z), n)
            return Add().apply_fwd(new, Multiply().apply_fwd(z, h))

        def by_hand(x: torch.Tensor, W: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
            z, n = (x @ W.T).tanh().split(4, dim=-1)
            return (1 - z) * n + z * h

        assert_same(value_and_gradients(step, tensors), by_torch(by_hand, tensors))

    def test_an_elman_network_through_time(self) -> None:
        tensors = {
            "x": self.rng.normal(size=(2, 5, 3)),
            "W": self.rng.normal(size=(4, 7)),
            "b": self.rng.normal(size=4),
        }

        def unrolled(x: Parameter, W: Parameter, b: Parameter) -> Module:
            h: Module | np.ndarray = np.zeros((2, 4))
            states = []
            for t in range(5):
                both = Concat().apply_fwd(Slice(np.s_[:, t]).apply_fwd(x), h)
                h = Tanh().apply_fwd(Linear().apply_fwd(both, W, b))
                states.append(h)
            return Reshape(10, 4).apply_fwd(Stack(axis=1).apply_fwd(*states))

        def by_hand(x: torch.Tensor, W: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            h, states = torch.zeros(2, 4, dtype=torch.float64), []
            for t in range(5):
                h = torch.tanh(torch.cat([x[:, t], h], dim=-1) @ W.T + b)
                states.append(h)
            return torch.stack(states, dim=1).reshape(10, 4)

        assert_same(value_and_gradients(unrolled, tensors), by_torch(by_hand, tensors))
