"""Models of other programs behind `chainrule serve`: OpenAI's client gets the texts of transformers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
import torch
from tests.serve.serving import Running, running

import chainrule as cr
from chainrule.arrays import to_numpy
from chainrule.interop import huggingface
from chainrule.interop.conversion import import_model
from chainrule.tokens.base import Tokenizer

from .conftest import small

STORIES = Path(os.environ.get("CHAINRULE_DATA", "."), "stories260k")
PROMPTS = ["The value of", "import this\n  and that\n", "x = [1, 2", ""]
SIZES: dict[str, Any] = {"vocab_size": 512, "bos_token_id": 500, "eos_token_id": 501}
TOKENS = 12


@pytest.fixture(scope="module")
def theirs(transformers: Any, bpe: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders that transformers has written, in shards, with random weights; the tokenizer is one of ours."""
    place = tmp_path_factory.mktemp("theirs")
    huggingface.export(small(bpe, preset="llama"), place / "ours")
    heads: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2}
    described = {
        "gpt2": transformers.GPT2Config(**SIZES, n_positions=64, n_embd=32, n_layer=2, n_head=4),
        "qwen3": transformers.Qwen3Config(
            **SIZES, **heads, hidden_size=32, intermediate_size=40, head_dim=16, max_position_embeddings=64
        ),
    }
    for name, config in described.items():
        torch.manual_seed(4)
        model = transformers.AutoModelForCausalLM.from_config(config)
        with torch.no_grad():
            for weight in model.parameters():
                weight.normal_(std=0.3)  # so that tokens differ clearly in their probabilities
        model.save_pretrained(place / name, max_shard_size="40KB")
        for file in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(place / "ours" / file, place / name)
    return {name: place / name for name in described}


@pytest.fixture(scope="module")
def server(theirs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    place = tmp_path_factory.mktemp("served")
    for name, folder in theirs.items():
        import_model(folder).save(place / name)
    if STORIES.exists():
        import_model(STORIES / "stories260K.bin", tokenizer=STORIES / "tok512.bin").save(place / "stories")
    with running(sorted(place.iterdir())) as found:
        yield found


@pytest.fixture
def client(server: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.address}/v1", api_key="none") as found:
        yield found


def streamed(client: openai.OpenAI, **asked: Any) -> str:
    return "".join(part.choices[0].text for part in client.completions.create(stream=True, **asked) if part.choices)


@pytest.mark.parametrize("name", ["gpt2", "qwen3"])
def test_texts_and_probabilities_are_those_of_transformers(
    transformers: Any, theirs: dict[str, Path], client: openai.OpenAI, name: str
) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(theirs[name]).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(theirs[name])
    for prompt in PROMPTS:
        read = tokenizer(prompt, return_tensors="pt")
        ids, mask = read["input_ids"].long(), read["attention_mask"]  # of an empty text they are no whole numbers
        made = model.generate(
            ids, attention_mask=mask, max_new_tokens=TOKENS, do_sample=False, suppress_tokens=None, pad_token_id=0
        )
        expected = tokenizer.decode(made[0, ids.shape[1] :], skip_special_tokens=True)
        asked: dict[str, Any] = {"model": name, "prompt": prompt, "max_tokens": TOKENS, "temperature": 0}
        # with `logprobs` the tokens of the prompt are taken as they are, as transformers does
        whole = client.completions.create(**asked, logprobs=1, echo=True).choices[0]
        assert whole.text == prompt + expected
        with torch.no_grad():
            log_probs_TV = model(input_ids=made).logits[0].log_softmax(-1)
        nats = log_probs_TV[:-1].gather(1, made[0, 1:, None])[:, 0].tolist()
        assert whole.logprobs is not None
        assert whole.logprobs.token_logprobs == pytest.approx(nats, abs=1e-4)
        assert streamed(client, **asked, logprobs=1) == expected
        assert streamed(client, **asked) == client.completions.create(**asked).choices[0].text


@pytest.mark.skipif(not STORIES.exists(), reason="CHAINRULE_DATA does not name a folder with stories260k")
def test_a_story_of_llama2c(client: openai.OpenAI) -> None:
    lm = import_model(STORIES / "stories260K.bin", tokenizer=STORIES / "tok512.bin")
    for prompt in ("", "Once upon a time, Tom", "The do"):
        expected = cr.generate(lm, prompt, cr.Greedy(), max_tokens=30)[len(prompt) :]
        asked: dict[str, Any] = {"model": "stories", "prompt": prompt, "max_tokens": 30, "temperature": 0}
        assert client.completions.create(**asked).choices[0].text == expected
        assert streamed(client, **asked) == expected
    ids = lm.tokenizer.encode("Once upon a time")[None]
    scored = client.completions.create(
        model="stories", prompt="Once upon a time", max_tokens=0, echo=True, logprobs=0
    )
    assert scored.choices[0].logprobs is not None
    nats = to_numpy(lm.score(ids, lm.start(1)))[0]
    assert scored.choices[0].logprobs.token_logprobs == pytest.approx(nats.tolist(), abs=1e-5)
