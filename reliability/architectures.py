"""Imported networks beside transformers: random models of each architecture, and the logits of both for prompts."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from .frame import Trial
from .models import TEXT, trained

CLOSE = 1e-5
"""The largest difference of two logits, as a share of the largest logit."""
_SIZES: dict[str, Any] = {"layers": 2, "width": 32, "heads": 4, "window": 64, "dropout": 0.0, "initial_std": 0.3}
_LLAMA: dict[str, Any] = {**_SIZES, "preset": "llama", "kv_heads": 2, "context": "stream"}
DESIGNS: dict[str, tuple[str, dict[str, Any]]] = {
    "GPT2LMHeadModel": ("transformer", {**_SIZES, "preset": "gpt2", "context": "stream"}),
    "LlamaForCausalLM": ("transformer", _LLAMA),
    "Qwen3ForCausalLM": ("transformer", {**_SIZES, "preset": "fast", "activation": "swiglu", "context": "stream"}),
    "MistralForCausalLM": ("transformer", _LLAMA),
    "BertForMaskedLM": ("masked", {**_SIZES, "preset": "bert"}),
    "BartForConditionalGeneration": (
        "seq2seq",
        {name: size for name, size in _SIZES.items() if name != "initial_std"}
        | {"cell": "transformer"}
        | {"preset": "bart"},
    ),
}
"""The kind of ours that is exported as an architecture, and its settings."""
Logits = Callable[[list[int]], Any]


def compare(trial: Trial, name: str, prompts: int) -> None:
    """Compare the tokens and the logits of prompts with those of transformers, whose weights are random."""
    import torch

    with tempfile.TemporaryDirectory(prefix="trial-") as folder:
        tokenizer, theirs, ours, encode = _both(name, Path(folder), trial.seed)
        words = [*TEXT.split(), "zzyzx", "naïve", "  ", "!"]
        for number in range(prompts):
            if trial.is_over:
                return
            text = _text(Random(f"{trial.seed} {number}"), words, name)
            ids, expected = encode(text), tokenizer(text)["input_ids"]
            if ids != expected:
                trial.note(name, f"the tokens of {text!r}")
                continue
            with torch.no_grad():
                one, other = ours(ids), theirs(ids)
            size = min(one.shape[-1], other.shape[-1])
            off = float((one[..., :size] - other[..., :size]).abs().max() / other.abs().max())
            trial.note(name, None if off < CLOSE else "the logits differ by more than 1e-5")


def _text(random: Random, words: list[str], name: str) -> str:
    chosen = random.choices(words, k=random.randrange(1, 7))
    if name == "BertForMaskedLM":
        chosen[random.randrange(len(chosen))] = "[MASK]"
    return " ".join(chosen)


def _both(name: str, folder: Path, seed: int) -> tuple[Any, Logits, Logits, Callable[[str], list[int]]]:
    """Their tokenizer, their logits for tokens, ours, and our tokens of a text."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    import transformers

    from chainrule.contract.lm import start_token
    from chainrule.interop import huggingface
    from chainrule.masked.filling import gapped_ids

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    kind, settings = DESIGNS[name]
    huggingface.export(trained(kind, tokenizer="byte", **settings), folder / "ours")
    config = json.loads((folder / "ours" / "config.json").read_text())
    if name == "MistralForCausalLM":  # a Llama by another name
        config |= {"architectures": [name], "model_type": "mistral", "sliding_window": None}
        (folder / "ours" / "config.json").write_text(json.dumps(config))
    model = getattr(transformers, name).from_pretrained(folder / "ours").eval()
    torch.manual_seed(seed)
    for weight in model.parameters():
        weight.data.add_(torch.randn_like(weight), alpha=0.2)
    model.save_pretrained(folder / "theirs")
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(folder / "ours" / file, folder / "theirs")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "theirs")
    lm = huggingface.load(folder / "theirs")
    network = lm.network
    if kind == "seq2seq":
        targets = torch.arange(12)[None] + 1

        def translated(ids: list[int]) -> Any:
            source = torch.tensor([ids])
            memory = network.begin_from(source, torch.ones_like(source, dtype=torch.bool))
            return network.head(network(targets, memory).features_BTD)

        return (
            tokenizer,
            lambda ids: model(input_ids=torch.tensor([ids]), decoder_input_ids=targets).logits,
            translated,
            lambda text: lm.encode_source(text).tolist(),
        )

    def read(ids: list[int]) -> Any:
        if kind == "masked":  # ours predict neither <s> nor [MASK]
            return network.logits(network(torch.tensor([[lm.mask if i == gap else i for i in ids]]))[0])[None]
        return network.head(network(torch.tensor([ids])).features_BTD)

    gap, first = tokenizer.mask_token_id, start_token(lm.tokenizer, lm.context)

    def encode(text: str) -> list[int]:
        found = gapped_ids(lm, text) if kind == "masked" else lm.tokenizer.encode(text)
        return [first, *(gap if kind == "masked" and i == lm.mask else i for i in found.tolist())]

    return tokenizer, lambda ids: model(input_ids=torch.tensor([ids])).logits, read, encode
