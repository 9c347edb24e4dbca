"""run.json: the description of a training in its run folder, from which it can be resumed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypeAlias

from chainrule.contract.lm import Context
from chainrule.errors import CorpusError, DamagedFileError, FolderError, SettingsError
from chainrule.folder import to_json
from chainrule.runs.prepare import TokenizerChoice
from chainrule.system.disk import replaced_file
from chainrule.text.builtin import BUILTIN
from chainrule.text.corpus import Corpus
from chainrule.text.labelled import Labelled
from chainrule.text.pairs import Pairs
from chainrule.text.records import Fields
from chainrule.text.remote import is_address
from chainrule.text.tagged import Tagged
from chainrule.tokens.base import Tokenizer
from chainrule.tokens.registry import load_tokenizer, tokenizer_names, write_tokenizer

RECORD = "run.json"
SOURCES = "sources"
"""The folder in a run folder for the tokenizer of sources, if a finished tokenizer was given."""
FORMAT, VERSION = "chainrule-run", 1

Description: TypeAlias = dict[str, Any]
Examples: TypeAlias = Corpus | Pairs | Tagged | Labelled
"""What a model learns from; a task of another package may have a type of its own."""


@dataclass(frozen=True)
class RunRecord:
    """The description of a training: its kind, its settings, and the origins of its text and its tokenizer."""

    kind: str
    settings: Mapping[str, Any]
    corpus: Description
    valid: Description | None
    """The held-out text that was given; None if it was split off the corpus, or there is none."""
    tokenizer: Description | None
    """The choice of a tokenizer; None if the tokenizer itself is in the run folder."""
    context: Context
    seed: int
    device: str
    begun_in: str
    """The working folder of the training, to which paths in the settings are relative."""
    source_tokenizer: Description | None = None
    """The choice of a tokenizer of sources, or its folder in the run folder; None if sources have none."""

    def check_paths(self) -> None:
        """Refuse to resume in another working folder if settings name files relative to the first one."""
        for name, value in self.settings.items():
            if isinstance(value, str) and value and not Path(value).is_absolute():
                there = Path(self.begun_in, value)
                if there.is_file() and not Path(value).exists():
                    raise SettingsError(
                        f"{name}={value} is a file of {self.begun_in}: resume the run in that folder"
                    )


def write_record(
    run: Path, record: RunRecord, tokenizers: Mapping[str, Tokenizer | TokenizerChoice | None]
) -> None:
    """Write run.json and finished tokenizers into the run folder, or the named folder in it."""
    run.mkdir(parents=True, exist_ok=True)
    for folder, tokenizer in tokenizers.items():
        if isinstance(tokenizer, Tokenizer):
            (run / folder).mkdir(parents=True, exist_ok=True)
            write_tokenizer(tokenizer, run / folder)
    content = {"format": FORMAT, "version": VERSION, **asdict(record)}
    with replaced_file(run / RECORD) as file:
        file.write(to_json(content, indent=2).encode() + b"\n")


def read_record(run: Path) -> RunRecord:
    """Read run.json of a run folder."""
    path, beside = run / RECORD, Path(f"{run}.run")
    hint = f"there is {beside}" if (beside / RECORD).is_file() else ""
    if not run.is_dir():
        what = "a file, not a run folder" if run.exists() else "no such run folder"
        raise FolderError(f"{run}: {what} ({hint})" if hint else f"{run}: {what}")
    if not path.is_file():
        hint = hint or "resume a run of an earlier version by the command that started it, with --resume"
        raise FolderError(f"{run}: not a run folder: it has no {RECORD} ({hint})")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if (content["format"], content["version"]) != (FORMAT, VERSION):
            raise DamagedFileError(f"{path}: not version {VERSION} of {FORMAT}")
        later = {"source_tokenizer": None}  # records of earlier versions do not have it
        return RunRecord(**{field.name: {**later, **content}[field.name] for field in fields(RunRecord)})
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DamagedFileError(f"{path}: damaged: {error}") from None


# -- corpora ----------------------------------------------------------------------------------------------


def describe_corpus(corpus: Examples) -> Description:
    """Return the origin of examples as plain values; without "files" if they cannot be opened again."""
    if isinstance(corpus, Pairs):
        sides = [describe_corpus(side) for side in corpus.origin]
        if not sides or any("files" not in side for side in sides):
            return {"name": "the pairs"}
        return {"files": [file for side in sides for file in side["files"]], "sides": sides}
    if not isinstance(corpus, Corpus):
        return {"name": "the examples"} if corpus.origin is None else describe_corpus(corpus.origin)
    if corpus.builtin:
        return {"files": [corpus.builtin]}
    files = corpus.addresses
    if files is None:
        return {"name": corpus.name}
    return {
        "files": files,
        "encoding_errors": corpus.cleaning.errors,
        "mask": corpus.cleaning.mask,
        "fields": asdict(corpus.fields),
    }


_OPTIONS = {"corpus": ("--corpus", "corpus"), "held-out text": ("--held-out", "valid")}
"""The option of `chainrule resume`, and the argument of `resume`, by which a text is given again."""


def open_corpus(description: Description, what: Literal["corpus", "held-out text"], run: Path) -> Corpus | Pairs:
    """Open the described corpus; `what` names it in errors, which say how to give it again."""
    option, argument = _OPTIONS[what]
    again = f"give it again: chainrule resume {run} {option} FILE, or resume(run, {argument}=...)"
    if "files" not in description:
        raise CorpusError(f"{run}: the {what} of this run was not in a file ({description['name']}): {again}")
    for file in description["files"]:
        if file not in BUILTIN and not is_address(file) and not Path(file).exists():
            raise CorpusError(f"{file}: the {what} of this run is no longer there; if it moved, {again}")
    return reopened(description, description["files"])


def reopened(description: Description, files: Sequence[str]) -> Corpus | Pairs:
    """Open these files in the way of the described corpus."""
    if "sides" in description:
        names = [*files] if len(files) == len(description["sides"]) else [*files, *files]
        return Pairs.joined([_text(side, [name]) for side, name in zip(description["sides"], names, strict=False)])
    return _text(description, files)


def _text(description: Description, files: Sequence[str]) -> Corpus:
    of = description.get("fields", {})
    fields_of = Fields(tuple(of["text"]), of["id"]) if of else None
    errors = description.get("encoding_errors", "strict")
    return Corpus.open(*files, encoding_errors=errors, fields=fields_of, mask=description.get("mask", False))


# -- tokenizers -------------------------------------------------------------------------------------------


def describe_tokenizer(tokenizer: Tokenizer | TokenizerChoice, folder: str = "") -> Description | None:
    """Return a choice as plain values with absolute paths, or the folder of a tokenizer in the run folder."""
    if not isinstance(tokenizer, TokenizerChoice):
        return {"folder": folder} if folder else None
    found = asdict(tokenizer)
    if tokenizer.vocabulary is not None:
        found["vocabulary"] = str(Path(tokenizer.vocabulary).absolute())
    if tokenizer.name not in tokenizer_names():
        found["name"] = str(Path(tokenizer.name).absolute())
    return found


def open_tokenizer(description: Description | None, run: Path) -> Tokenizer | TokenizerChoice:
    """Return the described choice, or the tokenizer in the run folder."""
    if description is None or "folder" in description:
        return load_tokenizer(run / (description or {}).get("folder", ""))
    return TokenizerChoice(**description)


def working_folder() -> str:
    """Return the working folder; empty if it has been removed."""
    try:
        return os.getcwd()  # noqa: PTH109
    except OSError:
        return ""
