"""Old names of modules and public names: they still work for one version, with a warning."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

RENAMED = {
    "chainrule.chain": "chainrule.contract.chain",
    "chainrule.compose": "chainrule.mixtures",
    "chainrule.fast_paths": "chainrule.contract.capabilities",
    "chainrule.inside": "chainrule.explanation",
    "chainrule.kinds": "chainrule.contract.kinds",
    "chainrule.lm": "chainrule.contract.lm",
    "chainrule.model": "chainrule.contract.model",
    "chainrule.pipeline": "chainrule.runs",
}

MOVED = {
    "decode": "Draft Generation Strategy Suggestion",
    "evaluation": "Measured Scores score_lines",
    "explanation": "Diagnosis Explanation",
    "masked": "Filled",
    "mixtures": "Dynamic",
    "ngram": "interpolate",
    "report": "Report make_report write_report",
    "seq2seq": "Alignment align",
    "tagging": "evaluate_tagger",
    "tasks": "Anomaly Correction Filtered Keystrokes NbestList anomalies correct filter_corpus filter_texts "
    "keystrokes minimal_pairs rerank",
    "training": "curves",
}
"""Names that were public in `chainrule`, by the room that has them now."""


def renamed_name(name: str) -> Any:
    """What `chainrule.NAME` was, if the name has moved; else None."""
    for room, names in MOVED.items():
        if name in names.split():
            warnings.warn(f"chainrule.{name} is now chainrule.{room}.{name}", DeprecationWarning, stacklevel=3)
            return getattr(importlib.import_module(f"chainrule.{room}"), name)
    return None


class RenamedModules(MetaPathFinder, Loader):
    """Finds a module by its old name."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in RENAMED else None

    def exec_module(self, module: ModuleType) -> None:
        old, new = module.__name__, RENAMED[module.__name__]
        warnings.warn(f"{old} is now {new}", DeprecationWarning, stacklevel=2)
        # what stands in sys.modules after this call is what an import returns
        sys.modules[old] = importlib.import_module(new)
