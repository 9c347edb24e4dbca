"""Models of the Hugging Face hub: hf://OWNER/NAME[@REVISION] as a folder of this machine.

Files come through `huggingface_hub`, which keeps them in its cache; what is there already is not fetched again.
Only weights in safetensors and descriptions in JSON or text are asked for, never code or pickles.
"""

from __future__ import annotations

import re
from pathlib import Path

from chainrule.errors import ForeignFileError, MissingExtraError

PREFIX = "hf://"
_WANTED = ["*.safetensors", "*.json", "tokenizer.model", "merges.txt", "vocab.bpe"]
_ADDRESS = re.compile(r"hf://([\w.-]+/[\w.-]+)(?:@([\w./-]+))?/?")


def is_hub_address(path: str | Path) -> bool:
    """Return True if a path is the address of a model of the hub."""
    return str(path).startswith(PREFIX)


def fetch_model(address: str) -> Path:
    """The folder with the files of a model of the hub."""
    found = _ADDRESS.fullmatch(address)
    if found is None:
        raise ForeignFileError(f"{address}: expected hf://OWNER/NAME or hf://OWNER/NAME@REVISION")
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError
    except ImportError:
        raise MissingExtraError("huggingface_hub", "hub", "a model of the hub") from None
    name, revision = found[1], found[2]
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=_WANTED))
    except RepositoryNotFoundError:
        raise ForeignFileError(f"{address}: the hub has no such model, or not for you (hf auth login)") from None
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        told = str(error).strip().splitlines()
        raise ForeignFileError(
            f"{address}: not in the cache of this machine, and the hub cannot be reached"
            f" ({told[0][:120] if told else type(error).__name__})"
        ) from None
