"""nanoGPT's setting for a CPU: 4 layers, 128 wide, 64 characters of context, 12 rows; Tiny Shakespeare."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.harness import Side, race, show
from benchmarks.neural.lab import Lab, Texts, ratio
from benchmarks.neural.nanogpt import NanoGPT, Plan
from benchmarks.neural.shakespeare import characters, their_ids

ROUNDS, STEPS, COMPILED_STEPS = 9, 25, 200
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
    """nanoGPT's setting for a CPU."""
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
    """Characters per second of training, in short turns, so that what else the machine does meets all alike."""
    steps = lab.pick(STEPS, 2)
    sides = [
        Side(
            name,
            partial(lab.train, "transformer", texts, settings_of(plan, design, steps), keep=False),
            plan.tokens * steps,
        )
        for name, design in DESIGNS.items()
    ]
    if new_peer is not None:
        sides.append(Side("nanoGPT", lambda: new_peer().steps(steps), plan.tokens * steps))
    race(f"training, {plan.tokens} characters a step", "characters", sides, lab.pick(ROUNDS, 1))
    if new_peer is not None:
        for side in sides[:-1]:
            ratios = sorted(b / a for a, b in zip(side.seconds, sides[-1].seconds, strict=True))
            rounds = ", ".join(f"{ratio:.2f}" for ratio in ratios)
            print(f"{side.name}: {statistics.median(ratios):.2f}x nanoGPT, the median of {rounds}", flush=True)


def _compiled(lab: Lab, texts: Texts, plan: Plan, new_peer: Callable[[], NanoGPT] | None) -> None:
    """The fast design once it is compiled, and the peer, which is said to do without on a CPU, right after it."""
    steps = lab.pick(COMPILED_STEPS, 2)
    settings = settings_of(plan, DESIGNS["chainrule, fast"], steps) | {"compile": lab.pick("yes", "no")}
    trained = lab.train("transformer", texts, settings)
    theirs = None
    if new_peer is not None:
        peer = new_peer()
        peer.steps(lab.pick(5, 1))
        theirs = plan.tokens * steps / lab.seconds(lambda: peer.steps(steps))
        print(f"nanoGPT: {theirs:,.0f} characters/s")
    compared = "" if theirs is None else f", {ratio(trained.rate, theirs)} nanoGPT"
    first = trained.seconds_until(1)
    print(
        f"chainrule, fast, compiled: {trained.rate:,.0f} characters/s{compared}; the first step takes {first:.0f} s"
    )


def _losses(lab: Lab, texts: Texts, plan: Plan, peer: NanoGPT | None) -> None:
    """Loss on the held-out text after as many characters."""
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
    """The plan in our settings; but our learning rate falls to nothing, theirs to a tenth."""
    return {
        **design,
        "layers": plan.layers,
        "width": plan.width,
        "heads": plan.heads,
        "window": plan.context,
        "batch": plan.tokens,
        "learning_rate": plan.learning_rate,
        "weight_decay": plan.weight_decay,
        "clip": plan.clip,
        "schedule": "cosine",
        "warmup": plan.warmup / plan.iterations,
        "steps": steps,
        "validate_every": steps,
        "precision": "float32",
        "compile": "no",
    }
