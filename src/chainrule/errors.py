"""The errors that chainrule raises. Each message says what was expected, what was found, and what to do.

The command line prints the one line of an error, and exits with 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class ChainruleError(Exception):
    """The base class of these errors: a problem that the user can solve."""

    is_reported = False
    """True if another process already shows the error to the user."""


class CorpusError(ChainruleError):
    """Text that cannot be read."""


class EncodingError(CorpusError):
    """Text that is not UTF-8: file, line and byte."""

    def __init__(self, name: str, line: int, byte: int, value: bytes) -> None:
        self.name, self.line, self.byte = name, line, byte
        super().__init__(
            f"{name}: line {line}, byte {byte}: expected UTF-8, found {value.hex(' ')}; convert the file, "
            "leave it out (of a folder --files '*.txt' takes some files), or use --encoding-errors replace"
        )


class SettingsError(ChainruleError):
    """An unknown setting, or a value that does not fit."""


class TokenizerError(ChainruleError):
    """A tokenizer that cannot be made or used."""


class FolderError(ChainruleError):
    """A model folder that cannot be read or written."""


class DamagedFileError(FolderError):
    """A file of chainrule that is missing, incomplete or changed since it was written."""


class ForeignFileError(FolderError):
    """A file of another format than its name says: a web page, a pickle, ..."""


class ArpaError(ChainruleError):
    """An ARPA file that cannot be read or written: file, line and reason."""


class VectorsError(ChainruleError):
    """Word vectors that cannot be read: file, line and reason."""


class ModelError(ChainruleError):
    """A model that gives NaN or a probability above one, or has the wrong kind."""


class TrainingError(ChainruleError):
    """Training that cannot go on: a loss that is NaN, too little memory, ..."""


class Interrupted(TrainingError):
    """Training that a signal stopped; the message says how to resume it."""

    def __init__(self, message: str, signal: int) -> None:
        self.signal = signal
        super().__init__(message)


class AutodiffError(ChainruleError):
    """A computation that does not fit: shapes, or the order of forward and backward."""


class NotANumberError(AutodiffError):
    """A computation that made NaN: which module did so first."""


class DecodingError(ChainruleError):
    """Generation that was asked for something impossible."""


class DiagnosisError(ChainruleError):
    """A model that cannot be diagnosed, or a text with nothing to diagnose."""


class CourseError(ChainruleError):
    """A lesson or an exercise that does not exist or cannot be read, or a folder that is in use."""


class PluginError(ChainruleError):
    """A plug-in of another package that cannot be loaded."""


class MissingExtraError(ChainruleError):
    """An optional library that is not installed."""

    def __init__(self, library: str, extra: str, purpose: str) -> None:
        self.library, self.extra = library, extra
        super().__init__(f"{purpose} needs {library}, which is not installed: pip install 'chainrule[{extra}]'")


@contextmanager
def importing(library: str, extra: str, purpose: str) -> Iterator[None]:
    """Turn the failed import of an optional library in the block into the error that says how to install it."""
    try:
        yield
    except ImportError:
        raise MissingExtraError(library, extra, purpose) from None
