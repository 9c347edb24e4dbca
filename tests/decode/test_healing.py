"""Tests of prompts that stop inside a token: continuations have the distribution of the text, not of one split."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

import chainrule as cr
from chainrule.arrays import to_numpy
from chainrule.contract import chain
from chainrule.decode import healing
from chainrule.decode.generate import prompt_ids
from chainrule.decode.healing import find_respellings
from chainrule.decode.strategies import normalised
from chainrule.tokens.base import Ids, encode_lines_slowly
from toy_models import OverPrefixes

TOKENIZERS = ("bpe", "wordpiece", "unigram", "word", "word:unicode", "char", "byte")
LOG = "".join(
    f"Jan 12 10:{minute:02} host{minute % 3} auth[127]: {event}\n"
    for minute in range(60)
    for event in (
        "request accepted for alice",
        "request accepted for bob",
        "reset by peer",
        "session opened",
        "rejected: bad key",
    )
)


class PieceTokenizer(cr.Tokenizer):
    """A tokenizer whose pieces can spell a text in many ways; it takes the longest piece that fits."""

    kind, lossless, name = "piece", True, "piece"
    unk = None
    bos, eos, vocab_size = 5, 6, 7
    texts = ("a", "b", "ab", "aab", " ")

    def encode_lines(self, block: bytes) -> Ids:
        return encode_lines_slowly(self, block)

    def encode_line(self, line: bytes) -> list[int]:
        ids: list[int] = []
        text = line.decode()
        while text:
            best = max((piece for piece in self.texts if text.startswith(piece)), key=len)
            ids.append(self.texts.index(best))
            text = text.removeprefix(best)
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        return "".join("\n" if i == self.eos else "" if i == self.bos else self.texts[i] for i in map(int, ids))

    def token(self, token_id: int) -> str:
        return self.special(token_id) or self.texts[token_id]

    def to_json(self) -> dict[str, Any]:
        return {}

    def pieces(self) -> list[bytes]:
        return [*(text.encode() for text in self.texts), b"", b""]

    def stable_ids(self, prompt: str) -> tuple[list[int], bytes]:
        kept, space, word = prompt.rpartition(" ")
        return self.encode_line((kept + space).encode()), word.encode()


class Short(OverPrefixes):
    """A model of random probabilities; the sixth token is always </s>, so that all texts can be listed."""

    longest = 6

    def __init__(self) -> None:
        super().__init__(PieceTokenizer())
        size = self.tokenizer.vocab_size
        table = np.random.default_rng(5).dirichlet(np.full(size, 0.7), size=(self.longest, size))
        table[..., self.tokenizer.bos] = 0
        table[-1] = np.eye(size)[self.tokenizer.eos]
        with np.errstate(divide="ignore"):
            self.table = np.log(table / table.sum(axis=-1, keepdims=True))

    def log_probs_after(self, ids: tuple[int, ...]) -> np.ndarray:
        return self.table[min(len(ids), self.longest - 1), ids[-1] if ids else self.tokenizer.bos]


def listed(lm: cr.LanguageModel, begin: tuple[int, ...]) -> dict[tuple[int, ...], float]:
    """Return p of every sequence with this beginning, given the beginning."""
    found, going = {}, {begin: 1.0}
    while going:
        longer = {}
        for ids, p in going.items():
            for token, log_prob in enumerate(to_numpy(lm.next_log_probs(chain.after(lm, ids)))[0].tolist()):
                if log_prob > -math.inf:
                    (found if token == lm.tokenizer.eos else longer)[(*ids, token)] = p * math.exp(log_prob)
        going = longer
    return found


def by_brute_force(lm: cr.LanguageModel, prompt: str) -> dict[str, float]:
    """Return p(text | the text starts with the prompt), from a list of all sequences after its stable ids."""
    stable, _ = lm.tokenizer.stable_ids(prompt)
    texts: dict[str, float] = defaultdict(float)
    for ids, p in listed(lm, tuple(stable)).items():
        text = lm.tokenizer.decode(ids)
        if text.startswith(prompt):
            texts[text] += p
    total = sum(texts.values())
    return {text: p / total for text, p in texts.items()}


@pytest.mark.parametrize("prompt", ["aab", "a", "ab", "aa", "b a", "a aa"])
def test_respellings_give_texts_the_probability_that_brute_force_gives(prompt: str) -> None:
    lm = Short()
    _, (respellings,) = find_respellings(lm, [prompt])
    found: dict[str, float] = defaultdict(float)
    every = respellings.best(1000)
    for respelling in every:
        for ids, p in listed(lm, (*respellings.stable, *respelling.ids)).items():
            found[lm.tokenizer.decode(ids)] += math.exp(respelling.log_prob) * p
    assert sum(math.exp(respelling.log_prob) for respelling in every) == pytest.approx(1)
    assert found == pytest.approx(by_brute_force(lm, prompt))
    assert len(every) > 1 or prompt == "b a"


def test_an_unlikely_respelling_keeps_its_share() -> None:
    """Paths that begin with a rare token count too, down to e^-18 of what was found."""
    lm, prompt = Short(), "aab"
    rare = lm.tokenizer.encode("a")[0]
    lm.table[:-1, :, rare] -= 14
    lm.table = normalised(lm.table.reshape(-1, lm.table.shape[-1])).reshape(lm.table.shape)
    _, (respellings,) = find_respellings(lm, [prompt])
    first = [one for one in respellings.best(1000) if one.ids[0] == rare]
    paths = {ids: p for ids, p in listed(lm, ()).items() if lm.tokenizer.decode(ids).startswith(prompt)}
    share = sum(p for ids, p in paths.items() if ids[0] == rare) / sum(paths.values())
    assert 0 < share < 0.01
    assert sum(math.exp(one.log_prob) for one in first) == pytest.approx(share)


@pytest.mark.parametrize("prompt", ["a", "aa", "b a"])
def test_samples_follow_the_distribution_of_the_text(prompt: str) -> None:
    lm, size = Short(), 4000
    counts = Counter(g.text + "\n" for g in cr.generate_many(lm, [prompt], n=size, seed=1))
    expected = by_brute_force(lm, prompt)
    assert counts.keys() <= expected.keys()
    for text, p in expected.items():
        # a count is binomial; five standard deviations are exceeded once in three million
        assert abs(counts[text] - size * p) <= 5 * math.sqrt(size * p * (1 - p)) + 1, text
    plain = Counter(g.text + "\n" for g in cr.generate_many(lm, [prompt], n=size, seed=1, heal=False))
    distance = sum(abs(plain[text] / size - expected.get(text, 0)) for text in plain | expected) / 2
    assert distance > 0.1, "without healing the distribution is another one"


def test_the_log_prob_of_a_continuation_is_given_the_text_of_the_prompt() -> None:
    lm, prompt = Short(), "aa"
    paths = [(lm.tokenizer.decode(ids), p) for ids, p in listed(lm, ()).items()]
    total = sum(p for text, p in paths if text.startswith(prompt))
    for found in cr.generate_many(lm, [prompt], n=50):
        possible = [math.log(p / total) for text, p in paths if text == found.text + "\n"]
        assert min(abs(found.log_prob - log_prob) for log_prob in possible) < 1e-9


def test_a_wide_beam_finds_the_most_likely_tokens_that_spell_the_prompt() -> None:
    lm, prompt = Short(), "aa"
    paths = {i: p for i, p in listed(lm, ()).items() if lm.tokenizer.decode(i).startswith(prompt)}
    best = max(paths, key=paths.__getitem__)
    for ending in ("any", "best"):
        (found,) = cr.generate_many(lm, [prompt], cr.Beam(500, 0.0, ending))
        assert found.text + "\n" == lm.tokenizer.decode(best)
        assert found.log_prob == pytest.approx(math.log(paths[best] / sum(paths.values())))


def test_the_number_of_paths_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of very many ways to spell a long word the most likely ones are taken, and their shares sum to one."""
    lm = Short()
    every = find_respellings(lm, ["abab"])[1][0].best(1000)
    monkeypatch.setattr(healing, "_MOST_PATHS", 1)
    few = find_respellings(lm, ["abab"])[1][0].best(1000)
    assert {respelling.ids for respelling in few} < {respelling.ids for respelling in every}
    assert sum(math.exp(respelling.log_prob) for respelling in few) == pytest.approx(1)


# Real tokenizers


@pytest.fixture(scope="module", params=TOKENIZERS)
def log_model(request: pytest.FixtureRequest) -> cr.LanguageModel:
    choice = cr.TokenizerChoice(request.param, vocab_size=600) if "piece" in request.param else request.param
    return cr.train("ngram", cr.Corpus.from_text(LOG), order=5, tokenizer=choice)


@pytest.mark.parametrize(
    ("prompt", "goes_on"),
    [
        ("Jan 12 10:05 host2 auth[127]: req", "uest accepted for "),
        ("Jan 12 10:05 host2 auth[127]: request acc", "epted for "),
        ("Jan 12 10:05 host2 auth[127]: request ", "accepted for "),
        ("Jan 12 10:05 host2 auth[127]: request", " accepted for "),
        ("Jan 12 10:05 host2 auth[127]: se", "ssion opened"),
        ("Jan 12 10:05 host2 auth[1", "27]: re"),
        ("Jan 12 10:05 host2 auth[127]: rejected: bad k", "ey"),
    ],
)
@pytest.mark.parametrize("strategy", [cr.Greedy(), cr.Beam(3), cr.TopK(1)])
def test_a_log_goes_on_as_it_should(
    log_model: cr.LanguageModel, prompt: str, goes_on: str, strategy: cr.decode.Strategy | cr.Beam
) -> None:
    if log_model.tokenizer.name == "word:unicode":
        goes_on = goes_on.replace("27]: re", "27 ] : re")  # its text has a space around each sign
    (found,) = cr.generate_many(log_model, [prompt], strategy)
    if isinstance(strategy, cr.Beam) and goes_on.endswith("re"):
        goes_on = goes_on.removesuffix("re")  # the most likely whole line may have another event
    assert found.continuation.startswith(goes_on), found


@pytest.mark.parametrize(
    ("kind", "settings"),
    [("lstm", {"embedding": 8, "hidden": 8, "layers": 1}), ("transformer", {"layers": 1, "width": 16, "heads": 2})],
)
def test_a_network_heals_too(kind: str, settings: dict[str, int]) -> None:
    """Respellings differ in ln p as the scores of their tokens do, batched as they are."""
    choice = cr.TokenizerChoice("bpe", vocab_size=280)
    lm = cr.train(kind, cr.Corpus.from_text(LOG), tokenizer=choice, steps=2, batch=256, **settings)
    _, (respellings,) = find_respellings(lm, ["Jan 12 10:05 host2 auth[127]: req"])
    best = respellings.best(20)
    assert len({len(respelling.ids) for respelling in best}) > 1
    assert all(lm.tokenizer.decode(respelling.ids).startswith(" req") for respelling in best)
    scores = [
        chain.score(lm, np.asarray([[*respellings.stable, *respelling.ids]]))[0, len(respellings.stable) :].sum()
        for respelling in best
    ]
    found = np.asarray([respelling.log_prob for respelling in best])
    np.testing.assert_allclose(found - found[0], np.asarray(scores) - scores[0], atol=1e-4)


def test_streaming_shows_what_is_generated(log_model: cr.LanguageModel) -> None:
    for seed, prompt in enumerate(["Jan 12 10:05 host2 auth[127]: re", "Jan ", "", "Ja", "Jan 12"]):
        for tokens in (0, 1, 9):
            whole = cr.generate_many(log_model, [prompt], max_tokens=tokens, seed=seed)[0].continuation
            assert "".join(cr.stream(log_model, prompt, max_tokens=tokens, seed=seed)) == whole


def test_the_batch_changes_no_text(log_model: cr.LanguageModel) -> None:
    prompts = ["Jan 12 10:05 host2 auth[127]: re", "Jan ", "", "Jan 12 1", "zzz", "Jan"]
    together = cr.generate_many(log_model, prompts, n=2, max_tokens=9)
    alone = [g for prompt in prompts for g in cr.generate_many(log_model, [prompt], n=2, max_tokens=9)]
    assert [g.text for g in together] == [g.text for g in alone]


def test_healing_can_be_switched_off(log_model: cr.LanguageModel) -> None:
    prompt = "Jan 12 10:05 host2 auth[127]: req"
    ids = prompt_ids(log_model, prompt)
    _, (respellings,) = find_respellings(log_model, [prompt], heal=False)
    assert (respellings.stable, respellings.rest) == (ids, b"")
    whole = cr.generate(log_model, prompt, cr.Greedy(), heal=False)
    assert "".join([prompt, *cr.stream(log_model, prompt, cr.Greedy(), heal=False)]) == whole
    if log_model.tokenizer.name in ("char", "byte"):
        assert cr.generate(log_model, prompt, cr.Greedy()) == whole  # there is nothing to heal


def test_a_word_that_no_token_begins_stays_as_it_is() -> None:
    lm = cr.train("ngram", cr.Corpus.from_text(LOG), order=3, tokenizer="word")
    _, (respellings,) = find_respellings(lm, ["Jan 12 zebra"])
    assert (respellings.stable, respellings.rest) == (prompt_ids(lm, "Jan 12 zebra"), b"")
    assert cr.generate(lm, "Jan 12 zebra", max_tokens=3).startswith("Jan 12 zebra ")


def test_a_rest_that_the_model_thinks_impossible_is_read_as_it_was_cut() -> None:
    lm = cr.train("ngram", cr.Corpus.from_text("aa bb\naa cc\n"), order=2, tokenizer="word", smoothing="mle")
    _, (impossible, possible) = find_respellings(lm, ["aa aa", "aa b"])
    assert (impossible.stable, impossible.rest) == (prompt_ids(lm, "aa aa"), b"")
    assert (possible.stable, possible.rest) == (prompt_ids(lm, "aa"), b"b")
    assert [lm.tokenizer.decode(one.ids) for one in possible.best(9)] == ["bb"]
    assert [g.text for g in cr.generate_many(lm, ["aa aa", "aa b"], cr.Beam(2))] == ["aa aa bb", "aa bb"]


def test_half_a_character_can_be_part_of_a_respelling() -> None:
    text = "ñandú 漢字 🙂 añil\n" * 20
    lm = cr.train("ngram", cr.Corpus.from_text(text), tokenizer=cr.TokenizerChoice("bpe", vocab_size=262), order=6)
    for prompt in ("ñ", "ñandú 漢", "ñandú 漢字 "):
        assert cr.generate(lm, prompt, cr.Greedy()) == text[:-1][: len(text) // 20 - 1]
        assert prompt + "".join(cr.stream(lm, prompt, cr.Greedy())) == cr.generate(lm, prompt, cr.Greedy())


@pytest.mark.parametrize("name", TOKENIZERS)
def test_stable_ids_begin_every_text_that_continues_a_prompt(name: str) -> None:
    tokenizer = cr.train_tokenizer(name, cr.Corpus.open("builtin:python"))
    text = (
        "We don't say 'x' they're  said\tit; I'll (perhaps) go_on 127.5 ... café naïve 日本 \n  and  more: x're\n"
    )
    for end in range(len(text)):
        settled, rest = tokenizer.stable_ids(text[:end])
        assert text[:end].encode().endswith(rest)
        whole = tokenizer.encode(text).tolist()
        assert whole[: len(settled)] == settled, text[:end]
        if tokenizer.lossless:
            assert tokenizer.decode(settled) + rest.decode() == tokenizer.decode(tokenizer.encode(text[:end]))


def test_prompts_of_a_stream_reach_back_over_lines() -> None:
    lm = cr.train("ngram", cr.Corpus.from_text(LOG), order=4, tokenizer="bpe", context="stream")
    prompt = LOG[: LOG.index("\n") + 1]
    assert find_respellings(lm, [prompt])[1][0].rest == b""
    assert cr.generate(lm, prompt + "Ja", cr.Greedy(), max_tokens=5).startswith(prompt + "Jan 12 10:")
    assert cr.generate(lm, prompt, cr.Greedy(), max_tokens=5).startswith(prompt + "Jan 12 10:")


@pytest.mark.parametrize("prompt", ["a", "ab", "aab", "aaab", "a a"])
def test_the_best_respellings_are_the_first_of_all(prompt: str) -> None:
    """Every respelling, sorted: what `best` finds without making them all."""
    root = find_respellings(Short(), [prompt])[1][0].root
    assert root is not None
    every = [
        (share + float(own), (*ids, int(token)))
        for node, ids, share in root.nodes()
        for token, own in zip(node.last, node.shares, strict=False)
        if own > -math.inf
    ]
    every.sort(key=lambda respelling: -respelling[0])
    for count in (1, 3, 100):
        best = find_respellings(Short(), [prompt])[1][0].best(count)
        assert [(respelling.log_prob, respelling.ids) for respelling in best] == every[:count]
