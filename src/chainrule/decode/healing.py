"""Token healing: a prompt is text, and may stop inside a token of the text that it begins.

The tokens of "... the req" differ from those of "... the request", which the model has learned. So the model reads
only the ids that no continuation can change (`Tokenizer.stable_ids`). A *respelling* spells the rest of the prompt
again: tokens that are the rest, or that start with it. With tokens t that spell a prompt and more,

    p(continuation | prompt) = Σ p(t) over the t that spell both / Σ p(t) over the t that spell the prompt,

and a respelling is chosen with its share of the second sum. A tree holds the sum: each beginning of the rest is
followed by the tokens that the remainder starts with, and by the tokens that start with the remainder. A path is
dropped if it is less than e^-18 as likely as those found already, so that the shares are exact to seven digits.

Axes: F paths that are continued, R rows, V vocabulary.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from chainrule.arrays import PAD, pad, refuse_nan
from chainrule.contract.lm import LanguageModel, State, score_choices
from chainrule.decode.randomness import Uniforms
from chainrule.decode.sample import Choice
from chainrule.decode.strategies import Strategy
from chainrule.decode.top import top_of_row
from chainrule.tokens.spelling import Spelling

_MOST_PATHS = 64  # of one prompt, that are continued at once
_NEGLIGIBLE = -18.0  # ln of the share of a path that is left out
_FEW = 256  # tokens of which one is chosen without the rest of the vocabulary
_FEW_NUMBERS = 32  # which are added up faster one by one
_CELLS = 1 << 23  # of an array [R, V] that is made at once


@dataclass(frozen=True)
class Respelling:
    """Tokens that spell the rest of a prompt, and perhaps more."""

    ids: tuple[int, ...] = ()
    log_prob: float = 0.0
    """ln p of these tokens, given the text of the prompt."""
    adds: bool = False
    """True if the last token reaches beyond the end of the prompt."""

    @property
    def inside(self) -> int:
        """The number of tokens that add nothing to the prompt."""
        return len(self.ids) - self.adds


class _Node:
    """The first tokens of a respelling, and the tokens that can come next."""

    def __init__(self, spelling: Spelling, prompt: int, rest: bytes, log_prob: float = 0.0) -> None:
        """`rest` is the text of the prompt that is not spelled yet; `log_prob` is ln p of the tokens before."""
        self.spelling, self.prompt, self.rest, self.log_prob = spelling, prompt, rest, log_prob
        self.parts: dict[int, tuple[float, _Node]] = {}
        """Tokens that spell a part of the rest: ln p of each, and the node after it."""
        self.total = -math.inf
        """ln p of all respellings, after the tokens before; known when the tree has grown."""

    def possible(self) -> NDArray[np.int64]:
        """Return the tokens that can come next: first those that spell the rest to its end."""
        tokens, count = self.spelling.choices(self.rest)
        self.last = tokens[:count]
        return tokens

    def expand(self, tokens: NDArray[np.int64], log_probs: NDArray[np.floating]) -> float:
        """Store ln p of the tokens that can come next; return ln p of all that spell the rest to its end."""
        last = len(self.last)
        self.last_log_probs = log_probs[:last].astype(np.float64)
        for token, log_prob in zip(tokens[last:].tolist(), log_probs[last:].tolist(), strict=True):
            if log_prob > -math.inf:
                rest = self.rest[len(self.spelling.pieces[token]) :]
                self.parts[token] = log_prob, _Node(self.spelling, self.prompt, rest, self.log_prob + log_prob)
        self.total = _log_sum(self.last_log_probs)  # of the respellings that end here; the others are added later
        return self.log_prob + self.total

    def normalise(self, grown: Container[_Node]) -> None:
        """Turn ln p of the next tokens into shares; the nodes below must have theirs already."""
        self.parts = {token: (p, node) for token, (p, node) in self.parts.items() if node in grown}
        if not self.parts:
            self.tokens = self.last
            self.shares = self.last_log_probs - self.total if self.total > -math.inf else self.last_log_probs
            return
        log_probs = [log_prob + node.total for log_prob, node in self.parts.values()]
        every = np.concatenate([self.last_log_probs, np.asarray(log_probs, dtype=np.float64)])
        self.tokens = np.concatenate([self.last, np.asarray([*self.parts], dtype=np.int64)])
        self.total = _log_sum(every)
        self.shares = every - self.total if self.total > -math.inf else every

    def adds(self, token: int) -> bool:
        """Return True if a token spells more than the rest."""
        return len(self.spelling.pieces[token]) > len(self.rest)

    def after(self, token: int) -> _Node | None:
        """Return the node after a token; None if a respelling ends there."""
        return self.parts[token][1] if token in self.parts else None

    def nodes(
        self, ids: tuple[int, ...] = (), share: float = 0.0
    ) -> Iterator[tuple[_Node, tuple[int, ...], float]]:
        """Yield this node and those below it, with the tokens before each and ln of their share."""
        yield self, ids, share
        for (token, (_, node)), own in zip(self.parts.items(), self.shares[len(self.last) :], strict=True):
            yield from node.nodes((*ids, token), share + float(own))


@dataclass(frozen=True)
class Respellings:
    """The respellings of one prompt."""

    stable: list[int]
    """The ids of the prompt that the model reads before a respelling."""
    rest: bytes = b""
    """The end of the prompt, which a respelling spells."""
    root: _Node | None = None
    """The tree of respellings; None if nothing is left to spell."""

    def best(self, count: int) -> list[Respelling]:
        """Return the most likely respellings, the best first."""
        if self.root is None:
            return [Respelling()]
        every = [*self.root.nodes()]
        log_probs = np.concatenate([node.shares[: len(node.last)] + share for node, _, share in every])
        ends = [*accumulate(len(node.last) for node, _, _ in every)]
        found: list[Respelling] = []
        for place in top_of_row(log_probs, count).tolist():
            which = bisect_right(ends, place)
            node, ids, _ = every[which]
            token = int(node.last[place - ends[which]])  # counted from the end of the node's own
            if log_probs[place] > -math.inf:
                found.append(Respelling((*ids, token), float(log_probs[place]), node.adds(token)))
        return found


def find_respellings(
    lm: LanguageModel,
    prompts: Sequence[str],
    *,
    heal: bool = True,
    read: Callable[[list[list[int]]], State] | None = None,
) -> tuple[State, list[Respellings]]:
    """Return the state after the stable ids of each prompt, and the respellings of each.

    All ids of a prompt count as stable without `heal`, or if no possible tokens spell its rest. `read` returns the
    state after rows of ids; a caller who keeps states passes it.
    """
    spelling = lm.tokenizer.spelling if heal else None
    cut = [lm.tokenizer.stable_ids(prompt) if spelling else (_ids(lm, prompt), b"") for prompt in prompts]
    stable = [ids for ids, _ in cut]
    state = lm.extend(lm.start(len(cut)), pad(stable)) if read is None else read(stable)
    open_rows = [row for row, (_, rest) in enumerate(cut) if rest]
    if spelling is None or not open_rows:
        return state, [Respellings(ids) for ids in stable]
    roots = {row: _Node(spelling, row, cut[row][1]) for row in open_rows}
    _grow(lm, state.select(np.asarray(open_rows)), [*roots.values()])
    found, missing = [], []
    for row, (own, rest) in enumerate(cut):
        root = roots.get(row)
        is_possible = root is not None and root.total > -math.inf
        ids = own if is_possible or not rest else _ids(lm, prompts[row])
        missing.append(ids[len(own) :])
        found.append(Respellings(ids, rest, root) if is_possible else Respellings(ids))
    return lm.extend(state, pad(missing)) if any(missing) else state, found


def respell(
    lm: LanguageModel, state: State, respellings: Sequence[Respellings], strategy: Strategy, uniforms: Uniforms
) -> tuple[State, list[Respelling], list[list[int]]]:
    """Choose a respelling for each row; return the state after them, them, and the ids that each row has read."""
    drawn = draw_respellings(respellings, strategy, uniforms, lm.tokenizer.vocab_size)
    read = [[*found.stable, *respelling.ids] for found, respelling in zip(respellings, drawn, strict=True)]
    return lm.extend(state, pad([respelling.ids for respelling in drawn])), drawn, read


def draw_respellings(
    respellings: Sequence[Respellings], strategy: Strategy, uniforms: Uniforms, vocab_size: int
) -> list[Respelling]:
    """Choose a respelling for each row by the strategy, token by token; rows are those of the random numbers."""
    drawn = [Respelling() for _ in respellings]
    at = {row: found.root for row, found in enumerate(respellings) if found.root is not None}
    while at:
        forced = {row: int(node.tokens[0]) for row, node in at.items() if len(node.tokens) == 1}
        chosen = {row: (token, 0.0) for row, token in forced.items()}  # no random number is used up for them
        for rows in slices(np.asarray([row for row in at if row not in forced]), max(1, _CELLS // vocab_size)):
            nodes = [at[row] for row in rows.tolist()]
            read = [[*respellings[row].stable, *drawn[row].ids] for row in rows.tolist()]
            found = _choose(nodes, read, strategy, uniforms.draw(rows, 1)[:, 0], vocab_size)
            chosen |= dict(zip(rows.tolist(), found, strict=True))
        for row, (token, share) in chosen.items():
            drawn[row] = Respelling((*drawn[row].ids, token), drawn[row].log_prob + share, at[row].adds(token))
        following = {row: at[row].after(token) for row, (token, _) in chosen.items()}
        at = {row: node for row, node in following.items() if node is not None}
    return drawn


def _choose(
    nodes: Sequence[_Node], read: list[list[int]], strategy: Strategy, uniforms_R: np.ndarray, vocab_size: int
) -> list[tuple[int, float]]:
    """Choose a next token for each row; return it with ln of its share."""
    operations = strategy.operations()
    is_plain = operations is not None and all(name == "forbid" for name, _ in operations)
    if is_plain and all(len(node.tokens) <= _FEW for node in nodes):  # to sort more would take longer than it saves
        forbidden = [token for _, tokens in operations or () for token in tokens]
        return [_drawn(node, forbidden, u) for node, u in zip(nodes, uniforms_R.tolist(), strict=True)]
    is_open = np.zeros(vocab_size, dtype=bool)  # marking takes less time than sorting: a space opens most tokens
    for node in nodes:
        is_open[node.tokens] = True
    tokens_V = np.flatnonzero(is_open)
    narrowed = strategy.among(tokens_V)
    if narrowed is None:  # it looks at the other tokens, too
        tokens_V, narrowed = np.arange(vocab_size), strategy
    place = np.zeros(vocab_size, dtype=np.int64)
    place[tokens_V] = np.arange(len(tokens_V))
    shares_RV = np.full((len(nodes), len(tokens_V)), -math.inf)
    for row, node in enumerate(nodes):
        shares_RV[row, place[node.tokens]] = node.shares
    active_R = np.ones(len(nodes), dtype=bool)
    places_R = Choice(narrowed, None)(shares_RV, uniforms_R, active_R, lambda: pad(read))[0]
    # a strategy that forbids every token does not make the prompt another one
    places_R = np.where(places_R == PAD, np.argmax(shares_RV, axis=1), places_R)
    shares_R = shares_RV[np.arange(len(nodes)), places_R]
    return list(zip(tokens_V[places_R].tolist(), shares_R.tolist(), strict=True))


def _drawn(node: _Node, forbidden: Sequence[int], u: float) -> tuple[int, float]:
    """Draw a token in proportion to its share, as `_choose` does if the strategy changes nothing."""
    pairs = sorted(zip(node.tokens.tolist(), node.shares.tolist(), strict=True))
    open_pairs = [(token, share) for token, share in pairs if token not in forbidden and share > -math.inf]
    if not open_pairs:  # forbidding every token does not make the prompt another one
        return max(pairs, key=lambda pair: pair[1])
    weights = [math.exp(share) for _, share in open_pairs]
    left = u * sum(weights)
    for pair, weight in zip(open_pairs, weights, strict=True):
        left -= weight
        if left < 0:
            return pair
    return open_pairs[-1]


def _grow(lm: LanguageModel, state: State, roots: list[_Node]) -> None:
    """Grow the trees of respellings: all prompts together, one token at a time."""
    found = {root.prompt: -math.inf for root in roots}
    grown: dict[_Node, None] = {}
    frontier = roots
    while frontier:
        possible = [node.possible() for node in frontier]
        rows = np.repeat(np.arange(len(frontier)), [len(tokens) for tokens in possible])
        log_probs = score_choices(lm, state, rows, np.concatenate(possible)) if len(rows) else np.zeros(0)
        refuse_nan(log_probs)
        ends = np.cumsum([len(tokens) for tokens in possible])
        for node, tokens, end in zip(frontier, possible, ends.tolist(), strict=True):
            total = node.expand(tokens, log_probs[end - len(tokens) : end])
            found[node.prompt] = np.logaddexp(found[node.prompt], total)
        grown |= dict.fromkeys(frontier)
        below = [
            (row, token, child)
            for row, node in enumerate(frontier)
            for token, (_, child) in node.parts.items()
            if child.log_prob > found[node.prompt] + _NEGLIGIBLE
        ]
        below = _most_likely(below)
        frontier = [child for _, _, child in below]
        if below:
            rows, tokens = (np.asarray([entry[i] for entry in below]) for i in (0, 1))
            state = lm.extend(state.select(rows), tokens[:, None])
    for node in reversed(grown):
        node.normalise(grown)


def _most_likely(below: list[tuple[int, int, _Node]]) -> list[tuple[int, int, _Node]]:
    """Return the most likely paths of each prompt, _MOST_PATHS at most."""
    counts: Counter[int] = Counter()
    kept = []
    for entry in sorted(below, key=lambda entry: -entry[2].log_prob):
        counts[entry[2].prompt] += 1
        if counts[entry[2].prompt] <= _MOST_PATHS:
            kept.append(entry)
    return kept


def _ids(lm: LanguageModel, prompt: str) -> list[int]:
    ids: list[int] = lm.tokenizer.encode(prompt).tolist()
    return ids


def slices(rows: NDArray[np.int64], size: int) -> Iterator[NDArray[np.int64]]:
    """Yield some rows at a time."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def _log_sum(log_probs: NDArray[np.float64]) -> float:
    """ln Σ e^x."""
    if len(log_probs) <= _FEW_NUMBERS:
        few = log_probs.tolist()
        most = max(few, default=-math.inf)
        return most if most == -math.inf else most + math.log(sum(math.exp(x - most) for x in few))
    best = float(log_probs.max())
    return best if best == -math.inf else best + math.log(float(np.exp(log_probs - best).sum()))
