"""`Model`: what everything that was trained has in common, whatever it does.

A language model (`lm.py`) is a Model that predicts the next token. A tagger or a masked model is a Model with a
contract of its own: it does not inherit methods that it could only refuse.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np

from chainrule.errors import ModelError
from chainrule.folder import Context, ModelFolder, write_folder
from chainrule.system.disk.tables import Curves
from chainrule.tokens.base import Tokenizer
from chainrule.tokens.registry import dump_tokenizer


class Model(ABC):
    """A trained model: its tokenizers, its settings, where it comes from, and how it is saved and moved."""

    purpose: ClassVar[str]
    """What models of a contract do, as an error says it: "predict text"."""
    verb: ClassVar[str]
    """The function of `chainrule` that has them do it, which is also the verb of the command line."""

    kind: str
    """The name of its kind, by which `chainrule.load` finds the code that reads its folder."""
    settings: Any
    """The frozen dataclass that it was made from."""
    context: Context | None = None
    """For a language model: where a sequence ends."""
    provenance: Mapping[str, Any] = MappingProxyType({})
    """Where it comes from: text, seed, versions, command. Saved with the model."""
    metrics: Mapping[str, Any] = MappingProxyType({})
    """What was measured of it. Saved with the model."""

    @property
    @abstractmethod
    def tokenizers(self) -> Mapping[str, Tokenizer]:
        """Its tokenizers by name."""

    @abstractmethod
    def tensors(self) -> Mapping[str, np.ndarray]:
        """Return the arrays that its folder stores, by name, in NumPy."""

    @abstractmethod
    def on(self, device: str, dtype: str = "float32") -> Model:
        """Return this model on a device, computing in a precision; this one stays as it is.

        The arrays that the copy computes are at least as precise as `dtype`, and at least float32. A kind that
        cannot compute on the device raises SettingsError.
        """

    @property
    def device(self) -> str:
        """Where it computes, as torch names devices."""
        return "cpu"

    @property
    def dtype(self) -> str:
        """The precision it computes in."""
        return "float64"

    def parts(self) -> Mapping[str, Model]:
        """Return the models that this one is made of, by name; each is saved in a folder inside its folder."""
        return {}

    # What follows is the same for every model; none overrides it.

    @property
    def history(self) -> Curves:
        """The losses of its training, at each validation; empty for a model that is not trained in steps."""
        return Curves(self.metrics.get("history", []))

    @classmethod
    def expect(cls, model: object) -> Self:
        """Return the model if it is of this class; else raise a ModelError that names the function to call."""
        if isinstance(model, cls):
            return model
        if not isinstance(model, Model):
            raise ModelError(f"expected a model, not {model!r}: chainrule.load(FOLDER) returns one")
        raise ModelError(
            f"a model of the kind {model.kind} does not {cls.purpose}: chainrule.{model.verb} is for it"
        )

    def content(self) -> ModelFolder:
        """Return the content of its model folder."""
        return ModelFolder(
            kind=self.kind,
            config=asdict(self.settings),
            context=self.context,
            tokenizers={name: dump_tokenizer(tokenizer) for name, tokenizer in self.tokenizers.items()},
            tensors=self.tensors(),
            provenance=dict(self.provenance),
            metrics=dict(self.metrics),
            parts={name: part.content() for name, part in self.parts().items()},
        )

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write the model folder; `chainrule.load` reads it back, bit for bit the same."""
        write_folder(folder, self.content(), overwrite=overwrite)

    def described_as(self, other: Model) -> Self:
        """Return this model with the provenance and metrics of another, of which it is a copy on some device."""
        self.provenance, self.metrics = other.provenance, other.metrics
        return self
