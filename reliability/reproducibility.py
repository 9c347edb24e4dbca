"""The same seed twice, in fresh processes, with other numbers of threads: the same text, the same model."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from itertools import product

from chainrule.contract.kinds import find_kind

from .controls import broken
from .frame import Trial
from .models import KINDS, made, trained

TRAINED = [kind for kind in KINDS if kind not in ("mixture", "table")]
WRITING = [kind for kind in KINDS if find_kind(kind).task == "language"]
THREADS = (1, 2)


def run(trial: Trial) -> None:
    """Train models of every kind and write with them, in pairs of fresh processes."""
    kinds = trial.chosen(list(KINDS))
    seeds = range(max(1, trial.count // len(kinds)))
    for seed in seeds:
        if trial.is_over:
            return
        some = kinds if not trial.small else ["ngram", "lstm"]
        found = [_answers(some, seed, threads, trial.control) for threads in THREADS]
        for kind, what in product(some, found[0][some[0]] if some else ()):
            one, other = (answers[kind].get(what) for answers in found)
            if one is not None:
                trial.note(what, None if one == other else f"{kind}, seed {seed}: {one} and {other}")


def _answers(kinds: list[str], seed: int, threads: int, control: str) -> dict[str, dict[str, str]]:
    """The model and the texts of each kind, computed in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-m", "reliability.reproducibility", str(seed), control, *kinds],
        env={**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONHASHSEED": str(threads)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    found: dict[str, dict[str, str]] = json.loads(done.stdout.splitlines()[-1])
    return found


def _answer(kind: str, seed: int) -> dict[str, str]:
    import chainrule as cr

    steps = {"steps": 3, "seed": seed} if "steps" in KINDS[kind] else {}
    model = trained(kind, **steps) if kind in TRAINED else made(kind)
    digest = hashlib.sha256()
    for name, array in sorted(model.tensors().items()):
        digest.update(name.encode() + array.tobytes())
    found = {"the same model": digest.hexdigest()}
    if kind in WRITING:
        found["the same text"] = str(cr.generate(model, max_tokens=30, seed=seed, temperature=0.9))
    return found


if __name__ == "__main__":
    with broken(sys.argv[2]):
        print(json.dumps({kind: _answer(kind, int(sys.argv[1])) for kind in sys.argv[3:]}))
