"""N-gram models from their folders. The arrays are checked, because a file can contain anything."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from chainrule import settings as settings_of
from chainrule.errors import DamagedFileError
from chainrule.folder import ModelFolder
from chainrule.ngram.infinite.any_length_model import ARRAYS, LENGTHS, AnyLengthModel, AnyLengthSettings, Smoothing
from chainrule.ngram.infinite.suffixes import Suffixes, index_dtype
from chainrule.ngram.ngram_model import NgramModel
from chainrule.ngram.settings import NgramSettings
from chainrule.ngram.store.automaton import Automaton, slots_for
from chainrule.ngram.store.bitstream import words_for
from chainrule.ngram.store.trie import Trie, groups_for
from chainrule.ngram.store.values import GRID_BITS, Values
from chainrule.tokens.base import Tokenizer

_GRID = 2  # numbers that describe a grid
_CHECKED_UP_TO = 1 << 17  # nodes; larger models open without a full check: kernels stay in bounds anyway


def load_ngram(folder: ModelFolder) -> NgramModel:
    """Return the model of a folder, once its arrays are found sound."""
    settings = settings_of.parse(NgramSettings, folder.config)
    tokenizer = folder.parsed_tokenizer()
    arrays = (folder.tensor(name) for name in ("first_of_length", "words", "base", "offset", "rest"))
    trie = Trie(tokenizer.vocab_size, *arrays)
    log_prob, log_backoff = (_values(folder, name, settings) for name in ("log_prob", "log_backoff"))
    index = folder.tensor("index") if settings.index else None
    counts = folder.tensor("counts") if settings.counts else None
    automaton = Automaton(
        trie, log_prob, log_backoff, tokenizer.bos, index, log_alpha=settings.log_alpha, counts=counts
    )
    if not _is_sound(automaton, settings.order):
        raise DamagedFileError(
            f"{folder.path}: the arrays are not those of an n-gram model of order {settings.order}"
        )
    return NgramModel(automaton, tokenizer, settings, folder.context or "line")


def _values(folder: ModelFolder, name: str, settings: NgramSettings) -> Values:
    plain = folder.tensor(name)
    if settings.bits == 0:
        return Values.of(plain)
    books = folder.tensor(f"{name}_books")
    # an earlier version rounded backoffs to as few bits as probabilities
    bits = GRID_BITS if name == "log_backoff" and books.shape[-1] == _GRID else settings.bits
    return Values(plain, folder.tensor(f"{name}_codes"), books, bits)


def _is_sound(automaton: Automaton, order: int) -> bool:
    """Return True if walking the automaton stays in bounds and, for models that are quick to check, makes sense."""
    trie, index, counts = automaton.trie, automaton.index, automaton.counts
    firsts = trie.first_of_length
    streams = (firsts, trie.words, trie.base, trie.offset, trie.rest)
    shapes_fit = bool(
        all(array.ndim == 1 for array in streams)
        and firsts.dtype == np.int64
        and len(firsts) == order + 2
        and (firsts[0], firsts[1], firsts[2]) == (0, 1, trie.vocab_size + 1)
        and (np.diff(firsts) >= 0).all()
        and trie.words.dtype == trie.rest.dtype == np.uint32
        and trie.base.dtype == trie.offset.dtype
        and trie.base.dtype in (np.uint32, np.uint64)
        and len(trie.words) == words_for(int(firsts[-1] - firsts[2]), trie.word_bits)
        and len(trie.base) == int(groups_for(np.diff(firsts)[1:order]).sum())
        and len(trie.offset) == len(trie.base) + 1
        and len(trie.rest) == int(trie.offset[-1]) + 1
        and trie.offset[0] == 0
        and np.diff(trie.offset.astype(np.int64)).min(initial=1) >= 1  # the rests of a group take 1 to 32 words
        and np.diff(trie.offset.astype(np.int64)).max(initial=1) <= 32
        and (index is None or (index.dtype == np.uint64 and index.shape == (slots_for(trie.nodes - firsts[2]),)))
        and (counts is None or (counts.dtype in (np.uint32, np.uint64) and counts.shape == (trie.nodes - 1,)))
        and _fits(automaton.log_prob, int(firsts[-1]) - 1, order, trie.vocab_size)
        and _fits(automaton.log_backoff, int(firsts[order]) - 1, order - 1, trie.vocab_size if order > 1 else 0)
    )
    return shapes_fit and (trie.nodes > _CHECKED_UP_TO or _makes_sense(automaton))


def _fits(values: Values, size: int, lengths: int, words: int) -> bool:
    """Return True if each of `size` nodes of `lengths` lengths has a number; `words` of them are single words."""
    if values.plain.dtype != np.float32 or values.plain.shape != (size if values.bits == 0 else words,):
        return False
    return values.bits == 0 or bool(
        values.codes.dtype == np.uint32
        and values.codes.shape == (words_for(size - words, values.bits),)
        and values.books.dtype == np.float32
        and values.books.shape == (max(lengths - 1, 0), _GRID if values.bits == GRID_BITS else 1 << values.bits)
    )


def _makes_sense(automaton: Automaton) -> bool:
    """Return True if the children of each context are sorted, the contexts in order, and values logarithms."""
    trie = automaton.trie
    for n in range(1, trie.order):
        contexts = np.arange(trie.first_of_length[n], trie.first_of_length[n + 1] + 1)
        begin = trie.begin(contexts, n)
        size = int(trie.first_of_length[n + 2] - trie.first_of_length[n + 1])
        if begin[0] != 0 or begin[-1] != size or (np.diff(begin) < 0).any():
            return False
        words = trie.word(np.arange(trie.first_of_length[n + 1], trie.first_of_length[n + 2]))
        first_of_context = np.zeros(size + 1, dtype=bool)
        first_of_context[begin] = True
        if size and (words.max() >= trie.vocab_size or (np.diff(words)[~first_of_context[1:-1]] <= 0).any()):
            return False
    prob, back = automaton.log_prob, automaton.log_backoff
    numbers = [np.concatenate([v.plain, v.books.reshape(-1) if v.bits else v.plain[:0]]) for v in (prob, back)]
    return bool((numbers[0] <= 0).all() and not np.isnan(numbers[1]).any() and (numbers[1] < np.inf).all())


# -- n-grams of any length -----------------------------------------------------------------------------------


def load_anygram(folder: ModelFolder) -> AnyLengthModel:
    """Return the model, of n-grams of any length, of a folder, once its arrays are found sound."""
    tokenizer = folder.parsed_tokenizer()
    arrays = [folder.tensor(name) for name in ARRAYS]
    smoothing = Smoothing(folder.tensor("discount"), folder.tensor("strength"))
    suffixes = Suffixes(tokenizer.vocab_size, *arrays)
    if not (_are_arrays(arrays, tokenizer) and _are_sorted(suffixes) and _smooths(smoothing)):
        raise DamagedFileError(f"{folder.path}: the arrays are not those of a model of n-grams of any length")
    # folders of versions in which this was a smoothing hold settings of other n-gram models too
    own = {key: folder.config[key] for key in ("extra_words", "vocabulary") if key in folder.config}
    settings = settings_of.parse(AnyLengthSettings, own)
    return AnyLengthModel(suffixes, smoothing, tokenizer, folder.context or "line", settings=settings)


def _are_arrays(arrays: list[NDArray[Any]], tokenizer: Tokenizer) -> bool:
    """Return True if the arrays have the right types and sizes, and the followers are tokens but <s>."""
    follower, places, shared, fresh = arrays
    return bool(
        all(array.ndim == 1 and 0 < array.size == follower.size for array in arrays)
        and follower.dtype == tokenizer.id_dtype
        and places.dtype == index_dtype(len(places))
        and shared.dtype == fresh.dtype == np.uint8
        and follower.max() < tokenizer.vocab_size
        and (follower != tokenizer.bos).all()
    )


def _are_sorted(suffixes: Suffixes) -> bool:
    """Return True if `places` are the ranks by follower, block by block, and `fresh` is `shared` by rank.

    Then every range that a walk can reach lies within the arrays.
    """
    places, blocks = suffixes.places, np.diff(suffixes.starts)
    begins = suffixes.starts[:-1][blocks > 0]
    is_begin = np.zeros(len(places), dtype=bool)
    is_begin[begins] = True
    return bool(
        places.min() >= 0
        and places.max() < len(places)
        and (is_begin[1:] | (places[1:] > places[:-1])).all()
        and (suffixes.follower[places] == np.repeat(np.arange(len(blocks)), blocks)).all()
        and (suffixes.fresh[places] == suffixes.shared).all()
        and ((suffixes.shared == 0) == is_begin).all()
    )


def _smooths(smoothing: Smoothing) -> bool:
    """Return True if d and θ have the right types and shapes, and values that give probabilities."""
    d, theta = smoothing.discount, smoothing.strength
    return bool(
        d.dtype == theta.dtype == np.float64
        and d.shape == theta.shape == (len(LENGTHS) + 1,)
        and ((d >= 0) & (d < 1)).all()
        and ((theta > 0) & (theta < np.inf)).all()
    )
