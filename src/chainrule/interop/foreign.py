"""Files of other programs, in which any value may be missing or have any type."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chainrule.errors import ForeignFileError, SettingsError


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn an error that a value of the file causes in the block into a ForeignFileError that names the file.

    What is checked by name has a message of its own. This is for the rest: a list where a number is expected,
    bytes that are not UTF-8, a size that nothing can have.
    """
    try:
        yield
    except SettingsError as error:
        raise ForeignFileError(f"{path}: {error}") from None
    except KeyError as error:
        raise ForeignFileError(f"{path}: it does not say {error}") from None
    except (ArithmeticError, AttributeError, IndexError, RuntimeError, TypeError, ValueError) as error:
        found = " ".join(str(error).split())
        raise ForeignFileError(f"{path}: a value in it is not what it should be ({found})") from error
