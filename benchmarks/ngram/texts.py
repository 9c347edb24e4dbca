"""Many short texts from Python: `chainrule.score` of a list of lines, beside a loop over KenLM's module.

All sides take turns in one process, and KenLM reads our own model from an ARPA file.
KenLM's `score` gives a number for each line; `full_scores` gives one for each token, as `chainrule.score` does.
"""

from __future__ import annotations

import math

import numpy as np

import chainrule as cr
from benchmarks.harness import Side, is_installed, race
from benchmarks.ngram.lab import Lab

ROUNDS = 9
SAME = 1e-5
"""The largest relative difference of ln p of a line that counts as none: KenLM adds up in single precision."""


def run(lab: Lab) -> None:
    lines = lab.held_out.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    models = {form: cr.load(lab.ours(form)[0]) for form in ("compact", "hash")}
    sides = [
        Side(f"chainrule.score, {form}", lambda lm=lm: cr.score(lm, lines).log_prob, len(lines))  # type: ignore[misc]
        for form, lm in models.items()
    ]
    if is_installed("KenLM", "kenlm", extra="benchmarks"):
        import kenlm

        arpa = lab.folder / "ours.arpa"
        cr.save_arpa(models["compact"], arpa)
        peer = kenlm.Model(str(arpa))
        sides += [
            Side("kenlm score", lambda: [peer.score(line) for line in lines], len(lines)),
            Side("kenlm full_scores", lambda: [list(peer.full_scores(line)) for line in lines], len(lines)),
        ]
        theirs = math.log(10) * np.asarray([peer.score(line) for line in lines])
        apart = np.abs(cr.score(models["compact"], lines).log_prob / theirs - 1).max()
        print(f"ln p of a line differs by {apart:.1e} at most" + (" TOO MUCH" if apart > SAME else ""), flush=True)
    race(f"{len(lines):,} lines, from a list of str", "lines", sides, ROUNDS)
