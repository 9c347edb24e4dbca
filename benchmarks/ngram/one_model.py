"""Score every token of a text by one model, in a process of its own, which score.py starts.

python -m benchmarks.ngram.one_model chainrule|kenlm MODEL TEXT CORES
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness import timed

WARM_UP, PASSES = 3, 9


def best(work: Callable[[], object]) -> dict[str, float]:
    """Return the least seconds and the least CPU seconds of the passes."""
    seconds, cpu = zip(*[timed(work) for _ in range(WARM_UP + PASSES)][WARM_UP:], strict=True)
    return {"seconds": min(seconds), "cpu": min(cpu)}


def score_by_chainrule(model: Path, text: str) -> dict[str, Any]:
    import chainrule as cr
    from chainrule.evaluation.measure import score_ids

    lm = cr.load(model)
    ids = lm.tokenizer.encode_lines(text.encode())
    log_probs, known = -lm.surprisals(text), ids != lm.tokenizer.unk
    return {
        "tokens": len(ids),
        "unknown": int((~known).sum()),
        "nats": float(log_probs.sum()),
        "nats_of_known": float(log_probs[known].sum()),
        "calls": {
            "surprisals": best(lambda: lm.surprisals(text)),
            "score_ids, of ids": best(lambda: list(score_ids(lm, ids))),
        },
    }


def score_by_kenlm(model: Path, text: str) -> dict[str, Any]:
    import kenlm

    lm = kenlm.Model(str(model))
    lines = text.removesuffix("\n").split("\n")
    tokens = [(log10, unknown) for line in lines for log10, _, unknown in lm.full_scores(line)]
    return {
        "tokens": len(tokens),
        "unknown": sum(unknown for _, unknown in tokens),
        "nats": math.log(10) * math.fsum(log10 for log10, _ in tokens),
        "nats_of_known": math.log(10) * math.fsum(log10 for log10, unknown in tokens if not unknown),
        "calls": {
            "score, of lines": best(lambda: [lm.score(line) for line in lines]),
            "full_scores": best(lambda: [list(lm.full_scores(line)) for line in lines]),
        },
    }


def main(side: str, model: str, text: str, cores: str) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-int(cores) :])
    score = {"chainrule": score_by_chainrule, "kenlm": score_by_kenlm}[side]
    print(json.dumps(score(Path(model), Path(text).read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main(*sys.argv[1:])
