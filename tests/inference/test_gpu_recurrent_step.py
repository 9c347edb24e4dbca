"""On a GPU, the step of a recurrent decoder by kernels is the step of the network."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch

from chainrule.inference.gpu.fixed_memory import FixedArrays, FixedSources
from chainrule.networks.seq2seq.config import Seq2SeqSettings
from chainrule.networks.seq2seq.encoder_decoder import SourcedMemory
from chainrule.networks.seq2seq.recurrent import DecoderMemory, RecurrentEncoderDecoder

pytest.importorskip("triton", reason="Triton comes with torch for GPUs")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        DEVICE == "cpu" and os.environ.get("TRITON_INTERPRET") != "1", reason="needs a GPU, or TRITON_INTERPRET=1"
    ),
]
needs_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU: takes Triton's interpreter too long")
DESIGNS: list[dict[str, Any]] = [
    {"cell": "lstm", "attention": "general"},
    {"cell": "lstm", "attention": "additive", "feeding": True},
    {"cell": "gru", "attention": "scaled", "layers": 1},
    {"cell": "elman", "attention": "dot", "tied": False},
    {"cell": "lstm", "attention": "none"},
]
PRECISIONS = [(torch.float32, 1e-3 if DEVICE == "cuda" else 1e-5)]  # cuDNN multiplies float32 with 10 bits
if DEVICE == "cuda":  # Triton's interpreter has no bfloat16
    PRECISIONS.append((torch.bfloat16, 0.02))


@pytest.mark.parametrize("rows", [1, 3, pytest.param(200, marks=needs_gpu)])
@pytest.mark.parametrize("design", DESIGNS, ids=str)
@pytest.mark.parametrize(("dtype", "close"), PRECISIONS, ids=str)
def test_the_kernels_compute_the_step(design: dict[str, Any], rows: int, dtype: torch.dtype, close: float) -> None:
    """Also the memory after the step: rows without a token keep theirs."""
    from chainrule.inference.gpu.recurrent_step import RecurrentStep

    generator = torch.Generator(DEVICE).manual_seed(0)
    settings: Any = Seq2SeqSettings(**{"layers": 2, "width": 48, **design})
    network = RecurrentEncoderDecoder(settings, 50, 0, 50, shares=True).to(DEVICE).to(dtype).eval()
    for weight in network.parameters():
        torch.nn.init.normal_(weight, std=0.2, generator=generator)
    # more states than a program looks at together, where there are many tokens in a source
    source = torch.randint(0, 50, (rows, 300), device=DEVICE, generator=generator)
    lengths = torch.randint(1, 301, (rows,), device=DEVICE, generator=generator)
    with torch.no_grad():
        memory = network.begin_from(source, torch.arange(300, device=DEVICE) < lengths[:, None])
        found, plain = (_memory_of(network, memory, rows) for _ in range(2))
        assert found.sources is not None
        found.fused = RecurrentStep(network, rows, found.sources.sources.arrays, found.sources.lasts_N)
        plain.fused = None
        for t in range(3):
            ids = torch.randint(0, 50, (rows,), device=DEVICE, generator=generator)
            is_token = torch.arange(rows, device=DEVICE) != t
            expected, features = (one.read(ids, is_token, lengths) for one in (plain, found))
            assert (features - expected).float().norm() < close * expected.float().norm()
            for mine, theirs in zip(_states(found), _states(plain), strict=True):
                assert (mine - theirs).float().norm() <= close * theirs.float().norm()


def _memory_of(network: RecurrentEncoderDecoder, memory: SourcedMemory, rows: int) -> FixedArrays:
    fixed = FixedArrays(network, memory.target, rows, FixedSources(memory.sources, rows))
    fixed.put(memory, rows)
    return fixed


def _states(fixed: FixedArrays) -> list[torch.Tensor]:
    memory = fixed.memory
    assert isinstance(memory, DecoderMemory)
    return [*(part for state in memory.states for part in state), memory.found_BD]
