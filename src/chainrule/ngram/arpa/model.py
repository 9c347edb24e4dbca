"""Models from ARPA files, and ARPA files from models: the way from and to KenLM, SRILM and their kin.

An ARPA file is a model of words, and text is split at white space by whoever reads it. So what is read gets word
tokens, and only models of word tokens are written. What the file leaves open is settled so:

    <unk>, <s>, </s>    are the tokenizer's own; one that the file lacks is there and impossible
    <s>                 is never predicted, whatever the file says; n-grams with <s> behind a word are left out
    a missing context   is filled in: its probability is what backing off gives, and backing off from it is free
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from chainrule._version import __version__
from chainrule.errors import ArpaError, ModelError
from chainrule.lm import Context, LanguageModel
from chainrule.ngram.arpa.reading import ArpaLevel, ArpaModel, read_arpa
from chainrule.ngram.arpa.writing import ArpaBlock, write_arpa
from chainrule.ngram.automaton import Automaton
from chainrule.ngram.build import Parts
from chainrule.ngram.codes import codes_of_words
from chainrule.ngram.model import NgramModel
from chainrule.ngram.settings import NgramSettings
from chainrule.progress import SILENT, Progress
from chainrule.tokens.word import WordTokenizer

Ints = NDArray[np.int64]

_SPECIAL = (b"<unk>", b"<s>", b"</s>")
"""How a file spells the ids 0, 1, 2 of a word tokenizer."""
_UNK, _BOS = 0, 1
_LEFT_OUT = -1


def load_arpa(path: str | Path, *, context: Context = "line", progress: Progress = SILENT) -> NgramModel:
    """The model of an ARPA file, plain or gzip; it gives what the file says, and can be saved like any other."""
    path = Path(path)
    lm = from_arpa(read_arpa(path, progress), context, progress)
    lm.provenance = {"arpa": path.name, "arpa_sha256": _sha256(path), "chainrule": __version__}
    return lm


def from_arpa(arpa: ArpaModel, context: Context = "line", progress: Progress = SILENT) -> NgramModel:
    """The same of a file that was read."""
    tokenizer = WordTokenizer([word for word in arpa.words if word not in _SPECIAL])
    levels = _without_bos_inside(arpa, progress)
    with progress.task(f"linking {sum(len(level.ids) for level in levels):,} n-grams"):
        automaton = _automaton(levels, _ids_of(arpa.words), tokenizer.vocab_size)
    settings = NgramSettings(order=automaton.trie.order, smoothing="imported")
    lm = NgramModel(automaton, tokenizer, settings, context)
    lm.metrics = {"ngrams": np.diff(automaton.trie.first_of_length)[1:].tolist()}
    return lm


def save_arpa(lm: LanguageModel, path: str | Path, *, overwrite: bool = False, progress: Progress = SILENT) -> None:
    """Write an n-gram model of word tokens as an ARPA file; a name that ends in .gz makes a compressed one."""
    if not isinstance(lm, NgramModel):
        raise ModelError("only n-gram models of bounded order can be written as ARPA files")
    if not isinstance(lm.tokenizer, WordTokenizer):
        raise ArpaError(
            f"ARPA files are models of words, which readers split at white space: a model of {lm.tokenizer.name} "
            "tokens cannot be written; train one with --tokenizer word"
        )
    words, number = _spelling(lm.tokenizer, progress)
    _note_what_is_lost(lm, progress)
    automaton = lm.automaton if lm.automaton.where is None else lm.automaton.to(None)
    trie = automaton.trie
    sizes = [len(words), *np.diff(trie.first_of_length)[2:].tolist()]
    levels = [_unigrams(automaton, number), *(_ngrams(automaton, n, number) for n in range(2, trie.order + 1))]
    write_arpa(path, words, levels, sizes, progress, overwrite)


# -- from a file ------------------------------------------------------------------------------------------


def _sha256(path: Path) -> str | None:
    if not path.is_file():  # a pipe can be read but once
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _ids_of(words: list[bytes]) -> Ints:
    """The tokenizer's id of each word of a file: special ones have their own, the others follow in file order."""
    special = np.fromiter((word in _SPECIAL for word in words), dtype=bool, count=len(words))
    ids = np.cumsum(~special) + len(_SPECIAL) - 1
    ids[special] = [_SPECIAL.index(words[place]) for place in np.flatnonzero(special).tolist()]
    return ids


def _without_bos_inside(arpa: ArpaModel, progress: Progress) -> list[ArpaLevel]:
    """The levels without n-grams that have <s> behind a word, since no text has, and without empty ones on top."""
    levels, dropped = list(arpa.levels), 0
    bos = arpa.words.index(_SPECIAL[_BOS]) if _SPECIAL[_BOS] in arpa.words else _LEFT_OUT
    for place, level in enumerate(levels):
        inside = np.zeros(len(level.ids), dtype=bool)
        for column in level.ids.T[1:]:
            inside |= column == bos
        if inside.any():
            dropped += int(inside.sum())
            levels[place] = ArpaLevel(level.ids[~inside], level.log_prob[~inside], level.log_backoff[~inside])
    while len(levels) > 1 and not len(levels[-1].ids):
        levels.pop()
    if dropped:
        progress.note(
            f"n-grams left out because <s> stands behind a word in them, which it never does: {dropped:,}"
        )
    return levels


def _automaton(levels: list[ArpaLevel], ids: Ints, size: int) -> Automaton:
    """The n-grams in the order of levels.py, from short to long.

    Beside the n-grams of n words, the first n words of every longer one are at hand, as the place of the first n-1
    and a word: those that are not listed are the contexts to fill in.
    """
    code = codes_of_words(size).astype(np.int64)
    code_of = code[ids]
    places = [code_of[level.ids[:, 0]] for level in levels]
    log_prob, log_backoff = [_scattered(places[0], levels[0].log_prob, size, -np.inf)], []
    log_prob[0][code[_BOS]] = -np.inf
    log_backoff.append(_scattered(places[0], levels[0].log_backoff, size, 0.0))
    words, begins, filled = [], [], []
    for n in range(2, len(levels) + 1):
        keys = [places[k] * size + code_of[levels[n - 2 + k].ids[:, n - 1]] for k in range(1, len(places))]
        complete, missing = _complete(keys)
        places = [np.searchsorted(complete, key) for key in keys]
        begins.append(_begins(complete // size, len(log_prob[-1])))
        words.append((complete % size).astype(np.uint32))
        log_prob.append(_scattered(places[0], levels[n - 1].log_prob, len(complete), -np.inf))
        log_backoff.append(_scattered(places[0], levels[n - 1].log_backoff, len(complete), 0.0))
        filled.append(missing)
    parts = Parts(size, _BOS, words, begins, np.concatenate(log_prob),
                  np.concatenate([np.zeros(0, np.float32), *log_backoff[:-1]]))  # fmt: skip
    return _backed_off(parts, filled)


def _scattered(places: Ints, values: NDArray[np.float32], size: int, otherwise: float) -> NDArray[np.float32]:
    """So many values: the given ones at their places, and the same one elsewhere."""
    array = np.full(size, otherwise, dtype=np.float32)
    array[places] = values
    return array


def _complete(keys: Sequence[Ints]) -> tuple[Ints, Ints]:
    """The keys of a level in order, with those that only longer n-grams have; and the places of the latter."""
    listed = np.sort(keys[0])
    missing = [key[~_is_in(listed, key)] for key in keys[1:]]
    added = np.unique(np.concatenate([np.zeros(0, np.int64), *missing]))
    before = np.searchsorted(listed, added)
    return np.insert(listed, before, added), before + np.arange(len(added))


def _is_in(ordered: Ints, keys: Ints) -> NDArray[np.bool_]:
    if not len(ordered):
        return np.zeros(len(keys), dtype=bool)
    found: NDArray[np.bool_] = ordered[np.minimum(np.searchsorted(ordered, keys), len(ordered) - 1)] == keys
    return found


def _begins(contexts: Ints, size: int) -> Ints:
    """Where the n-grams of each context begin, and one past the last."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(contexts, minlength=size))])


def _backed_off(parts: Parts, filled: list[Ints]) -> Automaton:
    """The automaton, with what backing off gives for n-grams that were filled in: from short ones to long.

    p(w | h) = backoff(h) · p(w | h')
    """
    automaton = parts.assemble()
    trie = automaton.trie
    for n, places in enumerate(filled, start=2):
        if not len(places):
            continue
        nodes = places + int(trie.first_of_length[n])
        words = automaton.words_of(nodes)[:, -n:]  # they are contexts, so states
        backoff = automaton.log_backoff.at(trie.parent(nodes, n) - 1, n - 2)
        # the automaton's values are this array; a backoff above 1 makes no probability above 1
        parts.log_prob[nodes - 1] = np.minimum(backoff + automaton.last_word_scores(words[:, 1:]), 0.0)
    return automaton


# -- to a file --------------------------------------------------------------------------------------------


def _spelling(tokenizer: WordTokenizer, progress: Progress) -> tuple[list[bytes], Ints]:
    """The words of the file, and the place of each id among them.

    Where the text itself had the word <unk>, as WikiText has, that is the one a reader should find for <unk>; the
    tokenizer's own, which then stands for next to nothing, is left out.
    """
    words = [*_SPECIAL, *tokenizer.words]
    number = np.arange(len(words))
    if _SPECIAL[_UNK] in tokenizer.words:
        progress.note(
            "the vocabulary has the word <unk>: it is written as the unknown word; the model's own one is left out"
        )
        return words[1:], number - 1
    return words, number


def _note_what_is_lost(lm: NgramModel, progress: Progress) -> None:
    assert isinstance(lm.tokenizer, WordTokenizer)
    if lm.tokenizer.splitting != "whitespace":
        progress.note(f"readers split text at white space: have it split as {lm.tokenizer.name} does beforehand")
    if lm.context == "stream":
        progress.note("context flows across lines in this model; readers of ARPA files begin each line anew")
    if not lm.normalised:
        progress.note(f"{lm.settings.smoothing} gives scores, which readers will take for probabilities")


def _unigrams(automaton: Automaton, number: Ints) -> Iterator[ArpaBlock]:
    """All words in the order of their ids, so that who reads them numbers them alike."""
    ids = np.flatnonzero(number != _LEFT_OUT)
    places = automaton.codes[ids]
    backoff = automaton.log_backoff.at(places, 0) if automaton.trie.order > 1 else None
    yield number[ids][:, None], automaton.log_prob.at(places, 0), backoff


def _ngrams(automaton: Automaton, n: int, number: Ints) -> Iterator[ArpaBlock]:
    trie = automaton.trie
    for first, last in trie.blocks(n):
        ids = number[automaton.words[trie.ngrams(first, last, n)]]
        if (ids == _LEFT_OUT).any():
            raise ArpaError(
                "the text had the word <unk>, and other words that the vocabulary lacks: ARPA files have one <unk> "
                "for both; train with every word of the text in the vocabulary"
            )
        places = np.arange(first, last) - 1
        backoff = automaton.log_backoff.at(places, n - 1) if n < trie.order else None
        yield ids, automaton.log_prob.at(places, n - 1), backoff
