"""On a GPU, the kernel for a few long sequences computes the cells of cells.py."""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from chainrule.networks.recurrent import stream
from chainrule.networks.recurrent.cells import CellState
from chainrule.networks.recurrent.fused_layer import FusedLayer
from chainrule.system.devices import has_triton

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
RUNS_KERNELS = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not has_triton() or (DEVICE == "cpu" and os.environ.get("TRITON_INTERPRET") != "1"),
        reason="needs Triton, and a GPU or TRITON_INTERPRET=1",
    ),
]
ON_A_GPU = [pytest.mark.gpu, pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")]

CELLS: list[dict[str, Any]] = [
    {"cell": "lstm"},
    {"cell": "lstm", "biases": 1},
    {"cell": "gru"},
    {"cell": "elman"},
    {"cell": "elman", "activation": "sigmoid"},
    {"cell": "elman", "activation": "relu"},
    {"cell": "elman", "activation": "leaky-relu"},
]
CLOSE = {torch.float32: 2e-5, torch.float16: 5e-3, torch.bfloat16: 3e-2}
BELOW = 5


def made(
    width: int, dtype: torch.dtype, *, activation: Any = "tanh", below: int = BELOW, **options: Any
) -> FusedLayer:
    torch.manual_seed(1)
    layer = FusedLayer(activation=activation, below=below, width=width, weight_dropout=0.0, **options)
    for weight in layer.parameters():
        torch.nn.init.normal_(weight, std=0.5 / weight.shape[1] ** 0.5 if weight.dim() > 1 else 0.3)
    return layer.to(DEVICE, dtype).eval()


def text(layer: FusedLayer, rows: int, length: int, below: int = BELOW) -> tuple[Tensor, CellState]:
    """Inputs, and a state that an earlier part of the text has left."""
    like = layer.weights.weight_hh_l0
    parts = 2 if layer.cell == "lstm" else 1
    state = tuple((torch.randn(rows, like.shape[1]) * 0.5).to(like) for _ in range(parts))
    return torch.randn(rows, length, below).to(like), state


def check(found: tuple[Tensor, CellState], layer: FusedLayer, x_BTD: Tensor, state: CellState) -> None:
    """Compare a result with the cells, in double precision."""
    out_BTH, after = copy.deepcopy(layer).double().read_by_cells(x_BTD.double(), tuple(s.double() for s in state))
    for one, other in zip((found[0], *found[1]), (out_BTH, *after), strict=True):
        assert one.dtype == x_BTD.dtype and one.shape == other.shape
        close = CLOSE[one.dtype]
        torch.testing.assert_close(one.double(), other, rtol=close, atol=close)


def whole(layer: FusedLayer) -> stream.Shares:
    """All units in one program, which waits for nobody: Triton's interpreter can run it."""
    width, dtype = layer.weights.weight_hh_l0.shape[1], layer.weights.weight_hh_l0.dtype
    divided = stream.shares(width, 1 << (width - 1).bit_length(), 8, dtype.itemsize)
    assert divided.programs == 1
    return divided


@pytest.fixture
def no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that is not known to fail, whatever other tests did to it."""
    monkeypatch.setattr(stream, "_has_failed", stream.threading.Event())


@pytest.fixture(autouse=True)
def exact_products() -> Iterator[None]:
    """Products of float32 in all its bits: cuDNN's have ten by default."""
    matmul, cudnn = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.set_float32_matmul_precision(matmul)
    torch.backends.cudnn.allow_tf32 = cudnn


def test_the_units_of_a_layer_are_divided() -> None:
    # 1,024 units: 8 in each of 128 programs; a row of U is 8 pieces of 32 threads with 4 numbers each
    assert stream.best_shares("lstm", 1024, 2, 132) == stream.Shares(128, 8, 8, pieces=8, piece=128)
    assert stream.best_shares("lstm", 1024, 4, 132) == stream.Shares(128, 8, 8, pieces=8, piece=128)
    assert stream.best_shares("gru", 100, 2, 132) == stream.Shares(13, 8, 8, pieces=8, piece=32)
    assert stream.best_shares("elman", 2048, 2, 132) == stream.Shares(128, 16, 8, pieces=8, piece=256)
    for cell, width, processors in (("lstm", 1152, 132), ("lstm", 1024, 108), ("elman", 4096, 132)):
        assert stream.best_shares(cell, width, 2, processors) is None  # type: ignore[arg-type]
    for width in range(1, 1200):
        divided = stream.best_shares("elman", width, 2, 132)
        assert divided is None or divided.programs <= 132
        assert divided is None or divided.units * divided.programs >= width <= divided.pieces * divided.piece
        assert divided is None or divided.pieces >= divided.warps  # each warp reads other numbers


class TestOneProgramAtATime:
    pytestmark = RUNS_KERNELS

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)  # the interpreter has no bfloat16
    @pytest.mark.parametrize(("width", "rows"), [(8, 1), (13, 3), (160, 2)])
    @pytest.mark.parametrize("cell", CELLS, ids=str)
    @torch.no_grad()
    def test_the_kernel_computes_the_cells(
        self, cell: dict[str, Any], width: int, rows: int, dtype: torch.dtype
    ) -> None:
        layer = made(width, dtype, **cell)
        x_BTD, state = text(layer, rows, 6)
        found = layer.stream.by_kernel(x_BTD, state, layer._weights(dtype), whole(layer))
        check(found, layer, x_BTD, state)

    @pytest.mark.parametrize(("width", "units"), [(13, 8), (40, 16)])
    @pytest.mark.parametrize("cell", ["lstm", "gru", "elman"])
    @torch.no_grad()
    def test_programs_share_the_units(self, cell: str, width: int, units: int) -> None:
        """Token by token: no program waits for another within a call."""
        layer = made(width, torch.float32, cell=cell)
        x_BTD, begun = text(layer, 3, 5)
        divided = stream.shares(width, units, 8, 4)
        assert divided.programs > 1
        outputs, state = [], begun
        for t in range(5):
            x_B1D = x_BTD[:, t : t + 1]
            out_B1H, state = layer.stream.by_kernel(x_B1D, state, layer._weights(x_BTD.dtype), divided)
            outputs.append(out_B1H)
        check((torch.cat(outputs, dim=1), state), layer, x_BTD, begun)

    @pytest.mark.parametrize("cell", ["lstm", "gru", "elman"])
    @torch.no_grad()
    def test_what_is_not_a_number_is_not_waited_for(self, cell: str) -> None:
        layer = made(8, torch.float32, cell=cell)
        x_BTD, state = text(layer, 2, 6)
        x_BTD[1, 3] = float("nan")
        state[0][0].view(torch.int32)[0] = -1  # not a number either, and the pattern of what is not yet written
        found, _ = layer.stream.by_kernel(x_BTD, state, layer._weights(x_BTD.dtype), whole(layer))
        assert torch.equal(found.isnan(), layer.read_by_cells(x_BTD, state)[0].isnan())
        assert found[0].isnan().all() and found[1, 3:].isnan().all() and not found[1, :3].isnan().any()

    @torch.no_grad()
    def test_a_program_does_not_wait_for_ever(self, no_failure: None, monkeypatch: pytest.MonkeyPatch) -> None:
        """The second half of the units is nobody's."""
        layer = made(16, torch.float32, cell="lstm")
        x_BTD, state = text(layer, 2, 6)
        half = stream.shares(16, 8, 8, 4)._replace(programs=1)
        monkeypatch.setattr(stream, "_PATIENCE", 5)
        with pytest.raises(stream.StreamError, match="did not run at the same time"):
            layer.stream.by_kernel(x_BTD, state, layer._weights(x_BTD.dtype), half)
        monkeypatch.setattr(stream.Stream, "shares_for", lambda *_: half)
        with pytest.warns(RuntimeWarning, match="a fast path failed; the plain way is used .StreamError"):
            check(layer(x_BTD, state), layer, x_BTD, state)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # it is not tried again
            check(layer(x_BTD, state), layer, x_BTD, state)

    @torch.no_grad()
    def test_a_layer_reads_by_the_kernel(self, no_failure: None, monkeypatch: pytest.MonkeyPatch) -> None:
        layer = made(12, torch.float32, cell="lstm")
        x_BTD, state = text(layer, 1, 6)
        monkeypatch.setattr(stream.Stream, "shares_for", lambda *_: whole(layer))
        monkeypatch.setattr(layer, "_run", None)  # torch's function would be called
        check(layer(x_BTD, state), layer, x_BTD, state)


class TestOnAGpu:
    pytestmark = ON_A_GPU

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
    @pytest.mark.parametrize("rows", [1, 3])
    @pytest.mark.parametrize("width", [64, 100, 512, 1024])
    @pytest.mark.parametrize("cell", CELLS, ids=str)
    def test_layers_read_a_stream_as_the_cells_do(
        self, cell: dict[str, Any], width: int, rows: int, dtype: torch.dtype, no_failure: None
    ) -> None:
        """One layer over another, by programs that wait for each other."""
        one, two = made(width, dtype, **cell), made(width, dtype, below=width, **cell)
        x_BTD, state = text(one, rows, 200)
        with torch.no_grad():
            assert one.stream.shares_for(x_BTD, one._weights(dtype)) is not None
            found = one(x_BTD, state)
            check(found, one, x_BTD, state)
            check(two(found[0], state), two, found[0], state)
        assert not stream._has_failed.is_set()

    def test_few_tokens_many_rows_and_gradients_are_cudnns(self, no_failure: None) -> None:
        layer = made(64, torch.float32, cell="lstm")
        weights = layer._weights(torch.float32)
        for rows, length, has_gradients in ((1, 63, False), (9, 64, False), (1, 64, True)):
            with torch.set_grad_enabled(has_gradients):
                assert layer.stream.shares_for(text(layer, rows, length)[0], weights) is None
        with torch.no_grad():
            assert layer.stream.shares_for(text(layer, 8, 64)[0], weights) is not None

    @torch.no_grad()
    def test_a_long_text_does_not_lose_a_state(self, no_failure: None) -> None:
        """Again and again the same numbers: a program that ran ahead would read an old state."""
        layer = made(1024, torch.bfloat16, cell="lstm")
        x_BTD, state = text(layer, 1, 16384)
        first, again = layer(x_BTD, state), layer(x_BTD, state)
        assert torch.equal(first[0], again[0]) and all(map(torch.equal, first[1], again[1]))
        assert not stream._has_failed.is_set()
