"""Tests of every law on every ladder entry of every kind, also of plug-ins, for both contexts and some tokenizers.

In the default run most entries stand in one of the contexts, in turns; those `IN_BOTH` in both.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

import chainrule as cr
from chainrule.contract import kinds
from chainrule.contract.lm import LanguageModel
from chainrule.testing import LAWS, LAWS_OF_PROBABILITIES

TOY = "i love cats\ni love dogs\ncats chase mice\n"

WITH_LAWS = ("language", "translation")
"""The tasks whose models keep these laws; taggers and masked models have laws of their own."""

EVERY = {name: kinds.find_kind(name) for name in kinds._BUILT_IN}
ENTRIES = [(name, entry) for name, kind in EVERY.items() for entry in kind.ladder if kind.task == "language"]
ENTRIES += [
    ("torch-bigram", kinds.LadderEntry("torch bigram", {})),
    ("fading-bag", kinds.LadderEntry("fading bag", {"steps": 3})),
]
ENTRIES += [("ngram", kinds.LadderEntry(f"5-gram, {bits} bits", {"order": 5, "bits": bits})) for bits in (2, 3)]
MODELS = [(kind, entry, context, "word") for kind, entry in ENTRIES for context in ("line", "stream")]
MODELS += [(kind, entry, "line", "char") for kind, entry in ENTRIES[-4:-2]]
PAIRED = [(name, entry) for name, kind in EVERY.items() for entry in kind.ladder if kind.task == "translation"]
MODELS += [(kind, entry, "line", "word") for kind, entry in PAIRED]
IN_BOTH = {
    "5-gram, modified-kneser-ney",
    "trigram, mle",
    "any-gram, infinite",
    "torch bigram",
    "fading bag",
    "lstm",
}


def variant(place: int) -> Any:
    """A model of the matrix; slow if its entry has the other context, or if its design is in tests/seq2seq."""
    kind, entry, context, _ = MODELS[place]
    usual = ("line", "stream")[ENTRIES.index((kind, entry)) % 2] if (kind, entry) in ENTRIES else context
    is_slow = (entry.name not in IN_BOTH and context != usual) or (kind, entry) in PAIRED[:-2]
    return pytest.param(place, id=name(place), marks=[pytest.mark.slow] if is_slow else [])


@cache
def trained(place: int) -> LanguageModel:
    kind, entry, context, tokenizer = MODELS[place]
    text = TOY if tokenizer == "word" else "abba\nbaa\n\nab\n"
    settings = dict(entry.settings)
    if settings.pop("minutes", None) is not None:
        settings["steps"] = 3  # a law needs no good model
    if kinds.find_kind(kind).task == "translation":
        pairs = [(line, line) for line in TOY.splitlines()]
        return cr.train(kind, pairs, tokenizer=tokenizer, **settings)
    return cr.train(kind, cr.Corpus.from_text(text), tokenizer=tokenizer, context=context, **settings)


def name(place: int) -> str:
    _, entry, context, tokenizer = MODELS[place]
    return f"{entry.name}-{context}-{tokenizer}".replace(", ", "-")


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("place", [variant(place) for place in range(len(MODELS))])
def test_law(place: int, law: str) -> None:
    lm = trained(place)
    if lm.normalised or law not in LAWS_OF_PROBABILITIES:
        LAWS[law](lm)
    else:
        with pytest.raises(AssertionError):  # it says that it gives scores, and it does
            LAWS[law](lm)


OFFERED = {
    "ngram": "best_tokens context_rows draft match_lengths next_probs ngram_lengths predictions prepare "
    "score_sequences score_text search write",
    "anygram": "best_tokens draft write",
    "lstm": "as_torch features next_logits predictions read",
    "transformer": "as_torch features next_logits predictions read_ahead write",
    "bagofwords": "as_torch features next_logits predictions",
    "torch-bigram": "",
}


@pytest.mark.parametrize("kind", OFFERED)
def test_each_family_offers_its_fast_paths(kind: str) -> None:
    """Each family declares its fast paths on a CPU; without a declaration their laws would compare nothing."""
    place = next(place for place, model in enumerate(MODELS) if model[0] == kind and model[2:] == ("line", "word"))
    assert sorted(trained(place).capabilities.offers) == OFFERED[kind].split()


def test_every_registered_kind_has_a_ladder_entry_here() -> None:
    """All kinds but those that are not trained: test_mixture_laws.py and test_table_laws.py have their laws."""
    expected = {name for name in kinds.kind_names() if kinds.find_kind(name).task in WITH_LAWS}
    assert {kind for kind, _, _, _ in MODELS} == expected - {"mixture", "table"}
