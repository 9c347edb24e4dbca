"""Exported masked models and encoder-decoders in transformers: logits, gaps and greedy translations beside ours."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import chainrule as cr
from benchmarks.harness import DATA
from chainrule.contract.lm import start_token
from chainrule.interop import huggingface
from chainrule.masked.filling import gapped_ids
from chainrule.masked.model import EncoderModel
from chainrule.seq2seq.model import EncoderDecoderModel
from chainrule.seq2seq.translate import Translation, translate_texts

PAIRS = DATA / "multi30k"


def some_gaps(text: str, count: int) -> list[str]:
    """Lines of three words or more, each with a word hidden."""
    lines = [words for line in text.splitlines() if len(words := line.split(" ")) > 2 and "" not in words]
    step = max(1, len(lines) // count)
    hidden = [(words, number % len(words)) for number, words in enumerate(lines[::step][:count])]
    return [" ".join([*words[:place], "[MASK]", *words[place + 1 :]]) for words, place in hidden]


def some_pairs() -> list[tuple[str, str]]:
    """English sentences and their German translations."""
    sides = [(PAIRS / f"train.{language}").read_text(encoding="utf-8").splitlines() for language in ("en", "de")]
    return list(zip(*sides, strict=True))


@torch.no_grad()
def compare_masked(model: EncoderModel, folder: Path, texts: list[str]) -> list[str]:
    """A row of the table: texts with a gap, and the best token for each."""
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    architecture = huggingface.export(model, folder)
    theirs, tokenizer = AutoModelForMaskedLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
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
def compare_pairs(model: EncoderDecoderModel, folder: Path, texts: list[str], count: int) -> list[str]:
    """A row of the table: sources, and the greedy translation of each."""
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    architecture = huggingface.export(model, folder)
    theirs, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    began = time.perf_counter()
    found = translate_texts(model, texts, cr.Greedy(), max_tokens=count)
    ours, began = time.perf_counter() - began, time.perf_counter()
    read = [tokenizer(text, return_tensors="pt") for text in texts]
    limits = [min(count, 2 * one["input_ids"].shape[1] + 10) for one in read]
    written = [
        theirs.generate(**one, max_new_tokens=most)[0, 1:].tolist() for one, most in zip(read, limits, strict=True)
    ]
    seconds = [time.perf_counter() - began, ours]
    same_ids = same = 0
    difference = 0.0
    for text, one, (best, *_), ids in zip(texts, read, found, written, strict=True):
        same_ids += one["input_ids"][0].tolist() == model.encode_source(text).tolist()
        same += ids == list(best.ids)
        difference = max(difference, _largest_difference(model, theirs, one, best))
    distinct = len({best.ids for best, *_ in found})
    return _row(architecture, len(texts), same_ids, difference, same, distinct, seconds)


def _largest_difference(model: EncoderDecoderModel, theirs: Any, read: Any, found: Translation) -> float:
    """The largest difference of a logit along a translation."""
    ids_BT = torch.tensor([[start_token(model.tokenizer, "line"), *found.ids[:-1]]])
    source_BS = read["input_ids"].long()
    memory = model.network.begin_from(source_BS, torch.ones_like(source_BS, dtype=torch.bool))
    ours_BTV = model.network.head(model.network(ids_BT, memory).features_BTD)
    return gap_between(ours_BTV, theirs(**read, decoder_input_ids=ids_BT).logits)


def gap_between(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """The largest difference of two arrays of logits; NaN, which no maximum would show, is an error."""
    gap = float((ours - theirs).abs().max())
    if not math.isfinite(gap):
        raise ValueError("logits that are no numbers cannot be compared")
    return gap


def _row(
    name: str, count: int, same_ids: int, difference: float, same: int, distinct: int, seconds: list[float]
) -> list[str]:
    figures = f"{count}", f"{same_ids}", f"{difference:.1e}", f"{same}", f"{distinct}"
    return [name, *figures, *(f"{each:.1f}" for each in seconds)]
