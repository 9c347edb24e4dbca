"""Numba kernels that score a text: all n-grams of a length, then all that are a word longer."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from chainrule.ngram.store.compiled import ZERO, inner, kernel
from chainrule.ngram.store.kernels import (
    BLOCK,
    backoff_at,
    bits_at,
    children_of,
    find_by_index,
    find_child,
    search_children,
    value_at,
)
from chainrule.ngram.store.values import GRID_BITS


@njit(cache=True, nogil=True, error_model="numpy")
def score_text(text: Any, first: int, last: int, scores: Any, trie: Any, prob: Any, back: Any, log_alpha: Any,
               keeps_suffixes: Any) -> Any:  # fmt: skip
    """Write ln p of the words first to last - 1 of a text into `scores`, as `Automaton.score` defines it.

    `trie` is a TrieArrays; `prob` and `back` are the `Values` of log-probabilities and log-backoffs; `log_alpha`
    is that of the automaton, or None instead of 0: the kernel is then compiled without the code that adds it.
    `keeps_suffixes` says that an n-gram is in the trie only if it is there without its first word too: then many
    need not be searched for.
    """
    code, size, table, words, base, offset, rest, word_bits, index, bos = trie
    prob_plain, prob_codes, prob_books, prob_bits = prob
    back_plain, back_codes, back_books, back_bits = back
    order = table.shape[0] - 1
    most = BLOCK + order
    nodes = np.zeros((order + 1, most), np.int64)  # [n, s]: of the n words from position s on
    codes, longest = np.empty(most + order, np.int64), np.empty(most + order, np.int64)
    node_of_longest = np.empty(most + order, np.int64)
    begins, contexts, wanted = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    found, low, high = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    paid = np.empty((3, most * order), np.int64)  # backoffs to add: context node, position, context length
    touched: Any = 0
    for block in range(first, last, BLOCK):
        start = max(block - order + 1, 0)
        width = min(block + BLOCK, last) - start
        for s in range(width):
            codes[s] = code[np.uint64(text[start + s])]
        codes[width : width + order] = size  # "no word" after the end
        m = 0
        for s in range(width):
            known = codes[s] < size
            nodes[1, s] = codes[s] + 1 if known else 0
            longest[s], node_of_longest[s] = 1, nodes[1, s]
            begins[m] = s
            m += known
        for n in range(1, order):
            nodes[n + 1, :width] = 0
            here, longer = nodes[n], nodes[n + 1]
            if len(index) > 0:
                live = find_by_index(m, n, begins, codes, here, found, low, high, size, table[n + 1, 2], index)
            else:
                live = 0
                for k in range(m):
                    begins[live] = begins[k]
                    contexts[live] = here[np.uint64(begins[k])]
                    wanted[live] = codes[np.uint64(begins[k] + n)]
                    has_suffix = (not keeps_suffixes) | (here[np.uint64(begins[k] + 1)] > 0)
                    live += (wanted[live] < size) & has_suffix
                touched += search_children(live, contexts, wanted, found, n, table, size, words, word_bits, base,
                                           offset, rest, low, high)  # fmt: skip
            m = _note(live, n, begins, found, longer, longest, node_of_longest)
        due = 0
        if log_alpha is None:
            for t in range(block - start, width):
                for n in range(longest[t], min(longest[t - 1] + 1, order) if t > 0 else 0):
                    node = nodes[n, np.uint64(t - n)]
                    paid[0, due], paid[1, due], paid[2, due] = node, t, n
                    due += node > 0
        for t in range(block - start, width):
            node = max(node_of_longest[t], 1)
            value = value_at(node - 1, longest[t] - 1, prob_plain, prob_codes, prob_books, prob_bits)
            scores[start + t] = value if node_of_longest[t] > 0 else -np.inf
        for k in range(due if back_bits < GRID_BITS else 0):
            n = paid[2, k]
            scores[np.uint64(start + paid[1, k])] += value_at(
                paid[0, k] - 1, n - 1, back_plain, back_codes, back_books, back_bits
            )
        for k in range(due if back_bits == GRID_BITS else 0):
            n = paid[2, k]
            scores[np.uint64(start + paid[1, k])] += backoff_at(
                paid[0, k] - 1, n - 1, back_plain, back_codes, back_books, back_bits
            )
        if log_alpha is not None:
            _charge_alpha(block - start, width, codes, size, bos, longest, order, log_alpha, scores[start:])
    return touched


@njit(cache=True, nogil=True, error_model="numpy")
def _note(many: int, n: int, begins: Any, found: Any, longer: Any, longest: Any, node_of_longest: Any) -> Any:
    """Record the n-grams of n + 1 words that were found; their positions move to the front of `begins`.

    Returns the number of n-grams found.
    """
    still = 0
    for k in range(many):
        begin, child = np.uint64(begins[k]), found[k]
        longer[begin] = child
        last = begin + np.uint64(n)  # without a branch, which could not be predicted
        longest[last] = n + 1 if child > 0 else longest[last]
        node_of_longest[last] = child if child > 0 else node_of_longest[last]
        begins[still] = begins[k]
        still += child > 0
    return still


@njit(cache=True, nogil=True, error_model="numpy")
def _charge_alpha(first: int, last: int, codes: Any, size: int, bos: int, longest: Any, order: int, log_alpha: Any,
                  scores: Any) -> None:  # fmt: skip
    """Add ln α to the scores of first to last - 1 for each context from `longest` words on that the text has."""
    context = 0  # the number of words before, back to <s> or a gap
    for t in range(last):
        if t >= first:
            for _ in range(longest[t], min(context + 1, order)):
                scores[t] += log_alpha
        context = 0 if codes[t] >= size else (1 if codes[t] == bos else context + 1)


@njit(cache=True, nogil=True, error_model="numpy")
def lay_out(ids: Any, starts: Any, ends: Any, bos: int, text: Any) -> None:
    """Write the sequences of ids, each from a start to its end, into `text` with <s> before each."""
    n = 0
    for k in range(len(starts)):
        text[n] = bos
        n += 1
        for i in range(starts[k], ends[k]):
            text[n] = ids[i]
            n += 1


@njit(cache=True, nogil=True, error_model="numpy")
def take_back(starts: Any, ends: Any, scores: Any) -> Any:
    """Move the scores of all tokens but the <s> of `lay_out` to the front, in place; returns their number."""
    n = 0
    for k in range(len(starts)):
        for i in range(ends[k] - starts[k]):
            scores[n + i] = scores[n + k + 1 + i]
        n += ends[k] - starts[k]
    return n


# -- the words after a context ------------------------------------------------------------------------------


@kernel
def find_ends(words_BN: Any, trie: Any, ends_BN: Any) -> None:
    """Write the nodes of the last 1, 2, ... words of each row, from column 1 on; 0 where the trie has none.

    Column 0 is the greatest length of a context, which does not reach beyond <s>.
    """
    for row in range(len(words_BN)):
        words, ends = words_BN[row], ends_BN[row]
        ends[:] = 0
        for n in range(1, len(words) + 1):
            code = np.int64(trie.code[words[len(words) - n]])
            if code >= trie.size:
                break
            ends[0] = n
            if code == trie.bos:
                break
        for n in range(1, len(words) + 1):
            node = ZERO
            for k in range(n):
                code = np.int64(trie.code[words[len(words) - n + k]])
                node = _child_of(node, k, code, trie) if code < trie.size else ZERO
                if node == 0:
                    break
            ends[n] = node


@inner
def _child_of(node: int, n: int, code: int, trie: Any) -> Any:
    """Return the child of a node of n words by the code of the child's last word; 0 if there is none."""
    if n == 0:
        return np.int64(code) + 1
    first, last = children_of(node, n, trie.table, trie.base, trie.offset, trie.rest)
    return find_child(first, last, code, trie)


@kernel
def find_longest(ends_BN: Any, longest: Any) -> None:
    """Write the node of the longest suffix of each row into `longest`, given what `find_ends` wrote; 0 for none."""
    for row in range(len(ends_BN)):
        longest[row] = 0
        for n in range(1, ends_BN.shape[1]):
            if ends_BN[row, n] > 0:
                longest[row] = ends_BN[row, n]


@njit(cache=True, nogil=True, error_model="numpy")
def fill_next(ends_BN: Any, word_of_code: Any, log_probs: Any, trie: Any, prob: Any, back: Any) -> None:
    """Turn ln p without context, in each row [B, V] of `log_probs`, into ln p after the contexts of the row.

    `ends_BN` holds the nodes that `find_ends` finds. From short contexts to long ones, every word pays the backoff,
    and a word that was seen after the context gets its own probability.
    """
    table, words, word_bits = trie.table, trie.words, trie.word_bits
    prob_plain, prob_codes, prob_books, prob_bits = prob
    back_plain, back_codes, back_books, back_bits = back
    size = log_probs.shape[1]
    for row in range(len(ends_BN)):
        for n in range(1, ends_BN.shape[1]):
            node = ends_BN[row, n]
            if node == 0:
                continue
            cost = np.float64(backoff_at(node - 1, n - 1, back_plain, back_codes, back_books, back_bits))
            for word in range(size):
                log_probs[row, word] += cost
            first, last = children_of(node, n, table, trie.base, trie.offset, trie.rest)
            for child in range(first, last):
                code = bits_at(words, (child - table[2, 0]) * word_bits, word_bits)
                if code < size:  # a damaged file does not lead out of bounds
                    value = value_at(child - 1, n, prob_plain, prob_codes, prob_books, prob_bits)
                    log_probs[row, word_of_code[code]] = np.float64(value)


@njit(cache=True, nogil=True, error_model="numpy")
def fill_next_probs(
    ends_BN: Any, word_of_code: Any, without_context: Any, probs: Any, trie: Any, prob: Any, back: Any
) -> None:
    """Write p of every word after the contexts of each row into `probs` [B, V]: e to what `fill_next` computes.

    `without_context` is p of every word without context. Powers of e are taken of the words seen after a context
    alone: all others have that probability, times the backoffs of all contexts.
    """
    table, words, word_bits = trie.table, trie.words, trie.word_bits
    prob_plain, prob_codes, prob_books, prob_bits = prob
    back_plain, back_codes, back_books, back_bits = back
    size, reach = probs.shape[1], ends_BN.shape[1] - 1
    costs = np.zeros(reach + 1)  # [n]: ln of the backoffs of all contexts of more than n words
    for row in range(len(ends_BN)):
        for n in range(reach, 0, -1):
            node = ends_BN[row, n]
            cost = backoff_at(node - 1, n - 1, back_plain, back_codes, back_books, back_bits) if node > 0 else 0.0
            costs[n - 1] = costs[n] + np.float64(cost)
        factor = np.exp(costs[0])
        for word in range(size):
            probs[row, word] = without_context[word] * factor
        for n in range(1, reach + 1):
            if ends_BN[row, n] == 0:
                continue
            first, last = children_of(ends_BN[row, n], n, table, trie.base, trie.offset, trie.rest)
            for child in range(first, last):
                code = bits_at(words, (child - table[2, 0]) * word_bits, word_bits)
                if code < size:  # a damaged file does not lead out of bounds
                    value = value_at(child - 1, n, prob_plain, prob_codes, prob_books, prob_bits)
                    probs[row, word_of_code[code]] = np.exp(np.float64(value) + costs[n])
