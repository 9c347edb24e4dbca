"""Sampling by kernels: the plan of a strategy, and the calls that sample with a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from chainrule.arrays import PAD
from chainrule.contract.capabilities import Choose
from chainrule.ngram.sampling.sample_kernels import MIN_P, TOP_K, TOP_P, sample_rows
from chainrule.ngram.sampling.stack_kernels import Plan
from chainrule.ngram.sampling.workspace import Source, Workspace
from chainrule.ngram.store.automaton import Automaton
from chainrule.ngram.store.compiled import is_compiled
from chainrule.system.parallel import Patience, announce, at_once, cores, stretches

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Operations = tuple[tuple[str, Any], ...]

_NARROWING = {"top_k": TOP_K, "top_p": TOP_P, "min_p": MIN_P}
_WITHOUT_EFFECT = {("top_p", 1.0), ("min_p", 0.0)}

_WORTH_A_THREAD = 256  # tokens
_PLAIN_NANOSECONDS = (1 << 22) / 100  # for a token the plain way, as a share of compiling: 1,600 tokens come first


def plan_of(operations: Operations | None, codes: Any = None, log_alpha: float = 0.0) -> Plan | None:
    """Return the plan of operations; None if one is unknown, or changes single tokens after another operation.

    `codes` maps tokens to codes, if they differ; `log_alpha` is the backoff of stupid backoff, else 0.
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
            if (name, value) not in _WITHOUT_EFFECT:
                narrowing.append((_NARROWING[name], value, beta, len(temperatures)))
        elif narrowing or temperatures:
            return None
        elif name == "forbid":
            forbidden += value
        elif name.endswith("_penalty"):
            if name == "repetition_penalty" and any(strength < 0 for _, strength in penalties):
                return None  # it divides values above 0, which these penalties make possible
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
    """Return the slope, per_time and offset of `Plan` that the penalties have together."""
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
    """Rows of tokens to sample, and the progress of each."""

    position: tuple[Ints, ...]
    """The contexts of each row, in the form of the model's kernel."""
    uniforms_BT: Floats
    read_BT: Ints
    end: int
    tokens_BT: Ints
    scores_BT: Floats
    done_B: Ints
    """The number of tokens that each row has."""


class Sampler:
    """Runs the kernels of one model, in several threads with a workspace each."""

    def __init__(self, source: Source, codes: Any = None, log_alpha: float = 0.0) -> None:
        self.source, self.codes, self.log_alpha = source, codes, log_alpha
        self._workspaces: list[Workspace] = []
        self._patience = Patience(_PLAIN_NANOSECONDS)

    def plan(self, kernel: Any, operations: Operations | None, tokens: int) -> Plan | None:
        """Return the plan of operations for a number of tokens; None without a plan or a kernel that is ready."""
        plan = plan_of(operations, self.codes, self.log_alpha)
        return plan if plan is not None and self.is_ready(kernel, tokens) else None

    def is_ready(self, kernel: Any, tokens: int) -> bool:
        """Return True if a kernel is compiled, or if compiling it pays, counting these tokens too."""
        if is_compiled(kernel):
            return True
        if not self._patience.count(tokens):
            return False
        announce(
            "compiling the code that writes with n-grams, once on this machine; that takes about half a minute"
        )
        return True

    def take_workspace(self, plan: Plan) -> Workspace:
        """Return a workspace that no other thread uses, with lists that suit a plan."""
        while self._workspaces:
            workspace = self._workspaces.pop()
            if workspace.fits(plan):
                return workspace
        return Workspace(self.source, plan)

    def put_back(self, workspace: Workspace) -> None:
        """Keep a workspace for the next call."""
        self._workspaces = [workspace, *self._workspaces][: cores()]

    def run(
        self, kernel: Any, position: tuple[Ints, ...], choose: Choose, uniforms_BT: Floats, read_BT: Ints | None,
        step: Callable[[Task, int], None],
    ) -> Task | None:  # fmt: skip
        """Sample a token for each column of `uniforms_BT`; `step` samples one that the kernel cannot.

        None if the choice has no plan, or if it is too early to compile the kernel.
        """
        plan = self.plan(kernel, choose.operations, uniforms_BT.size)
        if plan is None:
            return None
        read_BT = np.zeros((len(uniforms_BT), 0), np.int64) if read_BT is None else read_BT
        task = Task(
            position,
            np.ascontiguousarray(uniforms_BT, dtype=np.float64),
            np.ascontiguousarray(read_BT, dtype=np.int64),
            PAD if choose.end is None else choose.end,
            np.full(uniforms_BT.shape, PAD, dtype=np.int64),
            np.zeros(uniforms_BT.shape),
            np.zeros(len(uniforms_BT), np.int64),
        )

        def sample_some(some: tuple[int, int]) -> None:
            workspace = self.take_workspace(plan)
            while (row := workspace.advance(kernel, task, some, plan)) is not None:
                step(task, row)
            self.put_back(workspace)

        at_once(sample_some, stretches(len(uniforms_BT), min(cores(), uniforms_BT.size // _WORTH_A_THREAD)))
        return task


def sample_one(task: Task, row: int, choose: Choose, log_probs_BV: Any) -> Ints:
    """Choose the next token of one row of a task from ln p of all tokens; returns it, as an array of one."""
    t = int(task.done_B[row])
    read_BT = np.concatenate([task.read_BT[row], task.tokens_BT[row, :t]])[None]
    tokens, scores, active = choose(
        log_probs_BV, task.uniforms_BT[row, t : t + 1], np.ones(1, bool), lambda: read_BT
    )
    task.tokens_BT[row, t], task.scores_BT[row, t] = tokens[0], scores[0]
    task.done_B[row] = t + 1 if active[0] else task.tokens_BT.shape[1]
    return np.asarray(tokens)


class NgramSampler(Sampler):
    """Samples with an automaton."""

    def __init__(self, automaton: Automaton) -> None:
        self.automaton = automaton
        trie, (prob, back), words = automaton.trie, automaton.value_arrays, automaton.words
        arrays = (automaton.trie_arrays, prob, back, words)
        source = Source(arrays, trie.vocab_size, trie.order, words, prob.plain)
        super().__init__(source, automaton.codes, automaton.log_alpha)

    def sample(
        self, words_BN: Ints, choose: Choose, uniforms_BT: Floats, read_BT: Ints | None
    ) -> tuple[Ints, Floats] | None:
        """Return a token for each column after the words of each row, and its ln p; None as `run` does."""
        ends_BN = self.automaton.ends_fast(words_BN)

        def step(task: Task, row: int) -> None:
            t = int(task.done_B[row])
            history = np.concatenate([words_BN[row], task.tokens_BT[row, :t]])[t:]
            tokens = sample_one(task, row, choose, self.automaton.next_after(history[None]))
            if tokens[0] != PAD:
                ends_BN[row] = self.automaton.ends_fast(np.append(history, tokens)[None, 1:])[0]

        task = self.run(sample_rows, (ends_BN,), choose, uniforms_BT, read_BT, step)
        return None if task is None else (task.tokens_BT, task.scores_BT)
