"""Beam search by the kernels of writing: the arrays of a search, its call, and its results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from chainrule.contract.capabilities import Found, SearchRules
from chainrule.errors import ModelError
from chainrule.ngram.sampling.desk import Desk
from chainrule.ngram.sampling.search_kernels import NUMBERS, STEP, Finished, Hypotheses, Rule, search_text
from chainrule.ngram.sampling.stack_kernels import Plan
from chainrule.ngram.sampling.walk_kernels import find_all_ends
from chainrule.ngram.sampling.writer import Floats, Ints, Writer, plan_of
from chainrule.system.parallel import at_once, cores, stretches

_PIECE = 1 << 14  # hypotheses that are ranked in one call, so that an interrupt is noticed in between
_LINE = 32  # tokens, about as many as a text has that ends by itself


class _Task(NamedTuple):
    """What the kernel takes: see there."""

    until: int
    rule: Rule
    hypotheses: Hypotheses
    finished: Finished
    done_B: Ints


def search(
    writer: Writer, words_BN: Ints, rules: SearchRules, live_PW: Floats, lengths_PW: Ints
) -> list[list[Found]] | None:
    """What `capabilities.Offers.search` says; `words_BN` are the last words of each hypothesis."""
    texts, width = live_PW.shape
    steps = rules.limits if rules.end is None else np.minimum(rules.limits, _LINE)
    if not writer.is_ready(search_text, int(steps.sum()) * width):
        return None
    never = [*rules.forbid] if rules.end is None else [*rules.forbid, rules.end]
    operations = (("forbid", tuple(never)), ("top_k", width))
    plan = plan_of(operations, writer.automaton.codes, writer.automaton.log_alpha)
    assert plan is not None

    def search_some(some: tuple[int, int]) -> list[list[Found]]:
        desk = writer.take_desk(plan)
        found = []
        for text in range(*some):
            words = words_BN[text * width : (text + 1) * width]
            one = _Search(writer, words, rules, int(rules.limits[text]), live_PW[text], lengths_PW[text], never)
            one.run(desk, plan)
            found.append(one.results(rules))
        writer.put_back(desk)
        return found

    parts = at_once(search_some, stretches(texts, cores()))
    return [found for part in parts for found in part]


class _Search:
    """The search of one text."""

    def __init__(
        self, writer: Writer, words: Ints, rules: SearchRules, limit: int, live: Floats, lengths: Ints,
        never: Sequence[int],
    ) -> None:  # fmt: skip
        self.writer, self.words, self.never = writer, words, never
        width, order, best = len(live), writer.automaton.trie.order, rules.best
        divisors = rules.divisors
        self.task = _Task(
            0,
            Rule(
                -1 if rules.end is None or rules.end in rules.forbid else rules.end,
                rules.ending == "best",
                limit,
                float(divisors[limit + int(lengths.max())]),
                divisors,
            ),
            Hypotheses(
                live.astype(np.float64),
                lengths.astype(np.int64),
                np.zeros((width, order), np.int64),
                np.zeros((width, order), np.int64),
                np.zeros((limit, width), np.int32),
                np.zeros((limit, width), np.int32),
                np.zeros((width, width), np.int64),
                np.zeros((width, width)),
                np.zeros((width, 1)),
                np.zeros(width),
                np.zeros(width, np.int64),
                np.zeros(NUMBERS, np.int64),
            ),
            Finished(
                np.full(best, -math.inf),
                np.full(best, -math.inf),
                np.zeros(best, np.int64),
                np.zeros(best, np.int64),
                np.zeros(best, bool),
            ),
            np.zeros(width, np.int64),
        )
        find_all_ends(np.ascontiguousarray(words), writer.trie, self.task.hypotheses.ends_WN)

    def run(self, desk: Desk, plan: Plan) -> None:
        """Search to the end."""
        width, limit = len(self.task.done_B), self.task.rule.limit
        piece = max(_PIECE // width, 1)
        for until in range(piece, limit + piece, piece):
            task = self.task._replace(until=min(until, limit))
            while (row := desk.advance(search_text, task, (0, width), plan)) is not None:
                self._rank_plainly(row)

    def _rank_plainly(self, row: int) -> None:
        """Rank the next tokens of a hypothesis by the probabilities of all tokens."""
        made, rule, width = self.task.hypotheses, self.task.rule, len(self.task.done_B)
        step = int(made.numbers[STEP])
        place, tokens = self._trace(step, row, self.words.shape[1])
        history = np.concatenate([self.words[place], np.asarray(tokens, np.int64)])[len(tokens) :]
        log_probs = np.asarray(self.writer.automaton.next_after(history[None])[0], dtype=np.float64)
        if np.isnan(log_probs).any():
            raise ModelError("the model gives NaN: something in it has gone wrong")
        made.at_end_W1[row] = log_probs[rule.end] if rule.end >= 0 else 0.0
        log_probs[list(self.never)] = -math.inf
        order = np.argsort(-log_probs, kind="stable")[:width]
        made.next_WW[row], made.values_WW[row] = 0, -math.inf
        made.next_WW[row, : len(order)], made.values_WW[row, : len(order)] = order, log_probs[order]
        self.task.done_B[row] = step + 1

    def _trace(self, step: int, place: int, most: int) -> tuple[int, list[int]]:
        """Which hypothesis that of a place after a step was `most` steps before, and its tokens since then."""
        made, tokens = self.task.hypotheses, []
        for before in range(step - 1, max(step - most, 0) - 1, -1):
            tokens.append(int(made.tokens_TW[before, place]))
            place = int(made.parents_TW[before, place])
        return place, tokens[::-1]

    def results(self, rules: SearchRules) -> list[Found]:
        """The best hypotheses, finished or cut off at the greatest length."""
        rule, made, done = self.task.rule, self.task.hypotheses, self.task.finished
        found = []
        for rank, log_prob, step, place, is_ended in zip(*done, strict=True):
            if rank > -math.inf:
                first, tokens = self._trace(int(step), int(place), int(step))
                ids = (*tokens, rule.end) if is_ended else tuple(tokens)
                found.append((float(rank), Found(first, ids, float(log_prob), True)))
        if (step := int(made.numbers[STEP])) == rule.limit:
            for place in np.flatnonzero(made.live > -math.inf).tolist():
                first, tokens = self._trace(step, place, step)
                log_prob = float(made.live[place])
                rank = log_prob / rule.divisors[made.lengths[place]]
                found.append((float(rank), Found(first, tuple(tokens), log_prob, False)))
        found.sort(key=lambda item: item[0], reverse=True)
        return [one for _, one in found[: rules.best]]
