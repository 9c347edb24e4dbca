"""On a GPU, kernels choose the tokens that the strategies choose; which choices they can make."""

from __future__ import annotations

import os

import pytest
import torch

import chainrule as cr
from chainrule.arrays import PAD
from chainrule.decode.sample import Choice
from chainrule.decode.strategies import Bias, Forbid, Strategy
from chainrule.errors import ModelError
from chainrule.inference.choice_plan import ChoicePlan, plan_of
from chainrule.inference.gpu import graph_sampling
from chainrule.inference.gpu.choice import FusedChoice, FusedSampling, StepBuffers
from chainrule.inference.gpu.step import FusedStep
from chainrule.inference.neural_model import NeuralModel
from chainrule.networks.transformer.config import TransformerConfig
from chainrule.networks.transformer.decoder import Transformer
from chainrule.system.devices import has_triton
from chainrule.tokens.words.tokenizer import WordTokenizer

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
needs_kernels = pytest.mark.skipif(
    DEVICE == "cpu" and not (has_triton() and os.environ.get("TRITON_INTERPRET") == "1"),
    reason="needs a GPU, or Triton and TRITON_INTERPRET=1",
)
BOS, END = 2, 0


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (cr.TopK(5), ChoicePlan((), ((2, 5),), END)),
        (
            Forbid((7,)) | cr.Temperature(0.5) | cr.TopK(5) | cr.TopP(0.9),
            ChoicePlan((7,), ((2, 5), (1, 0.5), (3, 0.9)), END),
        ),
        (cr.TopK(5) | cr.MinP(0.1) | cr.TopK(3) | cr.Sample(), ChoicePlan((), ((2, 5), (4, 0.1), (2, 3)), END)),
        (cr.Greedy(), ChoicePlan((), ((2, 1),), END)),
        (cr.Temperature(0), ChoicePlan((), ((2, 1),), END)),
        (cr.Sample(), ChoicePlan((), (), END)),
        (cr.Temperature(0.8) | Forbid((4,)), ChoicePlan((4,), ((1, 0.8),), END)),
        (cr.TopP(0.9) | cr.TopK(5), ChoicePlan((), ((3, 0.9), (2, 5)), END)),
        (cr.TopP(1.0) | cr.MinP(0.0), ChoicePlan((), (), END)),
        (cr.TopK(5) | Forbid((7,)), None),
        (cr.RepetitionPenalty(1.2) | cr.TopK(5), None),
        (cr.TopK(5) | cr.PresencePenalty(0.5), None),
        (
            Forbid((3,)) | cr.PresencePenalty(0.5) | cr.FrequencyPenalty(0.2) | cr.TopK(5),
            ChoicePlan((3,), ((2, 5),), END, (("presence_penalty", 0.5), ("frequency_penalty", 0.2))),
        ),
        (Bias(((3, 1.0),)) | cr.TopK(5), ChoicePlan((), ((2, 5),), END, (), ((3, 1.0),))),
        (cr.TopK(5) | Bias(((3, 1.0),)), None),
        (Bias(((3, 1.0),)) | cr.PresencePenalty(0.5), None),
    ],
    ids=str,
)
def test_what_the_kernels_can_choose_has_a_plan(strategy: Strategy, expected: ChoicePlan | None) -> None:
    assert plan_of(Choice(strategy, END)) == expected


def test_a_repetition_penalty_has_a_plan_on_logits() -> None:
    plan = plan_of(Choice(cr.RepetitionPenalty(1.2) | cr.TopK(5), END, by_logits=True))
    assert plan == ChoicePlan((), ((2, 5),), END, (("repetition_penalty", 1.2),))


@pytest.mark.parametrize(("k", "expected"), [(5, 5), (1024, 1024), (5000, None)])
def test_the_best_tokens_are_sought_where_they_are_few(k: int, expected: int | None) -> None:
    plan = plan_of(Choice(cr.Temperature(0.5) | cr.TopK(k), END))
    assert plan is not None and plan.k == expected


STRATEGIES = [
    cr.Temperature(0.8) | cr.TopK(200),
    Forbid((1, 5000)) | cr.TopK(7),
    cr.TopK(50) | cr.Temperature(1.5) | cr.TopP(0.7),
    cr.TopK(1000) | cr.MinP(0.2),
    cr.Greedy(),
    cr.Sample(),
    Forbid((1, 5000)) | cr.Temperature(0.7),
    cr.MinP(0.05) | cr.Temperature(2.0),
    cr.TopP(0.9),
    cr.TopP(0.05),
    cr.Temperature(0.5) | cr.TopP(0.6) | cr.TopK(2000),
    cr.TopK(3000) | cr.TopP(0.95) | cr.MinP(0.001),
    cr.TopP(0.9) | cr.TopK(5),
    cr.TopP(0.8) | cr.TopP(0.5),
    cr.RepetitionPenalty(1.5) | cr.TopK(20),
    cr.PresencePenalty(0.5) | Bias(((7, 3.0), (9, -2.0))) | cr.TopP(0.9),
    cr.RepetitionPenalty(1.5) | cr.PresencePenalty(0.4) | cr.TopP(0.8),
    Forbid((3,)) | cr.FrequencyPenalty(0.5) | cr.Temperature(0.9),
]


def some_buffers(network: Transformer, rows: int) -> StepBuffers:
    buffers = StepBuffers.of_size(rows, 4, 8, network.head.weight.detach())
    places_B = torch.arange(rows, device=buffers.active_B.device)
    buffers.active_B.copy_(places_B != 2)
    buffers.lengths_B.copy_(places_B % 8)
    buffers.uniforms_BT.uniform_()
    buffers.column_1.fill_(1)
    return buffers


@pytest.mark.gpu
@needs_kernels
@pytest.mark.parametrize("vocab", [300, 9001, 40_000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_the_kernels_choose_as_the_strategies(strategy: Strategy, dtype: torch.dtype, vocab: int) -> None:
    torch.manual_seed(0)
    config = TransformerConfig("gpt2", layers=1, width=24, heads=2, window=8)
    network = Transformer(config, vocab, BOS).to(DEVICE)
    rows = 40
    buffers = some_buffers(network, rows)
    choose = Choice(strategy, END, strategy.on_logits)
    plan = plan_of(choose)
    assert plan is not None
    read_BT = torch.randint(0, 200, (rows, 30), device=DEVICE)
    counts_BV = torch.zeros(rows, vocab, dtype=torch.int32, device=DEVICE)
    counts_BV.scatter_add_(1, read_BT, torch.ones_like(read_BT, dtype=torch.int32))
    before_BV = counts_BV.clone()
    own_step = FusedStep(network, rows) if DEVICE == "cuda" else None
    step = FusedChoice(plan, network.head, buffers, BOS, counts_BV=counts_BV, step=own_step)
    # many equal ones, and a row in which nothing is possible
    logits_BV = (4 * torch.randn(rows, len(network.head.weight), device=DEVICE)).to(dtype)
    logits_BV[:, vocab // 3 :] = logits_BV[:, vocab // 3 :].round()
    logits_BV[3] = -torch.inf
    z_BV = logits_BV[:, :vocab].float()
    z_BV[:, BOS] = -torch.inf
    log_probs_BV = z_BV.log_softmax(dim=-1).nan_to_num(nan=-torch.inf)
    given_BV = z_BV if choose.by_logits else log_probs_BV
    tokens_B, scores_B, active_B = choose(
        given_BV, buffers.uniforms_BT[:, 1], buffers.active_B.clone(), lambda: read_BT
    )
    step.choose(logits_BV)
    assert (buffers.tokens_BT[:, 1] == tokens_B).all()
    assert buffers.tokens_BT[2, 1] == buffers.tokens_BT[3, 1] == PAD
    torch.testing.assert_close(buffers.scores_BT[:, 1], scores_B, rtol=1e-5, atol=1e-5)
    assert (buffers.active_B == active_B).all()
    assert (step.is_token_B == (tokens_B != PAD)).all()
    ids_B = tokens_B.clamp(min=0)
    assert (step.ids_B == ids_B).all()
    before_BV.scatter_add_(1, ids_B[:, None], (tokens_B != PAD)[:, None].to(torch.int32))
    assert torch.equal(counts_BV, before_BV)
    if own_step is not None:
        assert (buffers.ids_BW.gather(1, buffers.lengths_B[:, None])[:, 0] == ids_B).all()
        torch.testing.assert_close(step.x_BD, network.embed(ids_B[:, None], buffers.lengths_B[:, None])[:, 0])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("strategy", [cr.TopK(5), cr.Temperature(1.5) | cr.TopK(20) | cr.TopP(0.8)], ids=str)
def test_kernels_sample_the_same_text_as_any_choice(strategy: Strategy, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    tokenizer = WordTokenizer([f"w{number}".encode() for number in range(60)])
    config = TransformerConfig("llama", layers=2, width=32, heads=4, window=128)
    network = Transformer(config, tokenizer.vocab_size, tokenizer.bos)
    torch.nn.init.normal_(network.head.weight, std=0.5)
    lm = NeuralModel(network, tokenizer, "stream", kind="transformer", settings=config).on("cuda")

    def written() -> list[str]:
        some = cr.generate_many(lm, ["w1 w2", "w3"], strategy, max_tokens=100)
        torch.ones(1 << 20, device="cuda")  # what is no longer held is written over
        return [one.text for one in some]

    by_loops = [written() for _ in range(3)]
    monkeypatch.setattr(graph_sampling, "plan_of", lambda choose: None)
    lm.captured.samplers.clear()
    assert by_loops == [written()] * 3


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("strategy", [cr.TopK(5), cr.Temperature(1.5) | cr.TopK(20) | cr.TopP(0.8)], ids=str)
def test_nan_is_an_error_on_a_gpu_too(strategy: Strategy) -> None:
    tokenizer = WordTokenizer([f"w{number}".encode() for number in range(60)])
    config = TransformerConfig("llama", layers=1, width=32, heads=4, window=128)
    network = Transformer(config, tokenizer.vocab_size, tokenizer.bos)
    torch.nn.init.constant_(network.head.weight, torch.nan)
    lm = NeuralModel(network, tokenizer, "stream", kind="transformer", settings=config).on("cuda")
    with pytest.raises(ModelError, match="NaN"):
        cr.generate(lm, "w1", strategy, max_tokens=40)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("preset", ["gpt2", "llama", "fast", "lecture", "bart"])
def test_only_rows_that_read_a_token_go_on(preset: str, device: str = "cuda") -> None:
    torch.manual_seed(0)
    network = Transformer(TransformerConfig(preset, layers=1, width=24, heads=2, window=8), 50, BOS).to(device)
    buffers = some_buffers(network, 4)
    plan = ChoicePlan((), ((2, 1),), END)
    step = FusedSampling(plan, network.head, buffers, BOS, step=FusedStep(network, 4))
    step.is_token_B.copy_(torch.tensor([True, False, True, True]))
    before, x_BD = buffers.lengths_B.clone(), torch.randn(4, 24, device=device)
    step.finish(x_BD)
    assert (buffers.lengths_B - before == step.is_token_B).all()
    assert buffers.column_1 == 2
    last = network.blocks[-1].feedforward_norm if network.config.placement == "post" else network.norm
    expected = torch.where(step.is_token_B[:, None], last(x_BD), 0.0)
    torch.testing.assert_close(buffers.features_BD, expected, rtol=1e-4, atol=1e-5)
