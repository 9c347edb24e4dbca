"""Exported weights in transformers: its logits beside ours, and its greedy texts, after many prompts.

Three Transformers are trained a little, one of each design that transformers has an architecture for; and a masked
model, which fills gaps, and an encoder-decoder, which translates.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch

import chainrule as cr
from benchmarks.harness import DATA, show
from benchmarks.scale.export_encoders import (
    PAIRS,
    compare_masked,
    compare_pairs,
    gap_between,
    some_gaps,
    some_pairs,
)
from chainrule.contract.lm import start_token
from chainrule.inference.model import NeuralModel
from chainrule.interop import huggingface
from chainrule.masked.model import EncoderModel
from chainrule.seq2seq.model import EncoderDecoderModel

DESIGNS = {"gpt2": {}, "llama": {"kv_heads": 2}, "fast": {}}
ENCODERS = ("bert", "bart")
SIZES = {"width": 128, "layers": 4, "heads": 4, "window": 128}


def main(arguments: list[str]) -> None:
    """Train, export, load in transformers, and compare."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks scale export", description=__doc__)
    parser.add_argument("--prompts", type=int, default=1000, help="how many [default: 1000]")
    parser.add_argument("--tokens", type=int, default=16, help="to write after each [default: 16]")
    parser.add_argument("--steps", type=int, default=200, help="of training [default: 200]")
    parser.add_argument(
        "--designs",
        nargs="+",
        choices=[*DESIGNS, *ENCODERS],
        default=[*DESIGNS, *ENCODERS],
        help="which [default: all]",
    )
    parser.add_argument("--text", type=Path, default=DATA / "tinyshakespeare" / "input.txt")
    options = parser.parse_args(arguments)
    if not options.text.exists():
        parser.error(f"{options.text} is not here: name a text with --text")
    if "bart" in options.designs and not PAIRS.exists():
        parser.error(f"{PAIRS} is not here, which bart is trained on: name other --designs")
    os.environ["HF_HUB_OFFLINE"] = "1"
    text = options.text.read_text(encoding="utf-8")
    edge = len(text) * 9 // 10
    prompts = some_prompts(text[edge:], options.prompts)
    rows = []
    with tempfile.TemporaryDirectory(prefix="chainrule-benchmark-") as place:
        for preset in options.designs:
            settings: dict[str, Any] = {
                **SIZES,
                **DESIGNS.get(preset, {}),
                "steps": options.steps,
                "preset": preset,
            }
            folder = Path(place) / preset
            if preset == "bert":
                model = cr.train("masked", text[:edge], tokenizer="bpe", context="line", **settings)
                assert isinstance(model, EncoderModel)
                rows.append(compare_masked(model, folder, some_gaps(text[edge:], options.prompts)))
            elif preset == "bart":
                pairs = some_pairs()
                model = cr.train("seq2seq", pairs[options.prompts :], tokenizer="bpe", **settings)
                assert isinstance(model, EncoderDecoderModel)
                sources = [source for source, _ in pairs[: options.prompts]]
                rows.append(compare_pairs(model, folder, sources, options.tokens))
            else:
                lm = cr.train("transformer", text[:edge], tokenizer="bpe", context="stream", **settings)
                assert isinstance(lm, NeuralModel)
                rows.append(compare(lm, folder, prompts, options.tokens))
            print(*rows[-1], flush=True)
    headings = [
        "architecture",
        "prompts",
        "same ids",
        "largest difference of logits",
        "same texts",
        "distinct texts",
        "theirs s",
        "ours s",
    ]
    show(f"At most {options.tokens} greedy tokens for each prompt, in transformers and here", headings, rows)


def some_prompts(text: str, count: int) -> list[str]:
    """Stretches of a text of 4 to 43 characters that end in a word, line ends included."""
    step = len(text) // count
    found = [text[i * step : i * step + 4 + i % 40].rstrip() for i in range(count)]
    return [prompt for prompt in found if prompt]


def compare(lm: NeuralModel, folder: Path, prompts: list[str], count: int) -> list[str]:
    """A row of the table."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    architecture = huggingface.export(lm, folder)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    start = start_token(lm.tokenizer, lm.context)
    ids = [[start, *lm.tokenizer.encode(prompt).tolist()] for prompt in prompts]
    same_ids = sum(tokenizer(prompt)["input_ids"] == one for prompt, one in zip(prompts, ids, strict=True))
    by_length: dict[int, list[int]] = defaultdict(list)  # prompts of one length need no padding
    for number, one in enumerate(ids):
        by_length[len(one)].append(number)
    difference, texts, began = 0.0, [""] * len(prompts), time.perf_counter()
    for numbers in by_length.values():
        ids_BT = torch.tensor([ids[number] for number in numbers])
        difference = max(difference, largest_difference(lm, model, ids_BT))
        written_BT = model.generate(ids_BT, attention_mask=torch.ones_like(ids_BT), max_new_tokens=count)
        for number, row in zip(numbers, written_BT[:, ids_BT.shape[1] :], strict=True):
            texts[number] = tokenizer.decode(row)
    theirs, began = time.perf_counter() - began, time.perf_counter()
    found = cr.generate_many(lm, prompts, cr.Greedy(), max_tokens=count, heal=False)
    ours = time.perf_counter() - began
    same = sum(one.continuation == text for one, text in zip(found, texts, strict=True))
    figures = f"{len(prompts)}", f"{same_ids}", f"{difference:.1e}", f"{same}", f"{len(set(texts))}"
    return [architecture, *figures, f"{theirs:.1f}", f"{ours:.1f}"]


@torch.no_grad()
def largest_difference(lm: NeuralModel, model: Any, ids_BT: torch.Tensor) -> float:
    """The largest difference of a logit here and there."""
    ours_BTV = lm.network.head(lm.network(ids_BT).features_BTD)
    return gap_between(ours_BTV, model(input_ids=ids_BT).logits)
