"""Held-out text in memory to ln p of each token, from Python: one long text, or many lines.

One long text is scored in a process of its own (`python -m benchmarks.ngram.one_model`), on one core or on all; the
sides that score many lines take turns in this process.
"""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

import chainrule as cr
from benchmarks.harness import Side, is_installed, race, show
from benchmarks.ngram.lab import PAIRS, Lab, has_kenlm, measure

SAME = 1e-4
"""The largest relative difference of perplexities that counts as none."""
QUANTISED = 5e-3
SAME_LINE = 1e-5
"""The same for ln p of a line: KenLM adds up in single precision."""
ROUNDS = 9


def run(lab: Lab) -> None:
    with_kenlm = has_kenlm("lmplz", "build_binary", module=True)
    found: dict[str, dict[str, Any]] = {}
    for cores in dict.fromkeys((1, os.cpu_count() or 1)):
        rows = []
        for ours, theirs in PAIRS.items():
            found[ours] = _run_model("chainrule", lab.ours(ours)[0], lab.held_out, cores)
            rows += _rows(f"chainrule, {ours}", found[ours], found[ours])
            if with_kenlm:
                found[theirs] = _run_model("kenlm", lab.theirs(theirs)[0], lab.held_out, cores)
                rows += _rows(f"KenLM, {theirs}", found[theirs], found[ours])
        headings = ["call", "M tokens/s", "M tokens/CPU s", "surprisals is", "in CPU s"]
        show(f"scoring {found['compact']['tokens']:,} tokens, cores: {cores}", headings, rows)
    _perplexities(found)


def _run_model(side: str, model: Path, text: Path, cores: int) -> dict[str, Any]:
    """Run one model; return its tokens, its sums of ln p, and the best seconds and CPU seconds of each call."""
    ran = measure([sys.executable, "-m", "benchmarks.ngram.one_model", side, model, text, str(cores)])
    answer: dict[str, Any] = json.loads(ran.output)
    return answer


def _rows(name: str, found: dict[str, Any], ours: dict[str, Any]) -> list[list[str]]:
    """Return a row for each call, with the ratio of its time to that of our `surprisals`."""
    rows = []
    seconds, cpu = (ours["calls"]["surprisals"][what] / ours["tokens"] for what in ("seconds", "cpu"))
    for call, took in found["calls"].items():
        own_seconds, own_cpu = took["seconds"] / found["tokens"], took["cpu"] / found["tokens"]
        ratios = ["", ""] if call == "surprisals" else [f"{own_seconds / seconds:.2f}x", f"{own_cpu / cpu:.2f}x"]
        rows.append([f"{name}: {call}", f"{1e-6 / own_seconds:.2f}", f"{1e-6 / own_cpu:.2f}", *ratios])
    return rows


def perplexities(found: dict[str, Any]) -> tuple[float, float]:
    """Return the perplexity of all words, and that of the words of the vocabulary."""
    known = found["tokens"] - found["unknown"]
    return math.exp(-found["nats"] / found["tokens"]), math.exp(-found["nats_of_known"] / known)


def _perplexities(found: dict[str, dict[str, Any]]) -> None:
    rows = []
    for ours, theirs in PAIRS.items():
        own = perplexities(found[ours])
        plain = perplexities(found["compact"])
        rows.append([f"chainrule, {ours}", *(f"{p:.4f}" for p in own), "", _apart(own, plain, QUANTISED)])
        if theirs in found:
            peer = perplexities(found[theirs])
            plain = perplexities(found["trie"])
            apart = _apart(own, peer, SAME if ours != "bits=8" else QUANTISED)
            rows.append([f"KenLM, {theirs}", *(f"{p:.4f}" for p in peer), apart, _apart(peer, plain, QUANTISED)])
            if found[ours]["tokens"] != found[theirs]["tokens"]:
                print(f"NOT THE SAME TEXT: {found[ours]['tokens']:,} and {found[theirs]['tokens']:,} tokens")
    show("perplexity", ["model", "all words", "known words", "ours differs by", "quantising changes it by"], rows)


def _apart(some: tuple[float, float], others: tuple[float, float], most: float) -> str:
    """Return the larger of the two relative differences, with a warning if it is above `most`."""
    apart = max((a / b - 1 for a, b in zip(some, others, strict=True)), key=abs)
    return f"{apart:+.5%}" + (" TOO MUCH" if abs(apart) > most else "")


def run_texts(lab: Lab) -> None:
    """Compare `chainrule.score` of a list of lines with loops over KenLM's module, which reads our model as ARPA.

    KenLM's `score` gives a number for each line; `full_scores` gives one for each token, as `chainrule.score` does.
    """
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
        print(
            f"ln p of a line differs by {apart:.1e} at most" + (" TOO MUCH" if apart > SAME_LINE else ""),
            flush=True,
        )
    race(f"{len(lines):,} lines, from a list of str", "lines", sides, ROUNDS)
