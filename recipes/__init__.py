"""Complete runs, one in each file: a model, its text, its settings, and the result.

`python -m recipes` lists them, `python -m recipes NAME --data DIR --out DIR` runs one.
"""

from __future__ import annotations

import importlib
import pkgutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import chainrule as cr
from chainrule.contract.kinds import find_kind
from chainrule.contract.lm import Context
from chainrule.contract.tasks import find_task
from chainrule.decode.strategies import Strategy
from chainrule.errors import ChainruleError
from chainrule.seq2seq.back_translation import back_translated, turned
from chainrule.settings import closed, parse
from chainrule.system.plugins import import_object
from chainrule.system.progress import SILENT, Progress


@dataclass(frozen=True)
class Texts:
    """The files of a run, or the pairs in them."""

    train: Path | cr.Pairs
    valid: Path | cr.Pairs
    test: Path | cr.Pairs


@dataclass(frozen=True)
class BackTranslation:
    """More pairs from the targets alone: a model of the other direction, trained first, writes new sources."""

    settings: Mapping[str, Any]
    """The settings of that model which are not those of the recipe."""
    strategy: Strategy
    """How the new sources are drawn."""
    each: int = 1
    """The number of new sources for each target."""
    repeats: int = 1
    """How often the true pairs are there, beside the new ones."""


@dataclass(frozen=True)
class Recipe:
    """A run that can be repeated."""

    kind: str
    settings: Mapping[str, Any]
    reaches: str
    """One sentence that describes the result."""
    train: str | tuple[str, str]
    """The text to train on, or sources and targets; paths are relative to a folder of data."""
    valid: str | tuple[str, str] | None = None
    """Held-out text; None: the last part of `train`, whose share is `held_out`."""
    test: str | tuple[str, str] | None = None
    """The text on which the trained model is measured; None: the held-out text."""
    held_out: float = 0.1
    tokenizer: cr.TokenizerChoice = field(default_factory=lambda: cr.TokenizerChoice("word"))
    context: Context = "stream"
    back_translation: BackTranslation | None = None
    """For pairs: how more of them are made; None: not at all."""

    def texts(self, data: Path, folder: Path) -> Texts:
        """Return the files of `data`; new files, with parts of them, are written to `folder`."""
        train = _opened(data, self.train)
        if self.valid is None:
            assert isinstance(train, Path)
            train, valid = split_end(train, self.held_out, folder)
        else:
            valid = _opened(data, self.valid)
        return Texts(train, valid, valid if self.test is None else _opened(data, self.test))

    def check(self, **settings: Any) -> Any:
        """Return the settings of the recipe as an object of the kind, with some of them changed."""
        return closed(parse(find_kind(self.kind).settings, {**self.settings, **settings}))


def split_end(text: Path, share: float, folder: Path) -> tuple[Path, Path]:
    """Split a text into two files: the last one has this share of its characters."""
    characters = text.read_text(encoding="utf-8")
    first = int(len(characters) * (1 - share))
    parts = folder / f"{text.stem}.train.txt", folder / f"{text.stem}.valid.txt"
    for path, part in zip(parts, (characters[:first], characters[first:]), strict=True):
        path.write_text(part, encoding="utf-8")
    return parts


def names() -> list[str]:
    """Return the names of all recipes."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name != "__main__")


def find(name: str) -> Recipe:
    """Return the recipe of a name."""
    if name not in names():
        raise ChainruleError(f"there is no recipe {name!r}; there are: {', '.join(names())}")
    recipe: Recipe = importlib.import_module(f"recipes.{name}").recipe()
    return recipe


def run(
    recipe: Recipe,
    data: Path,
    *,
    device: str = "auto",
    settings: Mapping[str, Any] | None = None,
    run_folder: Path | None = None,
    resume: bool = False,
    progress: Progress = SILENT,
) -> tuple[Any, Any]:
    """Train the model of a recipe, with some settings changed, and measure it in the way of its task."""
    changed = settings or {}
    how: dict[str, Any] = {"tokenizer": recipe.tokenizer, "context": recipe.context, "progress": progress}
    how["device"] = device
    if resume and recipe.back_translation is not None:
        raise ChainruleError("a recipe with back-translation cannot be resumed: its new pairs are not kept")
    with tempfile.TemporaryDirectory(prefix="chainrule-recipe-") as folder:
        texts = recipe.texts(data, Path(folder))
        train = texts.train
        if recipe.back_translation is not None:
            train = _with_new_sources(recipe, recipe.back_translation, texts, how, changed)
        own = vars(recipe.check(**changed))
        lm = cr.train(recipe.kind, train, valid=texts.valid, run=run_folder, resume=resume, **how, **own)
        task = find_task(find_kind(recipe.kind).task)
        return lm, import_object(task.evaluate)(lm, texts.test, progress=progress)


def _with_new_sources(
    recipe: Recipe, back: BackTranslation, texts: Texts, how: Mapping[str, Any], changed: Mapping[str, Any]
) -> cr.Pairs:
    """Return the pairs to train on, and their targets with new sources."""
    assert isinstance(texts.train, cr.Pairs) and isinstance(texts.valid, cr.Pairs)
    settings = vars(recipe.check(**{**back.settings, **changed}))
    reverse = cr.train(recipe.kind, turned(texts.train), valid=turned(texts.valid), **how, **settings)
    new = back_translated(reverse, texts.train, back.strategy, each=back.each, progress=how["progress"])
    return cr.Pairs.of([*list(texts.train) * back.repeats, *new])


def _opened(data: Path, names: str | tuple[str, str]) -> Path | cr.Pairs:
    """Return the file of a name, or the pairs of two files."""
    return _found(data / names) if isinstance(names, str) else cr.Pairs.open(*(_found(data / one) for one in names))


def _found(path: Path) -> Path:
    if not path.exists():
        raise ChainruleError(f"{path} is not there: name the folder of the data with --data")
    return path
