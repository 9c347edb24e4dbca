"""Modules of a peer's checkout, as they are."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def load_module(path: Path, name: str, known: dict[str, ModuleType] | None = None) -> ModuleType:
    """The module of a file under a name of its own: several peers have a `model`.

    `known` are the modules that it finds under the names it imports.
    """
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.exists():
        raise SystemExit(f"{path} is not there: is that a checkout of the peer?")
    module = importlib.util.module_from_spec(spec)
    hidden = {other: sys.modules.get(other) for other in known or {}}
    sys.modules.update(known or {})
    sys.modules[name] = module  # the compiler looks functions up by the name of their module
    try:
        spec.loader.exec_module(module)
    finally:
        for other, before in hidden.items():
            del sys.modules[other]
            if before is not None:
                sys.modules[other] = before
    return module
