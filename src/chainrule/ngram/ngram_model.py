"""`NgramModel`: an automaton as a language model."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from chainrule.arrays import PAD, Array, array_namespace, check_ids, to_numpy
from chainrule.contract.capabilities import BestTokens, Capabilities, Choose, ContextRow, Costs, Found, SearchRules
from chainrule.contract.lm import Context, LanguageModel, State, check_rows, expect_state
from chainrule.ngram.segments import insert_starts
from chainrule.ngram.settings import NgramSettings
from chainrule.ngram.store.automaton import Automaton
from chainrule.ngram.tables import (
    Bigrams,
    Continuations,
    bigrams,
    context_rows,
    continuations,
    ids_of,
    ngram_lengths,
)
from chainrule.system.parallel import Patience, at_once, cores, worth_a_kernel
from chainrule.tokens.base import Tokenizer, cut_lines, line_bounds

if TYPE_CHECKING:
    from chainrule.ngram.sampling.drafts import Drafter
    from chainrule.ngram.sampling.sampler import NgramSampler

KIND_NAME = "ngram"
_NANOSECONDS = 1 << 22  # to sample one token without kernels
_WIDEST = 256  # beams; the next tokens of more are found faster in all probabilities
_NANOSECONDS_TO_LAY_OUT = 1024  # to score a token by NumPy: scoring is what loads the kernels
_AT_ONCE = 1 << 23  # log-probabilities of `predictions`, 64 MB
_OFFERS = frozenset({"context_rows", "match_lengths", "ngram_lengths", "predictions"})
_OFFERS_ON_CPU = frozenset({"draft", "best_tokens", "prepare", "score_sequences", "search", "write"})


@dataclass(frozen=True)
class NgramState(State):
    """One automaton state for each row, and its words, which are kept to save time."""

    nodes: Array
    words: Array
    """The last N-1 words, as [B, N-1]; the id V means "no word"."""
    backs_off_for_free: bool = True
    """False for stupid backoff, which charges for words before the longest known context."""

    def __len__(self) -> int:
        return int(self.nodes.shape[0])

    def select(self, rows: Array) -> NgramState:
        if isinstance(self.nodes, np.ndarray):
            rows = to_numpy(rows)
        else:
            rows = array_namespace(self.nodes).asarray(rows, device=self.nodes.device)
        return replace(self, nodes=self.nodes[rows], words=self.words[rows])

    def join(self, other: NgramState) -> NgramState:
        xp = array_namespace(self.nodes, other.nodes)
        nodes, words = ((getattr(self, name), getattr(other, name)) for name in ("nodes", "words"))
        return replace(self, nodes=xp.concat(nodes), words=xp.concat(words))

    def keys(self) -> list[Hashable] | None:
        """Return the nodes: words before the longest known context change nothing, now or later."""
        return list(to_numpy(self.nodes).tolist()) if self.backs_off_for_free else None


class NgramModel(LanguageModel):
    """p(x_t | x_<t) = p(x_t | the N-1 tokens before): the Markov assumption."""

    kind = KIND_NAME
    explained_by = "chainrule.explanation.ngrams:explain_ngram"

    def __init__(
        self, automaton: Automaton, tokenizer: Tokenizer, settings: NgramSettings, context: Context = "line"
    ) -> None:
        self.automaton = replace(automaton, keeps_suffixes=settings.keeps_suffixes)
        self.tokenizer = tokenizer
        self.settings = settings
        self.context = context
        self.normalised = settings.is_normalised and automaton.keeps_sums
        self._patience = Patience(_NANOSECONDS)
        self._is_prepared = False

    @property
    def device(self) -> str:
        return "cpu" if self.automaton.where is None else str(self.automaton.where)

    def on(self, device: str, dtype: str = "float32") -> NgramModel:
        """Return this model with its arrays on a device: in NumPy on the CPU, in torch elsewhere.

        Sums are taken in double precision, whatever `dtype` is, so that no precision is lost by backing off.
        """
        if device == self.device:
            return self
        automaton = self.automaton.to(None if device == "cpu" else device)
        return NgramModel(automaton, self.tokenizer, self.settings, self.context).described_as(self)

    def tensors(self) -> dict[str, np.ndarray]:
        automaton = self._on_host()
        trie = automaton.trie
        tensors: dict[str, np.ndarray] = {
            "first_of_length": trie.first_of_length,
            "words": to_numpy(trie.words).view(np.uint32),
            "base": to_numpy(trie.base),
            "offset": to_numpy(trie.offset),
            "rest": to_numpy(trie.rest).view(np.uint32),
        }
        if automaton.counts is not None:
            tensors["counts"] = automaton.counts
        if automaton.index is not None:
            tensors["index"] = to_numpy(automaton.index)
        for name, values in (("log_prob", automaton.log_prob), ("log_backoff", automaton.log_backoff)):
            tensors[name] = to_numpy(values.plain)
            if values.bits:
                tensors[f"{name}_codes"] = to_numpy(values.codes).view(np.uint32)
                tensors[f"{name}_books"] = to_numpy(values.books)
        return tensors

    def ngrams(self, context: str | Sequence[str] = "") -> Continuations:
        """Return the n-grams that begin with a context: the words seen after it, with p and, if kept, counts.

        The context is a text, or a list of tokens, in which "<s>" is the start of a line. It is taken as it is: a
        text does not begin with <s>. Only its last tokens count, as many as the model's contexts have.
        """
        return continuations(self._on_host(), self.tokenizer, ids_of(self.tokenizer, context))

    def context_rows(self) -> Iterator[ContextRow]:
        """Yield the table of all contexts: each token that was seen after them, its count, their sum, and p."""
        return context_rows(self._on_host(), self.tokenizer)

    def ngram_lengths(self, ids: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Return the length of the longest n-gram of the model that ends in each id."""
        check_ids(ids[None], self.tokenizer.vocab_size)
        return ngram_lengths(self._on_host(), ids, starts, ends, self.tokenizer.bos)

    def bigrams(self, words: str | Sequence[str] | None = None, *, most: int = 10, ends: bool = False) -> Bigrams:
        """Return how often, and how probably, each of these words follows each other: the tables of a lecture.

        None: the most probable words of the model, `most` of them. With `ends`, also <s> and </s> at the two ends.
        """
        if words is None:
            by_probability = self.ngrams().ids
            special = (self.tokenizer.bos, self.tokenizer.eos, self.tokenizer.unk)
            ids = [int(i) for i in by_probability if i not in special][:most]
        else:
            ids = ids_of(self.tokenizer, words)
        if ends:
            ids = [self.tokenizer.bos, *ids, self.tokenizer.eos]
        return bigrams(self._on_host(), self.tokenizer, list(dict.fromkeys(ids)))

    # -- the contract -------------------------------------------------------------------------------------

    def start(self, batch_size: int) -> NgramState:
        return self._after_start.select(np.zeros(batch_size, dtype=np.int64))

    @cached_property
    def _after_start(self) -> NgramState:
        node = self.automaton.array([self.automaton.start()])
        return NgramState(node, self.automaton.words_of(node), not self.automaton.log_alpha)

    def extend(self, state: State, ids_BT: Array) -> NgramState:
        state = self._state(state)
        check_rows(state, ids_BT)
        ids_BT = self._ids(ids_BT)
        words = last_words(state.words, ids_BT)
        return replace(state, nodes=self.automaton.state_of(words), words=words)

    def next_log_probs(self, state: State) -> Array:
        return self.automaton.next_after(self._state(state).words)

    def score(self, ids_BT: Array, state: State | None = None) -> Array:
        if state is not None:
            check_rows(state, ids_BT)
        ids_BT = self._ids(ids_BT)
        xp = array_namespace(ids_BT)
        # without a state <s> alone: no n-gram has it in its middle, so none reaches from one row into the next
        start = self.automaton.array(np.full((ids_BT.shape[0], 1), self.tokenizer.bos))
        history = start if state is None else self._state(state).words
        # all rows as one text, each preceded by the words of its state
        text_BT = xp.concat([history, ids_BT], axis=1)
        is_token = text_BT != PAD
        scores_BT = xp.zeros(text_BT.shape, dtype=xp.float64, device=ids_BT.device)
        scores_BT[is_token] = self.automaton.score(text_BT[is_token])
        return scores_BT[:, history.shape[1] :]

    # -- fast paths: those of `_OFFERS_ON_CPU` and the scoring of texts are not called on a GPU ------------

    @property
    def capabilities(self) -> Capabilities:
        """On a CPU kernels score and write; on a GPU the automaton computes in torch."""
        costs = Costs(bulk=2e-7, token=1.2e-5, distribution=1e-6 + 3e-9 * self.tokenizer.vocab_size)
        if self.automaton.where is not None:
            return Capabilities(_OFFERS, costs)
        offers = _OFFERS | _OFFERS_ON_CPU
        if not self.automaton.log_alpha:
            offers |= {"next_probs"}
        if self.context == "line" and cores() > 1:
            offers |= {"score_text"}
        return Capabilities(offers, costs, is_compiled=True)

    def score_text(self, block: bytes) -> np.ndarray | None:
        """Encode and score blocks of whole lines in parallel, one for each core; only for line context."""

        def score_lines(lines: bytes) -> np.ndarray:  # by kernels, which release the lock as NumPy does not
            ids = self.tokenizer.encode_lines(lines)
            return self._score_laid_out(ids, *line_bounds(ids, self.tokenizer.eos), threads=1)

        parts = cut_lines(block)
        # a short text is left to the plain way, which needs no kernel
        return np.concatenate(at_once(score_lines, parts)) if len(parts) > 1 else None

    def score_sequences(self, ids: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray | None:
        """Score all sequences as one text: no n-gram has <s> in its middle, so none reaches over it."""
        if len(ids) == 0:
            return None
        check_ids(ids[None], self.tokenizer.vocab_size)
        if worth_a_kernel(len(ids), _NANOSECONDS_TO_LAY_OUT):
            return self._score_laid_out(ids, starts, ends)
        text, places = insert_starts(np.asarray(ids), starts[starts < ends], self.tokenizer.bos)
        return np.asarray(self.automaton.score(text)[places])

    def _score_laid_out(
        self, ids: np.ndarray, starts: np.ndarray, ends: np.ndarray, threads: int | None = None
    ) -> np.ndarray:
        """Do what `score_sequences` does, by kernels instead of NumPy's indexing."""
        from chainrule.ngram.store.scoring_kernels import lay_out, take_back

        text = np.empty(len(ids) + len(starts), dtype=np.uint32)
        lay_out(np.ascontiguousarray(ids, dtype=np.uint32), starts, ends, self.tokenizer.bos, text)
        scores = self.automaton.score(text, threads)
        return np.asarray(scores[: take_back(starts, ends, scores)])

    def next_probs(self, state: State) -> np.ndarray | None:
        """Return p of every next token by a kernel, which takes far fewer powers of e than there are tokens."""
        return self.automaton.next_probs_after(self._state(state).words)

    def predictions(self, state: State, ids_BT: Array) -> Iterator[Array]:
        """Yield the distributions before many tokens: each depends on the N-1 words before it alone."""
        words_BTN = self._words_before(state, ids_BT)[:, :-1]
        rows, width, order = words_BTN.shape
        at_once = max(_AT_ONCE // (self.tokenizer.vocab_size * max(rows, 1)), 1)
        for first in range(0, width, at_once):
            some = words_BTN[:, first : first + at_once]
            flat = self.automaton.next_after(some.reshape(rows * some.shape[1], order))
            yield flat.reshape(rows, some.shape[1], -1)

    def match_lengths(self, state: State, ids_BT: Array) -> np.ndarray:
        """Return how many words before each of the ids, and after the last, are a known context: [B, T+1]."""
        words_BTN = self._words_before(state, ids_BT)
        rows, width, order = words_BTN.shape
        nodes = self.automaton.state_of(words_BTN.reshape(rows * width, order))
        return to_numpy(self.automaton.trie.length(nodes)).reshape(rows, width)

    def _words_before(self, state: State, ids_BT: Array) -> Array:
        """Return the N-1 words before each of the ids, and after the last of them, as [B, T+1, N-1]."""
        check_rows(state, ids_BT)
        ids_BT, history_BN = self._ids(ids_BT), self._state(state).words
        xp = array_namespace(ids_BT)
        text_BT = xp.concat([history_BN, xp.where(ids_BT == PAD, self.tokenizer.vocab_size, ids_BT)], axis=1)
        every_T, every_N = (np.arange(n) for n in (ids_BT.shape[1] + 1, history_BN.shape[1]))
        return text_BT[:, self.automaton.array(every_T[:, None] + every_N)]

    def prepare(self) -> None:
        """Load the kernels that compute the distribution of the next token."""
        if not self._is_prepared:
            self.automaton.prepare()
            self._is_prepared = True

    def write(
        self, state: State, choose: Choose, uniforms_BT: np.ndarray, read_BT: np.ndarray | None = None
    ) -> tuple[NgramState, Array, Array] | None:
        """Sample by kernels that look at the words seen after the contexts; None for a few tokens."""
        if not self._patience.count(uniforms_BT.size):
            return None
        written = self._sampler.sample(self._state(state).words, choose, uniforms_BT, read_BT)
        return None if written is None else (self.extend(state, written[0]), *written)

    def search(
        self, state: State, rules: SearchRules, live_PW: np.ndarray, lengths_PW: np.ndarray
    ) -> list[list[Found]] | None:
        """Search by the kernels of sampling; None for a few tokens, or for very many hypotheses."""
        texts, width = live_PW.shape
        if width > _WIDEST or not self._patience.count(rules.limits.sum()):
            return None
        from chainrule.ngram.sampling.beam import search

        words_BN = self._state(state).words
        words_BN = np.repeat(words_BN, texts * width // len(words_BN), axis=0)
        return search(self._sampler, words_BN, rules, live_PW, lengths_PW)

    def draft(self, memory: np.ndarray | None, ids: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Guess by one call of a kernel; the memory is the last N-1 words."""
        check_ids(ids[None], self.tokenizer.vocab_size)
        known = to_numpy(self._after_start.words)[0] if memory is None else memory
        words = np.concatenate([known, ids])[len(ids) :]
        return words, self._drafter.after(words, count)

    def best_tokens(self, longest: int) -> list[BestTokens]:
        """Return the contexts of the model and their most probable words."""
        from chainrule.ngram.sampling.best_tokens import best_words

        return best_words(self.automaton, self.tokenizer.bos, longest)

    @cached_property
    def _drafter(self) -> Drafter:
        from chainrule.ngram.sampling.drafts import Drafter

        return Drafter(self.automaton, self.tokenizer.bos)

    @cached_property
    def _sampler(self) -> NgramSampler:
        from chainrule.ngram.sampling.sampler import NgramSampler

        return NgramSampler(self.automaton)

    # -- inside -------------------------------------------------------------------------------------------

    def _ids(self, ids_BT: Array) -> Array:
        ids = self.automaton.array(to_numpy(ids_BT) if self.automaton.where is None else ids_BT)
        check_ids(ids, self.tokenizer.vocab_size)
        return ids

    @staticmethod
    def _state(state: State) -> NgramState:
        return expect_state(state, NgramState)

    def _on_host(self) -> Automaton:
        """Return the automaton in NumPy, as folders store it, with the hash index that a device does not have."""
        automaton = self.automaton if self.automaton.where is None else self.automaton.to(None)
        return automaton.indexed() if self.settings.index and automaton.index is None else automaton


def last_words(words_BN: Array, ids_BT: Array) -> Array:
    """Return the last N-1 words after the ids of each row: a state depends on no others."""
    xp = array_namespace(ids_BT)
    words_BT = xp.concat([words_BN, ids_BT], axis=1)
    if isinstance(ids_BT, np.ndarray) and (ids_BT != PAD).all():  # a shortcut for the most frequent case
        return words_BT[:, ids_BT.shape[1] :]
    lengths = xp.sum(xp.astype(ids_BT != PAD, xp.int64), axis=1)
    places = lengths[:, None] + xp.arange(words_BN.shape[1], dtype=xp.int64, device=ids_BT.device)[None, :]
    return xp.take_along_axis(words_BT, places, axis=1)
