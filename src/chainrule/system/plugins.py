"""Plug-ins: entry points of other packages, found by name and loaded when they are used.

A plug-in that cannot be loaded, whatever it raises, becomes a PluginError that names it, so that listing and
comparing go on without it.
"""

from __future__ import annotations

import pkgutil
import sys
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from chainrule.errors import PluginError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Expected = TypeVar("Expected")


def import_object(path: str) -> Any:
    """Return the object that a path such as `package.module:NAME` names."""
    return pkgutil.resolve_name(path)


def find_plugins(group: str) -> dict[str, EntryPoint]:
    """Return the plug-ins of a group by name; none is imported."""
    return _plugins(group, tuple(sys.path))


@cache
def _plugins(group: str, path: tuple[str, ...]) -> dict[str, EntryPoint]:
    """Find the plug-ins once for each search path: that reads a file of every package that is installed."""
    from importlib.metadata import entry_points  # 40 ms to import

    return {point.name: point for point in entry_points(group=group)}


def load_plugin(point: EntryPoint, expected: type[Expected]) -> Expected:
    """Return the object that an entry point names; for a class, `expected` is `type`."""
    try:
        found = point.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a plug-in may even call sys.exit while it is imported
        reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise PluginError(f"the plug-in {point.name!r} ({point.value}) cannot be loaded: {reason}") from error
    if not isinstance(found, expected):
        raise PluginError(
            f"the plug-in {point.name!r} ({point.value}) should be a {expected.__name__}, "
            f"not {type(found).__name__}"
        )
    return found
