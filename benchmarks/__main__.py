"""`python -m benchmarks NAME [options]`; each benchmark is a module here with a `main`."""

from __future__ import annotations

import importlib
import pkgutil
import sys

import benchmarks

NAMES = sorted(m.name for m in pkgutil.iter_modules(benchmarks.__path__) if m.name not in ("__main__", "harness"))

if len(sys.argv) < 2 or sys.argv[1] not in NAMES:
    sys.exit(f"usage: python -m benchmarks NAME [options]; there are: {', '.join(NAMES)}")
importlib.import_module(f"benchmarks.{sys.argv[1]}").main(sys.argv[2:])
