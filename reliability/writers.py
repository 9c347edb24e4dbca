"""What chainrule writes: for each, a function that writes a version of it, and one that says which is there."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import chainrule as cr
from chainrule.comparison import results as comparison
from chainrule.folder import ModelFolder, read_folder, write_folder
from chainrule.ngram.arpa.arpa_model import load_arpa, save_arpa
from chainrule.system.disk import replaced_path, sweep
from chainrule.system.progress import SILENT, Silent
from chainrule.tokens.char import CharTokenizer
from chainrule.tokens.ids import encode_corpus, learn_and_encode
from chainrule.tokens.registry import dump_tokenizer, load_tokenizer, train_tokenizer, write_tokenizer
from chainrule.tokens.vocabulary import Limit
from chainrule.training.checkpoints.checkpoint import Checkpoint, Checkpoints

from .models import KINDS, TEXT, made, trained

SIZE = 20_000
"""Numbers in the arrays that are written."""


@dataclass(frozen=True)
class Writer:
    """A writer of one kind of file or folder."""

    name: str
    write: Callable[[Path, int], None]
    """Write version `number` at a place inside a folder."""
    version: Callable[[Path], int | None]
    """The version that is there, None if nothing is; an error if it is neither whole nor absent."""
    cycle: int | None = None
    """After how many versions they repeat, where a file cannot hold the number; None: never."""

    def shown(self, number: int) -> int:
        """What `version` returns for version `number`."""
        return number if self.cycle is None else number % self.cycle


def _model(number: int) -> ModelFolder:
    return ModelFolder(
        kind="ngram",
        config={"number": number},
        context="line",
        tokenizers={"text": dump_tokenizer(CharTokenizer("abc"))},
        tensors={"array": np.full(SIZE, number, np.int64)},
    )


def _write_model(folder: Path, number: int) -> None:
    write_folder(folder / "m", _model(number), overwrite=True)


def _read_model(folder: Path) -> int | None:
    sweep(folder / "m")
    if not (folder / "m").exists():
        return None
    content = read_folder(folder / "m", verify=True)
    number: int = content.config["number"]
    assert (content.tensor("array") == number).all(), "arrays of one model, configuration of another"
    return number


def _write_checkpoint(folder: Path, number: int) -> None:
    state = {"number": number, "counts": {}}
    # each step is written twice: the second time its folder is replaced
    Checkpoints(folder, SILENT).write(number // 2, Checkpoint({"array": np.full(SIZE, number)}, state))


def _read_checkpoint(folder: Path) -> int | None:
    found = _newest(folder)
    return None if found is None else max(found)


def _newest(folder: Path) -> list[int] | None:
    from chainrule.training.checkpoints.checkpoint import _read
    from chainrule.training.checkpoints.run_folder import checkpoint_folders

    numbers = []
    for place in checkpoint_folders(folder):
        checkpoint = _read(place)
        number = checkpoint.state["number"]
        assert (checkpoint.arrays["array"] == number).all()
        numbers.append(number)
    return numbers or None


def _write_comparison(folder: Path, number: int) -> None:
    comparison.Comparison(comparison.FORMAT, "x" * SIZE, number, "line", {}, [], {}).write(folder)


def _read_comparison(folder: Path) -> int | None:
    path = folder / comparison.RESULTS
    return None if not path.exists() else int(json.loads(path.read_text())["vocab_size"])


def _write_tokenizer(folder: Path, number: int) -> None:
    write_tokenizer(CharTokenizer("".join(chr(0x100 + i) for i in range(number % 5000 + 1))), folder / "t")


def _read_tokenizer(folder: Path) -> int | None:
    return None if not (folder / "t" / "tokenizer.json").exists() else load_tokenizer(folder / "t").vocab_size - 4


def _write_ids(folder: Path, number: int) -> None:
    with replaced_path(folder / "ids") as path:
        encode_corpus(_text(), train_tokenizer("byte", _text()), path)
        with path.open("ab") as file:
            file.write(number.to_bytes(8, "little"))


def _write_words(folder: Path, number: int) -> None:
    """Ids of words, which are first numbers and then rewritten in place."""
    with replaced_path(folder / "ids") as path:
        learn_and_encode(_text(), Limit(), "whitespace", path)
        with path.open("ab") as file:
            file.write(number.to_bytes(8, "little"))


def _read_words(folder: Path) -> int | None:
    path = folder / "ids"
    if not path.exists():
        return None
    content = path.read_bytes()
    assert len(content) == 2 * 5 * SIZE // 20 + 8, f"{len(content)} bytes"
    assert max(np.frombuffer(content[:-8], np.uint16)) == 6
    return int.from_bytes(content[-8:], "little")


def _read_ids(folder: Path) -> int | None:
    path = folder / "ids"
    if not path.exists():
        return None
    content = path.read_bytes()
    assert len(content) == 2 * 20 * SIZE // 20 + 8, f"{len(content)} bytes"
    return int.from_bytes(content[-8:], "little")


@cache
def _text() -> cr.Corpus:
    return cr.Corpus.from_text("some words to write\n" * (SIZE // 20))


@cache
def _ngrams() -> Any:
    return cr.train("ngram", cr.Corpus.from_text("a b c\nb c a\n" * 50), order=2, tokenizer="word")


def _write_arpa(folder: Path, number: int) -> None:
    """Two versions of different sizes, told apart by their order."""
    lm = _ngrams() if number % 2 == 0 else _unigrams()
    save_arpa(lm, folder / "m.arpa.gz", overwrite=True)


@cache
def _unigrams() -> Any:
    return cr.train("ngram", cr.Corpus.from_text("a b c\nb c a\n" * 50), order=1, tokenizer="word")


def _read_arpa(folder: Path) -> int | None:
    path = folder / "m.arpa.gz"
    return None if not path.exists() else 2 - load_arpa(path).settings.order  # its only two versions


# -- models of every kind ---------------------------------------------------------------------------------


@cache
def _content(kind: str) -> ModelFolder:
    content: ModelFolder = made(kind).content()
    return content


def _saving(kind: str) -> Writer:
    def write(folder: Path, number: int) -> None:
        write_folder(folder / "m", replace(_content(kind), metrics={"number": number}), overwrite=True)

    def version(folder: Path) -> int | None:
        sweep(folder / "m")
        return None if not (folder / "m").exists() else int(cr.load(folder / "m").metrics["number"])

    return Writer(kind, write, version)


# -- files for other programs -----------------------------------------------------------------------------


@cache
def _llama(layers: int) -> Any:
    return trained("transformer", preset="llama", tokenizer="bpe", layers=layers)


def _exporting(form: Any, name: str) -> Writer:
    """Two versions, told apart by their layers."""
    from chainrule.interop.conversion import export_model, import_model

    def write(folder: Path, number: int) -> None:
        export_model(_llama(1 + number % 2), form, folder / name, overwrite=True)

    def version(folder: Path) -> int | None:
        sweep(folder / name)
        return None if not (folder / name).exists() else import_model(folder / name).settings.layers - 1

    return Writer(f"export to {form}", write, version, cycle=2)


# -- pages and texts --------------------------------------------------------------------------------------


@cache
def _report() -> Any:
    import tempfile

    from chainrule.report.write import make_report

    with tempfile.TemporaryDirectory() as folder:
        trained("elman", run=Path(folder) / "run", steps=2)
        return make_report(Path(folder) / "run")


def _write_report(folder: Path, number: int) -> None:
    page = f"{number}\n{'x' * SIZE}\n{number}"
    replace(_report(), html=page, place=folder / "report.html").write(pictures=False)


def _read_report(folder: Path) -> int | None:
    path = folder / "report.html"
    if not path.exists():
        return None
    first, middle, last = path.read_text().split("\n")
    assert first == last and len(middle) == SIZE, "half of a page"
    json.loads((folder / "report.json").read_text())
    return int(first)


def _write_filtered(folder: Path, number: int) -> None:
    cr.tasks.filter_corpus(_ngrams(), ["a b c"] * (number + 1), folder / "kept.txt", max_perplexity=1e9)


def _read_filtered(folder: Path) -> int | None:
    path = folder / "kept.txt"
    return None if not path.exists() else path.read_text().count("a b c\n") - 1


# -- commands that write several things -------------------------------------------------------------------


def _spill(folder: Path, number: int) -> None:
    """Count n-grams in files, which the settings of a small memory do, and save the model."""
    lm = cr.train("ngram", cr.Corpus.from_text(TEXT), order=2 + number % 2, tokenizer="word", memory="1MB")
    lm.save(folder / "m", overwrite=True)


NOTES: list[str] = []
"""What a training said in this process, such as that a checkpoint could not be written and it goes on."""


class _Noted(Silent):
    def note(self, message: str) -> None:
        NOTES.append(message)


def _train(folder: Path, number: int) -> None:
    """Train with checkpoints and measurements in a run folder, and save the model."""
    how: dict[str, Any] = {"checkpoint_minutes": 0, "run": folder / f"run-{number}", "progress": _Noted()}
    lm = trained("elman", hidden=8 + number % 2, **how)
    lm.save(folder / "m", overwrite=True)


def _read_setting(name: str, first: int) -> Callable[[Path], int | None]:
    def version(folder: Path) -> int | None:
        sweep(folder / "m")
        return None if not (folder / "m").exists() else getattr(cr.load(folder / "m").settings, name) - first

    return version


WRITERS = [
    Writer("model folder", _write_model, _read_model),
    *(_saving(kind) for kind in KINDS),
    Writer("checkpoint", _write_checkpoint, _read_checkpoint),
    Writer("comparison", _write_comparison, _read_comparison),
    Writer("tokenizer", _write_tokenizer, _read_tokenizer),
    Writer("ids of bytes", _write_ids, _read_ids),
    Writer("ids of words", _write_words, _read_words),
    Writer("arpa", _write_arpa, _read_arpa, cycle=2),
    _exporting("hf", "hf"),
    _exporting("gguf", "m.gguf"),
    Writer("report", _write_report, _read_report),
    Writer("filter", _write_filtered, _read_filtered),
]
"""What is written whole or not at all, in one step."""
COMMANDS = [
    Writer("spill", _spill, _read_setting("order", 2), cycle=2),
    Writer("train", _train, _read_setting("hidden", 8), cycle=2),
]
"""Commands that write other things before the model: too slow to be killed thousands of times."""
