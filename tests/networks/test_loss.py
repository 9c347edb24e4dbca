"""The loss in pieces, and by one loop on a GPU, is the loss of the formula."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from chainrule.arrays import PAD
from chainrule.networks import loss, loss_on_cpu
from chainrule.networks.config import padded_size
from chainrule.networks.layers import Head


def example(
    rows: int, size: int, width: int, *, bias: bool, seed: int = 0
) -> tuple[list[torch.Tensor], torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = [(rows, width), (size, width)] + ([(size,)] if bias else [])
    parts = [torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_() for shape in shapes]
    return parts, torch.randint(PAD, size, (rows,), generator=generator)


@given(rows=st.integers(1, 30), size=st.integers(2, 40), bias=st.booleans(), at_once=st.integers(1, 300))
def test_pieces_give_the_loss_and_the_gradients_of_the_formula(
    rows: int, size: int, bias: bool, at_once: int
) -> None:
    parts, targets = example(rows, size, 5, bias=bias)
    arguments = (*parts[:2], parts[2] if bias else None, targets)
    whole = loss.summed_nats(*arguments)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loss, "LOGITS_AT_ONCE", at_once)
        pieces = loss.in_pieces(*arguments)
    torch.testing.assert_close(pieces, whole)
    expected, found = (torch.autograd.grad(3 * value, parts) for value in (whole, pieces))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_the_gradient_is_that_of_finite_differences() -> None:
    parts, targets = example(6, 7, 3, bias=True)
    assert torch.autograd.gradcheck(lambda *p: loss.in_pieces(*p, targets), parts)


def test_a_large_vocabulary_takes_the_way_of_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    parts, targets = example(6, 7, 3, bias=False)
    monkeypatch.setattr(loss, "in_pieces", lambda *_: "pieces")
    assert isinstance(loss.best_nats(*parts, None, targets), torch.Tensor)
    monkeypatch.setattr(loss, "LOGITS_AT_ONCE", 41)  # 6 · 7 are more
    assert loss.best_nats(*parts, None, targets) == "pieces"


@pytest.mark.parametrize("at_once", [1, 20, 41])
def test_without_gradients_too_not_all_logits_are_made_at_once(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts, targets = example(6, 7, 3, bias=True)
    whole, sizes = loss.summed_nats(*parts, targets), []

    def noted(features_ND: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        sizes.append(len(features_ND))
        return formula(features_ND, *rest)

    formula = loss.nats_of_targets
    monkeypatch.setattr(loss, "nats_of_targets", noted)
    monkeypatch.setattr(loss, "LOGITS_AT_ONCE", at_once)  # 6 · 7 are more
    with torch.no_grad():
        torch.testing.assert_close(loss.best_nats(*parts, targets), whole.detach())
    assert max(sizes) == max(at_once // 7, 1) and sum(sizes) == 6


def test_a_target_that_is_no_token_costs_nothing_and_teaches_nothing() -> None:
    parts, _ = example(3, 5, 2, bias=True)
    nats = loss.in_pieces(*parts, torch.full((3,), PAD))
    assert nats == 0
    assert all((gradient == 0).all() for gradient in torch.autograd.grad(nats, parts))


def test_rows_for_speed_are_never_given_out() -> None:
    assert (padded_size(65), padded_size(4096), padded_size(33_279), padded_size(50_257)) == (
        72,
        4096,
        33280,
        50304,
    )
    head = Head(4, 13, bias=True)
    assert head.weight.shape == (16, 4)
    assert head(torch.zeros(2, 3, 4)).shape == (2, 3, 13)
    with pytest.raises(ValueError, match=r"a tied table should be \[16, 4\], not \[13, 4\]"):
        Head(4, 13, tied_to=torch.nn.Parameter(torch.zeros(13, 4)))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_one_loop_on_a_gpu_gives_the_same(dtype: torch.dtype) -> None:
    logits = 3 * torch.randn(40, 9000, device="cuda").to(dtype)
    targets = torch.randint(PAD, 9000, (40,), device="cuda")
    nats, errors = loss.softmax_errors(logits, targets, 1.0, torch.float32)
    fast_nats, fast_errors = loss.best_errors(logits, targets, 1.0, torch.float32)
    torch.testing.assert_close(fast_nats, nats, rtol=1e-5, atol=1e-3)
    torch.testing.assert_close(fast_errors, errors, rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() < (8, 9),
    reason="needs a GPU with 8-bit floats",
)
@pytest.mark.parametrize("rows", [512, 509])
def test_eight_bits_give_nearly_the_same(rows: int) -> None:
    features = torch.randn(rows, 64, device="cuda").requires_grad_()
    weight = (0.05 * torch.randn(4096, 64, device="cuda")).requires_grad_()
    targets = torch.randint(PAD, 4096, (rows,), device="cuda")
    found = []
    for float8 in (False, True):
        with torch.autocast("cuda", torch.bfloat16):
            nats = loss.in_pieces(features, weight, None, targets, float8)
        found.append((nats, *torch.autograd.grad(nats, (features, weight))))
    for exact, rough in zip(*found, strict=True):
        assert (exact - rough).norm() < 0.06 * exact.norm()


@given(
    rows=st.integers(1, 30),
    size=st.integers(1024, 1300),
    bias=st.booleans(),
    spread=st.sampled_from([0.1, 1.0, 10.0]),
    threads=st.integers(1, 3),
)
@settings(max_examples=20)
def test_compiled_loops_give_the_loss_and_the_gradients_of_the_formula(
    rows: int, size: int, bias: bool, spread: float, threads: int
) -> None:
    wide, targets = example(rows, size, 5, bias=bias, seed=rows)
    parts = [(spread * part.detach()).float().requires_grad_() for part in wide]
    arguments = (*parts[:2], parts[2] if bias else None, targets)
    before = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loss, "IS_ARM", True)
        patch.setattr(loss_on_cpu, "_LEAST", 1000)
        try:
            torch.set_num_threads(threads)
            found = loss.best_nats(*arguments)
            with torch.no_grad():
                measured = loss.best_nats(*arguments)
        finally:
            torch.set_num_threads(before)
    expected = loss.summed_nats(*arguments)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(measured, expected)
    for one, other in zip(torch.autograd.grad(found, parts), torch.autograd.grad(expected, parts), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5 * float(other.abs().max()))


@pytest.mark.parametrize("errors", [True, False])
def test_compiled_loops_know_logits_that_are_no_numbers(errors: bool) -> None:
    logits, targets = torch.zeros(4, 2000), torch.tensor([1, 2, 3, PAD])
    logits[0, 7], logits[1, 5], logits[2, 3] = torch.nan, -torch.inf, -torch.inf
    run = loss_on_cpu.replace_by_errors if errors else loss_on_cpu.nats_of_targets
    found = torch.from_numpy(run(logits.numpy(), targets.numpy(), threads=1))
    assert found[0].isnan()  # a training that has diverged must not look well
    torch.testing.assert_close(found[1:], torch.tensor([math.log(1999), math.inf, 0.0]))


def test_compiled_loops_are_for_arm_and_large_vocabularies(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(loss, "IS_ARM", True)
    monkeypatch.setattr(loss, "in_pieces", lambda features, weight, *_: asked.append(len(weight)))
    for size in (1000, 1024):
        parts, targets = example(2, size, 3, bias=False)
        loss.best_nats(*(part.float() for part in parts), None, targets)
    assert asked == [1024]
    monkeypatch.setattr(loss, "IS_ARM", False)
    loss.best_nats(*(part.float() for part in parts), None, targets)
    assert asked == [1024]
