"""Files of every format in which something was changed: a right answer or our own error, within 2 GB and 5 seconds.

Every try has random numbers of its own, so the one that a problem names can be repeated. A changed file that was
answered otherwise is kept in build/reliability; a small one of each sort belongs in reliability/corpus, which is
replayed.
"""

from __future__ import annotations

import gzip
import json
import shutil
import struct
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import chainrule as cr
from chainrule.errors import ChainruleError, MissingExtraError
from chainrule.folder import integrity
from chainrule.system.disk.checksums import CHECKSUM, UNSIGNED, signed
from chainrule.tokens.registry import load_tokenizer, train_tokenizer, write_tokenizer

from .changes import change_bytes, change_json, change_number, changed
from .frame import FAST, Trial
from .limited import Late, run_limited
from .models import KINDS, TEXT, answer, made, trained

CORPUS = Path(__file__).with_name("corpus")
KEPT = Path(__file__).parents[1] / "build" / "reliability"
TOKENIZERS = ("word", "word:unicode", "char", "byte", "bpe", "wordpiece", "unigram")


@dataclass(frozen=True)
class Format:
    """Files of one format."""

    files: Sequence[str]
    """Those that are changed, inside a folder."""
    make: Callable[[Path], object]
    """Write them, and what belongs to them, into a folder."""
    read: Callable[[Path], object]
    """Read them from that folder, and use what was read."""
    weight: float = 20
    """How often it is tried, beside others: what is read fast is tried more often."""


# -- text -------------------------------------------------------------------------------------------------

LINES = [f"text {i} of many, naïve and 漢字 don't" for i in range(12)]


def _text(content: str) -> Callable[[Path, str], object]:
    return lambda folder, name: (folder / name).write_bytes(content.encode())


def _documents(path: Path, **options: Any) -> None:
    for errors in ("strict", "replace"):
        for document in cr.Corpus.open(path, encoding_errors=errors, **options).documents():
            document.decode()


def _records(path: Path) -> object:
    import csv

    rows = [{"text": line, "label": f"l{i % 2}", "en": line, "de": line[::-1]} for i, line in enumerate(LINES)]
    if path.suffix == ".jsonl":
        return path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0]], delimiter="\t" if path.suffix == ".tsv" else ",")
        writer.writeheader()
        return writer.writerows(rows)


def _parquet(path: Path) -> object:
    import pyarrow
    import pyarrow.parquet

    return pyarrow.parquet.write_table(pyarrow.table({"text": LINES * 20}), path, compression="snappy")


def _labelled(path: Path) -> object:
    from chainrule.text.labelled import Labelled

    return Labelled.read(cr.Corpus.open(path, fields="text")).labels


def _pairs(path: Path) -> object:
    return list(cr.Pairs.open(path, fields=["en", "de"]))


def _both_sides(folder: Path) -> object:
    return list(cr.Pairs.open(folder / "a.en", folder / "a.de"))


def _tagged(path: Path) -> object:
    from chainrule.text.tagged import Tagged

    found = Tagged.open(path)
    return [sentence.retagged(sentence.tags) for sentence in found]


CONLLU = "# sent_id = 1\n" + "".join(
    f"{i}\t{word}\t_\t{tag}\t_\t_\t{i - 1}\t_\t_\t_\n"
    for i, (word, tag) in enumerate([("the", "DET"), ("cat", "NOUN"), ("sat", "VERB"), (".", "PUNCT")], 1)
)
NBEST = [{"input": ["i love cats", "i loaf cats"], "am_score": [-1.5, -2], "output": "i love cats", "id": 7}] * 4
MINIMAL = [{"sentence_good": "i love cats", "sentence_bad": "i loves cats", "field": "agreement"}] * 4


def _nbest(path: Path) -> object:
    from chainrule.tasks.nbest.lists import read_lists

    return list(read_lists(path))


def _minimal(path: Path) -> object:
    from chainrule.tasks.pairs import read_pairs

    return list(read_pairs(path))


def _misspelled(path: Path) -> object:
    from chainrule.tasks.spelling.channel import read_misspellings

    return read_misspellings(path)


def _vectors(path: Path) -> object:
    from chainrule.networks.word_vectors import load_vectors

    return load_vectors(path, made("ngram").tokenizer)


def _arpa(path: Path) -> object:
    return repr(cr.load_arpa(path).log_prob("i love cats"))


# -- tokenizers and results -------------------------------------------------------------------------------


def _tokenizer(folder: Path) -> None:
    _encode(load_tokenizer(folder))


def _published(path: Path) -> None:
    from chainrule.interop.conversion import import_tokenizer

    _encode(import_tokenizer(path))


def _encode(tokenizer: Any) -> None:
    ids = tokenizer.encode_lines(TEXT.encode())
    assert len(ids) and int(ids.max()) < tokenizer.vocab_size, "an id beyond the vocabulary"
    tokenizer.decode(ids.tolist())
    for number in {0, int(ids[0]), tokenizer.vocab_size - 1}:
        tokenizer.token(number)


def _compare(folder: Path) -> object:
    return cr.compare(TEXT * 4, folder, kinds=["anygram"], tokenizer=cr.TokenizerChoice("char"))


def _report(folder: Path) -> object:
    from chainrule.report.write import make_report

    return make_report(folder).html


def _results(folder: Path) -> object:
    from chainrule.report.record import read_finished

    return read_finished(folder).to_json()


LADDER = [{"kind": "ngram", "name": "bigram", "settings": {"order": 2}}, {"kind": "anygram"}]


def _ladder(path: Path) -> object:
    from chainrule.comparison.ladder import find_ladder

    return find_ladder(str(path))


def _table(path: Path) -> object:
    return cr.load(path).tensors()


def _run(folder: Path) -> object:
    return trained("elman", run=folder, steps=2, sample_every=1)


def _run_record(folder: Path) -> object:
    from chainrule.runs.record import read_record

    return read_record(folder)


# -- other programs ---------------------------------------------------------------------------------------


def _llama() -> Any:
    return trained("transformer", preset="llama", tokenizer="bpe")


def _hf(folder: Path) -> object:
    from chainrule.interop import huggingface

    return huggingface.export(_llama(), folder / "hf")


def _gguf(folder: Path) -> object:
    from chainrule.interop.gguf import write_gguf

    return write_gguf(_llama(), folder / "m.gguf")


def _imported(path: Path) -> object:
    from chainrule.interop.conversion import import_model

    return repr(import_model(path).log_prob("i love cats"))


def _llama2c(folder: Path) -> None:
    """A checkpoint of llama2.c of one block, with a vocabulary of bytes."""
    width, hidden, heads, window = 8, 16, 2, 16
    pieces = ["<unk>", "\n<s>\n", "\n</s>\n", *(f"<0x{i:02X}>" for i in range(256)), " ", "a"]
    size = len(pieces)
    count = width * (size + 4 * width + 3 * hidden + 3) + window * width // heads
    weights = np.random.default_rng(0).normal(0, 0.1, count).astype("<f4").tobytes()
    (folder / "m.bin").write_bytes(struct.pack("<7i", width, hidden, 1, heads, heads, size, window) + weights)
    entries = b"".join(
        struct.pack("<fi", -i, len(piece.encode())) + piece.encode() for i, piece in enumerate(pieces)
    )
    (folder / "tokenizer.bin").write_bytes(struct.pack("<i", 8) + entries)


def _one(name: str, make: Callable[[Path], object], read: Callable[[Path], object], weight: float = 20) -> Format:
    """The format of a single file."""
    return Format([name], lambda folder: make(folder / name), lambda folder: read(folder / name), weight)


def _written(content: str | bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content.encode() if isinstance(content, str) else content)


FORMATS = {
    "text": _one("a.txt", _written("\n".join(LINES)), _documents, 60),
    "gzip": _one("a.txt.gz", _written(gzip.compress("\n".join(LINES).encode())), _documents, 40),
    "jsonl": _one("a.jsonl", _records, _documents, 60),
    "csv": _one("a.csv", _records, _documents, 60),
    "tsv": _one("a.tsv", _records, _documents, 40),
    "parquet": _one("a.parquet", _parquet, _documents),
    "labelled": _one("b.csv", _records, _labelled, 40),
    "pairs in records": _one("b.jsonl", _records, _pairs),
    "pairs": Format(
        ["a.en", "a.de"],
        lambda folder: [(folder / f"a.{name}").write_text("\n".join(LINES)) for name in ("en", "de")],
        _both_sides,
    ),
    "CoNLL-U": _one("a.conllu", _written(CONLLU + "\n" + CONLLU), _tagged, 60),
    "word/TAG": _one("tags.txt", _written("the/DET cat/NOUN\na/DET dog/NOUN\n"), _tagged, 60),
    "n-best": _one("nbest.jsonl", _written("\n".join(map(json.dumps, NBEST))), _nbest, 60),
    "n-best in a list": _one("nbest.json", _written(json.dumps(NBEST, indent=1)), _nbest, 60),
    "minimal pairs": _one("pairs.jsonl", _written("\n".join(map(json.dumps, MINIMAL))), _minimal, 60),
    "misspellings": _one("errors.txt", _written("right: wrogn rihgt\nteh\tthe\n"), _misspelled, 60),
    "word vectors": _one("v.txt", _written("".join(f"{w} 0.1 -2 3e-1\n" for w in TEXT.split())), _vectors, 60),
    "ARPA": _one("m.arpa", lambda path: cr.save_arpa(made("ngram"), path), _arpa, 30),
    "packed ARPA": _one("m.arpa.gz", lambda path: cr.save_arpa(made("ngram"), path), _arpa),
    **{
        f"tokenizer, {name}": Format(
            ["tokenizer.json"],
            lambda folder, name=name: write_tokenizer(train_tokenizer(name, cr.Corpus.from_text(TEXT)), folder),
            _tokenizer,
            10,
        )
        for name in TOKENIZERS
    },
    "tokenizer.json of others": Format(
        ["hf/tokenizer.json"], _hf, lambda folder: _published(folder / "hf/tokenizer.json"), 5
    ),
    "folder of transformers": Format(
        ["hf/config.json", "hf/tokenizer.json", "hf/model.safetensors"],
        _hf,
        lambda folder: _imported(folder / "hf"),
        6,
    ),
    "GGUF": Format(["m.gguf"], _gguf, lambda folder: _imported(folder / "m.gguf"), 4),
    "llama2.c": Format(["m.bin", "tokenizer.bin"], _llama2c, lambda folder: _imported(folder / "m.bin"), 4),
    "comparison": Format(
        ["c/compare.json"], lambda folder: _compare(folder / "c"), lambda folder: _results(folder / "c"), 30
    ),
    "report": Format(
        ["c/compare.json"],
        lambda folder: _compare(folder / "c"),
        lambda folder: _report(folder / "c"),
        0.08,
    ),
    "ladder": _one("ladder.json", _written(json.dumps(LADDER)), _ladder, 30),
    "ladder in TOML": _one(
        "ladder.toml", _written('[[model]]\nkind = "ngram"\nsettings = {order = 2}\n'), _ladder, 30
    ),
    "table in JSON": _one("table.json", _written('{"": {"i": 0.5, "we": 0.5}, "i": {"love": 1}}'), _table, 30),
    "run": Format(["r/run.json"], lambda folder: _run(folder / "r"), lambda folder: _run_record(folder / "r"), 30),
    "report of a run": Format(
        ["r/run.json", "r/metrics.jsonl"],
        lambda folder: _run(folder / "r"),
        lambda folder: _report(folder / "r"),
        0.5,
    ),
}


# -- model folders ----------------------------------------------------------------------------------------

SORTS = ("manifest", "signed manifest", "arrays", "signed arrays")
"""What is changed in a model folder: signed anew as if it had been written so, or not."""


def _change_folder(random: Random, sort: str, folder: Path) -> Callable[[], bool]:
    """Change a file of a folder; the returned function says whether it still means the same, and puts it back."""
    path, manifest = (
        folder / ("manifest.json" if "manifest" in sort else "model.safetensors"),
        folder / "manifest.json",
    )
    content, listed = path.read_bytes(), manifest.read_bytes()
    if sort == "signed manifest":
        values = json.loads(content)
        change_json(random, values)
        path.write_bytes(signed(json.dumps({**values, CHECKSUM: UNSIGNED})))
    elif "arrays" in sort and random.random() < 0.5:
        path.write_bytes(change_number(random, content))
    else:
        path.write_bytes(change_bytes(random, content))
    if sort == "signed arrays":
        entry = json.loads(listed)
        entry["files"][path.name] = {"bytes": path.stat().st_size, "sha256": integrity.sha256(path)}
        manifest.write_bytes(signed(json.dumps({**entry, CHECKSUM: UNSIGNED})))
    written = path.read_bytes()

    def restore() -> bool:
        path.write_bytes(content)
        manifest.write_bytes(listed)
        return written == content or (sort == "manifest" and _means_the_same(written, content))

    return restore


def _means_the_same(content: bytes, other: bytes) -> bool:
    """Whether two manifests differ at most in their version and their checksum."""
    try:
        one, two = ({**json.loads(text), "version": 0, CHECKSUM: ""} for text in (content, other))
    except (ValueError, TypeError):
        return False
    return one == two


def _try_folder(random: Random, sort: str, folder: Path, expected: str) -> str | None:
    """Load a model in which one file was changed, and put the file back."""
    restore = _change_folder(random, sort, folder)
    problem, found = None, None
    try:
        found = answer(cr.load(folder))
    except ChainruleError:
        pass
    except (Late, Exception) as error:
        problem = _described(error)
    is_same = restore()
    if found is not None and not is_same and not sort.startswith("signed"):
        return "a changed file was accepted"
    return (
        f"another answer, {found} for {expected}"
        if found is not None and is_same and found != expected
        else problem
    )


# -- running ----------------------------------------------------------------------------------------------


def run(trial: Trial) -> None:
    """Replay the kept files, then change files of every format, and model folders of every kind."""
    formats, kinds = trial.chosen(list(FORMATS)), trial.chosen(list(KINDS))
    with tempfile.TemporaryDirectory(prefix="trial-", dir=FAST) as name:
        made_in, answers = Path(name) / "made", {}
        for kind in kinds:
            made(kind).save(made_in / kind)
            answers[kind] = answer(cr.load(made_in / kind))
        for one in [*formats]:
            (made_in / one.replace("/", " or ")).mkdir(parents=True)
            try:
                FORMATS[one].make(made_in / one.replace("/", " or "))
                FORMATS[one].read(made_in / one.replace("/", " or "))  # which also imports what each try needs
            except MissingExtraError as error:
                trial.left_out[one] = str(error)
                formats.remove(one)
        for one in formats:
            _replay(trial, one, made_in)
        run_limited(trial, partial(_prepare, trial.seed, made_in, formats, answers))


def _prepare(
    seed: int, made_in: Path, formats: list[str], answers: dict[str, str], worker: int
) -> Callable[[int], tuple[str, str | None]]:
    """Return what makes one try in a process of its own, on its own copies of the files."""
    folder = made_in.with_name(f"worker-{worker}")
    shutil.copytree(made_in, folder, dirs_exist_ok=True)
    names = [*formats, *answers]
    weights = [FORMATS[name].weight if name in FORMATS else 3 for name in names]

    def attempt(number: int) -> tuple[str, str | None]:
        random = Random(f"{seed} {number}")
        name = random.choices(names, weights)[0]
        if name in answers:
            sort = random.choice(SORTS)
            problem = _try_folder(random, sort, folder / name, answers[name])
            return f"model folder, {sort}", problem and f"try {number}: {name}: {problem}"
        place = folder / name.replace("/", " or ")
        file = place / random.choice(FORMATS[name].files)
        content = file.read_bytes()
        file.write_bytes(changed(random, file.name, content))
        problem = _read(FORMATS[name], place)
        if problem:
            (KEPT / place.name).mkdir(parents=True, exist_ok=True)
            shutil.copy(file, KEPT / place.name / f"{number}-{file.name}")
        file.write_bytes(content)
        return name, problem and f"try {number}: {file.name}: {problem}"

    return attempt


def _read(form: Format, place: Path) -> str | None:
    """Read files; return what is wrong with how that ended, None if it was a result or an error that names them."""
    try:
        form.read(place)
    except ChainruleError as error:
        return None if str(place) in str(error) else f"names no file: {str(error)[:200]}"
    except (Late, Exception) as error:
        return _described(error)
    return None


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}"


def _replay(trial: Trial, name: str, made_in: Path) -> None:
    """Read the files of this format that were once answered wrongly."""
    place = made_in / name.replace("/", " or ")
    for kept in sorted((CORPUS / place.name).glob("*")):
        file = next(place / one for one in FORMATS[name].files if kept.name.endswith(Path(one).name))
        content = file.read_bytes()
        shutil.copy(kept, file)
        problem = _read(FORMATS[name], place)
        file.write_bytes(content)
        trial.note(f"{name}, kept", problem and f"{kept.name}: {problem}")
