"""The choice of a token as a plan of few operations, for kernels of a GPU and for the compiled loops of a CPU."""

from __future__ import annotations

from dataclasses import dataclass

from chainrule.contract.capabilities import Choose

MOST_KEPT = 1024
"""The largest k for the kernels over the best k; if more tokens are kept, looking at all of them is not slower."""
TOP_K = 2
_CODES = {"temperature": 1, "top_k": TOP_K, "top_p": 3, "min_p": 4}  # as kernels and loops have them
_NOTHING = {"top_p": 1, "min_p": 0}  # values with which an operation keeps every token
_PENALTIES = ("repetition_penalty", "presence_penalty", "frequency_penalty")
_MOST_OPERATIONS = 9  # their codes are packed into one integer, three bits each


@dataclass(frozen=True)
class ChoicePlan:
    """A choice in the form that the kernels take."""

    forbidden: tuple[int, ...]
    operations: tuple[tuple[int, float], ...]
    """Codes of the operations, each with its value."""
    end: int | None
    penalties: tuple[tuple[str, float], ...] = ()
    """What is done to the logits of tokens that occurred, before anything else."""
    bias: tuple[tuple[int, float], ...] = ()
    """Tokens, and what is added to the logit of each, after penalties."""

    @property
    def changes(self) -> bool:
        """True if tokens are chosen by other logits than those of the network."""
        return bool(self.penalties or self.bias)

    @property
    def k(self) -> int | None:
        """The number of tokens that the first operation keeps, if these are few; None: look at all tokens."""
        code, value = self.operations[0] if self.operations else (0, 0.0)
        return int(value) if code == _CODES["top_k"] and value <= MOST_KEPT else None


def plan_of(choose: Choose) -> ChoicePlan | None:
    """Return the plan of a choice; None if the kernels lack one of its operations, or cannot take that order."""
    if choose.operations is None:
        return None
    forbidden: tuple[int, ...] = ()
    penalties: list[tuple[str, float]] = []
    bias: list[tuple[int, float]] = []
    operations: list[tuple[int, float]] = []
    for name, value in choose.operations:
        only_temperatures = all(code == _CODES["temperature"] for code, _ in operations)
        if name == "forbid" and only_temperatures:
            forbidden += value
        elif (
            name in _PENALTIES
            and not operations
            and not bias
            and (choose.by_logits or name != "repetition_penalty")
        ):
            penalties.append((name, value))
        elif name == "bias" and not operations:
            bias += value
        elif name in _CODES:
            # the first top-k comes before temperatures, which do not change the order of tokens
            place = 0 if name == "top_k" and only_temperatures else len(operations)
            if _NOTHING.get(name) != value:
                operations.insert(place, (_CODES[name], value))
        else:
            return None
    if len(operations) > _MOST_OPERATIONS:
        return None
    return ChoicePlan(forbidden, tuple(operations), choose.end, tuple(penalties), tuple(bias))
