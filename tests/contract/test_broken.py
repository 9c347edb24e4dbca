"""Tests that each law finds a model that breaks it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

import chainrule as cr
from chainrule.arrays import PAD, Array, to_numpy, without
from chainrule.contract.capabilities import (
    Capabilities,
    Choose,
    Costs,
    Drafted,
    DraftRules,
    Found,
    SearchRules,
)
from chainrule.contract.lm import LanguageModel, State, check_rows, predictions, read_ahead, score_sequences
from chainrule.decode.beam import beam_search
from chainrule.decode.strategies import normalised
from chainrule.decode.top import top_k
from chainrule.testing.laws import LAWS, check_laws, laws_for
from toy_models import Delegate

TOY = "i love cats\ni love dogs\ncats chase mice\n"


def counted(**settings: Any) -> LanguageModel:
    return cr.train("ngram", cr.Corpus.from_text(TOY), order=3, **settings, tokenizer="word")


class Sound(Delegate):
    """A correct model without fast paths; each model below breaks one thing."""

    def __init__(self) -> None:
        super().__init__(counted(smoothing="laplace"))
        self.kind, self.settings = self.inner.kind, self.inner.settings

    def tensors(self) -> Mapping[str, np.ndarray]:
        return self.inner.tensors()


class LeaksMass(Sound):
    def next_log_probs(self, state: State) -> Array:
        return super().next_log_probs(state) - 0.01


class PredictsTheStart(Sound):
    def next_log_probs(self, state: State) -> Array:
        log_probs = super().next_log_probs(state)
        log_probs[:, self.tokenizer.bos] = -3.0
        return normalised(log_probs)


class ScoresOneTokenLate(Sound):
    def score(self, ids_BT: Array, state: State | None = None) -> Array:
        return np.roll(super().score(ids_BT, state), 1, axis=1)


class ScoresPadding(Sound):
    def score(self, ids_BT: Array, state: State | None = None) -> Array:
        return super().score(ids_BT, state) - 0.1 * (ids_BT == PAD)


class ReadsPadding(Sound):
    def extend(self, state: State, ids_BT: Array) -> State:
        return super().extend(state, np.where(ids_BT == PAD, self.tokenizer.eos, ids_BT))


class PrefillsOneShort(Sound):
    def extend(self, state: State, ids_BT: Array) -> State:
        return super().extend(state, ids_BT[:, :-1] if ids_BT.shape[1] > 1 else ids_BT)


@dataclass(frozen=True)
class Wrapped(State):
    """A correct state; each state below breaks one thing."""

    inner: Any

    def __len__(self) -> int:
        return len(self.inner)

    def select(self, rows: Array) -> Wrapped:
        return type(self)(self.inner.select(rows))

    def join(self, other: Wrapped) -> Wrapped:
        return type(self)(self.inner.join(other.inner))


class WrapsStates(Sound):
    """Another correct model."""

    wrap: ClassVar[type[Wrapped]] = Wrapped

    def start(self, batch_size: int) -> State:
        return self.wrap(super().start(batch_size))

    def extend(self, state: State, ids_BT: Array) -> State:
        return self.wrap(super().extend(state.inner, ids_BT))

    def next_log_probs(self, state: State) -> Array:
        return super().next_log_probs(state.inner)

    def score(self, ids_BT: Array, state: State | None = None) -> Array:
        return super().score(ids_BT, None if state is None else state.inner)


class ExtendsInPlace(WrapsStates):
    """Shares its memory with the states that are made from it."""

    def extend(self, state: State, ids_BT: Array) -> State:
        object.__setattr__(state, "inner", super().extend(state, ids_BT).inner)
        return state


class Stubborn(Wrapped):
    """Keeps the order of its rows, whatever order is requested."""

    def select(self, rows: Array) -> Wrapped:
        return Stubborn(self.inner.select(np.sort(rows)))


class SelectsInOrder(WrapsStates):
    wrap = Stubborn


class Pushy(Wrapped):
    """Puts the rows of the other state first."""

    def join(self, other: Wrapped) -> Wrapped:
        return Pushy(other.inner.join(self.inner))


class JoinsBackwards(WrapsStates):
    wrap = Pushy


class Careless(Wrapped):
    """Reports one row more than it has."""

    def __len__(self) -> int:
        return len(self.inner) + 1


class MiscountsRows(WrapsStates):
    wrap = Careless


class ForgetsTheState(Sound):
    def score(self, ids_BT: Array, state: State | None = None) -> Array:
        if state is not None:
            check_rows(state, ids_BT)
        return super().score(ids_BT)


class ServesOneRowForAll(Sound):
    def extend(self, state: State, ids_BT: Array) -> State:
        return super().extend(state.select(np.zeros(len(ids_BT), np.int64)), ids_BT)


class FlatterInBatches(Sound):
    def next_log_probs(self, state: State) -> Array:
        log_probs = super().next_log_probs(state)
        return normalised(log_probs / 2) if len(log_probs) > 1 else log_probs


class TakesAnyId(Sound):
    def score(self, ids_BT: Array, state: State | None = None) -> Array:
        return super().score(ids_BT % self.tokenizer.vocab_size, state)


def saves_something_else() -> LanguageModel:
    """A model whose folder loads as a model of its kind, but with other numbers."""
    lm = counted(smoothing="laplace")
    lm.tensors = counted(smoothing="add-k", k=0.0101).tensors
    return lm


class Restless(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.randomness = np.random.default_rng(0)

    def next_log_probs(self, state: State) -> Array:
        log_probs = super().next_log_probs(state)
        return normalised(log_probs + self.randomness.normal(size=log_probs.shape))


class ReadsAheadAndForgets(Sound):
    """Returns the state before the first tokens as the state after them."""

    capabilities = Capabilities(frozenset({"read_ahead"}))

    def read_ahead(self, state: State, ids_BT: Array) -> tuple[Array, Callable[[int], State]]:
        return read_ahead(self.inner, state, ids_BT)[0], lambda n: state


class DraftsTheStart(Sound):
    capabilities = Capabilities(frozenset({"draft"}))

    def draft(self, memory: Any, ids: np.ndarray, count: int) -> tuple[Any, np.ndarray]:
        return memory, np.full(count, self.tokenizer.bos)


class Precise(Sound):
    """A correct model that computes in the requested precision."""

    number: type[np.floating[Any]] = np.float32

    @property
    def dtype(self) -> str:
        return self.number.__name__

    def on(self, device: str, dtype: str = "float32") -> LanguageModel:
        moved = type(self)()
        moved.number = {"float32": np.float32, "float64": np.float64}[dtype]
        return moved

    def score(self, ids_BT: Array, state: State | None = None) -> Array:
        return super().score(ids_BT, state).astype(self.number)

    def next_log_probs(self, state: State) -> Array:
        return super().next_log_probs(state).astype(self.number)


class MovesItself(Precise):
    def on(self, device: str, dtype: str = "float32") -> LanguageModel:
        self.number = {"float32": np.float32, "float64": np.float64}[dtype]
        return self


class StaysImprecise(Precise):
    def on(self, device: str, dtype: str = "float32") -> LanguageModel:
        return self


class MovesSomethingElse(Precise):
    def on(self, device: str, dtype: str = "float32") -> LanguageModel:
        moved = super().on(device, dtype)
        moved.inner = counted(smoothing="add-k", k=0.5)
        return moved


class Fast(Sound):
    """A correct model with most fast paths; each model below breaks one thing."""

    capabilities = Capabilities(
        frozenset({"score_text", "score_sequences", "read", "next_probs", "predictions", "write", "search"})
    )

    def score_text(self, block: bytes) -> np.ndarray | None:
        ids = self.tokenizer.encode_lines(block)
        return score_sequences(self.inner, ids, *self.bounds(ids))

    def score_sequences(self, ids: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray | None:
        return score_sequences(self.inner, ids, starts, ends)

    def read(self, state: State, ids_BT: Array) -> tuple[Array, State] | None:
        return self.score(ids_BT, state), self.extend(state, ids_BT)

    def next_probs(self, state: State) -> np.ndarray | None:
        return np.exp(self.next_log_probs(state))

    def predictions(self, state: State, ids_BT: Array) -> Iterator[Array] | None:
        return predictions(self.inner, state, ids_BT)

    def write(
        self, state: State, choose: Choose, uniforms_BT: np.ndarray, read_BT: np.ndarray | None = None
    ) -> tuple[State, Array, Array] | None:
        if read_BT is not None:
            return None
        tokens, scores, going_B = [], [], np.ones(len(state), dtype=bool)
        for uniforms_B in uniforms_BT.T:
            tokens_B, scores_B, going_B = choose(self.next_log_probs(state), uniforms_B, going_B)
            state = self.extend(state, tokens_B[:, None])
            tokens.append(tokens_B)
            scores.append(scores_B)
        return state, np.stack(tokens, axis=1), np.stack(scores, axis=1)

    def search(
        self, state: State, rules: SearchRules, live_PW: np.ndarray, lengths_PW: np.ndarray
    ) -> list[list[Found]] | None:
        beam = cr.Beam(live_PW.shape[1], float(np.log2(rules.divisors[2])), rules.ending)
        asked: Any = {"end": rules.end, "forbid": rules.forbid, "best": rules.best}
        found = beam_search(self.inner, state, beam, max_tokens=rules.limits, **asked, way="plain")
        return [[Found(0, one.ids, one.log_prob, one.finished) for one in every] for every in found]


class DeclaresWhatIsNotThere(Sound):
    capabilities = Capabilities(frozenset({"write"}))


class HidesAFastPath(Fast):
    """Has fast paths and declares none, as a plug-in of an earlier version does: nobody would call them."""

    capabilities = Capabilities()


class NeverAnswers(Fast):
    """Declares fast paths but returns no result: a law that compares nothing would pass."""

    def score_text(self, block: bytes) -> np.ndarray | None:
        return None

    def search(self, *arguments: Any) -> None:
        return None

    def write(self, *arguments: Any) -> None:
        return None


class Alike(Wrapped):
    """Gives all rows the same key."""

    def keys(self) -> list[Any]:
        return [0] * len(self)


class CannotTellRowsApart(WrapsStates):
    wrap = Alike


class ScoresOneTokenByAnotherRule(Sound):
    """Scores a single token differently from all tokens, and declares that this is cheaper."""

    capabilities = Capabilities(costs=Costs(token=1e-9))

    def score(self, ids_BT: Array, state: State | None = None) -> Array:
        return super().score(ids_BT, state) - 0.1


class DraftsSomethingElse(Sound):
    """Accepts drafts without checking them."""

    capabilities = Capabilities(frozenset({"write_drafted"}))

    def write_drafted(
        self, state: State, rules: DraftRules, last: int, uniforms: np.ndarray, most: int
    ) -> Drafted | None:
        tokens = np.full(most, self.tokenizer.eos)
        return Drafted(state, tokens, np.zeros(most), 1, most)


class SearchesInSteps(Sound):
    """A correct model that goes on with the best hypotheses by itself."""

    capabilities = Capabilities(frozenset({"search_steps"}))

    def parents(self, hypotheses_PW: np.ndarray) -> np.ndarray:
        """Return the rows of the hypotheses of each text that are continued."""
        P, W = hypotheses_PW.shape
        return (np.arange(P)[:, None] * W + hypotheses_PW).ravel()

    def search_steps(
        self,
        state: State,
        never: Sequence[int],
        end: int | None,
        live_PW: np.ndarray,
        steps: int,
        take: Callable[[np.ndarray, np.ndarray, np.ndarray], bool],
    ) -> bool | None:
        P, W = live_PW.shape
        state = state.select(np.repeat(np.arange(len(state)), P * W // len(state)))
        for _ in range(steps):
            log_probs = self.next_log_probs(state)
            values, tokens = top_k(without(log_probs, never), W)
            if not take(values, tokens, log_probs[:, 0 if end is None else end]):
                break
            totals = (live_PW[:, :, None] + values.reshape(P, W, -1)).reshape(P, -1)
            chosen_PW = np.argsort(-totals, axis=1, kind="stable")[:, :W]
            live_PW = np.take_along_axis(totals, chosen_PW, axis=1)
            tokens_PW = np.take_along_axis(tokens.reshape(P, -1), chosen_PW, axis=1)
            state = self.extend(state.select(self.parents(chosen_PW // values.shape[1])), tokens_PW.reshape(-1, 1))
        return True


class ContinuesEachHypothesis(SearchesInSteps):
    def parents(self, hypotheses_PW: np.ndarray) -> np.ndarray:
        return np.arange(hypotheses_PW.size)


class ScoresTextAsOneLine(Fast):
    def score_text(self, block: bytes) -> np.ndarray | None:
        return self.inner.score(self.tokenizer.encode_lines(block)[None].astype(np.int64))[0]


class RunsSequencesTogether(Fast):
    def score_sequences(self, ids: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray | None:
        return self.score(ids[None])[0]


class ScoresWhatItReadAnew(Fast):
    def read(self, state: State, ids_BT: Array) -> tuple[Array, State] | None:
        return self.score(ids_BT), self.extend(state, ids_BT)


class ReadsWithoutMoving(Fast):
    def read(self, state: State, ids_BT: Array) -> tuple[Array, State] | None:
        return self.score(ids_BT, state), state


class GivesHalfOfEachProbability(Fast):
    def next_probs(self, state: State) -> np.ndarray | None:
        probs = super().next_probs(state)
        return None if probs is None else probs / 2


class GivesTheLogitsOfAnotherTemperature(Fast):
    capabilities = Capabilities(Fast.capabilities.offers | {"next_logits"})

    def next_logits(self, state: State) -> Array:
        return 2 * to_numpy(self.inner.next_log_probs(state))


class PredictsOneTooLate(Fast):
    def predictions(self, state: State, ids_BT: Array) -> Iterator[Array] | None:
        for t in range(ids_BT.shape[1]):
            state = self.extend(state, ids_BT[:, t : t + 1])
            yield self.next_log_probs(state)[:, None]


class WritesTheBest(Fast):
    def write(self, state: State, choose: Choose, uniforms_BT: np.ndarray, *read: Any) -> Any:
        return super().write(state, choose, np.zeros_like(uniforms_BT), *read)


class WritesAndMiscounts(Fast):
    def write(self, state: State, *arguments: Any) -> Any:
        if (written := super().write(state, *arguments)) is None:
            return None
        after, tokens_BT, scores_BT = written
        return after, tokens_BT, scores_BT - 0.01


class WritesWithoutMoving(Fast):
    def write(self, state: State, *arguments: Any) -> Any:
        if (written := super().write(state, *arguments)) is None:
            return None
        _, tokens_BT, scores_BT = written
        return state, tokens_BT, scores_BT


class SearchesTheForbidden(Fast):
    def search(self, state: State, rules: SearchRules, *arguments: Any) -> Any:
        return super().search(state, replace(rules, forbid=()), *arguments)


class SearchesWithoutEnd(Fast):
    def search(self, state: State, rules: SearchRules, *arguments: Any) -> Any:
        return super().search(state, replace(rules, end=None), *arguments)


BROKEN: list[tuple[str, Callable[[], LanguageModel]]] = [
    ("sums_to_one", LeaksMass),
    ("sums_to_one", PredictsTheStart),
    ("batch_score_is_step_by_step", ScoresOneTokenLate),
    ("padding_changes_nothing", ScoresPadding),
    ("padding_changes_nothing", ReadsPadding),
    ("prefill_is_steps", PrefillsOneShort),
    ("rows_of_ids_are_rows_of_the_state", ServesOneRowForAll),
    ("state_is_a_value", ExtendsInPlace),
    ("join_undoes_select", JoinsBackwards),
    ("join_undoes_select", MiscountsRows),
    ("select_permutes", SelectsInOrder),
    ("score_goes_on_from_a_state", ForgetsTheState),
    ("exhaustive_beam_is_exact", FlatterInBatches),
    ("samples_follow_the_distribution", FlatterInBatches),
    ("foreign_ids_are_refused", TakesAnyId),
    ("save_and_load_is_bit_equal", saves_something_else),
    ("same_seed_same_text_whatever_the_batch", Restless),
    ("one_beam_is_greedy", Restless),
    ("moving_changes_nothing_here", MovesItself),
    ("moving_changes_nothing_here", StaysImprecise),
    ("moving_changes_nothing_here", MovesSomethingElse),
    ("what_is_declared_is_there", DeclaresWhatIsNotThere),
    ("what_is_declared_is_there", HidesAFastPath),
    ("equal_keys_predict_the_same", CannotTellRowsApart),
    ("a_choice_of_tokens_is_scored_as_all_are", ScoresOneTokenByAnotherRule),
    ("writing_with_drafts_is_writing", DraftsSomethingElse),
    ("scoring_text_is_scoring_its_tokens", NeverAnswers),
    ("searching_is_ranking_and_extending", NeverAnswers),
    ("writing_is_choosing_and_extending", NeverAnswers),
    ("scoring_text_is_scoring_its_tokens", ScoresTextAsOneLine),
    ("scoring_sequences_is_scoring_each", RunsSequencesTogether),
    ("reading_is_scoring_and_extending", ScoresWhatItReadAnew),
    ("reading_is_scoring_and_extending", ReadsWithoutMoving),
    ("next_probabilities_are_powers_of_e", GivesHalfOfEachProbability),
    ("logits_make_probabilities", GivesTheLogitsOfAnotherTemperature),
    ("predictions_are_steps", PredictsOneTooLate),
    ("writing_is_choosing_and_extending", WritesTheBest),
    ("writing_is_choosing_and_extending", WritesAndMiscounts),
    ("writing_is_choosing_and_extending", WritesWithoutMoving),
    ("searching_is_ranking_and_extending", SearchesTheForbidden),
    ("searching_is_ranking_and_extending", SearchesWithoutEnd),
    ("following_a_search_is_ranking_and_extending", ContinuesEachHypothesis),
    ("reading_ahead_is_extending", ReadsAheadAndForgets),
    ("drafts_are_tokens_of_the_vocabulary", DraftsTheStart),
]
UNBROKEN = (Sound, WrapsStates, Precise, Fast, SearchesInSteps)
SAVED = "save_and_load_is_bit_equal"


@pytest.mark.parametrize(("law", "broken"), BROKEN)
def test_a_broken_model_is_caught(law: str, broken: Callable[[], LanguageModel]) -> None:
    with pytest.raises(AssertionError):
        LAWS[law](broken())


def test_every_law_has_a_broken_model() -> None:
    assert {name for name, _ in BROKEN} == set(LAWS)


def is_base(unbroken: Any, law: str) -> bool:
    """Return True if a broken model differs from this one only in the broken part."""
    made = [broken for name, broken in BROKEN if name == law and isinstance(broken, type)]
    return any(next(base for base in one.__mro__ if base in UNBROKEN) is unbroken for one in made)


@pytest.mark.parametrize(
    ("law", "unbroken"),
    [
        pytest.param(law, unbroken, marks=[] if is_base(unbroken, law) else [pytest.mark.slow])
        for law in LAWS
        if law != SAVED
        for unbroken in UNBROKEN
    ],
)
def test_the_unbroken_one_passes(law: str, unbroken: Callable[[], LanguageModel]) -> None:
    LAWS[law](unbroken())


def test_a_model_that_saves_itself_passes() -> None:
    """The models above save the model inside them, and load as that model."""
    LAWS[SAVED](Sound().inner)


def test_another_model_is_recognised_by_its_numbers() -> None:
    with pytest.raises(AssertionError, match="Arrays are not equal"):
        LAWS[SAVED](saves_something_else())


def test_the_first_broken_law_is_named() -> None:
    check_laws(Sound().inner)
    with pytest.raises(AssertionError, match="breaks the law score_goes_on_from_a_state"):
        check_laws(ForgetsTheState())


def test_scores_need_not_keep_the_laws_of_probabilities() -> None:
    lm = Sound()
    assert laws_for(lm) == list(LAWS)
    lm.normalised = False
    assert set(LAWS) - set(laws_for(lm)) == {"sums_to_one", "samples_follow_the_distribution"}
