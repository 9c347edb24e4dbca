"""A sweep: one kind of model trained with every combination of some settings, and measured on one held-out text."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from chainrule import settings as settings_of
from chainrule.contract.kinds import Kind
from chainrule.errors import SettingsError
from chainrule.evaluation.measure import Measured, caveats, evaluate
from chainrule.folder import ContextChoice
from chainrule.runs.prepare import TokenizerChoice, split_off
from chainrule.runs.train import train_kind
from chainrule.system.devices import choose_device
from chainrule.system.disk import scratch_folder
from chainrule.system.display import Part, ResultTable
from chainrule.system.progress import SILENT, Progress
from chainrule.text.corpus import Corpus

OF_TOKENIZER = ("vocab_size", "min_count")
"""The options of the tokenizer that can be varied beside the settings of a kind."""
_SHARES = {"train": 0.9, "held out": 0.1}


@dataclass(frozen=True)
class SweptModel:
    """A combination of settings, and what was measured of its model."""

    settings: Mapping[str, str]
    vocab_size: int
    """The vocabulary of its tokenizer, special tokens included."""
    measured: Measured

    def to_json(self) -> dict[str, Any]:
        """Return the row as plain values."""
        return {"settings": dict(self.settings), "vocabulary": self.vocab_size, **self.measured.to_json()}


def sweep(
    kind: Kind,
    corpus: Corpus,
    varied: Mapping[str, Sequence[str]],
    settings: Mapping[str, str],
    *,
    held_out: Corpus | None = None,
    tokenizer: TokenizerChoice | None = None,
    context: ContextChoice = "auto",
    seed: int = 0,
    device: str = "auto",
    progress: Progress = SILENT,
) -> list[SweptModel]:
    """Train a model for each combination of the varied values, and measure it on held-out text, 10 % of the corpus.

    All settings are checked before the first training.
    """
    if both := sorted(varied.keys() & settings.keys()):
        raise SettingsError(f"{both[0]} is varied, and set too: leave out one of the two")
    combinations = [dict(zip(varied, values, strict=True)) for values in itertools.product(*varied.values())]
    chosen, device = tokenizer or TokenizerChoice(kind.tokenizer), choose_device(device)
    plans: list[tuple[dict[str, str], Any, TokenizerChoice]] = []
    for one in combinations:
        own = {name: value for name, value in one.items() if name not in OF_TOKENIZER}
        size = one.get("vocab_size", chosen.vocab_size)
        choice = replace(chosen, vocab_size=size, min_count=_whole(one.get("min_count", chosen.min_count)))
        choice.check()
        plans.append((one, settings_of.parse(kind.settings, {**settings, **own}), choice))
    found = []
    with scratch_folder() as folder, progress.task("training", len(plans), "models") as task:
        parts = split_off(corpus, {"held out": held_out}, _SHARES, folder, seed=seed)
        for one, parsed, choice in plans:
            lm = train_kind(
                kind, parsed, parts["train"], tokenizer=choice, context=context, seed=seed, device=device
            )
            found.append(SweptModel(one, lm.tokenizer.vocab_size, evaluate(lm, parts["held out"])))
            task.advance(1)
    return found


def sweep_parts(found: Sequence[SweptModel]) -> list[Part]:
    """Return the table of a sweep, the lowest perplexity of each vocabulary in bold, and what to know of it."""
    names = [*found[0].settings]
    shown = [one.measured.figures() for one in found]
    rows = [
        [
            *one.settings.values(),
            f"{one.vocab_size:,}",
            *(figures[name] for name in ("perplexity", "bits/byte", "OOV")),
        ]
        for one, figures in zip(found, shown, strict=True)
    ]
    sizes = {one.vocab_size for one in found}
    best = [
        min((i for i, one in enumerate(found) if one.vocab_size == size), key=lambda i: found[i].measured.nats)
        for size in sizes
    ]
    parts: list[Part] = [ResultTable([*names, "vocabulary", "perplexity", "bits/byte", "OOV"], rows, strong=best)]
    if len(sizes) > 1:
        parts.append(
            "Perplexities compare only within a vocabulary: a smaller one has more <unk>, which is easy to predict"
        )
    return [*parts, *caveats(one.measured for one in found)]


def _whole(value: Any) -> int:
    try:
        return int(value)
    except ValueError:
        raise SettingsError(f"min_count should be a whole number, not {value!r}") from None
