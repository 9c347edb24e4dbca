"""Exported weights in transformers: its logits beside ours, and its greedy texts, after many prompts.

Three Transformers are trained for a few steps, one of each design that transformers has an architecture for; also a
masked model, which fills gaps, and an encoder-decoder, which translates.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import chainrule as cr
from benchmarks.harness import DATA, TEMPORARY, new_parser, show
from chainrule.contract.lm import start_token
from chainrule.inference.neural_model import NeuralModel
from chainrule.interop import huggingface
from chainrule.interop.vocabularies.ours import special_tokens
from chainrule.masked.encoder_model import EncoderModel
from chainrule.masked.filling import gapped_ids
from chainrule.seq2seq.encoder_decoder_model import EncoderDecoderModel
from chainrule.seq2seq.translate import translate_texts

DESIGNS = ("gpt2", "llama", "fast", "bert", "bart")
SIZES = {"width": 128, "layers": 4, "heads": 4, "window": 128}
PAIRS = DATA / "multi30k"
HEADINGS = ["architecture", "prompts", "same ids", "largest difference of logits", "same texts"]
HEADINGS += ["distinct texts", "theirs s", "ours s"]


def main(arguments: list[str]) -> None:
    """Train models, export them, load them in transformers, and compare."""
    parser = new_parser("scale export", __doc__)
    parser.add_argument("--prompts", type=int, default=1000, help="how many [default: 1000]")
    parser.add_argument("--tokens", type=int, default=16, help="to write after each [default: 16]")
    parser.add_argument("--steps", type=int, default=200, help="of training [default: 200]")
    parser.add_argument("--designs", nargs="+", choices=DESIGNS, default=DESIGNS, help="which [default: all]")
    parser.add_argument("--text", type=Path, default=DATA / "tinyshakespeare" / "input.txt")
    options = parser.parse_args(arguments)
    if not options.text.exists():
        parser.error(f"{options.text} is not here: name a text with --text")
    if "bart" in options.designs and not PAIRS.exists():
        parser.error(f"{PAIRS} is not here, which bart is trained on: name other --designs")
    os.environ["HF_HUB_OFFLINE"] = "1"
    text, count, rows = options.text.read_text(encoding="utf-8"), options.prompts, []
    edge = len(text) * 9 // 10
    with tempfile.TemporaryDirectory(prefix=TEMPORARY) as place:
        for preset in options.designs:
            folder = Path(place) / preset
            settings: dict[str, Any] = {**SIZES, "tokenizer": "bpe", "steps": options.steps, "preset": preset}
            if preset == "bert":
                model = cr.train("masked", text[:edge], context="line", **settings)
                rows.append(compare_masked(model, folder, some_gaps(text[edge:], count)))
            elif preset == "bart":
                pairs = some_pairs()
                model = cr.train("seq2seq", pairs[count:], **settings)
                rows.append(compare_pairs(model, folder, [source for source, _ in pairs[:count]], options.tokens))
            else:
                settings |= {"kv_heads": 2} if preset == "llama" else {}
                model = cr.train("transformer", text[:edge], context="stream", **settings)
                rows.append(compare_texts(model, folder, some_prompts(text[edge:], count), options.tokens))
            print(*rows[-1], flush=True)
    show(f"At most {options.tokens} greedy tokens for each prompt, in transformers and here", HEADINGS, rows)


# -- prompts ----------------------------------------------------------------------------------------------


def some_prompts(text: str, count: int) -> list[str]:
    """Return pieces of a text of 4 to 43 characters that end in a word, line ends included."""
    step = len(text) // count
    found = [text[i * step : i * step + 4 + i % 40].rstrip() for i in range(count)]
    return [prompt for prompt in found if prompt]


def some_gaps(text: str, count: int) -> list[str]:
    """Return lines of three words or more, each with a word hidden."""
    lines = [words for line in text.splitlines() if len(words := line.split(" ")) > 2 and "" not in words]
    step = max(1, len(lines) // count)
    hidden = [(words, number % len(words)) for number, words in enumerate(lines[::step][:count])]
    return [" ".join([*words[:place], "[MASK]", *words[place + 1 :]]) for words, place in hidden]


def some_pairs() -> list[tuple[str, str]]:
    """Return English sentences and their German translations."""
    sides = [(PAIRS / f"train.{language}").read_text(encoding="utf-8").splitlines() for language in ("en", "de")]
    return list(zip(*sides, strict=True))


# -- rows of the table ------------------------------------------------------------------------------------


def compare_texts(lm: cr.LanguageModel, folder: Path, prompts: list[str], count: int) -> list[str]:
    """Compare the greedy continuations of prompts."""
    assert isinstance(lm, NeuralModel)
    architecture, model, tokenizer = _exported(lm, folder, "AutoModelForCausalLM")
    start = special_tokens(lm.tokenizer, lm.context).start
    ids = [[start, *lm.tokenizer.encode(prompt).tolist()] for prompt in prompts]
    same_ids = sum(tokenizer(prompt)["input_ids"] == one for prompt, one in zip(prompts, ids, strict=True))
    by_length: dict[int, list[int]] = defaultdict(list)  # prompts of one length need no padding
    for number, one in enumerate(ids):
        by_length[len(one)].append(number)
    difference, texts, began = 0.0, [""] * len(prompts), time.perf_counter()
    for numbers in by_length.values():
        ids_BT = torch.tensor([ids[number] for number in numbers])
        difference = max(difference, largest_difference(lm, model, ids_BT))
        sampled_BT = model.generate(ids_BT, attention_mask=torch.ones_like(ids_BT), max_new_tokens=count)
        for number, row in zip(numbers, sampled_BT[:, ids_BT.shape[1] :], strict=True):
            texts[number] = tokenizer.decode(row)
    theirs, began = time.perf_counter() - began, time.perf_counter()
    found = cr.generate_many(lm, prompts, cr.Greedy(), max_tokens=count, heal=False)
    ours = time.perf_counter() - began
    same = sum(one.continuation == text for one, text in zip(found, texts, strict=True))
    return _row(architecture, len(prompts), same_ids, difference, same, len(set(texts)), [theirs, ours])


@torch.no_grad()
def largest_difference(lm: NeuralModel, model: Any, ids_BT: Tensor) -> float:
    """Return the largest difference of a logit here and there."""
    first_B1 = torch.full_like(ids_BT[:, :1], start_token(lm.tokenizer, lm.context))
    ours_BTV = lm.network.head(lm.network(torch.cat([first_B1, ids_BT[:, 1:]], dim=1)).features_BTD)
    return gap_between(ours_BTV, model(input_ids=ids_BT).logits)


@torch.no_grad()
def compare_masked(model: cr.LanguageModel, folder: Path, texts: list[str]) -> list[str]:
    """Compare the best tokens for the gaps of texts."""
    assert isinstance(model, EncoderModel)
    architecture, theirs, tokenizer = _exported(model, folder, "AutoModelForMaskedLM")
    start, vocabulary = start_token(model.tokenizer, model.context), np.arange(model.tokenizer.vocab_size)
    predicted = vocabulary[vocabulary != model.tokenizer.bos]
    same_ids = same = 0
    difference, seconds, chosen = 0.0, [0.0, 0.0], set()
    for text in texts:
        ids = gapped_ids(model, text)
        ids_BT = torch.tensor([[start, *ids.tolist()]])
        same_ids += tokenizer(text)["input_ids"] == ids_BT[0].tolist()
        began = time.perf_counter()
        logits_TV = theirs(input_ids=ids_BT).logits[0]
        between = time.perf_counter()
        best = model.fill(ids[None]).argmax(dim=-1)
        seconds = [seconds[0] + between - began, seconds[1] + time.perf_counter() - between]
        same += torch.equal(logits_TV[ids_BT[0] == model.mask].argmax(dim=-1), best)
        ours_TV = model.network.logits(model.network(ids_BT))[0]
        difference = max(difference, gap_between(ours_TV[:, predicted], logits_TV[:, predicted]))
        chosen.add(tuple(best.tolist()))
    return _row(architecture, len(texts), same_ids, difference, same, len(chosen), seconds)


@torch.no_grad()
def compare_pairs(model: cr.LanguageModel, folder: Path, texts: list[str], count: int) -> list[str]:
    """Compare the greedy translations of sources."""
    assert isinstance(model, EncoderDecoderModel)
    architecture, theirs, tokenizer = _exported(model, folder, "AutoModelForSeq2SeqLM")
    began = time.perf_counter()
    found = translate_texts(model, texts, cr.Greedy(), max_tokens=count)
    ours, began = time.perf_counter() - began, time.perf_counter()
    read = [tokenizer(text, return_tensors="pt") for text in texts]
    limits = [min(count, 2 * one["input_ids"].shape[1] + 10) for one in read]
    translated = [
        theirs.generate(**one, max_new_tokens=most)[0, 1:].tolist() for one, most in zip(read, limits, strict=True)
    ]
    seconds = [time.perf_counter() - began, ours]
    same_ids = same = 0
    difference, start = 0.0, start_token(model.tokenizer, "line")
    for text, one, (best, *_), ids in zip(texts, read, found, translated, strict=True):
        source_BS, ids_BT = one["input_ids"].long(), torch.tensor([[start, *best.ids[:-1]]])
        same_ids += source_BS[0].tolist() == model.encode_source(text).tolist()
        same += ids == list(best.ids)
        memory = model.network.begin_from(source_BS, torch.ones_like(source_BS, dtype=torch.bool))
        ours_BTV = model.network.head(model.network(ids_BT, memory).features_BTD)
        difference = max(difference, gap_between(ours_BTV, theirs(**one, decoder_input_ids=ids_BT).logits))
    distinct = len({best.ids for best, *_ in found})
    return _row(architecture, len(texts), same_ids, difference, same, distinct, seconds)


def _exported(model: Any, folder: Path, loader: str) -> tuple[str, Any, Any]:
    """Export a model; return its architecture, and the model and the tokenizer that transformers loads."""
    import transformers

    architecture = huggingface.export(model, folder)
    loaded = getattr(transformers, loader).from_pretrained(folder).eval()
    return architecture, loaded, transformers.AutoTokenizer.from_pretrained(folder)


def gap_between(ours: Tensor, theirs: Tensor) -> float:
    """Return the largest difference of two arrays of logits; raise an error for NaN, which a maximum could hide."""
    gap = float((ours - theirs).abs().max())
    if not math.isfinite(gap):
        raise ValueError("logits that are no numbers cannot be compared")
    return gap


def _row(
    name: str, count: int, same_ids: int, difference: float, same: int, distinct: int, seconds: Sequence[float]
) -> list[str]:
    figures = f"{count}", f"{same_ids}", f"{difference:.1e}", f"{same}", f"{distinct}"
    return [name, *figures, *(f"{each:.1f}" for each in seconds)]
