"""On a GPU, a step by the kernels for one token is the step of the Transformer."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch

from chainrule.inference.gpu.fixed_memory import FixedCache
from chainrule.networks.transformer.config import TransformerConfig
from chainrule.networks.transformer.decoder import Transformer

pytest.importorskip("triton", reason="Triton comes with torch for GPUs")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        DEVICE == "cpu" and os.environ.get("TRITON_INTERPRET") != "1", reason="needs a GPU, or TRITON_INTERPRET=1"
    ),
]

DESIGNS: list[dict[str, Any]] = [
    {"preset": "gpt2"},
    {"preset": "llama", "kv_heads": 2},
    {"preset": "fast"},
    {"preset": "fast", "heads": 12},
    {"preset": "gpt2", "positions": "alibi", "activation": "relu", "kv_heads": 1},
    {"preset": "llama", "width": 80, "hidden": 2100},  # more than a program takes at once, and no power of two
]

PRECISIONS = [(torch.float32, 1e-5), (torch.float16, 0.005)]
if DEVICE == "cuda":  # Triton's interpreter has no bfloat16
    PRECISIONS.append((torch.bfloat16, 0.02))


@pytest.mark.parametrize("rows", [1, 3, 32])
@pytest.mark.parametrize("design", DESIGNS, ids=str)
@pytest.mark.parametrize(("dtype", "close"), PRECISIONS, ids=str)
def test_the_kernels_compute_the_step(design: dict[str, Any], rows: int, dtype: torch.dtype, close: float) -> None:
    from chainrule.inference.gpu.step import FusedStep

    generator = torch.Generator(DEVICE).manual_seed(0)
    network = (
        Transformer(TransformerConfig(**{"layers": 2, "width": 96, "heads": 4, "window": 300, **design}), 50)
        .to(DEVICE)
        .to(dtype)
    )
    for weight in network.parameters():
        torch.nn.init.normal_(weight, std=0.1, generator=generator)
    buffer = network.eval().begin(rows, 300).buffer
    slow = buffer.keys_LBGSK.normal_(generator=generator), buffer.values_LBGSK.normal_(generator=generator)
    fast = slow[0].clone(), slow[1].clone()
    step = FusedStep(network, rows)
    lengths = torch.randint(0, 298, (rows,), device=DEVICE, generator=generator)
    with torch.no_grad():
        for t in range(2):
            ids = torch.randint(0, 50, (rows,), device=DEVICE, generator=generator)
            expected, found = network.step(ids, *slow, lengths + t), step(ids, *fast, lengths + t)
            assert (found - expected).float().norm() < close * expected.float().norm()
            for one, other in zip(fast, slow, strict=True):
                assert (one - other).float().norm() < close * other.float().norm()


@pytest.mark.parametrize("width", [1, 3, 4])
def test_the_rows_of_a_beam_move_in_place(width: int) -> None:
    """Each row has the keys and values of its parent up to its length; what lies behind is not touched."""
    generator = torch.Generator(DEVICE).manual_seed(0)
    texts, heads, window, size = 3, 2, 150, 24
    rows = texts * width
    config = TransformerConfig("gpt2", layers=2, width=heads * size, heads=heads, window=window)
    network = Transformer(config, 50).to(DEVICE)
    memory = FixedCache(network, rows + 2)  # a sampler may have more rows than a search
    parents = torch.randint(0, width, (texts, width), device=DEVICE, generator=generator)
    parents[1] = torch.arange(width)  # nothing moves in the second text
    parents = (parents + torch.arange(texts, device=DEVICE)[:, None] * width).flatten()
    shared = torch.tensor([0, 3, 40], device=DEVICE)
    lengths = torch.tensor([70] * width + [90] * width + [120] * width + [9, 9], device=DEVICE)
    stores = memory.keys_LBGSK, memory.values_LBGSK
    expected = []
    for store in stores:
        store.normal_(generator=generator)
        store[:, :rows].unflatten(1, (texts, width))[:, 2, :, :, :40] = 1.0  # what the rows of the third text share
        moved = store.clone()
        for row, parent in enumerate(parents.tolist()):
            moved[:, row, :, : lengths[row]] = store[:, parent, :, : lengths[row]]
        expected.append(moved)
    before = [store.clone() for store in stores]
    for reorder in (memory.reorder, memory.reorder_by_kernel):
        reorder(parents, width, shared, lengths)
        for store, moved, kept in zip(stores, expected, before, strict=True):
            torch.testing.assert_close(store, moved)
            store.copy_(kept)
