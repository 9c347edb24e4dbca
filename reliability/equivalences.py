"""Two ways to the same numbers: the laws of the contract on generated models, and other pairs of ways."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import chainrule as cr
from chainrule.testing import LAWS
from chainrule.testing.laws import NOT_OFFERED, laws_for

from .frame import Trial
from .models import KINDS

_OTHERS = ("mixture", "table", "seq2seq", "masked", "tagger", "classifier", "bayes")
SETTINGS = {kind: settings for kind, settings in KINDS.items() if kind not in _OTHERS}
"""The kinds that learn to predict text."""
TOLERANCE = 1e-5


def generated(random: Random, kind: str) -> Any:
    """A model of a kind, of a generated text with few words, so that laws can try every short text."""
    words = [f"w{i}" for i in range(random.randrange(2, 7))]
    lines = [" ".join(random.choices(words, k=random.randrange(1, 7))) for _ in range(random.randrange(12, 30))]
    settings = {**SETTINGS[kind], "tokenizer": "word", "context": random.choice(["line", "stream"])}
    if kind == "ngram":
        settings |= {"order": random.randrange(1, 5), "index": random.choice(["", "hash"])}
        settings["smoothing"] = random.choice(["modified-kneser-ney", "witten-bell", "jelinek-mercer", "add-k"])
    if "steps" in settings:
        settings |= {"steps": 2, "seed": random.randrange(1000)}
    return cr.train(kind, lines, **settings)


# -- beside the laws --------------------------------------------------------------------------------------


def _on_tape(lm: Any, random: Random) -> str | None:
    """The network computed by torch and on the tape."""
    from chainrule.autodiff.tape_model import load_on_tape

    if lm.kind in ("ngram", "anygram"):
        return NOT_OFFERED
    ids = np.asarray([[random.randrange(3, lm.tokenizer.vocab_size) for _ in range(9)]])
    with tempfile.TemporaryDirectory() as folder:
        lm.save(Path(folder) / "m")
        other = cr.to_numpy(load_on_tape(Path(folder) / "m").score(ids))
    return _close(cr.to_numpy(lm.score(ids)), other)


def _streamed(lm: Any, random: Random) -> str | None:
    """A text that is written piece by piece, and at once."""
    options: dict[str, Any] = {"max_tokens": 20, "seed": random.randrange(1000)}
    pieces = "".join(cr.stream(lm, "w1", cr.Temperature(0.9), **options))
    (whole,) = cr.generate_many(lm, ["w1"], cr.Temperature(0.9), **options)
    return None if pieces in (whole.text, whole.continuation) else f"{pieces!r} in pieces, {whole.text!r} at once"


def _drafted(lm: Any, random: Random) -> str | None:
    """The likeliest text, token by token, and by guesses that are checked several at a time."""
    one, other = (
        str(cr.generate(lm, "w1 w0", cr.Greedy(), max_tokens=12, draft=draft)) for draft in (None, "context")
    )
    return None if one == other else f"{one!r} token by token, {other!r} by guesses"


def _saved(lm: Any, random: Random) -> str | None:
    """A model before and after it is saved and loaded."""
    ids = np.asarray([[random.randrange(3, lm.tokenizer.vocab_size) for _ in range(9)]])
    with tempfile.TemporaryDirectory() as folder:
        lm.save(Path(folder) / "m")
        found = cr.to_numpy(cr.load(Path(folder) / "m").score(ids))
    return None if found.tobytes() == cr.to_numpy(lm.score(ids)).tobytes() else "other scores after loading"


def _close(one: np.ndarray, other: np.ndarray) -> str | None:
    worst = float(np.abs(one - other).max())
    return None if worst < TOLERANCE else f"they differ by {worst:.1e}"


WAYS: dict[str, Callable[[Any, Random], str | None]] = {
    "tape = torch": _on_tape,
    "stream = not": _streamed,
    "drafted = not": _drafted,
    "save -> load": _saved,
}


def run(trial: Trial) -> None:
    """Check laws and other ways on models of each kind in turn; a try is one law on one model."""
    kinds, ways = trial.chosen(list(SETTINGS)), [*LAWS, *WAYS]
    share = len(range(trial.part, trial.count, trial.parts))
    for number in count(trial.part, trial.parts):
        kind, random = kinds[number % len(kinds)], Random(f"{trial.seed} {number}")
        lm = generated(random, kind)
        for name in random.sample(ways, 4) if trial.small else ways:
            if trial.is_over or sum(trial.tries.values()) >= share:
                return
            if name in LAWS and name not in laws_for(lm):
                continue
            problem = _checked(name, lm, random)
            if problem != NOT_OFFERED:
                trial.note(name.replace("_", " "), problem and f"model {number}, {kind}: {problem}")


def _checked(name: str, lm: Any, random: Random) -> str | None:
    try:
        return WAYS[name](lm, random) if name in WAYS else LAWS[name](lm)
    except AssertionError as error:
        return str(error).strip().replace("\n", " ")[:200] or "not equal"
