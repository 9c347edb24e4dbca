"""On a GPU, a step by the kernels for one token is the step of the Transformer."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch

from chainrule.inference.gpu.fixed_memory import FixedCache, FixedSources
from chainrule.networks.seq2seq.config import Seq2SeqSettings
from chainrule.networks.seq2seq.transformer import TransformerEncoderDecoder
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
    {"preset": "lecture"},
    {"preset": "bart"},
]
SOURCED: list[dict[str, Any]] = [
    {"preset": "fast"},
    {"preset": "gpt2"},
    {"preset": "llama"},
    {"preset": "lecture"},
    {"preset": "bart"},
    {"preset": "fast", "window": 300, "positions": "alibi"},
]

needs_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU: takes Triton's interpreter too long")
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


@pytest.mark.parametrize("rows", [1, 3, pytest.param(200, marks=needs_gpu)])
@pytest.mark.parametrize("design", SOURCED, ids=str)
@pytest.mark.parametrize(("dtype", "close"), PRECISIONS, ids=str)
def test_the_kernels_look_at_a_source(design: dict[str, Any], rows: int, dtype: torch.dtype, close: float) -> None:
    """Pre-norm and post-norm, positions of each kind, and sources of different lengths with padding behind them."""
    from chainrule.inference.gpu.step import FusedStep, Source

    generator = torch.Generator(DEVICE).manual_seed(0)
    sizes = {"layers": 2, "width": 48, "heads": 4, "window": 100}
    settings: Any = Seq2SeqSettings(**{**sizes, **design})
    network = TransformerEncoderDecoder(settings, 50, 0, 50, shares=True).to(DEVICE).to(dtype).eval()
    for weight in network.parameters():
        torch.nn.init.normal_(weight, std=0.1, generator=generator)
    source = torch.randint(0, 50, (rows, 40), device=DEVICE, generator=generator)
    lengths = torch.randint(1, 41, (rows,), device=DEVICE, generator=generator)
    with torch.no_grad():
        sources = network.encode(source, torch.arange(40, device=DEVICE) < lengths[:, None]).sources
        fixed = FixedSources(sources, rows)
        fixed.put(sources, rows)
        step = FusedStep(network.decoder, rows, Source(fixed.sources.arrays, fixed.lasts_N))
        buffer = network.decoder.begin(rows, settings.window).buffer
        slow = buffer.keys_LBGSK.normal_(generator=generator), buffer.values_LBGSK.normal_(generator=generator)
        fast = slow[0].clone(), slow[1].clone()
        read = torch.randint(0, settings.window - 2, (rows,), device=DEVICE, generator=generator)
        for t in range(2):
            ids = torch.randint(0, 50, (rows,), device=DEVICE, generator=generator)
            expected = network.decoder.step(ids, *slow, read + t, source=network.view(sources))
            found = step(ids, *fast, read + t)
            assert (found - expected).float().norm() < close * expected.float().norm()
            for one, other in zip(fast, slow, strict=True):
                assert (one - other).float().norm() < close * other.float().norm()


@pytest.mark.parametrize("rows", [1, 3])
def test_rows_may_share_their_keys(rows: int) -> None:
    """Tokens of one text are read as rows of one cache: each sees the keys of those before it."""
    from chainrule.inference.gpu.step import FusedStep

    generator = torch.Generator(DEVICE).manual_seed(0)
    network = Transformer(TransformerConfig("fast", layers=2, width=48, heads=4, window=40), 50).to(DEVICE).eval()
    for weight in network.parameters():
        torch.nn.init.normal_(weight, std=0.1, generator=generator)
    buffer = network.begin(1, 40).buffer
    slow = buffer.keys_LBGSK.normal_(generator=generator), buffer.values_LBGSK.normal_(generator=generator)
    fast = slow[0].clone(), slow[1].clone()
    ids = torch.randint(0, 50, (rows,), device=DEVICE, generator=generator)
    first = torch.full((1,), 7, device=DEVICE)
    with torch.no_grad():
        expected = network.steps(ids[None], *slow, first)[0]
        shared = [store.expand(-1, rows, -1, -1, -1) for store in fast]
        found = FusedStep(network, rows)(ids, *shared, first + torch.arange(rows, device=DEVICE))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    for one, other in zip(fast, slow, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


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
