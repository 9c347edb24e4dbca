"""The n-gram model behind the contract."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from chainrule import settings as settings_of
from chainrule.arrays import PAD, Array, check_ids, to_numpy
from chainrule.errors import DamagedFileError, SettingsError
from chainrule.folder import ModelFolder, write_folder
from chainrule.kinds import Kind, Rung, TrainingData
from chainrule.lm import Context, LanguageModel, State
from chainrule.ngram.automaton import Automaton
from chainrule.ngram.count import Counts, Ints, Trie, count_ngrams, pad_text
from chainrule.ngram.smooth import interpolated, laplace, mle, tune_lambdas
from chainrule.settings import setting
from chainrule.tokens.base import Tokenizer
from chainrule.tokens.registry import dump_tokenizer, parse_tokenizer


@dataclass(frozen=True)
class NgramSettings:
    """What can be set with --set."""

    order: int = setting(3, "tokens in the longest n-gram; the context is one less")
    smoothing: Literal["interpolated", "laplace", "mle"] = setting(
        "interpolated", "how the unseen becomes possible; mle leaves it impossible"
    )
    k: float = setting(1.0, "what laplace adds to every count")

    def __post_init__(self) -> None:
        if self.order < 1:
            raise SettingsError(f"order should be at least 1, not {self.order}")
        if not 0 < self.k <= 1e6:
            raise SettingsError(f"k should be above 0 and at most a million, not {self.k}")
        if self.k != 1.0 and self.smoothing != "laplace":
            raise SettingsError(f"k goes with smoothing=laplace, not with smoothing={self.smoothing}")


@dataclass(frozen=True)
class NgramState(State):
    """One automaton state per row."""

    nodes: Ints

    def select(self, rows: Array) -> NgramState:
        return NgramState(self.nodes[to_numpy(rows)])


class NgramModel(LanguageModel):
    """p(x_t | x_<t) = p(x_t | the N-1 tokens before): the Markov assumption."""

    def __init__(
        self,
        automaton: Automaton,
        tokenizer: Tokenizer,
        settings: NgramSettings,
        context: Context = "line",
    ) -> None:
        self.automaton = automaton
        self.tokenizer = tokenizer
        self.settings = settings
        self.context = context

    def score(self, ids_BT: Array, state: State | None = None) -> Array:
        ids_BT = self._ids(ids_BT)
        history = self.automaton.words_of(self._nodes(self.start(len(ids_BT)) if state is None else state))
        # each row behind the words its state stands for, all rows in one text
        text_BT = np.concatenate([history, ids_BT], axis=1)
        is_token = text_BT != PAD
        scores_BT = np.zeros(text_BT.shape, dtype=np.float64)
        scores_BT[is_token] = self.automaton.score(text_BT[is_token])
        return scores_BT[:, history.shape[1] :]

    def start(self, batch_size: int) -> NgramState:
        return NgramState(np.full(batch_size, self.automaton.start(), dtype=np.int64))

    def extend(self, state: State, ids_BT: Array) -> NgramState:
        ids_BT = self._ids(ids_BT)
        nodes = self._nodes(state)
        lengths = (ids_BT != PAD).sum(axis=1)
        # N-1 tokens are all that a state knows: what lies before them need not be read
        reach = self.automaton.trie.order - 1
        first = np.maximum(lengths - reach, 0)
        nodes = np.where(first > 0, 0, nodes)
        for t in range(min(reach, ids_BT.shape[1])):
            rows = np.flatnonzero(first + t < lengths)
            nodes[rows] = self.automaton.step(nodes[rows], ids_BT[rows, first[rows] + t])
        return NgramState(nodes)

    def next_log_probs(self, state: State) -> Array:
        return self.automaton.next_log_probs(self._nodes(state))

    def _ids(self, ids_BT: Array) -> Ints:
        ids: Ints = np.asarray(to_numpy(ids_BT), dtype=np.int64)
        check_ids(ids, self.tokenizer.vocab_size)
        return ids

    @staticmethod
    def _nodes(state: State) -> Ints:
        assert isinstance(state, NgramState)
        return state.nodes

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        trie = self.automaton.trie
        tensors = {
            "keys": trie.keys,
            "suffix": trie.suffix.astype(np.uint32 if len(trie.suffix) < 1 << 32 else np.int64),
            "first_of_length": trie.first_of_length,
            "log_prob": self.automaton.log_prob,
            "log_backoff": self.automaton.log_backoff,
        }
        write_folder(
            folder,
            ModelFolder(
                kind=KIND.name,
                config=asdict(self.settings),
                context=self.context,
                tokenizer=dump_tokenizer(self.tokenizer),
                tensors=tensors,
                provenance=self.provenance,
                metrics=self.metrics,
            ),
            overwrite=overwrite,
        )


def train(settings: NgramSettings, data: TrainingData) -> NgramModel:
    """Count, smooth, and make the automaton."""
    tokenizer = data.tokenizer
    with data.progress.task(f"counting {settings.order}-grams"):
        counts = count_ngrams(
            data.train.ids, settings.order, tokenizer.vocab_size, tokenizer.bos, tokenizer.eos, data.context
        )
    lambdas = None
    if settings.smoothing == "interpolated":
        lambdas = _lambdas(counts, settings, data)
        tables = interpolated(counts, lambdas)
    else:
        tables = mle(counts) if settings.smoothing == "mle" else laplace(counts, settings.k)
    lm = NgramModel(tables.automaton(counts, tokenizer.bos), tokenizer, settings, data.context)
    lm.metrics = {"ngrams": np.diff(counts.trie.first_of_length)[1:].tolist()}
    if lambdas is not None:
        lm.metrics["lambdas"] = lambdas.round(6).tolist()
    return lm


def _lambdas(counts: Counts, settings: NgramSettings, data: TrainingData) -> NDArray[np.float64]:
    if data.valid is None:
        data.progress.note("no held-out text to tune the interpolation on: every order gets weight 1/2")
        return np.full(settings.order, 0.5)
    text = pad_text(data.valid.ids, settings.order, data.tokenizer.bos, data.tokenizer.eos, data.context)
    with data.progress.task("tuning the interpolation"):
        return tune_lambdas(counts, text, text != data.tokenizer.bos)


def load(folder: ModelFolder) -> NgramModel:
    """The model of a folder; what its arrays say is checked, because a file can say anything."""
    settings = settings_of.parse(NgramSettings, folder.config)
    tokenizer = parse_tokenizer(folder.tokenizer, str(folder.path))
    trie = Trie(
        settings.order,
        tokenizer.vocab_size,
        folder.tensor("keys"),
        folder.tensor("suffix").astype(np.int64),
        folder.tensor("first_of_length"),
    )
    automaton = Automaton(trie, folder.tensor("log_prob"), folder.tensor("log_backoff"), tokenizer.bos)
    if not _is_sound(automaton):
        raise DamagedFileError(
            f"{folder.path}: the arrays are not those of an n-gram model of order {settings.order}"
        )
    return NgramModel(automaton, tokenizer, settings, folder.context)


def _is_sound(automaton: Automaton) -> bool:
    """Whether walking the automaton stays within its arrays, comes to an end, and gives probabilities."""
    trie, nodes = automaton.trie, len(automaton.trie.keys) + 1
    firsts = trie.first_of_length
    return bool(
        trie.keys.dtype == firsts.dtype == np.int64
        and automaton.log_prob.dtype == automaton.log_backoff.dtype == np.float32
        and len(trie.suffix) == len(automaton.log_prob) == len(automaton.log_backoff) == nodes > 1
        and len(firsts) == trie.order + 2
        and (firsts[0], firsts[1], firsts[-1]) == (0, 1, nodes)
        and (np.diff(firsts) > 0).all()
        and (np.diff(trie.keys) > 0).all()
        and trie.keys[0] >= 0
        and (trie.parent(slice(1, nodes)) < np.arange(1, nodes)).all()
        and (trie.suffix[1:] < np.arange(1, nodes)).all()
        and (trie.suffix >= 0).all()
        and (automaton.log_prob[1:] <= 0).all()
        and (automaton.log_backoff <= 0).all()
    )


_ORDERS = {"unigram": 1, "bigram": 2, "trigram": 3, "5-gram": 5}

KIND = Kind(
    name="ngram",
    summary="counts of word sequences, smoothed",
    settings=NgramSettings,
    train=train,
    load=load,
    ladder=tuple(
        Rung(f"{name}, {smoothing}", {"order": order, "smoothing": smoothing})
        for smoothing in ("mle", "laplace", "interpolated")
        for name, order in _ORDERS.items()
    ),
    tunes_on_held_out=lambda settings: settings.smoothing == "interpolated",
)
