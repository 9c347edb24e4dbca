"""The identity of a comparison or a grid of networks: only the same one is continued after it was stopped."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chainrule.contract.kinds import TrainingData
from chainrule.errors import FolderError
from chainrule.system.disk import LOCK
from chainrule.tokens.ids import Encoded
from chainrule.tokens.registry import dump_tokenizer


def identity_of(data: TrainingData, encoded: Mapping[str, Encoded], minutes: float | None) -> dict[str, Any]:
    """Return the texts, the tokenizer and the settings that all models share, as plain values."""
    return {
        **({} if data.sources is None else {"sources": data.sources.train.fingerprint}),
        "texts": {name: part.fingerprint for name, part in encoded.items()},
        "tokenizer": hashlib.sha256(dump_tokenizer(data.tokenizer).encode()).hexdigest(),
        "context": data.context,
        "seed": data.seed,
        "minutes": minutes,
    }


def is_unused(out: Path) -> bool:
    """Return True if the folder does not exist, or is empty."""
    return not out.exists() or (out.is_dir() and all(path.name == LOCK for path in out.iterdir()))


def another_error(out: Path, what: str) -> FolderError:
    """Return the error of a folder that holds results of another identity."""
    return FolderError(
        f"{out} holds another {what}, of other texts or settings; choose another folder, or overwrite it "
        "(--overwrite)"
    )
