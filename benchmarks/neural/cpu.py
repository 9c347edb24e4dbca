"""Networks on a CPU, on Tiny Shakespeare, beside nanoGPT with its setting for a CPU.

The setting: 4 layers of width 128, 64 characters of context, 12 rows.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.harness import Side, race, show
from benchmarks.neural.lab import Lab, Texts, ratio
from benchmarks.neural.nanogpt import NanoGPT, Plan
from benchmarks.neural.shakespeare import characters, their_ids
from chainrule.evaluation.measure import measure

ROUNDS, STEPS, COMPILED_STEPS = 9, 25, 200
KINDS = ("lstm", "transformer")
MINUTES = 3.0
"""The time of each default network where there is no checkout of nanoGPT to time."""
DESIGNS: dict[str, dict[str, Any]] = {
    "chainrule, the same design": {"preset": "gpt2", "bias": False},
    "chainrule, fast": {"preset": "fast", "tied": True},
}


def run(lab: Lab) -> None:
    lab = dataclasses.replace(lab, device="cpu")
    plan = cpu_plan(lab)
    texts, checkout = characters(lab), lab.peer("nanoGPT")
    ids = their_ids(texts)
    new_peer = None
    if checkout is not None:
        new_peer = partial(NanoGPT, lab, checkout, plan, ids.train, ids.vocab_size)
    _race(lab, texts, plan, new_peer)
    _compiled(lab, texts, plan, new_peer)
    _losses(lab, texts, plan, None if new_peer is None else new_peer())


def cpu_plan(lab: Lab) -> Plan:
    """Return nanoGPT's setting for a CPU."""
    iterations = lab.options.steps or lab.pick(2000, 20)
    return Plan(
        layers=lab.pick(4, 1),
        heads=lab.pick(4, 2),
        width=lab.pick(128, 16),
        context=lab.pick(64, 8),
        rows=12,
        learning_rate=1e-3,
        iterations=iterations,
        warmup=iterations // 20,
        beta2=0.99,
        log_every=1,
    )


def _race(lab: Lab, texts: Texts, plan: Plan, new_peer: Callable[[], NanoGPT] | None) -> None:
    """Print characters per second of training, in short turns, so that other load affects all sides alike."""
    steps = lab.pick(STEPS, 2)
    sides = []
    for name, design in DESIGNS.items():
        train = partial(lab.train, "transformer", texts, settings_of(plan, design, steps), keep=False)
        sides.append(Side(name, train, plan.tokens * steps))
    if new_peer is not None:
        sides.append(Side("nanoGPT", lambda: new_peer().steps(steps), plan.tokens * steps))
    race(f"training, {plan.tokens} characters a step", "characters", sides, lab.pick(ROUNDS, 1))
    if new_peer is not None:
        for side in sides[:-1]:
            ratios = sorted(b / a for a, b in zip(side.seconds, sides[-1].seconds, strict=True))
            rounds = ", ".join(f"{ratio:.2f}" for ratio in ratios)
            print(f"{side.name}: {statistics.median(ratios):.2f}x nanoGPT, the median of {rounds}", flush=True)


def _compiled(lab: Lab, texts: Texts, plan: Plan, new_peer: Callable[[], NanoGPT] | None) -> None:
    """Print the rate of the fast design when compiled, and the rate of the peer, which is not compiled on a CPU."""
    steps = lab.pick(COMPILED_STEPS, 2)
    settings = settings_of(plan, DESIGNS["chainrule, fast"], steps) | {"compile": lab.pick("yes", "no")}
    trained = lab.train("transformer", texts, settings)
    compared = ""
    if new_peer is not None:
        peer = new_peer()
        peer.steps(lab.pick(5, 1))
        theirs = plan.tokens * steps / lab.seconds(lambda: peer.steps(steps))
        print(f"nanoGPT: {theirs:,.0f} characters/s")
        compared = f", {ratio(trained.rate, theirs)} nanoGPT"
    rate, first = f"{trained.rate:,.0f} characters/s{compared}", trained.seconds_until(1)
    print(f"chainrule, fast, compiled: {rate}; the first step takes {first:.0f} s")


def _losses(lab: Lab, texts: Texts, plan: Plan, peer: NanoGPT | None) -> None:
    """Print the loss of each side on the held-out text after equally many characters."""
    rows = []
    for name, design in DESIGNS.items():
        trained = lab.train("transformer", texts, settings_of(plan, design, plan.iterations))
        loss = lab.loss_in_windows(trained.nats, texts.valid.ids, plan.context)
        rows.append([name, f"{trained.parameters:,}", f"{loss:.4f}"])
    if peer is not None:
        peer.steps(plan.iterations)
        parameters = sum(weight.numel() for weight in peer.raw.parameters())
        rows.append(["nanoGPT", f"{parameters:,}", f"{peer.loss(their_ids(texts).valid):.4f}"])
    title = f"held-out loss after {plan.iterations * plan.tokens:,} characters"
    show(title, ["side", "parameters", "nats a character"], rows)


def settings_of(plan: Plan, design: dict[str, Any], steps: int) -> dict[str, Any]:
    """Return the plan as our settings; our learning rate falls to zero, theirs to a tenth."""
    return {
        **design,
        **{
            name: getattr(plan, name)
            for name in ("layers", "width", "heads", "learning_rate", "weight_decay", "clip")
        },
        "window": plan.context,
        "batch": plan.tokens,
        "schedule": "cosine",
        "warmup": plan.warmup / plan.iterations,
        "steps": steps,
        "validate_every": steps,
        "precision": "float32",
        "compile": "no",
    }


def run_minutes(lab: Lab) -> None:
    """Train our default networks in the time of nanoGPT's setting, with no other setting than the time."""
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
