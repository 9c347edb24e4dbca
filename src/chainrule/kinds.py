"""The kinds of model there are, by name.

A kind says what its settings are, how it is trained and loaded, and which rungs it adds to the ladder that
`chainrule compare` climbs. The command line, compare and the laws in tests/contract/ find it here and need no
change for a new one: say where it is in `_BUILT_IN`, or declare an entry point in the group `chainrule.kinds`.
Modules are imported only when their kind is used, so that n-gram commands never wait for torch.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chainrule.devices import choose_device
from chainrule.errors import ChainruleError, DamagedFileError, FolderError, MissingExtraError, SettingsError
from chainrule.folder import MANIFEST, ModelFolder, read_folder
from chainrule.lm import Context, LanguageModel
from chainrule.progress import SILENT, Progress
from chainrule.tokens.base import Tokenizer
from chainrule.tokens.ids import Encoded

PRECISIONS = ("float32", "bfloat16", "float64")
"""Those in which a network can compute."""

_BUILT_IN = {
    "ngram": "chainrule.ngram.train:KIND",
    "feedforward": "chainrule.autodiff.kinds:FEEDFORWARD",
    "averaging": "chainrule.neural.kinds:AVERAGING",
    "elman": "chainrule.autodiff.kinds:ELMAN",
    "lstm": "chainrule.autodiff.kinds:LSTM",
    "gru": "chainrule.autodiff.kinds:GRU",
    "transformer": "chainrule.neural.kinds:TRANSFORMER",
}
"""Where each kind is: its module, and its name there."""


@dataclass(frozen=True)
class TrainingData:
    """All that a kind needs to make a model, its settings apart."""

    tokenizer: Tokenizer
    train: Encoded
    valid: Encoded | None
    """Held-out text, for kinds that tune on it."""
    context: Context = "line"
    seed: int = 0
    progress: Progress = SILENT
    device: str = "cpu"
    """Where to compute: cpu, or what torch calls a device."""
    run: Path | None = None
    """A folder for checkpoints and measurements; kinds that need none do not create it."""
    resume: bool = False
    """Go on from the newest checkpoint of the run folder."""

    def __post_init__(self) -> None:
        if self.context not in ("line", "stream"):
            raise SettingsError(f"the context should be line or stream, not {self.context!r}")


@dataclass(frozen=True)
class Rung:
    """One model of the ladder."""

    name: str
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Kind:
    """A family of models."""

    name: str
    summary: str
    settings: type
    """A frozen dataclass."""
    train: Callable[[Any, TrainingData], LanguageModel]
    load: Callable[[ModelFolder], LanguageModel]
    ladder: tuple[Rung, ...] = ()
    tunes_on_held_out: Callable[[Any], bool] = field(default=lambda settings: False)
    """Whether, with these settings, training needs validation text."""
    check: Callable[[Any, str, bool], None] = field(default=lambda settings, device, keeps: None)
    """Refuses what cannot be trained so, before the text is read: settings, the device as it was named, and whether
    the training is to be kept in a run folder."""
    keeps_run: Callable[[Any], bool] = field(default=lambda settings: False)
    """Whether, with these settings, training can be resumed from a run folder."""


def kind_names() -> list[str]:
    """Every kind there is, without importing any."""
    return [*_BUILT_IN, *(name for name in _plugins() if name not in _BUILT_IN)]


def find_kind(name: str) -> Kind:
    """The kind of that name."""
    plugins = {} if name in _BUILT_IN else _plugins()
    try:
        if name in _BUILT_IN:
            module, _, variable = _BUILT_IN[name].partition(":")
            kind: Kind = getattr(importlib.import_module(module), variable)
            return kind
        if name in plugins:
            plugin: Kind = plugins[name].load()
            return plugin
    except ModuleNotFoundError as error:
        if error.name == "torch":
            raise MissingExtraError("torch", "neural", f"the kind {name!r}") from None
        raise
    close = difflib.get_close_matches(name, kind_names(), n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise ChainruleError(f"there is no kind of model {name!r}{hint} (there are: {', '.join(kind_names())})")


def load(
    folder: str | Path, *, verify: bool | None = None, device: str = "cpu", dtype: str = "float32"
) -> LanguageModel:
    """The model of a folder; networks compute on the device, in that precision."""
    if dtype not in PRECISIONS:
        raise SettingsError(f"dtype should be {' or '.join(PRECISIONS)}, not {dtype!r}")
    device = choose_device(device)
    content = read_folder(folder, verify=verify)
    if content.kind not in kind_names():
        raise FolderError(
            f"{folder}: its kind {content.kind!r} is not one this chainrule knows ({', '.join(kind_names())})"
        )
    try:
        lm = find_kind(content.kind).load(content)
    except SettingsError as error:
        raise DamagedFileError(f"{folder}/{MANIFEST}: {error}") from error
    lm.provenance, lm.metrics = content.provenance, content.metrics
    return lm.on(device, dtype)


def _plugins() -> dict[str, Any]:
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group="chainrule.kinds")}
