"""Tiny Shakespeare in characters, nanoGPT's 10.65 M parameters: seconds until it reaches a loss, and its best."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import recipes

from benchmarks.harness import show
from benchmarks.neural.lab import Lab, Run, Texts
from benchmarks.neural.nanogpt import NanoGPT, Plan
from chainrule.evaluation.measure import measure
from chainrule.text.corpus import Corpus
from chainrule.tokens.registry import train_tokenizer

EVERY = 100
"""Steps of nanoGPT between two validations; the time of validations does not count."""


class Ids(NamedTuple):
    """Texts as nanoGPT's ids, which are those of characters only."""

    train: np.ndarray
    valid: np.ndarray
    vocab_size: int


class Reached(NamedTuple):
    """A loss, and the steps and seconds until it was reached."""

    loss: float
    step: int
    seconds: float
    startup: float


def characters(lab: Lab) -> Texts:
    """Return the first nine tenths and the last tenth, with a tokenizer of all characters."""
    recipe = recipes.find("shakespeare_transformer")
    paths = recipe.texts(lab.data, lab.folder)
    tokenizer = train_tokenizer("char", Corpus.open(lab.text(recipe.train)))
    return lab.encode(tokenizer, Corpus.open(paths.train), Corpus.open(paths.valid))


def their_ids(texts: Texts) -> Ids:
    """Return nanoGPT's ids, which start at 0: our </s>, which is the line end, comes before our first character."""
    first = texts.tokenizer.eos
    train, valid = (np.asarray(text.ids, np.int64) - first for text in (texts.train, texts.valid))
    return Ids(train, valid, texts.tokenizer.vocab_size - first)


def run(lab: Lab) -> None:
    texts, checkout = characters(lab), lab.peer("nanoGPT")
    theirs = None if checkout is None else _train_theirs(lab, checkout, texts)
    target = lab.options.target if theirs is None else theirs.loss
    recipe = recipes.find("shakespeare_transformer")
    small: dict[str, Any] = {"layers": 1, "width": 12, "window": 16, "batch": 64, "steps": 4, "validate_every": 2}
    changed = lab.pick({"compile": "yes"}, small)  # as nanoGPT is; the recipe is too short to repay it
    trained = lab.train(recipe.kind, texts, {**recipe.settings, **changed}, validate=True)
    reached = [
        Reached(loss, step, trained.seconds_until(step), trained.startup) for step, loss in trained.validations
    ]
    as_good = _first(reached, target)
    rows = {
        "nanoGPT": theirs,
        "chainrule, as good": as_good,
        f"chainrule, {lab.options.target}": _first(reached, lab.options.target),
        "chainrule, its best": min(reached),
    }
    show(
        f"until a held-out loss of {target:.4f} nats a character",
        ["side", "nats", "step", "s, first step on", "s, before it"],
        [_row(name, found) for name, found in rows.items() if found is not None],
    )
    if theirs is not None and as_good is not None:
        whole = (theirs.seconds + theirs.startup) / (as_good.seconds + as_good.startup)
        print(f"ours is {theirs.seconds / as_good.seconds:.2f}x as fast; with what comes before: {whole:.2f}x")
    _measure_best(lab, trained, texts)


def _measure_best(lab: Lab, trained: Run, texts: Texts) -> None:
    """Print the loss of the best weights, measured as for nanoGPT and as by `evaluate`."""
    window = trained.lm.network.window
    assert window is not None
    side_by_side = lab.loss_in_windows(trained.nats, texts.valid.ids, window)
    measured = measure(trained.lm, texts.valid)
    print(f"the best weights: {side_by_side:.4f} nats in windows side by side, {measured.nats:.4f} as evaluated")
    print(f"{trained.rate:,.0f} characters/s, {trained.parameters:,} parameters", flush=True)


def _train_theirs(lab: Lab, checkout: Path, texts: Texts) -> Reached:
    """Train nanoGPT until it reaches the loss; return that or, if it never does, the best loss."""
    plan = Plan(
        layers=lab.pick(6, 1),
        heads=lab.pick(6, 2),
        width=lab.pick(384, 12),
        context=lab.pick(256, 16),
        rows=lab.pick(64, 4),
        learning_rate=1e-3,
        iterations=lab.pick(5000, 4),
        warmup=lab.pick(100, 1),
        beta2=0.99,
        dropout=0.2,
    )
    ids = their_ids(texts)
    peer, startup = NanoGPT.compiled(lab, checkout, plan, ids.train, ids.vocab_size, warm_up=2)
    best, seconds = Reached(float("inf"), 0, 0.0, startup), 0.0
    while peer.done < plan.iterations and best.loss > lab.options.target:
        seconds += lab.seconds(lambda: peer.steps(min(EVERY, plan.iterations - peer.done)))
        best = min(best, Reached(peer.loss(ids.valid), peer.done, seconds, startup))
    return best


def _first(reached: list[Reached], loss: float) -> Reached | None:
    """Return the first validation with a loss as low as this; None if there is none."""
    return next((found for found in reached if found.loss <= loss), None)


def _row(name: str, reached: Reached) -> list[str]:
    return [name, f"{reached.loss:.4f}", f"{reached.step:,}", f"{reached.seconds:.1f}", f"{reached.startup:.1f}"]
