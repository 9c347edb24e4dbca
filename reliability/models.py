"""A small model of every kind, and what it does for a user."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import chainrule as cr

TEXT = "i love cats\ni love dogs\ncats chase mice\nwe chase 12 cats, don't we?\n" * 5
TAGGED = ["the/DET cat/NOUN sat/VERB", "a/DET dog/NOUN ran/VERB"] * 4
PAIRS = [("a b c", "c b a"), ("b c a", "a c b")] * 8
LABELLED = [
    (line.format(i), label)
    for i in range(30)
    for line, label in [("i love {} cats", "pets"), ("we chase {} mice", "work")]
]
_CELLS = {"hidden": 8, "embedding": 8, "layers": 1, "steps": 1}
KINDS: dict[str, dict[str, Any]] = {
    "ngram": {"order": 3, "tokenizer": "word"},
    "anygram": {"tokenizer": "word"},
    "feedforward": {"hidden": 8, "embedding": 8, "steps": 1},
    "bagofwords": {"steps": 1},
    "elman": _CELLS,
    "lstm": _CELLS,
    "gru": _CELLS,
    "qrnn": _CELLS,
    "transformer": {"layers": 1, "width": 16, "heads": 2, "window": 16, "steps": 1},
    "mixture": {},
    "table": {},
    "seq2seq": {"cell": "gru", "width": 8, "layers": 1, "steps": 1},
    "masked": {"width": 16, "layers": 1, "heads": 2, "window": 32, "steps": 1},
    "tagger": {"width": 8, "embedding": 8, "spelling": 8, "layers": 1, "steps": 1},
    "classifier": {"encoder": "bagofwords", "width": 8, "embedding": 8, "layers": 1, "steps": 1},
    "bayes": {"lm_settings": "order=2"},
}
"""Every kind of model, with settings that make it small."""


@cache
def made(kind: str) -> Any:
    """A small model of a kind."""
    if kind == "mixture":  # a mixture inside a mixture: folders inside folders
        lm = made("ngram")
        other = cr.train("ngram", TEXT, order=1, tokenizer=lm.tokenizer)
        return cr.mix([cr.mix([lm, other], weights=[0.6, 0.4]), other], weights=[0.5, 0.5])
    if kind == "table":
        return cr.Table({"": {"i": 0.5, "we": 0.5}, "i": {"love": 1}, "love": {"cats": 0.75}}, unseen="uniform")
    return trained(kind)


def trained(kind: str, **others: Any) -> Any:
    """A model of a kind that learns, trained on a few lines with these other settings."""
    settings = {"tokenizer": "char", **KINDS[kind], "device": "cpu", **others}
    if kind == "tagger":
        del settings["tokenizer"]
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "tags.txt").write_text("\n".join(TAGGED) + "\n")
            return cr.train(kind, Path(folder) / "tags.txt", **settings)
    examples = {"seq2seq": PAIRS, "classifier": LABELLED, "bayes": LABELLED}
    return cr.train(kind, examples.get(kind) or cr.Corpus.from_text(TEXT), **settings)


def answer(model: Any) -> str:
    """What a model does for a user, as text."""
    if model.kind == "seq2seq":
        return repr(cr.translate(model, ["a b c", "c a"], max_tokens=5))
    if model.kind == "masked":
        return repr(cr.fill(model, "i [MASK] cats"))
    if model.kind == "tagger":
        return repr(cr.tag(model, ["the cat ran"]))
    if model.kind in ("classifier", "bayes"):
        return repr(cr.classify(model, ["i love mice"]))
    if model.kind == "mixture":
        total = float(np.exp(cr.to_numpy(model.next_log_probs(model.start(1)))).sum())
        assert abs(total - 1) < 1e-3, f"probabilities that sum to {total}"
    return repr(model.log_prob("i love cats"))
