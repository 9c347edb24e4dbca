"""Beam search by kernels: the arrays of a search, its calls, and its results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from chainrule.contract.capabilities import Found, SearchRules
from chainrule.errors import ModelError
from chainrule.ngram.sampling.beam_kernels import COLUMNS, NUMBERS, STEP, Hypotheses, Rule, search_text
from chainrule.ngram.sampling.sampler import Floats, Ints, NgramSampler
from chainrule.ngram.sampling.stack_kernels import Plan
from chainrule.ngram.sampling.workspace import Workspace
from chainrule.system.parallel import at_once, cores, stretches

_PIECE = 1 << 14  # hypotheses that are ranked in one call, so that an interrupt is noticed in between
_LINE = 32  # tokens, about as many as a text has that ends by itself


class _Task(NamedTuple):
    """The arguments of the kernel: see there."""

    until: int
    rule: Rule
    hypotheses: Hypotheses
    finished_RC: Floats
    done_B: Ints


def search(
    sampler: NgramSampler, words_BN: Ints, rules: SearchRules, live_PW: Floats, lengths_PW: Ints
) -> list[list[Found]] | None:
    """Search as `capabilities.Offers.search` says; `words_BN` are the last words of each hypothesis."""
    texts, width = live_PW.shape
    steps = rules.limits if rules.end is None else np.minimum(rules.limits, _LINE)
    never = [*rules.forbid] if rules.end is None else [*rules.forbid, rules.end]
    operations = (("forbid", tuple(never)), ("top_k", width))
    plan = sampler.plan(search_text, operations, int(steps.sum()) * width)
    if plan is None:
        return None

    def search_some(some: tuple[int, int]) -> list[list[Found]]:
        workspace = sampler.take_workspace(plan)
        found = []
        for text in range(*some):
            words = words_BN[text * width : (text + 1) * width]
            one = _Search(sampler, words, rules, int(rules.limits[text]), live_PW[text], lengths_PW[text], never)
            one.run(workspace, plan)
            found.append(one.results(rules))
        sampler.put_back(workspace)
        return found

    parts = at_once(search_some, stretches(texts, cores()))
    return [found for part in parts for found in part]


class _Search:
    """The search of one text."""

    def __init__(
        self, sampler: NgramSampler, words: Ints, rules: SearchRules, limit: int, live: Floats, lengths: Ints,
        never: Sequence[int],
    ) -> None:  # fmt: skip
        self.sampler, self.words, self.never = sampler, words, never
        width, ends_WN = len(live), sampler.automaton.ends_fast(words)
        end = -1 if rules.end is None or rules.end in rules.forbid else rules.end
        last_divisor = float(rules.divisors[limit + int(lengths.max())])
        self.task = _Task(
            0,
            Rule(end, rules.ending == "best", limit, last_divisor, rules.divisors),
            Hypotheses(
                live.astype(np.float64),
                lengths.astype(np.int64),
                ends_WN,
                np.zeros_like(ends_WN),
                np.zeros((limit, width), np.int32),
                np.zeros((limit, width), np.int32),
                np.zeros((width, width), np.int64),
                np.zeros((width, width)),
                np.zeros(width),
                np.zeros(width),
                np.zeros(width, np.int64),
                np.zeros(NUMBERS, np.int64),
            ),
            np.full((rules.best, COLUMNS), -math.inf),
            np.zeros(width, np.int64),
        )

    def run(self, workspace: Workspace, plan: Plan) -> None:
        """Search to the end."""
        width, limit = len(self.task.done_B), self.task.rule.limit
        piece = max(_PIECE // width, 1)
        for until in range(piece, limit + piece, piece):
            task = self.task._replace(until=min(until, limit))
            while (row := workspace.advance(search_text, task, (0, width), plan)) is not None:
                self._rank_slowly(row)

    def _rank_slowly(self, row: int) -> None:
        """Rank the next tokens of a hypothesis by the probabilities of all tokens."""
        made, rule, width = self.task.hypotheses, self.task.rule, len(self.task.done_B)
        step = int(made.numbers[STEP])
        place, tokens = self._trace(step, row, self.words.shape[1])
        history = np.concatenate([self.words[place], np.asarray(tokens, np.int64)])[len(tokens) :]
        log_probs = np.asarray(self.sampler.automaton.next_after(history[None])[0], dtype=np.float64)
        if np.isnan(log_probs).any():
            raise ModelError("the model gives NaN: something in it has gone wrong")
        made.at_end_W[row] = log_probs[rule.end] if rule.end >= 0 else 0.0
        log_probs[list(self.never)] = -math.inf
        order = np.argsort(-log_probs, kind="stable")[:width]
        made.next_WW[row], made.values_WW[row] = 0, -math.inf
        made.next_WW[row, : len(order)], made.values_WW[row, : len(order)] = order, log_probs[order]
        self.task.done_B[row] = step + 1

    def _trace(self, step: int, place: int, most: int) -> tuple[int, list[int]]:
        """Follow a hypothesis back by `most` steps from its place after a step; returns its place and tokens."""
        made, tokens = self.task.hypotheses, []
        for before in range(step - 1, max(step - most, 0) - 1, -1):
            tokens.append(int(made.tokens_TW[before, place]))
            place = int(made.parents_TW[before, place])
        return place, tokens[::-1]

    def results(self, rules: SearchRules) -> list[Found]:
        """Return the best hypotheses, finished or cut off at the greatest length."""
        rule, made = self.task.rule, self.task.hypotheses
        found = []
        for rank, log_prob, step, place, is_ended in self.task.finished_RC.tolist():
            if rank > -math.inf:
                first, tokens = self._trace(int(step), int(place), int(step))
                ids = (*tokens, rule.end) if is_ended else tuple(tokens)
                found.append((rank, Found(first, ids, log_prob, True)))
        if (step := int(made.numbers[STEP])) == rule.limit:
            for place in np.flatnonzero(made.live > -math.inf).tolist():
                first, tokens = self._trace(step, place, step)
                log_prob = float(made.live[place])
                rank = log_prob / rule.divisors[made.lengths[place]]
                found.append((float(rank), Found(first, tuple(tokens), log_prob, False)))
        found.sort(key=lambda item: item[0], reverse=True)
        return [one for _, one in found[: rules.best]]
