"""Each law catches a model that breaks it: a law that nothing can break is no law."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from laws import LAWS

import chainrule as cr
from chainrule.arrays import PAD, Array
from chainrule.decode.strategies import normalize
from chainrule.lm import LanguageModel, State

TOY = "i love cats\ni love dogs\ncats chase mice\n"


class Delegate(LanguageModel):
    """A right model; those below break one thing each."""

    def __init__(self) -> None:
        self.inner = cr.train("ngram", cr.Corpus.from_text(TOY), order=3, smoothing="laplace")
        self.tokenizer, self.context = self.inner.tokenizer, self.inner.context

    def score(self, ids_BT: Array, state: State | None = None) -> Array:
        return self.inner.score(ids_BT, state)

    def start(self, batch_size: int) -> State:
        return self.inner.start(batch_size)

    def extend(self, state: State, ids_BT: Array) -> State:
        return self.inner.extend(state, ids_BT)

    def next_log_probs(self, state: State) -> Array:
        return self.inner.next_log_probs(state)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        self.inner.save(folder, overwrite=overwrite)


class LeaksMass(Delegate):
    def next_log_probs(self, state: State) -> Array:
        return super().next_log_probs(state) - 0.01


class PredictsTheStart(Delegate):
    def next_log_probs(self, state: State) -> Array:
        log_probs = super().next_log_probs(state)
        log_probs[:, self.tokenizer.bos] = -3.0
        return normalize(log_probs)


class ScoresOneTokenLate(Delegate):
    def score(self, ids_BT: Array, state: State | None = None) -> Array:
        return np.roll(super().score(ids_BT, state), 1, axis=1)


class ScoresPadding(Delegate):
    def score(self, ids_BT: Array, state: State | None = None) -> Array:
        return super().score(ids_BT, state) - 0.1 * (ids_BT == PAD)


class ReadsPadding(Delegate):
    def extend(self, state: State, ids_BT: Array) -> State:
        return super().extend(state, np.where(ids_BT == PAD, self.tokenizer.eos, ids_BT))


class PrefillsOneShort(Delegate):
    def extend(self, state: State, ids_BT: Array) -> State:
        return super().extend(state, ids_BT[:, :-1] if ids_BT.shape[1] > 1 else ids_BT)


@dataclass(frozen=True)
class Mutable(State):
    """Shares what it remembers with the states made from it."""

    box: list[Any]

    def select(self, rows: Array) -> Mutable:
        return Mutable([self.box[0].select(rows)])


class ExtendsInPlace(Delegate):
    def start(self, batch_size: int) -> State:
        return Mutable([super().start(batch_size)])

    def extend(self, state: State, ids_BT: Array) -> State:
        state.box[0] = super().extend(state.box[0], ids_BT)
        return state

    def next_log_probs(self, state: State) -> Array:
        return super().next_log_probs(state.box[0])


@dataclass(frozen=True)
class Stubborn(State):
    """Keeps its rows in order, whatever is asked."""

    inner: Any

    def select(self, rows: Array) -> Stubborn:
        return Stubborn(self.inner.select(np.sort(rows)))


class SelectsInOrder(Delegate):
    def start(self, batch_size: int) -> State:
        return Stubborn(super().start(batch_size))

    def extend(self, state: State, ids_BT: Array) -> State:
        return Stubborn(super().extend(state.inner, ids_BT))

    def next_log_probs(self, state: State) -> Array:
        return super().next_log_probs(state.inner)


class ForgetsTheState(Delegate):
    def score(self, ids_BT: Array, state: State | None = None) -> Array:
        return super().score(ids_BT)


class FlatterInBatches(Delegate):
    def next_log_probs(self, state: State) -> Array:
        log_probs = super().next_log_probs(state)
        return normalize(log_probs / 2) if len(log_probs) > 1 else log_probs


class TakesAnyId(Delegate):
    def score(self, ids_BT: Array, state: State | None = None) -> Array:
        return super().score(ids_BT % self.tokenizer.vocab_size, state)


class SavesSomethingElse(Delegate):
    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        other = cr.train("ngram", cr.Corpus.from_text(TOY), order=3, smoothing="add-k", k=0.0101)
        other.save(folder)


class Restless(Delegate):
    def next_log_probs(self, state: State) -> Array:
        log_probs = super().next_log_probs(state)
        return normalize(log_probs + np.random.default_rng().normal(size=log_probs.shape))


BROKEN: list[tuple[str, Callable[[], LanguageModel]]] = [
    ("sums_to_one", LeaksMass),
    ("sums_to_one", PredictsTheStart),
    ("batch_score_is_step_by_step", ScoresOneTokenLate),
    ("padding_changes_nothing", ScoresPadding),
    ("padding_changes_nothing", ReadsPadding),
    ("prefill_is_steps", PrefillsOneShort),
    ("state_is_a_value", ExtendsInPlace),
    ("select_permutes", SelectsInOrder),
    ("score_goes_on_from_a_state", ForgetsTheState),
    ("exhaustive_beam_is_exact", FlatterInBatches),
    ("samples_follow_the_distribution", FlatterInBatches),
    ("foreign_ids_are_refused", TakesAnyId),
    ("save_and_load_is_bit_equal", SavesSomethingElse),
    ("same_seed_same_text_whatever_the_batch", Restless),
    ("one_beam_is_greedy", Restless),
]


@pytest.mark.parametrize(("law", "broken"), BROKEN)
def test_a_broken_model_is_caught(law: str, broken: Callable[[], LanguageModel]) -> None:
    with pytest.raises(AssertionError):
        LAWS[law](broken())


def test_every_law_has_a_broken_model() -> None:
    assert {name for name, _ in BROKEN} == set(LAWS)


@pytest.mark.parametrize("law", [name for name in LAWS if name != "save_and_load_is_bit_equal"])
def test_the_unbroken_one_passes(law: str) -> None:
    LAWS[law](Delegate())
