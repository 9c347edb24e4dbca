"""On a GPU, the kernels over the best few tokens choose the same tokens; which choices they can make."""

from __future__ import annotations

import pytest
import torch

import chainrule as cr
from chainrule.arrays import PAD
from chainrule.decode.sample import Choice
from chainrule.decode.strategies import Forbid, Strategy
from chainrule.errors import ModelError
from chainrule.inference.gpu import graph_sampling
from chainrule.inference.gpu.choice import FusedChoice, StepBuffers, TopKPlan, plan_of
from chainrule.inference.gpu.step import FusedStep
from chainrule.inference.neural_model import NeuralModel
from chainrule.networks.transformer.config import TransformerConfig
from chainrule.networks.transformer.decoder import Transformer
from chainrule.tokens.words.tokenizer import WordTokenizer

BOS, END = 2, 0


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (cr.TopK(5), TopKPlan((), 5, ((2, 5),), END)),
        (
            Forbid((7,)) | cr.Temperature(0.5) | cr.TopK(5) | cr.TopP(0.9),
            TopKPlan((7,), 5, ((2, 5), (1, 0.5), (3, 0.9)), END),
        ),
        (cr.TopK(5) | cr.MinP(0.1) | cr.TopK(3) | cr.Sample(), TopKPlan((), 5, ((2, 5), (4, 0.1), (2, 3)), END)),
        (cr.Greedy(), TopKPlan((), 1, ((2, 1),), END)),
        (cr.Temperature(0), TopKPlan((), 1, ((2, 1),), END)),
        (cr.Sample(), None),
        (cr.Temperature(0.8), None),
        (cr.TopP(0.9) | cr.TopK(5), None),
        (cr.MinP(0.1), None),
        (cr.TopK(5) | Forbid((7,)), None),
        (cr.TopK(5000), None),
        (cr.RepetitionPenalty(1.2) | cr.TopK(5), None),
        (cr.PresencePenalty(0.5) | cr.TopK(5), None),
        (cr.FrequencyPenalty(0.5) | cr.TopK(5), None),
    ],
    ids=str,
)
def test_choices_that_look_at_few_tokens_have_a_plan(strategy: Strategy, expected: TopKPlan | None) -> None:
    assert plan_of(Choice(strategy, END)) == expected


STRATEGIES = [
    cr.Temperature(0.8) | cr.TopK(200),
    Forbid((1, 5000)) | cr.TopK(7),
    cr.TopK(50) | cr.Temperature(1.5) | cr.TopP(0.7),
    cr.TopK(1000) | cr.MinP(0.2),
    cr.Greedy(),
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
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_the_kernels_choose_as_the_strategies(strategy: Strategy, dtype: torch.dtype, device: str = "cuda") -> None:
    torch.manual_seed(0)
    config = TransformerConfig("gpt2", layers=1, width=24, heads=2, window=8)
    network = Transformer(config, 9001, BOS).to(device)
    rows = 40
    buffers = some_buffers(network, rows)
    choose = Choice(strategy, END)
    plan = plan_of(choose)
    assert plan is not None
    step = FusedChoice(plan, FusedStep(network, rows), buffers, BOS)
    # many equal ones, and a row in which nothing is possible
    logits_BV = (4 * torch.randn(rows, len(network.head.weight), device=device)).to(dtype)
    logits_BV[:, 3000:] = logits_BV[:, 3000:].round()
    logits_BV[3] = -torch.inf
    z_BV = logits_BV[:, :9001].float()
    z_BV[:, BOS] = -torch.inf
    expected = choose(
        z_BV.log_softmax(dim=-1).nan_to_num(nan=-torch.inf), buffers.uniforms_BT[:, 1], buffers.active_B
    )
    step.choose(logits_BV)
    tokens_B, scores_B, active_B = expected
    assert (buffers.tokens_BT[:, 1] == tokens_B).all()
    assert buffers.tokens_BT[2, 1] == buffers.tokens_BT[3, 1] == PAD
    torch.testing.assert_close(buffers.scores_BT[:, 1], scores_B, rtol=1e-5, atol=1e-5)
    assert (buffers.active_B == active_B).all()
    assert (step.is_token_B == (tokens_B != PAD)).all()
    ids_B = tokens_B.clamp(min=0)
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
@pytest.mark.parametrize("preset", ["gpt2", "llama", "fast"])
def test_only_rows_that_read_a_token_go_on(preset: str, device: str = "cuda") -> None:
    torch.manual_seed(0)
    network = Transformer(TransformerConfig(preset, layers=1, width=24, heads=2, window=8), 50, BOS).to(device)
    buffers = some_buffers(network, 4)
    step = FusedChoice(TopKPlan((), 1, ((2, 1),), END), FusedStep(network, 4), buffers, BOS)
    step.is_token_B.copy_(torch.tensor([True, False, True, True]))
    before, x_BD = buffers.lengths_B.clone(), torch.randn(4, 24, device=device)
    step.finish(x_BD)
    assert (buffers.lengths_B - before == step.is_token_B).all()
    assert buffers.column_1 == 2
    expected = torch.where(step.is_token_B[:, None], network.norm(x_BD), 0.0)
    torch.testing.assert_close(buffers.features_BD, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_nucleus_of_several_rows_can_be_compiled() -> None:
    """The compiler of torch 2.11 cannot add up long rows at once."""
    torch.manual_seed(0)
    log_probs_BV = torch.randn(16, 50_000, device="cuda").log_softmax(-1)
    choose, uniforms_B = Choice(cr.TopP(0.9), None), torch.rand(16, dtype=torch.float64, device="cuda")

    def decide() -> torch.Tensor:
        tokens_B: torch.Tensor = choose(log_probs_BV, uniforms_B, True)[0]
        return tokens_B

    assert torch.equal(torch.compile(decide, dynamic=False)(), decide())
