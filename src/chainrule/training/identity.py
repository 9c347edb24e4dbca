"""What a run is made of: from a checkpoint only the same training goes on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from chainrule.errors import TrainingError
from chainrule.folder import to_json
from chainrule.kinds import TrainingData
from chainrule.tokens.registry import dump_tokenizer
from chainrule.training.plan import HOW_IT_IS_COMPUTED, HOW_LONG, TrainingSettings
from chainrule.training.trainable import Trainable

_WITHOUT_EFFECT = ("checkpoint_minutes", "sample_every", "tensorboard", "engine")  # only torch keeps checkpoints
_CHANGEABLE = (
    *("learning_rate", "clip", "device_batch"),  # what errors say to change where steps are too large
    *HOW_IT_IS_COMPUTED,
    *HOW_LONG,
    *("validate_every", "patience"),
)


def identity(network: Trainable, settings: TrainingSettings, data: TrainingData) -> dict[str, Any]:
    """What a run is made of, settings that may change included."""
    return {
        "settings": {name: value for name, value in asdict(settings).items() if name not in _WITHOUT_EFFECT},
        "network": {name: list(tensor.shape) for name, tensor in network.state_dict().items()},
        "data": {"context": data.context, "seed": data.seed},
        "fingerprints": {
            "corpus": data.train.fingerprint,
            "held-out text": None if data.valid is None else data.valid.fingerprint,
            "tokenizer": hashlib.sha256(dump_tokenizer(data.tokenizer).encode()).hexdigest(),
        },
    }


def changes(then: Mapping[str, Any], now: Mapping[str, Any]) -> set[str]:
    """Which settings are others than then; where that or anything else makes it another training, an error."""
    was, is_now = dict(_leaves(then)), dict(_leaves(json.loads(to_json(now))))
    differing = [key for key in {**was, **is_now} if was.get(key) != is_now.get(key)]
    refused = []
    for part, name in differing:
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
