"""Exports in the programs that read them: pipelines of transformers, and the harness's own backend."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

import chainrule as cr
from chainrule.interop import huggingface
from chainrule.masked.filling import gapped_ids
from chainrule.seq2seq.translate import translate_texts
from chainrule.tokens.base import Tokenizer

from .conftest import Request, small
from .test_bart import pairs_model
from .test_bert import masked

pytestmark = pytest.mark.filterwarnings("ignore")  # the harness's, and those of what it imports

DESIGNS: list[dict[str, Any]] = [{"preset": "gpt2"}, {"preset": "llama"}, {"preset": "fast"}]
CONTEXTS = ["stream", "line"]


@pytest.mark.parametrize("design", DESIGNS, ids=str)
@pytest.mark.parametrize("context", CONTEXTS)
def test_special_tokens(transformers: Any, bpe: Tokenizer, tmp_path: Path, design: Any, context: Any) -> None:
    """All files name the same tokens, and the text of a text's ids is the text."""
    lm = small(bpe, context, **design)
    huggingface.export(lm, tmp_path / "hf")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    config, generation = (
        json.loads((tmp_path / "hf" / name).read_text()) for name in ("config.json", "generation_config.json")
    )
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        assert getattr(tokenizer, name) == config[name] == generation[name] is not None
    assert tokenizer.bos_token_id == bpe.bos
    assert tokenizer.eos_token_id == (bpe.eos if context == "line" else bpe.bos)
    assert bpe.bos in generation["suppress_tokens"] and bpe.eos not in generation["suppress_tokens"]
    text = "The value <s> is" if context == "line" else "The value\n\nis  that\n"
    assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == text
    end = torch.tensor([[*tokenizer("The value")["input_ids"], tokenizer.eos_token_id]])
    assert tokenizer.decode(end[0], skip_special_tokens=True) == "The value"


@pytest.mark.parametrize("design", DESIGNS, ids=str)
@pytest.mark.parametrize("context", CONTEXTS)
def test_decoders(transformers: Any, bpe: Tokenizer, tmp_path: Path, design: Any, context: Any) -> None:
    """A pipeline writes our text, and the harness's own backend finds what our adapter finds.

    Every token is predicted there, also <s>. So its figures are those of the model that is read back.
    """
    harness = pytest.importorskip("lm_eval.models.huggingface")
    from chainrule.interop.lm_eval import ChainruleLM

    lm = small(bpe, context, **design)
    huggingface.export(lm, tmp_path / "hf")
    pipeline = transformers.pipeline("text-generation", str(tmp_path / "hf"), device="cpu")
    (found,) = pipeline("The value", max_new_tokens=12)
    ours = cr.generate(lm, "The value", cr.Greedy(), max_tokens=12, heal=False)
    assert found["generated_text"] == ours

    theirs = harness.HFLM(pretrained=str(tmp_path / "hf"), device="cpu", batch_size=1)
    adapter = ChainruleLM(huggingface.load(tmp_path / "hf", context=context))
    pairs = [("The value", " of it"), ("The value  ", "of it"), ("", "The value of it")]
    for pair in pairs:
        ((log_prob, is_greedy),) = theirs.loglikelihood([harness_request("loglikelihood", pair)], disable_tqdm=True)
        assert adapter.loglikelihood([Request(pair)]) == [(pytest.approx(log_prob, abs=1e-4), is_greedy)]
    text = "The value of it\n"
    # otherwise it puts <s> before a text that begins with <s>, and predicts the second one
    bare = harness.HFLM(pretrained=str(tmp_path / "hf"), device="cpu", batch_size=1, add_bos_token=False)
    rolled = bare.loglikelihood_rolling([harness_request("loglikelihood_rolling", (text,))], disable_tqdm=True)
    assert adapter.loglikelihood_rolling([Request((text,))]) == pytest.approx(rolled, abs=1e-4)
    asked = ("The value", {"until": ["!"], "max_gen_toks": 12})
    written = theirs.generate_until([harness_request("generate_until", asked)], disable_tqdm=True)
    assert written == [ours.removeprefix("The value").split("!")[0]]


class OnLogProbs(cr.RepetitionPenalty):
    """The penalty as models without logits have it."""

    on_logits = False


@pytest.mark.parametrize("penalty", [1.3, 0.7])
def test_repetition_penalty(transformers: Any, bpe: Tokenizer, tmp_path: Path, penalty: float) -> None:
    """A network's penalty is on its logits, as that of transformers is; drafts change nothing."""
    lm = small(bpe, preset="llama")
    huggingface.export(lm, tmp_path / "hf")
    pipeline = transformers.pipeline("text-generation", str(tmp_path / "hf"), device="cpu")
    (found,) = pipeline("The value", max_new_tokens=40, repetition_penalty=penalty)
    how: dict[str, Any] = {"max_tokens": 40, "heal": False}
    strategy = cr.RepetitionPenalty(penalty) | cr.Greedy()
    ours = cr.generate(lm, "The value", strategy, **how)
    assert found["generated_text"] == ours != cr.generate(lm, "The value", cr.Greedy(), **how)
    assert cr.generate(lm, "The value", strategy, draft="context", **how) == ours
    assert cr.generate(lm, "The value", OnLogProbs(penalty) | cr.Greedy(), **how) != ours


@pytest.mark.parametrize("context", CONTEXTS)
def test_perplexity_without_a_final_line_end(
    transformers: Any, bpe: Tokenizer, tmp_path: Path, context: Any
) -> None:
    """The loss of transformers counts no line end that the text does not have; `evaluate` gives both figures."""
    huggingface.export(small(bpe, context, preset="llama"), tmp_path / "hf")
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "hf")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    back = huggingface.load(tmp_path / "hf", context=context)
    for text in ("The value of it", "The value of it\n"):
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            theirs = math.exp(model(input_ids=ids, labels=ids).loss.item())
        found = cr.evaluate(back, text)
        ours = found.perplexity if text.endswith("\n") else found.perplexity_without_end
        assert ours == pytest.approx(theirs, rel=1e-4)


def harness_request(kind: str, arguments: tuple[Any, ...]) -> Any:
    from lm_eval.api.instance import Instance

    return Instance(kind, {}, arguments, 0)


def test_a_masked_model(transformers: Any, bpe: Tokenizer, tmp_path: Path) -> None:
    model = masked(bpe)
    huggingface.export(model, tmp_path / "hf")
    pipeline = transformers.pipeline("fill-mask", str(tmp_path / "hf"), top_k=3)
    ids = gapped_ids(model, "The value [MASK] it")[None]
    best = model.fill(ids)[0].argsort(descending=True)[:3].tolist()
    assert [each["token"] for each in pipeline("The value [MASK] it")] == best


def test_an_encoder_decoder(transformers: Any, bpe: Tokenizer, tmp_path: Path) -> None:
    """transformers has no pipeline for these any more."""
    harness = pytest.importorskip("lm_eval.models.huggingface")
    model = pairs_model(bpe)
    huggingface.export(model, tmp_path / "hf")
    theirs = harness.HFLM(pretrained=str(tmp_path / "hf"), backend="seq2seq", device="cpu", batch_size=1)
    request = harness_request("generate_until", ("The value", {"until": ["!"], "max_gen_toks": 12}))
    # the harness adds the length of the source to the most tokens, and counts the one that a target begins with
    longest = len(model.encode_source("The value")) + 12 - 1
    ((ours,),) = translate_texts(model, ["The value"], cr.Greedy(), max_tokens=longest)
    assert theirs.generate_until([request], disable_tqdm=True) == [ours.text.split("!")[0]]
