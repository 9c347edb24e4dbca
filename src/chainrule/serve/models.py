"""The models of a server: a fixed map from names to folders, each with a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from chainrule.contract.kinds import load
from chainrule.contract.lm import LanguageModel, prepare, read
from chainrule.contract.model import Model
from chainrule.decode.sample import write_steps
from chainrule.decode.strategies import Sample
from chainrule.errors import ChainruleError, FolderError, ModelError
from chainrule.folder import MANIFEST
from chainrule.serve.batching.scheduler import READ_AT_ONCE, Limits, Scheduler

SomeModel = TypeVar("SomeModel", bound=Model)
_LOG = logging.getLogger("chainrule.serve")
_TEXTS_TO_COMPILE = 64  # of 32 tokens: so many that a model takes compiled code to write them


class UnknownModelError(ChainruleError):
    """No model has that name."""


@dataclass(frozen=True)
class Served:
    """A model, its name, and the thread that it works on."""

    name: str
    folder: Path
    model: Model
    scheduler: Scheduler
    created: int
    """When it was loaded, in seconds since 1970."""
    version: tuple[int, ...]
    """The identity of its folder, which changes when the folder is replaced."""

    @property
    def lm(self) -> LanguageModel:
        """The model, if it predicts text; else an error says what it does instead."""
        return self.expect(LanguageModel.expect)

    def expect(self, contract: Callable[[Model], SomeModel]) -> SomeModel:
        """Return the model if it keeps a contract; else an error names the route for it."""
        try:
            return contract(self.model)
        except ModelError:
            model = self.model
            route = "/v1/completions" if model.verb == LanguageModel.verb else f"/v1/{model.verb}"
            raise ModelError(
                f"{self.name} is a model of the kind {model.kind}, which can {model.purpose}: {route} is for it"
            ) from None


class Models:
    """All models by name."""

    def __init__(
        self, folders: Mapping[str, Path], limits: Limits | None = None, device: str = "cpu", dtype: str = "float32"
    ) -> None:
        if not folders:
            raise ModelError("there is nothing to serve: name the folder of a model")
        self._folders, self._limits = dict(folders), limits
        self._device, self._dtype = device, dtype
        self._served: dict[str, Served] = {}
        self._retired: list[Served] = []

    def load(self, say: Callable[[str], None] = lambda message: None) -> None:
        """Load all models, before the server starts: faults of a folder should be known then.

        `say` is called with what is loaded next.
        """
        for number, name in enumerate(self._folders, start=1):
            say(f"Loading {name} ({number} of {len(self._folders)})")
            self._served[name] = self._loaded(name)

    def _loaded(self, name: str) -> Served:
        folder = self._folders[name]
        version = _version(folder)
        model = load(folder, device=self._device, dtype=self._dtype)
        if isinstance(model, LanguageModel):
            prepare(model)
            if model.capabilities.is_compiled:  # compiled here, not while a client waits and another one streams
                ids_BT = np.zeros((2, READ_AT_ONCE), dtype=np.int64)
                read(model, model.extend(model.start(2), ids_BT), ids_BT)
                state, uniforms_BT = model.start(_TEXTS_TO_COMPILE), np.full((_TEXTS_TO_COMPILE, 32), 0.5)
                write_steps(model, state, Sample(), ids_BT[:0], uniforms_BT, end=None)
        return Served(name, folder, model, Scheduler(model, self._limits), int(time.time()), version)

    def start(self) -> None:
        """Start the thread of each model, from the event loop that runs now."""
        for served in self._served.values():
            served.scheduler.start()

    def close(self) -> None:
        """End all threads."""
        for served in [*self._served.values(), *self._retired]:
            served.scheduler.close()

    def all(self) -> list[Served]:
        """Return the models, in the order in which they were named."""
        return [*self._served.values()]

    def find(self, name: str | None) -> Served:
        """Return a model by its name; None is for the first one."""
        if name is None:
            return next(iter(self._served.values()))
        if name not in self._served:
            raise UnknownModelError(f"no model is called {name[:100]!r}; there are: {', '.join(self._served)}")
        return self._served[name]

    async def watch(self, seconds: float = 1.0) -> None:
        """Load folders again that are replaced: new requests go to the new model, old ones end on the old one.

        A folder that cannot be loaded is reported once; the old model stays, and the folder is tried again.
        """
        reported: dict[str, tuple[tuple[int, ...], str]] = {}
        while True:
            await asyncio.sleep(seconds)
            for name, served in [*self._served.items()]:
                version = _version(served.folder)
                if version == served.version:
                    continue
                try:
                    fresh = await asyncio.to_thread(self._loaded, name)
                except Exception as error:  # whatever it is, the other folders are watched on
                    if reported.get(name) != (version, str(error)):
                        reported[name] = version, str(error)
                        is_known = isinstance(error, ChainruleError)
                        _LOG.warning(
                            "%s was replaced and cannot be loaded; the old model stays: %s",
                            name,
                            error,
                            exc_info=None if is_known else error,
                        )
                    continue
                fresh.scheduler.start()
                self._served[name] = fresh
                self._retired.append(served)
            for served in [*self._retired]:
                if not served.scheduler.is_busy:
                    served.scheduler.close()
                    self._retired.remove(served)


def _version(folder: Path) -> tuple[int, ...]:
    """Return the identity of a folder's manifest; empty while there is none."""
    try:
        found = (folder / MANIFEST).stat()
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def named_folders(arguments: Iterable[str]) -> dict[str, Path]:
    """Parse folders as the command line names them, DIR or NAME=DIR; a folder's own name is the default."""
    folders: dict[str, Path] = {}
    for argument in arguments:
        name, equals, rest = argument.partition("=")
        if equals and not Path(argument).exists():
            folder = Path(rest)
        else:
            folder = Path(argument)
            name = folder.resolve().name
        if name in folders:
            raise FolderError(f"two models are called {name}: name one of them otherwise, as in other={folder}")
        folders[name] = folder
    return folders
