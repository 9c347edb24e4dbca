"""Ids in a GPU's memory to a model there: order 5, modified Kneser-Ney."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.harness import is_installed, show, timed
from benchmarks.ngram.lab import ORDER, Lab, has_kenlm
from chainrule.ngram.estimate.levels import count_by_unique
from chainrule.ngram.settings import NgramSettings
from chainrule.ngram.store.automaton import Automaton
from chainrule.ngram.train import smooth
from chainrule.ngram.workspace import Workspace
from chainrule.system.progress import SILENT
from chainrule.text.corpus import Corpus
from chainrule.tokens.base import Tokenizer
from chainrule.tokens.registry import train_and_encode

ROUNDS = 3


def run(lab: Lab) -> None:
    if not is_installed("gpu", "torch"):
        return
    import torch

    device = torch.device(lab.options.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print("gpu is left out: torch finds no CUDA device", flush=True)
        return
    tokenizer, encoded = train_and_encode("word", Corpus.open(lab.text), lab.folder / "gpu.ids")
    ids = torch.as_tensor(np.asarray(encoded.ids, dtype=np.int64), device=device)
    ngrams = 0

    def train() -> None:
        nonlocal ngrams
        ngrams = model_of(ids, tokenizer).trie.nodes - 1
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    train()  # compiles the kernels
    seconds = min(timed(train).seconds for _ in range(ROUNDS))
    rate = lab.words / seconds
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    rows = [[f"chainrule, {name}, ids to model", f"{seconds:.3f}", f"{rate / 1e6:,.2f}", ""]]
    given = lab.options.kenlm_words_per_second
    if given or has_kenlm("lmplz"):
        peer = given or lab.words / lab.arpa()[1].seconds
        rows.append(["lmplz, text to ARPA", f"{lab.words / peer:.1f}", f"{peer / 1e6:,.2f}", f"{rate / peer:.1f}x"])
    if device.type == "cuda":
        print(f"most memory on the device: {torch.cuda.max_memory_allocated(device) / 1e9:.2f} GB")
    show(f"{lab.words:,} words, {ngrams:,} n-grams", ["side", "seconds", "M words/s", "ours is"], rows)


def model_of(ids: Any, tokenizer: Tokenizer) -> Automaton:
    """Train a model on the device that holds the ids."""
    settings = NgramSettings(order=ORDER)
    counts = count_by_unique(ids, ORDER, tokenizer.vocab_size, tokenizer.bos, tokenizer.eos, "line")
    return smooth(settings, counts, None, Workspace(), SILENT)[0]
