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
from chainrule.errors import ChainruleError
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
    with tempfile.TemporaryDirectory(prefix="chainrule-recipe-") as folder:
        texts = recipe.texts(data, Path(folder))
        lm = cr.train(
            recipe.kind,
            texts.train,
            valid=texts.valid,
            tokenizer=recipe.tokenizer,
            context=recipe.context,
            progress=progress,
            device=device,
            run=run_folder,
            resume=resume,
            **vars(recipe.check(**(settings or {}))),
        )
        task = find_task(find_kind(recipe.kind).task)
        return lm, import_object(task.evaluate)(lm, texts.test, progress=progress)


def _opened(data: Path, names: str | tuple[str, str]) -> Path | cr.Pairs:
    """Return the file of a name, or the pairs of two files."""
    return _found(data / names) if isinstance(names, str) else cr.Pairs.open(*(_found(data / one) for one in names))


def _found(path: Path) -> Path:
    if not path.exists():
        raise ChainruleError(f"{path} is not there: name the folder of the data with --data")
    return path
