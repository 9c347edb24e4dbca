"""The identity of a run: a checkpoint is resumed only by the training that wrote it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from chainrule.contract.kinds import Sources, TrainingData
from chainrule.errors import TrainingError
from chainrule.folder import to_json
from chainrule.networks.training_settings import HOW_COMPUTED, HOW_LONG, TrainingSettings
from chainrule.tokens.registry import dump_tokenizer
from chainrule.training.objectives import NextToken, Objective

_WITHOUT_EFFECT = ("checkpoint_minutes", "sample_every", "logger", "tensorboard")
_CHANGEABLE = (
    *("learning_rate", "clip", "device_batch"),  # what error messages tell the user to change
    *HOW_COMPUTED,
    *HOW_LONG,
    *("parallel", "validate_every", "patience"),
)


def identity(
    shapes: Mapping[str, list[int]], settings: TrainingSettings, data: TrainingData, objective: Objective
) -> dict[str, Any]:
    """Return settings, network, objective and data of a run as plain values; `shapes` are those of its tensors."""
    return {
        "settings": {name: value for name, value in asdict(settings).items() if name not in _WITHOUT_EFFECT},
        "network": dict(shapes),
        "objective": {"name": objective.name},
        "data": {"context": data.context, "seed": data.seed},
        "fingerprints": {
            "corpus": data.train.fingerprint,
            "held-out text": None if data.valid is None else data.valid.fingerprint,
            "tokenizer": hashlib.sha256(dump_tokenizer(data.tokenizer).encode()).hexdigest(),
            **_of_sources(data.sources),
        },
    }


def _of_sources(sources: Any) -> dict[str, str | None]:
    if not isinstance(sources, Sources):  # the fingerprints of tagged sentences are those of the texts
        return {}
    return {
        "sources": sources.train.fingerprint,
        "held-out sources": None if sources.valid is None else sources.valid.fingerprint,
        "tokenizer of the sources": hashlib.sha256(dump_tokenizer(sources.tokenizer).encode()).hexdigest(),
    }


_BEFORE = {"objective": {"name": NextToken.name}}
"""Values that older checkpoints lack, because there was only one possibility."""


def changes(then: Mapping[str, Any], now: Mapping[str, Any]) -> set[str]:
    """Return the names of the settings that differ; a difference that is not allowed raises a TrainingError."""
    was, is_now = dict(_leaves({**_BEFORE, **then})), dict(_leaves(json.loads(to_json(now))))
    if ("settings", "engine") in is_now:
        was.setdefault(("settings", "engine"), "torch")  # at first the only engine with checkpoints
    differing = [key for key in {**was, **is_now} if was.get(key) != is_now.get(key)]
    refused = []
    for part, name in differing:
        if part == "fingerprints" and not ((part, name) in was and (part, name) in is_now):
            continue  # older checkpoints of taggers have fingerprints of sources too, the same as of the texts
        if part == "fingerprints":
            refused.append(f"another {name}")
        elif part != "settings" or name not in _CHANGEABLE:
            refused.append(f"{part} {name}: {was.get((part, name))} then, {is_now.get((part, name))} now")
    if refused:
        raise TrainingError(
            f"this is not the training that the checkpoint is of ({'; '.join(refused[:5])}); "
            "begin anew (--overwrite)"
        )
    return {name for _, name in differing}


def _leaves(identity: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[tuple[str, str], Any]]:
    for part, values in identity.items():
        for name, value in values.items():
            yield (part, name), value
