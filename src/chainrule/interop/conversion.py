"""Models of other programs by what a file or folder is, and ours in the form that is asked for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from chainrule.contract.lm import Context, LanguageModel
from chainrule.contract.model import Model
from chainrule.errors import FolderError, ForeignFileError, MissingExtraError, importing
from chainrule.ngram.arpa.arpa_model import load_arpa, save_arpa
from chainrule.system.devices import has_torch
from chainrule.system.progress import SILENT, Progress

if TYPE_CHECKING:
    from chainrule.tokens.published import PublishedTokenizer

Form: TypeAlias = Literal["hf", "arpa", "gguf"]

PREFIX = "hf://"
_WANTED = ["*.safetensors", "*.json", "tokenizer.model", "merges.txt", "vocab.bpe"]
_ADDRESS = re.compile(r"hf://([\w.-]+/[\w.-]+)(?:@([\w./-]+))?/?")
_VOCABULARIES = ("tokenizer.json", "encoder.json", "vocab.json", "tokenizer.model")
_ARPA = (".arpa", ".lm", ".arpa.gz", ".lm.gz")


def export_model(
    model: Model, form: Form, out: str | Path, *, overwrite: bool = False, progress: Progress = SILENT
) -> str:
    """Write a model for another program; returns what was written, in a word."""
    if form == "arpa":
        save_arpa(LanguageModel.expect(model), out, overwrite=overwrite, progress=progress)
        return "ARPA"
    _expect_torch("a network for another program")
    if form == "hf":
        from chainrule.interop.huggingface import export

        return export(model, out, overwrite=overwrite)
    from chainrule.interop.gguf import write_gguf

    path = Path(out)
    if path.is_dir() or (path.exists() and not overwrite):
        raise FolderError(
            f"{path} exists; choose another one{'' if path.is_dir() else ', or overwrite it (--overwrite)'}"
        )
    if not path.absolute().parent.is_dir():
        raise FolderError(f"{path}: there is no folder {path.parent}")
    return f"GGUF {write_gguf(model, path)}"


def import_model(
    path: str | Path,
    *,
    context: Context | None = None,
    encoding: str = "utf-8",
    tokenizer: str | Path | None = None,
    progress: Progress = SILENT,
) -> Any:
    """Return the model of a folder of transformers, of a GGUF or ARPA file, or of a checkpoint of llama2.c.

    hf://OWNER/NAME is a folder of transformers on the Hugging Face hub.
    The context is stream for networks and line for masked models and ARPA files, unless another is given.
    `tokenizer` is for llama2.c, whose checkpoints have none.
    """
    if is_hub_address(path):
        _expect_torch("a model of the hub")
    path = fetch_model(str(path)) if is_hub_address(path) else Path(path)
    if not path.exists():
        raise ForeignFileError(f"{path}: no such file or folder")
    if path.is_dir():
        _expect_torch("a network of another program")
        from chainrule.interop import huggingface

        return huggingface.load(path, context=context)
    with path.open("rb") as file:
        head = file.read(4)
    if head == b"GGUF":
        _expect_torch("a GGUF file")
        from chainrule.interop import gguf

        return gguf.load(path, context=context or "stream")
    if path.suffix == ".bin":
        _expect_torch("a checkpoint of llama2.c")
        from chainrule.interop import llama2c

        if head[:2] in (b"PK", b"\x80\x02"):
            raise ForeignFileError(f"{path}: a pickled file, which could run any code: only safetensors are read")
        return llama2c.load(path, tokenizer, context=context or "stream")
    if path.name.lower().endswith(_ARPA) or head[:2] == b"\x1f\x8b" or head.lstrip()[:1] in (b"\\", b""):
        return load_arpa(path, context=context or "line", encoding=encoding, progress=progress)
    raise ForeignFileError(
        f"{path}: expected a folder of transformers, a GGUF or ARPA file, or a .bin checkpoint of llama2.c"
    )


def is_vocabulary(path: Path) -> bool:
    """Return True if a file or folder is that of a tokenizer alone."""
    if path.is_dir():
        is_model = (path / "config.json").is_file() or any(path.glob("*.safetensors")) or any(path.glob("*.bin"))
        return not is_model and any((path / name).is_file() for name in _VOCABULARIES)
    return path.suffix in (".tiktoken", ".model", ".json")


def import_tokenizer(path: str | Path, *, pattern: str | None = None) -> PublishedTokenizer:
    """Return the tokenizer of a file or folder of another program."""
    from chainrule.interop.vocabularies.files import read_tokenizer

    return read_tokenizer(path, pattern=pattern)


def _expect_torch(purpose: str) -> None:
    if not has_torch():
        raise MissingExtraError("torch", "neural", purpose)


# -- models of the Hugging Face hub: hf://OWNER/NAME[@REVISION] ------------------------------------------------
#
# `huggingface_hub` keeps the files in its cache; what is there already is not fetched again. Only weights in
# safetensors and descriptions in JSON or text are asked for, never code or pickles.


def is_hub_address(path: str | Path) -> bool:
    """Return True if a path is the address of a model of the hub."""
    return str(path).startswith(PREFIX)


def fetch_model(address: str) -> Path:
    """Return the folder with the files of a model of the hub."""
    found = _ADDRESS.fullmatch(address)
    if found is None:
        raise ForeignFileError(f"{address}: expected hf://OWNER/NAME or hf://OWNER/NAME@REVISION")
    with importing("huggingface_hub", "hub", "a model of the hub"):
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError
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
