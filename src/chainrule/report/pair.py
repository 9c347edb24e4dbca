"""Every figure of the report of two comparisons side by side: models by name, and whether they compare at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from chainrule.comparison.results import Comparison, Cost, Result
from chainrule.comparison.surprisals import read_text
from chainrule.errors import FolderError
from chainrule.report.record import FORMAT, VERSION, read_finished

EQUAL = 5e-5
"""The smallest difference of two losses that a table with four digits shows."""


@dataclass(frozen=True)
class Condition:
    """Something that two comparisons should share, and what each has."""

    what: str
    values: tuple[str, str]
    is_same: bool | None
    """None: not known."""


@dataclass(frozen=True)
class PairDetails:
    """Two comparisons, matched by the names of their models."""

    title: str
    names: tuple[str, str]
    comparisons: tuple[Comparison, Comparison]
    conditions: list[Condition]

    @property
    def is_comparable(self) -> bool:
        """Return True if the losses were measured on the same text."""
        return self.conditions[0].is_same is True

    @property
    def models(self) -> list[tuple[str, Result | None, Result | None]]:
        """The models by name with their results; those of both first, the best of the first comparison first."""
        ours, theirs = ({one.name: one for one in found.results} for found in self.comparisons)
        every = [(name, ours.get(name), theirs.get(name)) for name in {**ours, **theirs}]

        def order(row: tuple[str, Result | None, Result | None]) -> tuple[bool, float]:
            _, a, b = row
            return a is None or b is None, min(one.rank for one in (a, b) if one is not None)

        return sorted(every, key=order)

    @property
    def costs(self) -> list[Cost]:
        """The costs that were measured in both."""
        theirs = self.comparisons[1].costs
        return [cost for cost in self.comparisons[0].costs if cost in theirs]

    @property
    def answer(self) -> list[str]:
        """What the two say together, a sentence each."""
        (a, b), bests = self.names, [one.best for one in self.comparisons]
        first = self.conditions[0]
        if not self.is_comparable:
            why = "differ" if first.is_same is False else "may differ: one was not kept"
            return [
                f"The test texts {why}. So the losses of {a} and {b} do not compare, and no difference is shown."
            ]
        found, loss = [], self.comparisons[0].loss_name
        ours, theirs = bests
        if ours is not None and theirs is not None and (gap := difference(ours, theirs)) is not None:
            how = "as much" if abs(gap) < EQUAL else f"{abs(gap):.4f} {'less' if gap < 0 else 'more'}"
            doubt = "; the intervals of the two overlap" if _overlap(ours, theirs) else ""
            found.append(
                f"The best of {a} is {ours.name} with {ours.rank:.4f} {loss}, and the best of {b} is {theirs.name} "
                f"with {theirs.rank:.4f}: {how}{doubt}."
            )
        if both := [gap for _, x, y in self.models if (gap := difference(x, y)) is not None]:
            lower, higher = sum(gap <= -EQUAL for gap in both), sum(gap >= EQUAL for gap in both)
            equal = len(both) - lower - higher
            found.append(f"Of {len(both)} models in both: {lower} better in {b}, {higher} worse, {equal} equal.")
        return found

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain values."""
        rows = [
            {
                "name": name,
                "loss": [None if one is None else one.loss for one in (a, b)],
                "interval": [None if one is None else one.interval for one in (a, b)],
                "difference": difference(a, b) if self.is_comparable else None,
                "ratios": {cost.key: ratio(cost, a, b) for cost in self.costs},
            }
            for name, a, b in self.models
        ]
        return {
            "format": FORMAT,
            "version": VERSION,
            "what": "pair",
            "title": self.title,
            "names": self.names,
            "answer": " ".join(self.answer),
            "is_comparable": self.is_comparable,
            "conditions": [asdict(one) for one in self.conditions],
            "models": rows,
        }


def _overlap(a: Result, b: Result) -> bool:
    if a.interval is None or b.interval is None:
        return False
    return a.interval[0] <= b.interval[1] and b.interval[0] <= a.interval[1]


def difference(a: Result | None, b: Result | None) -> float | None:
    """Return the loss of a model in the second comparison less that in the first."""
    if a is None or b is None or not (a.has_finite_loss and b.has_finite_loss):
        return None
    return b.rank - a.rank


def ratio(cost: Cost, a: Result | None, b: Result | None) -> float | None:
    """Return a cost of a model in the second comparison over that in the first."""
    ours, theirs = (None if one is None else cost.of(one) for one in (a, b))
    return theirs / ours if ours and theirs else None


def pair_details(folders: Sequence[Path]) -> PairDetails:
    """Match the models of two comparison folders, and say what the comparisons share."""
    found = [read_finished(folder) for folder in folders]
    tasks = [one.task for one in found]
    if tasks[0] != tasks[1]:
        raise FolderError(f"{folders[0]} compares models for {tasks[0]}, and {folders[1]} for {tasks[1]}")
    a, b = (folder.resolve() for folder in folders)
    names = (a.name, b.name) if a.name != b.name else (f"{a.parent.name}/{a.name}", f"{b.parent.name}/{b.name}")
    conditions = [_test_text(folders, found), *_others(found)]
    return PairDetails(f"{names[0]} and {names[1]}", names, (found[0], found[1]), conditions)


def _test_text(folders: Sequence[Path], found: Sequence[Comparison]) -> Condition:
    """Compare the held-out texts; where one was not kept, the fingerprints of their tokens."""
    texts = [read_text(folder) for folder in folders]
    is_same = None
    if texts[0] is not None and texts[1] is not None:
        is_same = texts[0] == texts[1]
    elif _fingerprint(found[0], "test") and _fingerprint(found[0], "test") == _fingerprint(found[1], "test"):
        is_same = True
    return Condition("test text", _sizes(found, "test"), is_same)


def _others(found: Sequence[Comparison]) -> list[Condition]:
    a, b = found
    sizes = _sizes(found, "train")
    prints = [_fingerprint(one, "train") for one in found]
    tokenizers = [f"{one.tokenizer}, vocabulary {one.vocab_size:,}" for one in found]
    same_tokens = a.identity.get("tokenizer") == b.identity.get("tokenizer") and tokenizers[0] == tokenizers[1]
    # with other tokens the fingerprints of one text differ too
    same_training = prints[0] == prints[1] if same_tokens else None if sizes[0] == sizes[1] else False
    plain: dict[str, list[str]] = {
        "context": [one.context for one in found],
        "minutes": [_shown(one.identity.get("minutes")) for one in found],
        "seed": [_shown(one.identity.get("seed")) for one in found],
    }
    return [
        Condition("training text", sizes, same_training),
        Condition("tokenizer", (tokenizers[0], tokenizers[1]), same_tokens),
        *(Condition(what, (x, y), x == y) for what, (x, y) in plain.items()),
    ]


def _sizes(found: Sequence[Comparison], part: str) -> tuple[str, str]:
    parts = [one.parts.get(part, {}) for one in found]
    a, b = (f"{one.get('lines', 0):,} lines, {one.get('bytes', 0):,} bytes" for one in parts)
    return a, b


def _fingerprint(comparison: Comparison, part: str) -> Any:
    texts = comparison.identity.get("texts")
    return texts.get(part) if isinstance(texts, dict) else None


def _shown(value: Any) -> str:
    return "not recorded" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
