"""`curves`: the losses of a training over its steps, from its run folder or from the model it made."""

from __future__ import annotations

from pathlib import Path

from chainrule.errors import FolderError
from chainrule.folder import MANIFEST, read_folder
from chainrule.system.disk.tables import Curves
from chainrule.training.checkpoints.run_folder import HISTORY, METRICS, records_of

_MEASURED = ("steps", "validation")


def curves(folder: str | Path) -> Curves:
    """Return the curves of a training: every measurement of a run folder, or the validations of a model folder.

    >>> import tempfile
    >>> import chainrule as cr
    >>> small = {"engine": "tape", "hidden": 4, "embedding": 4, "steps": 2}
    >>> with tempfile.TemporaryDirectory() as run:
    ...     _ = cr.train("elman", ["the cat sat", "a dog ran"] * 4, run=run, **small)
    ...     found = curves(run)
    >>> found.columns()["step"][-1]
    2
    """
    folder = Path(folder)
    if (folder / METRICS).is_file():
        return Curves([one for one in records_of(folder / METRICS) if one.get("what") in _MEASURED])
    if not (folder / MANIFEST).is_file():
        raise FolderError(f"{folder}: neither a run folder (it has no {METRICS}) nor a model folder")
    history = read_folder(folder, verify=False).metrics.get(HISTORY)
    if not history:
        raise FolderError(
            f"{folder}: this model has no training curves; only a network that was trained in steps has some"
        )
    return Curves(history)
