"""Models from ARPA files, and ARPA files from models: exchange with KenLM, SRILM and similar toolkits.

An ARPA file is a model of words, and its readers split text at white space. So a model that is read gets a word
tokenizer, and only models of word tokens can be written. Where the format leaves a choice:

    <unk>               the tokenizer's own; if the file lacks it, it has probability 10^-100, as in KenLM
    <s>, </s>           the tokenizer's own; one that the file lacks gets probability 0
    <s>                 is never predicted, whatever the file says; n-grams with <s> after a word are left out
    a missing context   is filled in: its probability is what backing off gives, and its own backoff weight is 1
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from chainrule._version import __version__
from chainrule.contract.lm import Context, LanguageModel
from chainrule.errors import ArpaError, ModelError
from chainrule.folder.integrity import sha256
from chainrule.ngram.arpa.numbers import LN10, ZERO
from chainrule.ngram.arpa.reading import ArpaLevel, ArpaModel, read_arpa
from chainrule.ngram.arpa.writing import ArpaBlock, write_arpa
from chainrule.ngram.ngram_model import NgramModel
from chainrule.ngram.segments import segment_sums
from chainrule.ngram.settings import NgramSettings, Smoothing
from chainrule.ngram.store.automaton import Automaton
from chainrule.ngram.store.codes import codes_of_words
from chainrule.ngram.store.parts import Parts
from chainrule.system.progress import SILENT, Progress, Reports, as_progress
from chainrule.tokens.base import Tokenizer
from chainrule.tokens.words.tokenizer import WordTokenizer

Ints = NDArray[np.int64]

_SPECIAL = (b"<unk>", b"<s>", b"</s>")
"""The spelling, in a file, of the ids 0, 1 and 2 of a word tokenizer."""
_UNK, _BOS = 0, 1
_UNLISTED = -100 * LN10
"""ln p of <unk> where a file lacks it: KenLM's, and below every number that the format has."""
_ROUNDING = 1e-3  # how far above 0 the logarithm of a rounded probability may be
_MOST_SUSPECTS = 4096
_CELLS_AT_ONCE = 1 << 24
_LEFT_OUT = -1


def load_arpa(
    path: str | Path, *, context: Context = "line", encoding: str = "utf-8", progress: Reports = False
) -> NgramModel:
    """Return the model of an ARPA file, plain or gzip; it can be saved like any other.

    See `save_arpa` for an example.
    """
    path = Path(path)
    progress = as_progress(progress)
    lm = from_arpa(read_arpa(path, progress, encoding), context, progress)
    # a pipe can be read only once
    checksum = sha256(path) if path.is_file() else None
    lm.provenance = {"arpa": path.name, "arpa_sha256": checksum, "chainrule": __version__}
    return lm


def from_arpa(arpa: ArpaModel, context: Context = "line", progress: Progress = SILENT) -> NgramModel:
    """Return the model of the contents of an ARPA file."""
    tokenizer = WordTokenizer([word for word in arpa.words if word not in _SPECIAL])
    levels = _without_bos_inside(arpa, progress)
    with progress.task(f"linking {sum(len(level.ids) for level in levels):,} n-grams"):
        automaton = _automaton(levels, _ids_of(arpa.words), tokenizer.vocab_size)
    smoothing: Smoothing = "imported" if no_probability_exceeds_one(automaton) else "imported-scores"
    if smoothing == "imported-scores":
        progress.note("its backoffs make probabilities above one: the model gives scores")
    settings = NgramSettings(order=automaton.trie.order, smoothing=smoothing)
    lm = NgramModel(automaton, tokenizer, settings, context)
    lm.metrics = {"ngrams": np.diff(automaton.trie.first_of_length)[1:].tolist()}
    return lm


def save_arpa(lm: LanguageModel, path: str | Path, *, overwrite: bool = False, progress: Reports = False) -> None:
    """Write an n-gram model of word tokens as an ARPA file; a name that ends in .gz makes a compressed one.

    >>> import chainrule as cr
    >>> import tempfile
    >>> lm = cr.train("ngram", ["i love cats", "i love dogs"] * 3, order=2, tokenizer="word")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     cr.save_arpa(lm, f"{folder}/model.arpa")
    ...     same = cr.load_arpa(f"{folder}/model.arpa")
    >>> same.perplexity("i love cats") == lm.perplexity("i love cats")
    True
    """
    if not isinstance(lm, NgramModel):
        raise ModelError("only n-gram models of bounded order can be written as ARPA files")
    if lm.tokenizer.splitting is None:
        raise ArpaError(
            f"ARPA files are models of words, which readers split at white space: a model of {lm.tokenizer.name} "
            "tokens cannot be written; train one with --tokenizer word"
        )
    progress = as_progress(progress)
    automaton = lm.on("cpu").automaton
    words, number = _spelling(lm.tokenizer, automaton, progress)
    _note_losses(lm, progress)
    trie = automaton.trie
    sizes = [len(words), *np.diff(trie.first_of_length)[2:].tolist()]
    levels = [_unigrams(automaton, number), *(_ngrams(automaton, n, number) for n in range(2, trie.order + 1))]
    write_arpa(path, words, levels, sizes, progress, overwrite)


# -- from a file ------------------------------------------------------------------------------------------


def _ids_of(words: list[bytes]) -> Ints:
    """Return the id of each word of a file: special words have fixed ids, the others follow in file order."""
    special = np.fromiter((word in _SPECIAL for word in words), dtype=bool, count=len(words))
    ids = np.cumsum(~special) + len(_SPECIAL) - 1
    ids[special] = [_SPECIAL.index(words[place]) for place in np.flatnonzero(special).tolist()]
    return ids


def _without_bos_inside(arpa: ArpaModel, progress: Progress) -> list[ArpaLevel]:
    """Leave out n-grams with <s> after a word, which no text has, and then empty levels at the end."""
    levels, dropped = list(arpa.levels), 0
    bos = arpa.words.index(_SPECIAL[_BOS]) if _SPECIAL[_BOS] in arpa.words else _LEFT_OUT
    for place, level in enumerate(levels):
        inside = (level.ids[:, 1:] == bos).any(axis=1)
        if inside.any():
            dropped += int(inside.sum())
            levels[place] = ArpaLevel(level.ids[~inside], level.log_prob[~inside], level.log_backoff[~inside])
    while len(levels) > 1 and not len(levels[-1].ids):
        levels.pop()
    if dropped:
        progress.note(f"n-grams left out because <s> stands after a word in them, which it never does: {dropped:,}")
    return levels


def _automaton(levels: list[ArpaLevel], ids: Ints, size: int) -> Automaton:
    """Return the automaton of the levels of a file; `ids` maps words of the file to ids below `size`.

    Goes from short n-grams to long ones and sorts each level as estimate/levels.py says. For n words, `keys` holds
    the n-grams listed and the first n words of every longer one, each as (index of the first n-1 words, code of the
    last): those that are not listed are the contexts to fill in.
    """
    code = codes_of_words(size).astype(np.int64)
    code_of = code[ids]
    places = [code_of[level.ids[:, 0]] for level in levels]
    log_prob, log_backoff = [_scattered(places[0], levels[0].log_prob, size, -np.inf)], []
    log_prob[0][code[_BOS]] = -np.inf
    if _UNK not in ids:
        log_prob[0][code[_UNK]] = _UNLISTED
    log_backoff.append(_scattered(places[0], levels[0].log_backoff, size, 0.0))
    words, begins, filled = [], [], []
    for n in range(2, len(levels) + 1):
        keys = [places[k] * size + code_of[levels[n - 2 + k].ids[:, n - 1]] for k in range(1, len(places))]
        complete, missing = _complete(keys)
        places = [np.searchsorted(complete, key) for key in keys]
        begins.append(np.searchsorted(complete, np.arange(len(log_prob[-1]) + 1) * size))
        words.append((complete % size).astype(np.uint32))
        log_prob.append(_scattered(places[0], levels[n - 1].log_prob, len(complete), -np.inf))
        log_backoff.append(_scattered(places[0], levels[n - 1].log_backoff, len(complete), 0.0))
        filled.append(missing)
    parts = Parts(size, _BOS, words, begins, np.concatenate(log_prob),
                  np.concatenate([np.zeros(0, np.float32), *log_backoff[:-1]]))  # fmt: skip
    return _backed_off(parts, filled)


def _scattered(places: Ints, values: NDArray[np.float32], size: int, otherwise: float) -> NDArray[np.float32]:
    """Return an array of `size` values: `values` at the indices `places`, and `otherwise` elsewhere."""
    array = np.full(size, otherwise, dtype=np.float32)
    array[places] = values
    return array


def _complete(keys: Sequence[Ints]) -> tuple[Ints, Ints]:
    """Return the sorted keys of a level, listed or only in longer n-grams; and the indices of those not listed.

    `keys[0]` are the listed ones, the others come from longer n-grams.
    """
    listed = np.sort(keys[0])
    padded = np.append(listed, -1)
    missing = [key[padded[np.searchsorted(listed, key)] != key] for key in keys[1:]]
    added = np.unique(np.concatenate([np.zeros(0, np.int64), *missing]))
    before = np.searchsorted(listed, added)
    return np.insert(listed, before, added), before + np.arange(len(added))


def _backed_off(parts: Parts, filled: list[Ints]) -> Automaton:
    """Assemble the parts, and give n-grams that were filled in the probability of backing off, short ones first.

    p(w | h) = backoff(h) · p(w | h')

    `filled` holds, for each length from 2 on, their indices in the level.
    """
    automaton = parts.assemble()
    trie = automaton.trie
    for n, places in enumerate(filled, start=2):
        if not len(places):
            continue
        nodes = places + int(trie.first_of_length[n])
        words = automaton.words_of(nodes)[:, -n:]  # all are contexts, which `words_of` takes as states
        backoff = automaton.log_backoff.at(trie.parent(nodes, n) - 1, n - 2)
        # the automaton shares this array; a backoff above 1 must not make a probability above 1
        parts.log_prob[nodes - 1] = np.minimum(backoff + automaton.last_word_scores(words[:, 1:]), 0.0)
    return automaton


def no_probability_exceeds_one(automaton: Automaton) -> bool:
    """Return True if no word is more than certain after a context; only a positive log-backoff can make it so.

    Files with such backoffs exist (KenLM's own lm/test.arpa), and KenLM scores with them as they are.
    """
    trie = automaton.trie
    for n in range(1, trie.order):
        nodes = np.arange(trie.first_of_length[n], trie.first_of_length[n + 1])
        nodes = nodes[automaton.log_backoff.at(nodes - 1, n - 1) > 0]
        total = _sums_after(automaton, nodes, n)
        # a probability above one makes a sum above one: the contexts with the largest sums are looked at closely
        suspects = nodes[np.argsort(-total, kind="stable")[: min(_MOST_SUSPECTS, int((total > 1).sum()))]]
        for some in np.array_split(suspects, 1 + suspects.size * trie.vocab_size // _CELLS_AT_ONCE):
            if (automaton.next_log_probs(some) > _ROUNDING).any():
                return False
    return True


def _sums_after(automaton: Automaton, contexts: Ints, n: int) -> NDArray[np.float64]:
    """Return Σ_w p(w | h) = Σ_seen p(w | h) + backoff(h) (1 - Σ_seen p(w | h')) for contexts h of n words."""
    trie = automaton.trie
    begin, end = trie.children(contexts, n)
    bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(end - begin)])
    children = np.arange(bounds[-1]) + np.repeat(begin - bounds[:-1], end - begin)
    shorter = np.repeat(automaton.words_of(contexts)[:, trie.order - n :], end - begin, axis=0)
    words = np.concatenate([shorter, automaton.words[trie.word(children)][:, None]], axis=1)
    own = np.exp(automaton.log_prob.at(children - 1, n).astype(np.float64))
    lower = np.exp(automaton.last_word_scores(words))
    backoff = np.exp(automaton.log_backoff.at(contexts - 1, n - 1).astype(np.float64))
    sums: NDArray[np.float64] = segment_sums(own, bounds) + backoff * (1 - segment_sums(lower, bounds))
    return sums


# -- to a file --------------------------------------------------------------------------------------------


def _spelling(tokenizer: Tokenizer, automaton: Automaton, progress: Progress) -> tuple[list[bytes], Ints]:
    """Return the words of the file, and the index of each id among them (-1 if it is left out).

    If the text itself contains the word <unk>, as WikiText does, that word is written as <unk>; the tokenizer's own
    unknown word, which then stands for next to nothing, is left out. So is one that came from a file without <unk>.
    """
    words = [*_SPECIAL, *tokenizer.spellings]
    number = np.arange(len(words))
    if _SPECIAL[_UNK] in tokenizer.spellings:
        progress.note(
            "the vocabulary has the word <unk>: it is written as the unknown word; the model's own one is left out"
        )
        return words[1:], number - 1
    unknown = float(automaton.log_prob.at(automaton.codes[[_UNK]], 0)[0])
    if -np.inf < unknown <= ZERO * LN10:
        return words[1:], number - 1
    return words, number


def _note_losses(lm: NgramModel, progress: Progress) -> None:
    if lm.tokenizer.splitting != "whitespace":
        progress.note(f"readers split text at white space: have it split as {lm.tokenizer.name} does beforehand")
    if lm.context == "stream":
        progress.note("context flows across lines in this model; readers of ARPA files begin each line anew")
    if not lm.normalised:
        also = "; contexts that were never seen cost α here, and nothing there" if lm.automaton.log_alpha else ""
        progress.note(f"{lm.settings.smoothing} gives scores, which readers will take for probabilities{also}")


def _unigrams(automaton: Automaton, number: Ints) -> Iterator[ArpaBlock]:
    """Yield the unigrams in the order of their ids, so that a model read from the file has the same ids."""
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
