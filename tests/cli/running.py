"""What running a verb gives, and the texts the tests of the command line share."""

from __future__ import annotations

import itertools
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import chainrule as cr

SENTENCES = [
    " ".join(words) for words in itertools.product(("i", "you", "we"), ("love", "chase"), ("cats", "mice"))
]
TEXT = "".join(f"{sentence}\n" for sentence in SENTENCES * 3) + "the café is closed\n"
HELD_OUT = "i love mice\nwe chase zebras\n\nyou love cats\n"
TOY = "i love cats\ni love dogs\ncats chase mice\n"
TRAIN_NGRAM = ("train", "ngram", "--tokenizer", "word")
"""The words that train a model of words; a text and --out DIR come next."""


@dataclass(frozen=True)
class Ran:
    """What a run left behind."""

    code: Any
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as standard JSON."""
        assert self.code == 0, self.err
        return strict_json(self.out)


Run: TypeAlias = Callable[..., Ran]
Fails: TypeAlias = Callable[..., str]


def sets(*settings: str) -> list[str]:
    """The words of a command for settings such as order=3."""
    return [word for setting in settings for word in ("--set", setting)]


def without_torch(*commands: list[object], is_installed: bool = False) -> subprocess.CompletedProcess[str]:
    """Run verbs one after the other in a process; the first that fails, or imports torch, ends it.

    Torch cannot be imported there, unless it `is_installed`.
    """
    script = "import sys, json\nfrom chainrule.cli.main import main\n"
    script += "" if is_installed else "sys.modules['torch'] = None\n"
    script += "for words in json.loads(sys.argv[1]):\n    try:\n        main(words)\n"
    script += "    except SystemExit as done:\n        if done.code:\n            raise\n"
    script += "    assert sys.modules.get('torch') is None, words\n"
    given = json.dumps([[str(word) for word in words] for words in commands])
    return subprocess.run([sys.executable, "-c", script, given], capture_output=True, text=True, check=False)


def strict_json(text: str) -> Any:
    """JSON as the standard has it, which knows neither Infinity nor NaN."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


def trained_folders(kinds: Mapping[str, Mapping[str, Any]], corpus: Path, folder: Path) -> dict[str, Path]:
    """A model folder for each kind, hardly trained, with these settings."""
    for kind, settings in kinds.items():
        cr.train(kind, corpus, steps=2, **settings, tokenizer="word").save(folder / kind)
    return {kind: folder / kind for kind in kinds}


def on_terminal(columns: int, *words: object, errors_too: bool = False) -> str:
    """What a verb shows on a terminal of so many columns; its standard error may be elsewhere."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": str(columns), "NO_COLOR": "1"}
    command = [sys.executable, "-m", "chainrule", *map(str, words)]
    errors = theirs if errors_too else subprocess.PIPE
    with subprocess.Popen(command, stdout=theirs, stderr=errors, env=environment) as process:
        os.close(theirs)
        seen = b""
        try:
            while piece := os.read(ours, 1 << 16):
                seen += piece
        except OSError:  # Linux says so when the other end is closed
            pass
        os.close(ours)
    assert process.returncode == 0
    return seen.decode().replace("\r\n", "\n")
