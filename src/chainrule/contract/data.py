"""What a kind of model is trained on: texts as ids, what belongs to them, and where a model comes from."""

from __future__ import annotations

import contextlib
import platform
import shlex
import sys
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Generic, TypeVar

from chainrule._version import __version__
from chainrule.contract.lm import Context
from chainrule.errors import SettingsError
from chainrule.system.parallel import EMBEDDED, Executor
from chainrule.system.progress import SILENT, Progress
from chainrule.text.labelled import Labelled
from chainrule.text.overlap import SKETCH, to_text
from chainrule.text.tagged import Tagged
from chainrule.tokens.base import Tokenizer
from chainrule.tokens.ids import Encoded
from chainrule.tokens.registry import dump_tokenizer

T = TypeVar("T", Tagged, Labelled)


@dataclass(frozen=True)
class Sources:
    """The sources of the texts, line by line, in a tokenizer of their own."""

    tokenizer: Tokenizer
    train: Encoded
    valid: Encoded | None


@dataclass(frozen=True)
class Annotated(Generic[T]):
    """The tagged sentences, or the labelled texts, that the texts come from."""

    train: T
    valid: T | None


@dataclass(frozen=True)
class TrainingData:
    """Everything a kind needs to train a model, apart from its settings."""

    tokenizer: Tokenizer
    train: Encoded
    valid: Encoded | None
    """Held-out text, for kinds that tune on it."""
    context: Context = "line"
    seed: int = 0
    progress: Progress = SILENT
    device: str = "cpu"
    """Where to compute: cpu, or the name of a torch device."""
    run: Path | None = None
    """A folder for checkpoints and measurements; kinds that need none do not create it."""
    resume: bool = False
    """Continue from the newest checkpoint of the run folder."""
    sources: Sources | Annotated[Tagged] | Annotated[Labelled] | None = None
    """For kinds that learn from pairs, the sources: the texts are then the targets. For taggers, the sentences with
    their tags; for classifiers, the texts with their labels."""
    executor: Executor = EMBEDDED
    """Where the work is done, for kinds that take an executor."""
    base: Any = None
    """For a network on a base, the n-gram models (training/base.py)."""

    def __post_init__(self) -> None:
        if self.context not in ("line", "stream"):
            raise SettingsError(f"the context should be line or stream, not {self.context!r}")

    @property
    def fingerprints(self) -> dict[str, str | None]:
        """Checksums of the texts and the tokenizers, by name: it is the same data only if all are the same."""
        sides = {"corpus": self.train, "held-out text": self.valid}
        tokenizers = {"tokenizer": self.tokenizer}
        if isinstance(self.sources, Sources):  # the fingerprints of tagged sentences are those of the texts
            sides |= {"sources": self.sources.train, "held-out sources": self.sources.valid}
            tokenizers["tokenizer of the sources"] = self.sources.tokenizer
        return {
            **{name: None if one is None else one.fingerprint for name, one in sides.items()},
            **{name: sha256(dump_tokenizer(one).encode()).hexdigest() for name, one in tokenizers.items()},
        }

    def provenance(self) -> dict[str, Any]:
        """Where a model trained on this comes from: text, seed, versions, command."""
        from importlib.metadata import PackageNotFoundError, version  # 40 ms, which a model that is loaded saves

        libraries = {}
        for name in ("numpy", "tokenizers", "torch"):
            with contextlib.suppress(PackageNotFoundError):
                libraries[name] = version(name)
        return {
            "corpus_sha256": self.train.fingerprint,
            "corpus_bytes": self.train.bytes,
            "corpus_tokens": self.train.tokens,
            **({} if self.train.sketch is None else {SKETCH: to_text(self.train.sketch)}),
            **({} if self.sources is None else {"corpus_pairs": self.train.lines}),
            "held_out_sha256": self.valid.fingerprint if self.valid else None,
            "held_out_tokens": self.valid.tokens if self.valid else 0,
            "seed": self.seed,
            "chainrule": __version__,
            "python": platform.python_version(),
            **libraries,
            "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
            if sys.argv and sys.argv[0]
            else "python",
        }
