"""Texts that can be read only once, and texts that change while they are read: all of them, or one clear error."""

from __future__ import annotations

import os
import random
import tempfile
import threading
from pathlib import Path

import chainrule as cr
from chainrule.errors import ChainruleError

from .frame import Trial

SMOOTHINGS = ("jelinek-mercer", "modified-kneser-ney", "mle")
TOKENIZERS = ("word", "char", "byte")


def run(trial: Trial) -> None:
    """Read texts in turn from a pipe and from a file that changes."""
    sorts = {"pipe": _pipe, "changing file": _changing}
    names = trial.chosen(list(sorts))
    for number in trial:
        name = names[number % len(names)]
        with tempfile.TemporaryDirectory(prefix="trial-") as folder:
            trial.note(name, sorts[name](trial.random, Path(folder)))


def _text(generator: random.Random) -> bytes:
    lines = generator.choice([1, 2, 50, 5000, 60_000])
    return b"".join(b"line %d of %d\n" % (i % generator.choice([3, 1000]), lines) for i in range(lines))


def _trained(path: Path, generator_state: int) -> tuple[str | None, int]:
    """The checksum of the text that a model was trained on, and its tokens with those held out."""
    generator = random.Random(generator_state)
    smoothing, tokenizer = generator.choice(SMOOTHINGS), generator.choice(TOKENIZERS)
    lm = cr.train("ngram", path, order=2, smoothing=smoothing, tokenizer=tokenizer)
    made = lm.provenance
    return made["corpus_sha256"], made["corpus_tokens"] + made["held_out_tokens"]


def _pipe(generator: random.Random, folder: Path) -> str | None:
    text, state = _text(generator), generator.getrandbits(32)
    (folder / "file").write_bytes(text)
    os.mkfifo(folder / "pipe")
    writer = threading.Thread(target=(folder / "pipe").write_bytes, args=(text,), daemon=True)
    writer.start()
    try:
        piped = _trained(folder / "pipe", state)
    except ChainruleError as error:
        return f"the pipe cannot be read: {error}"
    writer.join(10)
    plain = _trained(folder / "file", state)
    return None if piped == plain else f"{piped} from the pipe, {plain} from the file"


def _changing(generator: random.Random, folder: Path) -> str | None:
    path, stopped = folder / "file", threading.Event()
    path.write_bytes(_text(generator))
    changes = random.Random(generator.getrandbits(32))

    def change() -> None:
        while not stopped.wait(changes.random() / 200):
            with path.open("r+b") as file:
                file.seek(changes.randrange(path.stat().st_size + 1))
                file.write(changes.choice([b"new\n", b"\n\n", b"x" * 1000, b"other words here\n"]))
                if changes.random() < 0.1:
                    file.truncate()

    thread = threading.Thread(target=change)
    thread.start()
    try:
        _trained(path, generator.getrandbits(32))
    except ChainruleError:
        pass
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        stopped.set()
        thread.join()
    return None
