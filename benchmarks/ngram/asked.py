"""One model, asked for every token of a text, in a process of its own: see score.py.

python -m benchmarks.ngram.asked chainrule|kenlm MODEL TEXT CORES
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

WARM_UP, PASSES = 3, 9


def best(work: Callable[[], object]) -> dict[str, float]:
    """The seconds and CPU seconds of the fastest pass."""
    seconds, cpu = [], []
    for _ in range(WARM_UP + PASSES):
        began, began_cpu = time.perf_counter(), time.process_time()
        work()
        seconds.append(time.perf_counter() - began)
        cpu.append(time.process_time() - began_cpu)
    return {"seconds": min(seconds[WARM_UP:]), "cpu": min(cpu[WARM_UP:])}


def ask_chainrule(model: Path, text: str) -> dict[str, Any]:
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


def ask_kenlm(model: Path, text: str) -> dict[str, Any]:
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
    ask = {"chainrule": ask_chainrule, "kenlm": ask_kenlm}[side]
    print(json.dumps(ask(Path(model), Path(text).read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main(*sys.argv[1:])
