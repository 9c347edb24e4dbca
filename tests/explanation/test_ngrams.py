"""What is said about an n-gram model's prediction is what it computes, for every way to smooth and to store."""

from __future__ import annotations

import itertools
import math
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import chainrule as cr
from chainrule.contract.lm import LanguageModel
from chainrule.explanation.ngrams import FORMULAS, BackoffLine, MixtureLine, NgramExplanation
from chainrule.ngram.settings import SMOOTHINGS

TOY = "i love cats\ni love dogs\ncats chase mice\n"
CORPUS = cr.Corpus.from_text((TOY + "dogs chase cats\nmice love i\nyou chase the mice\n") * 2 + "the cats sleep\n")
HELD_OUT = cr.Corpus.from_text("i love mice\nthe dogs chase cats\n")
ARPA = Path(__file__).parent.parent / "ngram" / "data"

PROMPTS = [
    "i",  # after <s> alone
    "i love cats",  # seen, with its whole context
    "cats love mice",  # a seen context, another word
    "mice chase the dogs",
    "zebras zebras cats",  # contexts that were never seen
    "cats zebras",
    "the the the the",
]


def made(text: str = "", **settings: object) -> LanguageModel:
    corpus = cr.Corpus.from_text(text) if text else CORPUS
    return cr.train("ngram", corpus, valid=HELD_OUT, **settings, tokenizer="word")  # type: ignore[arg-type]


def models() -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = {name: {"smoothing": name, "order": 3} for name in SMOOTHINGS}
    found |= {"unigram": {"order": 1}, "five": {"order": 5}, "pruned": {"order": 4, "prune": "0,0,2"}}
    found |= {"entropy": {"order": 3, "entropy": 1e-3}, "indexed": {"order": 3, "index": "hash"}}
    return found | {
        "quantised": {"order": 3, "bits": 8},
        "stupid, long": {"order": 5, "smoothing": "stupid-backoff"},
    }


@cache
def model(name: str) -> LanguageModel:
    if name.endswith(".arpa"):
        return cr.load_arpa(ARPA / name)
    if name in ("anygram", "anygram, stream"):
        context = "stream" if "stream" in name else "line"
        return cr.train("anygram", CORPUS, valid=HELD_OUT, context=context, tokenizer="word")  # type: ignore[arg-type]
    return made(**models()[name], context="stream" if name == "five" else "line")


NAMES = [*models(), "anygram", "anygram, stream", "trigram.arpa", "pruned.arpa", "fivegram.arpa"]


def explained(lm: LanguageModel, text: str, next_word: str | None = None) -> NgramExplanation:
    found = cr.explain(lm, text, next_word=next_word)
    assert isinstance(found, NgramExplanation)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_the_explanation_agrees_with_the_score(name: str) -> None:
    lm = model(name)
    for text in PROMPTS:
        ids = lm.tokenizer.encode(text)[None].astype(np.int64)
        expected = float(cr.to_numpy(lm.score(ids))[0, -1])
        found = explained(lm, text)
        assert found.nats == pytest.approx(-expected, abs=1e-6), text
        assert found.lines[0].probability == pytest.approx(math.exp(expected), rel=1e-6), text
        assert found.is_probability == lm.normalised


@pytest.mark.parametrize("name", NAMES)
def test_the_lines_make_the_probability(name: str) -> None:
    """A product of what is shown, or a sum; and each line follows from the one below it."""
    lm = model(name)
    for text in PROMPTS:
        found = explained(lm, text)
        p = math.exp(-found.nats)
        *upper, last = found.lines
        if isinstance(last, BackoffLine):
            weights = [line.weight for line in upper if isinstance(line, BackoffLine)]
            assert last.weight is None and last.stored is not None and None not in weights
            assert math.prod([*weights, last.stored]) == pytest.approx(p, rel=1e-9)  # type: ignore[list-item]
            assert all(line.stored is None for line in upper)  # type: ignore[union-attr]
            lengths = [len(line.context) for line in found.lines]  # type: ignore[arg-type]
            assert lengths == list(range(lengths[0], lengths[-1] - 1, -1))
        else:
            mixed = [line for line in found.lines if isinstance(line, MixtureLine)]
            assert sum(line.share for line in mixed) == pytest.approx(p, rel=1e-9)
            for line, below in itertools.pairwise(mixed):
                assert line.weight is not None
                assert line.own + line.weight * below.probability == pytest.approx(line.probability)


def test_a_model_that_can_be_worked_out() -> None:
    """Stupid backoff of three lines: S = 0.4 · 0.4 · N(cats) / N, as </s> counts but <s> does not."""
    lm = made(TOY, order=3, smoothing="stupid-backoff")
    found = explained(lm, "zebras mice cats")
    assert [line.context for line in found.lines] == [("<unk>", "mice"), ("mice",), ()]
    assert [getattr(line, "seen", None) for line in found.lines] == [False, True, True]
    # cats is 2 of the 12 tokens
    assert found.nats == pytest.approx(-math.log(0.4 * 0.4 * 2 / 12), abs=1e-6)
    assert (found.title, found.equation) == (
        "S(cats | … <unk> mice) = 0.02667",
        "S = 0.4 · 0.4 · 0.1667 = 0.02667",
    )
    assert "score" in found.record() and "probability" not in found.record()
    # N(i love cats) / N(i love) = 1 / 2, without backing off
    assert explained(lm, "i love cats").equation == "S = 0.5"


def value(sum_: str) -> tuple[float, float]:
    """What the right side of a sum makes, and what it says that it makes."""
    made_of, _, result = sum_.partition(" = ")[2].partition(", ")[0].rpartition(" = ")
    shown = re.fullmatch(r"[-+·/() \d.,e]*", made_of)
    assert shown, sum_
    return eval(made_of.replace(",", "").replace("·", "*")) if made_of else float(result), float(result)


@pytest.mark.parametrize("counts", [False, True])
@pytest.mark.parametrize("name", SMOOTHINGS[: SMOOTHINGS.index("stupid-backoff") + 1])
def test_the_equation_is_written_out(name: str, counts: bool) -> None:
    """Every sum makes what it says, and the first one what the model gives, but for the weights of backing off."""
    lm = made(order=3, smoothing=name, counts=counts)
    for text in PROMPTS:
        found = explained(lm, text)
        assert found.formula == FORMULAS[name] and found.record()["formula"] == found.formula
        assert found.sums or name in ("mle", "katz", "stupid-backoff"), text
        for one in found.sums:
            made_of, result = value(one)
            assert made_of == pytest.approx(result, rel=2e-3), (text, one)
        if found.sums:
            last = found.lines[-1]
            whole = name in ("laplace", "add-k")
            expected = found.lines[0].probability if whole else getattr(last, "stored", None)
            assert value(found.sums[0])[1] == pytest.approx(expected, rel=1e-3), (text, found.sums)


def test_equations_that_can_be_worked_out() -> None:
    """By the definitions, of three lines; V has six words, </s> and <unk>."""
    laplace = made(TOY, order=2, smoothing="laplace")
    # love follows i twice of twice
    assert explained(laplace, "i love").sums == ("p(love | i) = (2 + 1) / (2 + 8) = 0.3, V = 8",)
    assert explained(laplace, "zebras cats").sums == ("p(cats | <unk>) = (0 + 1) / (0 + 8) = 0.125, V = 8",)
    lm = made(TOY, order=2, smoothing="kneser-ney", counts=True)
    # of ten bigrams 8 occur once and 2 twice: D = 8 / (8 + 4); before </s> are three words, before cats two, before
    # five others one: D = 5 / (5 + 2), γ = D 7 / 10 = 0.5
    assert explained(lm, "i love cats").sums == (
        "p(cats | love) = (1 - 0.6667) / 2 + 0.6667 · 0.1911 = 0.294",
        "p(cats) = (2 - 0.7143) / 10 + 0.5 / 8 = 0.1911",
    )
    # without counts those of the longest n-grams are not known, and the rest is
    assert explained(made(TOY, order=2, smoothing="kneser-ney"), "i love cats").sums == (
        "p(cats | love) = 0.1667 + 0.6667 · 0.1911 = 0.294, where D = 0.6667",
        "p(cats) = (2 - 0.7143) / 10 + 0.5 / 8 = 0.1911",
    )


def test_an_impossible_word_costs_infinitely_much() -> None:
    found = explained(made(TOY, order=2, smoothing="mle"), "i mice")
    assert (found.nats, found.equation) == (math.inf, "p = 0 · 0.08333 = 0")


def test_most_likely_words_are_the_model_s() -> None:
    for name in ("modified-kneser-ney", "anygram"):
        lm = model(name)
        ids = lm.tokenizer.encode("i love")[None].astype(np.int64)
        log_probs = cr.to_numpy(lm.next_log_probs(lm.extend(lm.start(1), ids)))[0]
        best = np.argsort(-log_probs, kind="stable")[:5]
        likely = explained(lm, "i love", "cats").likely
        assert [token for token, _ in likely] == [lm.tokenizer.token(int(i)) for i in best]
        assert [p for _, p in likely] == pytest.approx(np.exp(log_probs[best]).tolist())


def test_titles_name_the_context_that_counts() -> None:
    assert explained(model("unigram"), "i love cats").title.startswith("p(cats) = ")
    assert explained(model("mle"), "i love cats").title.startswith("p(cats | … i love) = ")
    assert explained(model("five"), "i love cats").title.startswith("p(cats | <s> i love) = ")
    assert explained(model("anygram"), "zebras cats").title.startswith("p(cats | … <unk>) = ")
    assert explained(model("anygram"), "i love", "</s>").target == "</s>"


def test_a_model_on_a_device_is_explained_on_the_host() -> None:
    torch = pytest.importorskip("torch")
    lm = model("modified-kneser-ney")
    elsewhere = lm.on(str(torch.device("cpu", 0)))
    assert explained(elsewhere, "cats love mice").nats == explained(lm, "cats love mice").nats
