"""Tests of generation from prompts that the laws do not cover."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest

import chainrule as cr
from chainrule.arrays import Array, pad
from chainrule.contract import chain
from chainrule.contract.lm import State
from chainrule.decode import sample as sampling
from chainrule.decode.beam import beam_search
from chainrule.decode.generate import prompt_ids, stream_many
from chainrule.decode.randomness import Uniforms
from chainrule.decode.sample import Choice, sample_after, sample_steps
from chainrule.decode.strategies import Read
from chainrule.errors import DecodingError, ModelError
from toy_models import Delegate

TOY = "i love cats\ni love dogs\ncats chase mice\n"


@pytest.fixture(scope="module")
def toy() -> cr.LanguageModel:
    return cr.train("ngram", cr.Corpus.from_text(TOY), order=3, smoothing="mle", tokenizer="word")


@pytest.fixture(scope="module")
def stream() -> cr.LanguageModel:
    return cr.train(
        "ngram", cr.Corpus.from_text(TOY * 3), order=3, smoothing="mle", context="stream", tokenizer="word"
    )


def test_a_line_ends_by_itself(toy: cr.LanguageModel) -> None:
    (found,) = cr.generate_many(toy, ["cats"], cr.Greedy())
    assert (found.text, found.continuation, found.tokens, found.finished) == (
        "cats chase mice",
        " chase mice",
        3,
        True,
    )
    assert math.isclose(found.log_prob, 0.0, abs_tol=1e-6)  # chase, mice, </s> are certain


def test_a_text_that_is_cut_off_says_so(toy: cr.LanguageModel) -> None:
    (found,) = cr.generate_many(toy, ["cats"], cr.Greedy(), max_tokens=1)
    assert (found.text, found.finished) == ("cats chase", False)


def test_a_search_gives_one_text_and_sampling_begins_with_seed_0(stream: cr.LanguageModel) -> None:
    state = stream.extend(stream.start(1), stream.tokenizer.encode("i love")[None])
    assert [len(found) for found in beam_search(stream, state, cr.Beam(2), max_tokens=3)] == [1]
    prompts = [stream.tokenizer.encode("i love").tolist()] * 8
    by_seed = [sample_after(stream, prompts, cr.Sample(), max_tokens=8, seed=seed) for seed in (0, 1)]
    assert sample_after(stream, prompts, cr.Sample(), max_tokens=8) == by_seed[0] != by_seed[1]


def test_zero_tokens_give_no_text(toy: cr.LanguageModel) -> None:
    assert cr.generate(toy, "cats", max_tokens=0) == "cats"
    assert cr.generate_many(toy, ["cats"], cr.Beam(2), max_tokens=0)[0].text == "cats"
    assert cr.generate_many(toy, []) == []


def test_stream_context_goes_on_over_line_ends(stream: cr.LanguageModel) -> None:
    text = cr.generate(stream, "cats chase", cr.Greedy(), max_tokens=3)
    assert text.startswith("cats chase mice\ni")
    # a prompt of several lines is context as a whole
    assert cr.generate(stream, "i love dogs\n", cr.Greedy(), max_tokens=2) == "i love dogs\ncats chase"


def test_a_model_of_lines_ignores_lines_before_the_last(toy: cr.LanguageModel) -> None:
    assert cr.generate(toy, "whatever\ncats", cr.Greedy()) == "whatever\ncats chase mice"


def test_unknown_words_in_a_prompt_stay_as_they_are(toy: cr.LanguageModel) -> None:
    ends = {cr.generate(toy, "zebras", max_tokens=1, seed=seed) for seed in range(20)}
    assert {"zebras", "zebras i", "zebras love"} <= ends  # nothing is known after zebras: any word, or the end


def test_unk_is_never_generated() -> None:
    rare = cr.TokenizerChoice("word", min_count=2)
    lm = cr.train("ngram", cr.Corpus.from_text("a b\nc d\ne a\n"), tokenizer=rare, order=1, smoothing="mle")
    p = np.exp(cr.to_numpy(lm.next_log_probs(lm.start(1))))[0]
    assert p[lm.tokenizer.unk] > 0.4
    for text in cr.generate_many(lm, [""], n=50, max_tokens=10):
        assert "<unk>" not in text.text
    assert "<unk>" not in cr.generate(lm, "", cr.Beam(3))


def test_half_a_character_is_held_back_while_streaming() -> None:
    text = "ñañ漢🙂\n" * 20
    lm = cr.train("ngram", cr.Corpus.from_text(text), tokenizer="byte", order=5, smoothing="mle", context="stream")
    pieces = list(cr.stream(lm, "ña", cr.Greedy(), max_tokens=40))
    assert not any("\ufffd" in piece for piece in pieces[:-1])
    assert "ña" + "".join(pieces) == cr.generate(lm, "ña", cr.Greedy(), max_tokens=40)


def test_texts_are_streamed_one_after_the_other_and_the_first_at_once() -> None:
    text = "ñañ漢🙂 and so on\n" * 20
    lm = cr.train("ngram", cr.Corpus.from_text(text), tokenizer="byte", order=4, context="stream")
    strategy = cr.TopK(3)
    pieces = list(stream_many(lm, "ña", strategy, n=3, max_tokens=300, seed=4))
    numbers = [number for number, _ in pieces]
    assert numbers == sorted(numbers) and numbers.count(0) > 3, "the first comes in pieces"
    for number, whole in enumerate(cr.generate_many(lm, ["ña"], strategy, n=3, max_tokens=300, seed=4)):
        assert "".join(piece for of, piece in pieces if of == number) == whole.continuation


def test_wrong_numbers_are_refused(toy: cr.LanguageModel) -> None:
    with pytest.raises(DecodingError, match="at least 1, not 0"):
        cr.generate_many(toy, [""], n=0)
    with pytest.raises(DecodingError, match="at least 0, not -1"):
        cr.generate(toy, "", max_tokens=-1)
    with pytest.raises(DecodingError, match="2 beams cannot give 3"):
        cr.generate_many(toy, [""], cr.Beam(2), n=3)


def test_copies_of_a_prompt_get_texts_of_their_own() -> None:
    lm = cr.train("ngram", cr.Corpus.open("builtin:python"), order=2, tokenizer="word")
    texts = {g.text for g in cr.generate_many(lm, ["The"], n=10, max_tokens=20, seed=1)}
    assert len(texts) == 10


def test_prompts_that_encode_alike_are_not_copies_of_each_other() -> None:
    """Two unknown words have the same token but are different prompts: each gets the text that it gets alone."""
    lm = cr.train("ngram", cr.Corpus.from_text(TOY), order=2, smoothing="laplace", tokenizer="word")
    prompts = ["zebras", "lions", "zebras"]
    assert len({tuple(prompt_ids(lm, prompt)) for prompt in prompts}) == 1
    for seed in range(5):
        texts = [g.text for g in cr.generate_many(lm, prompts, n=2, max_tokens=8, seed=seed)]
        zebras, lions = (
            [g.continuation for g in cr.generate_many(lm, [prompt], n=4, max_tokens=8, seed=seed)]
            for prompt in prompts[:2]
        )
        assert zebras == lions, "the same randomness after the same tokens"
        assert len(set(zebras)) > 1, "copies of one prompt have texts of their own"
        assert texts == [
            *("zebras" + text for text in zebras[:2]),
            *("lions" + text for text in lions[:2]),
            *("zebras" + text for text in zebras[2:]),
        ]


def test_a_beam_batch_is_its_prompts_one_by_one() -> None:
    lm = cr.train("ngram", cr.Corpus.open("builtin:python"), order=3, tokenizer="word")
    prompts = ["The", "If the", "a function"]
    together = cr.generate_many(lm, prompts, cr.Beam(4), n=3, max_tokens=8)
    alone = [g for prompt in prompts for g in cr.generate_many(lm, [prompt], cr.Beam(4), n=3, max_tokens=8)]
    assert together == alone
    for hypotheses in itertools.batched(together, 3) if hasattr(itertools, "batched") else [together[:3]]:
        means = [h.log_prob / h.tokens for h in hypotheses]
        assert means == sorted(means, reverse=True)


def test_a_wider_beam_finds_no_worse_a_text() -> None:
    lm = cr.train("ngram", cr.Corpus.open("builtin:python"), order=3, tokenizer="word")
    scores = [
        beam_search(lm, lm.start(1), cr.Beam(width, 0.0), max_tokens=6, end=lm.tokenizer.eos)[0][0].log_prob
        for width in (1, 64)
    ]
    assert scores[0] <= scores[1]


def test_log_probs_are_the_models_own_whatever_the_strategy(toy: cr.LanguageModel) -> None:
    (drawn,) = sample_after(toy, [[]], cr.Temperature(3.0), max_tokens=6, seed=2, end=toy.tokenizer.eos)
    ids = np.asarray([drawn.ids])
    assert math.isclose(drawn.log_prob, chain.score(toy, ids).sum(), abs_tol=1e-5)


def test_wrong_types_of_arguments_are_refused(toy: cr.LanguageModel) -> None:
    for prompt in (5, Path("prompt.txt")):
        with pytest.raises(DecodingError, match=r"a prompt is text \(str\), not "):
            cr.generate(toy, prompt)
    with pytest.raises(DecodingError, match="a strategy is a value such as Greedy"):
        cr.generate(toy, "i", "greedy")
    with pytest.raises(DecodingError, match="prompts should be a list"):
        cr.generate_many(toy, "i love")


@pytest.mark.parametrize("at_once", [1, 3, 16, 100])
def test_the_interval_of_host_checks_changes_no_text(at_once: int) -> None:
    lm = cr.train("ngram", cr.Corpus.open("builtin:python"), order=2, tokenizer="word")
    prompts = [lm.tokenizer.encode(text).tolist() for text in ("The", "", "If the value", "a")]
    strategy = cr.RepetitionPenalty(1.2) | cr.TopK(40)
    wanted = sample_after(lm, prompts, strategy, max_tokens=30, seed=3, end=lm.tokenizer.eos)
    new: dict[int, list[int]] = {row: [] for row in range(len(prompts))}
    active: set[int] = set()
    state, read_BT = lm.extend(lm.start(len(prompts)), pad(prompts)), pad(prompts)
    how = {"max_tokens": 30, "end": lm.tokenizer.eos, "read_BT": read_BT, "at_once": at_once}
    for written in sample_steps(lm, state, strategy, Uniforms(3, prompts), **how):
        for row, tokens in zip(written.rows, written.tokens, strict=True):
            new[row] += tokens
        active = written.active
    assert [tuple(ids) for ids in new.values()] == [continuation.ids for continuation in wanted]
    assert [row not in active for row in new] == [continuation.finished for continuation in wanted]
    assert len({len(ids) for ids in new.values()}) > 1, "rows of several lengths"


class NotANumber(Delegate):
    """A model that gives NaN for every token."""

    def next_log_probs(self, state: State) -> Array:
        return super().next_log_probs(state) * np.nan


def test_more_tokens_at_once_are_written_where_they_come_in_no_time(
    toy: cr.LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seconds, expected in ((60.0, [16, 32, 64, 64, 24]), (0.0, [16] * 12 + [8])):
        monkeypatch.setattr(sampling, "NO_TIME", seconds)
        uniforms = Uniforms(0, [[]])
        pieces = sampling.sample_steps(toy, toy.start(1), cr.Sample(), uniforms, max_tokens=200, end=None)
        assert [len(piece.tokens[0]) for piece in pieces] == expected


@pytest.mark.parametrize("strategy", [None, cr.Greedy(), cr.Beam(2)])
def test_a_model_that_gives_nan_is_an_error(
    toy: cr.LanguageModel, strategy: cr.decode.Strategy | cr.Beam | None
) -> None:
    with pytest.raises(ModelError, match="NaN"):
        cr.generate(NotANumber(toy), "cats", strategy)


def test_what_cannot_be_streamed_is_refused_at_once(toy: cr.LanguageModel) -> None:
    with pytest.raises(DecodingError, match="cannot be streamed"):
        cr.stream(toy, "", cr.Beam(2))  # type: ignore[arg-type]


def test_a_state_without_rows_has_no_continuations(toy: cr.LanguageModel) -> None:
    nothing = toy.start(1).select(np.zeros(0, np.int64))
    assert beam_search(toy, nothing, cr.Beam(2), max_tokens=3) == []
    assert Uniforms(0, []).draw(np.zeros(0, np.int64), 4).shape == (0, 4)


class Forgetful(cr.decode.Strategy):
    """A strategy that reads earlier tokens without declaring it."""

    looks_back = False

    def apply(self, log_probs_BV: Array, read: Read) -> Array:
        read()
        return log_probs_BV


def test_a_strategy_that_reads_earlier_tokens_undeclared_is_named() -> None:
    with pytest.raises(DecodingError, match=r"Forgetful.* looks_back = False"):
        Choice(Forgetful(), None)(np.zeros((1, 3)), np.zeros(1), np.ones(1, bool))


@pytest.mark.parametrize("smoothing", ["modified-kneser-ney", "laplace"])
def test_a_beam_of_one_that_ends_as_usual_is_greedy(smoothing: str) -> None:
    """With "best", </s> ends a hypothesis only if it is the most likely token; with "any", at every step."""
    lm = cr.train(
        "ngram", cr.Corpus.open("builtin:python"), order=3, smoothing=smoothing, tokenizer="word", context="line"
    )
    prompts = ["The", "If the value", "a function", "This is", "x", "See also", ""]
    greedy = cr.generate_many(lm, prompts, cr.Greedy(), max_tokens=20)
    usual = cr.generate_many(lm, prompts, cr.Beam(1, ending="best"), max_tokens=20)
    assert [g.text for g in usual] == [g.text for g in greedy]
    anywhere = cr.generate_many(lm, prompts, cr.Beam(1, ending="any"), max_tokens=20)
    assert [g.text for g in anywhere] != [g.text for g in greedy]


@pytest.mark.parametrize("power", [0.0, 1.0])
def test_both_endings_are_exact_in_a_beam_that_holds_everything(toy: cr.LanguageModel, power: float) -> None:
    every = [ids for ids, _ in chain.every_sequence(toy, 4)]
    found = [
        beam_search(
            toy, toy.start(1), cr.Beam(len(every), power, ending), max_tokens=4, end=toy.tokenizer.eos, best=3
        )
        for ending in ("any", "best")
    ]
    assert found[0] == found[1]


def test_options_of_sampling_can_stand_for_a_strategy(toy: cr.LanguageModel) -> None:
    strategy = cr.RepetitionPenalty(1.2) | cr.Temperature(0.8) | cr.TopP(0.9)
    options = {"top_p": 0.9, "temperature": 0.8, "repetition_penalty": 1.2}
    for seed in range(5):
        assert cr.generate(toy, "i", seed=seed, **options) == cr.generate(toy, "i", strategy, seed=seed)
        assert toy.generate("i", seed=seed, **options) == cr.generate(toy, "i", strategy, seed=seed)
    with pytest.raises(DecodingError, match=r"there is no option 'temp'; options of sampling: .*temperature"):
        cr.generate(toy, "i", temp=0.8)
    with pytest.raises(DecodingError, match="choose one of Greedy and temperature"):
        cr.generate(toy, "i", cr.Greedy(), temperature=0.8)
