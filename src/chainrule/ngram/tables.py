"""Tables of the n-grams of a model, as lectures print them: continuations of a context, and words against words.

A model stores ln p of each n-gram, and the backoff of those that are contexts; it has their counts only if it was
trained with counts=true. Logarithms are to the base 10 here, as in ARPA files.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from chainrule.contract.capabilities import ContextRow
from chainrule.errors import TokenizerError
from chainrule.ngram.segments import insert_starts, segment_sums
from chainrule.ngram.store.automaton import Automaton
from chainrule.ngram.store.values import Values
from chainrule.system.disk.tables import frame
from chainrule.system.display import Part, ResultTable, cell, to_html
from chainrule.tokens.base import Tokenizer

if TYPE_CHECKING:
    import pandas

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_LN_10 = math.log(10)
_CONTEXTS_AT_ONCE = 4096

MOST_ROWS = 20
"""The continuations that a notebook shows, at most."""


@dataclass(frozen=True, repr=False)
class Continuations:
    """The n-grams of a model that begin with a context, the most probable first."""

    context: tuple[str, ...]
    """The tokens before, at most order - 1."""
    ids: Ints
    tokens: list[str]
    """The last token of each n-gram."""
    counts: Ints | None
    """How often each n-gram occurred; None if the model does not keep counts."""
    log10_prob: Floats
    """log10 p(token | context)."""
    log10_backoff: Floats
    """The log10 of the n-gram's backoff, a factor for words not seen after it; NaN for the longest n-grams."""

    def __len__(self) -> int:
        return len(self.tokens)

    def __repr__(self) -> str:
        return f"<{len(self):,} continuations of {' '.join(self.context) or 'nothing'}>"

    def _repr_html_(self) -> str:
        counted = {} if self.counts is None else {"count": self.counts.tolist()}
        columns: dict[str, Sequence[object]] = {"token": self.tokens, **counted, "p": self.probability.tolist()}
        rows = [[*map(cell, row)] for row in zip(*(one[:MOST_ROWS] for one in columns.values()), strict=True)]
        more = [f"{len(self) - len(rows):,} more"] if len(rows) < len(self) else []
        return to_html(
            [f"tokens after {' '.join(self.context) or 'nothing'}", ResultTable([*columns], rows), *more]
        )

    @property
    def probability(self) -> Floats:
        """p(token | context)."""
        return 10**self.log10_prob

    def to_frame(self) -> pandas.DataFrame:
        """Return a pandas table with a row for each n-gram; without counts if the model has none."""
        counted = {} if self.counts is None else {"count": self.counts}
        return frame(
            token=self.tokens,
            id=self.ids,
            **counted,
            probability=self.probability,
            log10_prob=self.log10_prob,
            log10_backoff=self.log10_backoff,
        )


@dataclass(frozen=True, repr=False)
class Bigrams:
    """Words against words: how often, and how probably, the word of a column follows that of a row."""

    words: list[str]
    counts: Ints | None
    """c(row column) as [row, column]; None if the model does not keep counts."""
    probabilities: Floats
    """p(column | row) as [row, column]."""

    def __repr__(self) -> str:
        return f"<Bigrams of {', '.join(self.words)}>"

    def _repr_html_(self) -> str:
        parts: list[Part] = []
        for title, values in (("c(row column)", self.counts), ("p(column | row)", self.probabilities)):
            if values is not None:
                rows = [[word, *map(cell, row)] for word, row in zip(self.words, values.tolist(), strict=True)]
                parts.append(ResultTable(["", *self.words], rows, title=title))
        return to_html(parts)

    def to_frame(self, *, counts: bool = False) -> pandas.DataFrame:
        """Return a pandas table of the probabilities, or of the counts: rows come first, columns follow."""
        if counts and self.counts is None:
            raise ValueError(WITHOUT_COUNTS)
        values = self.counts if counts and self.counts is not None else self.probabilities
        table = frame(**{str(number): column for number, column in enumerate(values.T)})
        table.index, table.columns = self.words, self.words
        return table


WITHOUT_COUNTS = "this model keeps no counts: train it with counts=true (--set counts=true) to have them"


def ids_of(tokenizer: Tokenizer, context: str | Sequence[str]) -> list[int]:
    """Return the ids of a text, or of tokens one by one, where <s>, </s> and <unk> are the special ones."""
    if isinstance(context, str):
        return [int(i) for i in tokenizer.encode(context)]
    special, ids = {"<s>": tokenizer.bos, "</s>": tokenizer.eos, "<unk>": tokenizer.unk}, []
    for token in context:
        known = special.get(token)
        found = tokenizer.encode(token) if known is None else [known]
        if len(found) != 1:
            raise TokenizerError(f"{token!r} is {len(found)} {tokenizer.name} tokens, not one")
        ids.append(int(found[0]))
    return ids


def continuations(automaton: Automaton, tokenizer: Tokenizer, context: Sequence[int]) -> Continuations:
    """List the n-grams of an automaton in NumPy that begin with a context; none if no n-gram has it."""
    trie = automaton.trie
    context = list(context)[max(0, len(context) - trie.order + 1) :]
    n, node = len(context), node_of(automaton, context)
    first, last = trie.children(np.asarray([node]), n) if n == 0 or node else (np.zeros(1), np.zeros(1))
    nodes = np.arange(int(first[0]), int(last[0]))
    ids = automaton.words[trie.word(nodes)] if len(nodes) else nodes
    nodes, ids = nodes[ids != tokenizer.bos], ids[ids != tokenizer.bos]  # <s> is never predicted
    log_prob = _values(automaton.log_prob, nodes, n)
    order = np.lexsort((ids, -log_prob))  # of equals, the more frequent word first
    nodes, ids, log_prob = nodes[order], ids[order], log_prob[order]
    is_longest = n + 1 == trie.order
    return Continuations(
        context=tuple(map(tokenizer.token, context)),
        ids=ids,
        tokens=[tokenizer.token(int(i)) for i in ids],
        counts=None if automaton.counts is None else automaton.counts[nodes - 1].astype(np.int64),
        log10_prob=log_prob / _LN_10,
        log10_backoff=(
            np.full(len(nodes), np.nan) if is_longest else _values(automaton.log_backoff, nodes, n) / _LN_10
        ),
    )


def context_rows(automaton: Automaton, tokenizer: Tokenizer) -> Iterator[ContextRow]:
    """Yield every n-gram after a context that cannot be longer, as a row; those at the start of a line come first.

    Such a context has N-1 words, or begins with <s>, which is repeated to fill up N-1 words, as lectures do.
    """
    trie, spelled = automaton.trie, tokenizer.token
    for n, first, last in _full_contexts(automaton, tokenizer.bos):
        for context in range(first, last, _CONTEXTS_AT_ONCE):
            contexts = np.arange(context, min(context + _CONTEXTS_AT_ONCE, last))
            begin, end = trie.children(contexts, n)
            nodes = np.arange(int(begin[0]), int(end[-1]))
            if not len(nodes):
                continue
            words = automaton.words[trie.ngrams(int(nodes[0]), int(nodes[-1]) + 1, n + 1)].tolist()
            p = np.exp(_values(automaton.log_prob, nodes, n)).tolist()
            counts = totals = [None] * len(nodes)
            if automaton.counts is not None:
                of_each = automaton.counts[nodes - 1].astype(np.int64)
                sums = segment_sums(of_each, np.append(begin, end[-1]) - begin[0]).astype(np.int64)
                counts, totals = of_each.tolist(), np.repeat(sums, end - begin).tolist()
            for (*before, word), count, total, probability in zip(words, counts, totals, p, strict=True):
                if word != tokenizer.bos:  # it is never predicted
                    start = [spelled(tokenizer.bos)] * (trie.order - 1 - n)
                    yield ContextRow((*start, *map(spelled, before)), spelled(word), count, total, probability)


def _full_contexts(automaton: Automaton, bos: int) -> Iterator[tuple[int, int, int]]:
    """Yield the lengths of contexts that cannot be longer, each with its first node, and one past its last."""
    trie = automaton.trie
    if trie.order == 1:
        yield 0, 0, 1
        return
    first = node_of(automaton, [bos])
    last = first + 1
    for n in range(1, trie.order - 1):  # the contexts that begin with <s> are neighbours
        yield n, first, last
        begin, end = trie.children(np.asarray([first, last - 1]), n)
        first, last = int(begin[0]), int(end[1])
    first, last = map(int, trie.first_of_length[trie.order - 1 : trie.order + 1])
    yield trie.order - 1, first, last


def ngram_lengths(automaton: Automaton, ids: Ints, starts: Ints, ends: Ints, bos: int) -> Ints:
    """Return the length of the longest n-gram of an automaton in NumPy that ends in each id of sequences.

    One that reaches back to the start of its sequence has the full length N, since <s> fills it up.
    """
    text, places = insert_starts(ids, starts[starts < ends], bos)
    lengths = np.zeros(len(ids), dtype=np.int64)
    for n, nodes in enumerate(automaton.matches(automaton.codes[text], automaton.trie.order), start=1):
        lengths[nodes[places] > 0] = n
    since_start = np.arange(len(ids)) - np.repeat(starts, ends - starts) + 2  # words, with <s> and the token itself
    lengths[lengths == since_start] = automaton.trie.order
    return lengths


def bigrams(automaton: Automaton, tokenizer: Tokenizer, ids: Sequence[int]) -> Bigrams:
    """Make the table of words against words, by an automaton in NumPy."""
    before = np.full((len(ids), max(automaton.trie.order - 1, 0)), automaton.trie.vocab_size, dtype=np.int64)
    before[:, -1:] = np.asarray(ids)[:, None]
    if not len(ids):
        return Bigrams([], None, np.zeros((0, 0)))
    log_probs = automaton.next_after(before)[:, ids]
    counts = None
    if automaton.counts is not None and automaton.trie.order > 1:
        nodes = np.asarray([[node_of(automaton, [row, column]) for column in ids] for row in ids])
        counts = np.where(nodes > 0, automaton.counts[np.maximum(nodes, 1) - 1].astype(np.int64), 0)
    return Bigrams([tokenizer.token(i) for i in ids], counts, np.exp(log_probs))


def _values(values: Values, nodes: Ints, row: int) -> Floats:
    return np.asarray(values.at(nodes - 1, row), dtype=np.float64)


def node_of(automaton: Automaton, ids: Sequence[int]) -> int:
    """Return the node of an n-gram; 0 if there is none, and for no words."""
    node = np.zeros(1, dtype=np.int64)
    for n, word in enumerate(ids):
        node = automaton.trie.child(node, n, automaton.codes[[word]])
        if node[0] == 0:
            return 0
    return int(node[0])
