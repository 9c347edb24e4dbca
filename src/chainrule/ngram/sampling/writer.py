"""What strategies are to the kernels, and the call of those that write with an automaton."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from chainrule.arrays import PAD
from chainrule.contract.capabilities import Choose
from chainrule.ngram.sampling.desk import Desks, Source, choose_plainly
from chainrule.ngram.sampling.stack_kernels import Plan
from chainrule.ngram.sampling.step_kernels import MIN_P, TOP_K, TOP_P, write_rows
from chainrule.ngram.sampling.walk_kernels import find_all_ends
from chainrule.ngram.store.automaton import Automaton
from chainrule.system.parallel import at_once, cores, stretches

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Operations = tuple[tuple[str, Any], ...]

_NARROWING = {"top_k": TOP_K, "top_p": TOP_P, "min_p": MIN_P}
_NOTHING_DONE = {("top_p", 1.0), ("min_p", 0.0)}

_WORTH_A_THREAD = 256  # tokens


def plan_of(operations: Operations | None, codes: Any = None, log_alpha: float = 0.0) -> Plan | None:
    """The plan of operations; None if one is not known, or changes single tokens after another operation.

    `codes` are those of the tokens, if they are not the tokens themselves; `log_alpha` is that of stupid backoff.
    """
    if operations is None:
        return None
    forbidden: list[int] = []
    penalties: list[tuple[str, float]] = []
    temperatures: list[float] = []
    narrowing: list[tuple[int, float, float, int]] = []
    beta = 1.0
    for name, value in operations:
        if name == "temperature":
            temperatures.append(value)
            beta /= value
        elif name in _NARROWING:
            if (name, value) not in _NOTHING_DONE:
                narrowing.append((_NARROWING[name], value, beta, len(temperatures)))
        elif narrowing or temperatures:
            return None
        elif name == "forbid":
            forbidden += value
        elif name.endswith("_penalty"):
            if name == "repetition_penalty" and any(strength < 0 for _, strength in penalties):
                return None  # it divides what is above 0 by then
            penalties.append((name, value))
        else:
            return None
    others = {b for kind, _, b, _ in narrowing if kind == TOP_P} - {beta}
    betas = [*sorted(others), beta]
    kinds, numbers, powers, cooled = zip(*narrowing, strict=True) if narrowing else ((), (), (), ())
    never = np.asarray(sorted(set(forbidden)), dtype=np.int64)
    return Plan(
        never if codes is None else codes[never],
        bool(penalties),
        *_together(penalties),
        np.asarray(kinds, dtype=np.int64),
        np.asarray(numbers, dtype=np.float64),
        np.asarray([betas.index(b) if b in betas else -1 for b in powers], dtype=np.int64),
        np.asarray(cooled, dtype=np.int64),
        np.asarray(temperatures, dtype=np.float64),
        np.asarray(betas, dtype=np.float64),
        float(max(betas)),
        bool(narrowing) or beta > 1,
        float(log_alpha),
    )


def _together(penalties: list[tuple[str, float]]) -> tuple[float, float, float]:
    """The slope, per_time and offset of `Plan`."""
    slope, per_time, offset = 1.0, 0.0, 0.0
    for name, strength in penalties:
        if name == "repetition_penalty":
            slope, per_time, offset = slope * strength, per_time * strength, offset * strength
        elif name == "frequency_penalty":
            per_time += strength
        else:
            offset += strength
    return float(slope), float(per_time), float(offset)


class Task(NamedTuple):
    """Rows to be written, and how far they are."""

    ends_BN: Ints
    """The nodes of the last 1, 2, ... words of each row, from column 1 on; column 0 as `find_all_ends` has it."""
    uniforms_BT: Floats
    read_BT: Ints
    end: int
    tokens_BT: Ints
    scores_BT: Floats
    done_B: Ints
    """The number of columns that are written in each row."""


class Writer(Desks):
    """Writes with an automaton."""

    def __init__(self, automaton: Automaton) -> None:
        self.automaton = automaton
        self.trie, prob, back, words = frozen(automaton)
        size, order = automaton.trie.vocab_size, automaton.trie.order
        super().__init__(Source((self.trie, prob, back, words), size, order, words, prob.plain))

    def write(
        self, words_BN: Ints, choose: Choose, uniforms_BT: Floats, read_BT: Ints
    ) -> tuple[Ints, Floats, Ints] | None:
        """A token for each column after the words of each row, its ln p, and the state of each row after them.

        None if the choice has no plan, or if it is too early to compile kernels.
        """
        plan = plan_of(choose.operations, self.automaton.codes, self.automaton.log_alpha)
        if plan is None or not self.is_ready(write_rows, uniforms_BT.size):
            return None
        rows, order = len(words_BN), self.automaton.trie.order
        task = Task(
            np.zeros((rows, order), np.int64),
            np.ascontiguousarray(uniforms_BT, dtype=np.float64),
            np.ascontiguousarray(read_BT, dtype=np.int64),
            PAD if choose.end is None else choose.end,
            np.full(uniforms_BT.shape, PAD, dtype=np.int64),
            np.zeros(uniforms_BT.shape),
            np.zeros(rows, np.int64),
        )
        find_all_ends(words_BN, self.trie, task.ends_BN)

        def write_some(some: tuple[int, int]) -> None:
            desk = self.take_desk(plan)
            while (row := desk.advance(write_rows, task, some, plan)) is not None:
                self._choose_plainly(task, row, words_BN[row], choose)
            self.put_back(desk)

        at_once(write_some, stretches(rows, min(cores(), task.tokens_BT.size // _WORTH_A_THREAD)))
        # the state is the node of the longest context: the columns hold the nodes of longer and longer ones
        task.ends_BN[:, 0] = 0
        longest = order - 1 - np.argmax(task.ends_BN[:, ::-1] > 0, axis=1)
        return task.tokens_BT, task.scores_BT, task.ends_BN[np.arange(rows), longest]

    def _choose_plainly(self, task: Task, row: int, words: Ints, choose: Choose) -> None:
        """Choose the next token of a row from the probabilities of all tokens, and walk on."""
        t = int(task.done_B[row])
        history = np.concatenate([words, task.tokens_BT[row, :t]])[t:]
        tokens = choose_plainly(task, row, choose, self.automaton.next_after(history[None]))
        if tokens[0] != PAD:
            find_all_ends(np.append(history, tokens)[None, 1:], self.trie, task.ends_BN[row : row + 1])


def frozen(automaton: Automaton) -> tuple[Any, ...]:
    """The arrays of an automaton, and the word of each code, read-only: Numba compiles for each such type anew."""
    named: tuple[Any, ...] = (automaton.trie_arrays, *automaton.value_arrays)
    return (*(arrays._make(map(_read_only, arrays)) for arrays in named), _read_only(automaton.words))


def _read_only(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        value = value.view(np.ndarray)
        value.flags.writeable = False
    return value
