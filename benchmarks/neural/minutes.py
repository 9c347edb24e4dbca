"""What a network learns in the time that nanoGPT's setting for a CPU takes, with nothing but the time set."""

from __future__ import annotations

import dataclasses
import time

from benchmarks.harness import show
from benchmarks.neural.cpu import cpu_plan
from benchmarks.neural.lab import Lab
from benchmarks.neural.nanogpt import NanoGPT
from benchmarks.neural.shakespeare import characters, their_ids
from chainrule.evaluation.measure import measure

KINDS = ("lstm", "transformer")
MINUTES = 3.0
"""The time of each network where there is no checkout of nanoGPT to time."""


def run(lab: Lab) -> None:
    lab = dataclasses.replace(lab, device="cpu")
    texts, checkout, rows = characters(lab), lab.peer("nanoGPT"), []
    minutes = lab.pick(MINUTES, 0.01)
    if checkout is not None:
        plan, ids = cpu_plan(lab), their_ids(texts)
        peer = NanoGPT(lab, checkout, plan, ids.train, ids.vocab_size)
        seconds = lab.seconds(lambda: peer.steps(plan.iterations))
        minutes = seconds / 60
        rows.append(["nanoGPT's setting for a CPU", f"{seconds:.0f}", f"{peer.loss(ids.valid):.4f}"])
    for kind in KINDS:
        began = time.perf_counter()
        trained = lab.train(kind, texts, {"minutes": minutes}, validate=True, chooses=True)
        seconds, nats = time.perf_counter() - began, measure(trained.lm, texts.valid).nats
        rows.append([f"chainrule train {kind}", f"{seconds:.0f}", f"{nats:.4f}"])
    show("Tiny Shakespeare, the last tenth held out", ["side", "seconds", "nats a character"], rows)
