"""Manifests, tokenizers, arrays and parquet files in which something was changed: an error or a right answer."""

from __future__ import annotations

import json
import math
import os
import random
import resource
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import chainrule as cr
from chainrule.errors import ChainruleError
from chainrule.folder import integrity
from chainrule.system.disk.checksums import CHECKSUM, signed, unsigned
from chainrule.tokens.registry import dump_tokenizer, parse_tokenizer, train_tokenizer

from .controls import broken

TEXT = "i love cats\ni love dogs\ncats chase mice\nwe chase 12 cats, don't we?\n" * 5
TAGGED = ["the/DET cat/NOUN sat/VERB", "a/DET dog/NOUN ran/VERB"] * 4
_CELLS = {"hidden": 8, "embedding": 8, "layers": 1, "steps": 1}
KINDS: dict[str, dict[str, Any]] = {
    "ngram": {"order": 3, "tokenizer": "word"},
    "anygram": {"tokenizer": "word"},
    "feedforward": {"hidden": 8, "embedding": 8, "steps": 1},
    "bagofwords": {"steps": 1},
    "elman": _CELLS,
    "lstm": _CELLS,
    "gru": _CELLS,
    "qrnn": _CELLS,
    "transformer": {"layers": 1, "width": 16, "heads": 2, "window": 16, "steps": 1},
    "mixture": {},
    "table": {},
    "seq2seq": {"cell": "gru", "width": 8, "layers": 1, "steps": 1},
    "masked": {"width": 16, "layers": 1, "heads": 2, "window": 32, "steps": 1},
    "tagger": {"width": 8, "embedding": 8, "spelling": 8, "layers": 1, "steps": 1},
    "classifier": {"encoder": "bagofwords", "width": 8, "embedding": 8, "layers": 1, "steps": 1},
    "bayes": {"lm_settings": "order=2"},
}
"""Every kind of model, with settings that make it small."""
SECONDS, GIGABYTES = 10, 8
ODD: list[Any] = [
    *(0, -1, 1, 2, 3, 7, 255, 1000, 2**31, 2**63, 2**64, 10**9, 10**12, 10**30),
    *(0.0, -1.5, 1e-300, 1e300, math.inf, math.nan, True, False, None, "", "x", "0", [], {}, [1], {"a": 1}),
    *("line", "stream", "../x", "a" * 10_000, "\u0000", "\ud7ff"),
]


_NUMBERS = {
    **{f"F{bits}": f"<f{bits // 8}" for bits in (16, 32, 64)},
    **{f"{sign}{bits}": f"<{sign.lower()}{bits // 8}" for sign in "IU" for bits in (8, 16, 32, 64)},
}
"""The types of numbers in safetensors files."""


class _Late(BaseException):
    pass


def run(count: int, seed: int = 0, kinds: Sequence[str] = (*KINDS,), control: str = "") -> Counter[str]:
    """`count` mutations; returns how many of each sort there were, and problems under "wrong: ...".

    `control` is something to break in chainrule (controls.py).
    """
    generator, found = random.Random(seed), Counter[str]()
    before = resource.getrlimit(resource.RLIMIT_AS)
    # beside what the process has reserved: a library may reserve more than that without using it
    reserved = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (reserved + (GIGABYTES << 30), before[1]))
    handler = signal.signal(signal.SIGALRM, _late)
    folder = Path(tempfile.mkdtemp(prefix="trial-"))
    try:
        answers = {}
        for kind in kinds:
            _made(kind, folder).save(folder / kind)
            answers[kind] = _answer(cr.load(folder / kind))
        tokenizers = [
            dump_tokenizer(train_tokenizer(name, cr.Corpus.from_text(TEXT)))
            for name in ("word", "word:unicode", "char", "byte", "bpe", "wordpiece", "unigram")
        ]
        for trial in range(count):
            sort = ("manifest", "signed manifest", "tokenizer", "arrays")[trial % 4]
            kind = generator.choice(kinds)
            with broken(control):
                if sort == "tokenizer":
                    problem = _tokenizer(generator, generator.choice(tokenizers))
                else:
                    problem = _folder(generator, sort, folder / kind, answers[kind])
            found[sort] += 1
            if problem:
                found[f"wrong: {sort}: {'' if sort == 'tokenizer' else kind + ': '}{problem}"] += 1
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)
        shutil.rmtree(folder, ignore_errors=True)
    return found


def _late(*_: object) -> None:
    raise _Late


def _made(kind: str, place: Path) -> Any:
    """A small model of a kind."""
    if kind == "mixture":
        lm = _made("ngram", place)
        return cr.mix([lm, cr.train("ngram", TEXT, order=1, tokenizer=lm.tokenizer)], weights=[0.6, 0.4])
    if kind == "table":
        return cr.Table({"": {"i": 0.5, "we": 0.5}, "i": {"love": 1}, "love": {"cats": 0.75}}, unseen="uniform")
    text: Any = cr.Corpus.from_text(TEXT)
    settings = {"tokenizer": "char", **KINDS[kind]}
    if kind == "seq2seq":
        text = [("a b c", "c b a"), ("b c a", "a c b")] * 8
    if kind in ("classifier", "bayes"):
        lines = [("i love {} cats", "pets"), ("we chase {} mice", "work")]
        text = [(line.format(i), label) for i in range(30) for line, label in lines]
    if kind == "tagger":
        text, settings = place / "tags.txt", KINDS[kind]
        text.write_text("\n".join(TAGGED) + "\n")
    return cr.train(kind, text, device="cpu", **settings)


def _answer(model: Any) -> str:
    """What a model does for a user, as text."""
    if model.kind == "seq2seq":
        return repr(cr.translate(model, ["a b c", "c a"], max_tokens=5))
    if model.kind == "masked":
        return repr(cr.fill(model, "i [MASK] cats"))
    if model.kind == "tagger":
        return repr(cr.tag(model, ["the cat ran"]))
    if model.kind in ("classifier", "bayes"):
        return repr(cr.classify(model, ["i love mice"]))
    if model.kind == "mixture":
        total = float(np.exp(cr.to_numpy(model.next_log_probs(model.start(1)))).sum())
        assert abs(total - 1) < 1e-3, f"probabilities that sum to {total}"
    return repr(model.log_prob("i love cats"))


def _means_the_same(content: bytes, other: bytes) -> bool:
    """Whether two manifests differ at most in their version and their checksum."""
    try:
        one, two = ({**json.loads(text), "version": 0, CHECKSUM: ""} for text in (content, other))
    except (ValueError, TypeError):
        return False
    return one == two


def _folder(generator: random.Random, sort: str, folder: Path, expected: str) -> str | None:
    """Load a model in which one file was changed, and put the file back."""
    name = "model.safetensors" if sort == "arrays" else "manifest.json"
    path, manifest = folder / name, folder / "manifest.json"
    content, listed = path.read_bytes(), manifest.read_bytes()
    if sort == "signed manifest":
        values = json.loads(content)
        _change_json(generator, values)
        values[CHECKSUM] = unsigned()
        path.write_bytes(signed(json.dumps(values)))
    elif sort == "arrays" and generator.random() < 0.5:
        path.write_bytes(_change_number(generator, content))
    else:
        path.write_bytes(_change_bytes(generator, content))
    is_forged = sort == "signed manifest" or (sort == "arrays" and generator.random() < 0.7)
    if sort == "arrays" and is_forged:  # as if it had been written so
        entry = json.loads(listed)
        entry["files"][name] = {"bytes": path.stat().st_size, "sha256": integrity.sha256(path)}
        manifest.write_bytes(signed(json.dumps({**entry, CHECKSUM: unsigned()})))
    changed = path.read_bytes()
    is_same = changed == content or (sort == "manifest" and _means_the_same(changed, content))
    try:
        signal.alarm(SECONDS)
        found = _answer(cr.load(folder))
        signal.alarm(0)
        if not is_same and not is_forged:
            return "a changed file was accepted"
        if is_same and found != expected:
            return f"another answer, {found} for {expected}"
    except ChainruleError:
        pass
    except (_Late, Exception) as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    finally:
        signal.alarm(0)
        path.write_bytes(content)
        manifest.write_bytes(listed)
    return None


def _tokenizer(generator: random.Random, content: str) -> str | None:
    if generator.random() < 0.5:
        data = json.loads(content)
        _change_json(generator, data)
        content = json.dumps(data, ensure_ascii=generator.random() < 0.5)
    else:
        content = _change_bytes(generator, content.encode()).decode(errors="replace")
    try:
        signal.alarm(SECONDS)
        tokenizer = parse_tokenizer(content, "here")
        ids = tokenizer.encode_lines(TEXT.encode())
        assert len(ids) and int(ids.max()) < tokenizer.vocab_size, "an id beyond the vocabulary"
        tokenizer.decode(ids.tolist())
        for number in {0, int(ids[0]), tokenizer.vocab_size - 1}:
            tokenizer.token(number)
    except ChainruleError:
        pass
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    finally:
        signal.alarm(0)
    return None


def _change_bytes(generator: random.Random, content: bytes) -> bytes:
    changed, place = bytearray(content), generator.randrange(len(content))
    how = generator.randrange(6)
    if how == 0:
        changed[place] ^= 1 << generator.randrange(8)
    elif how == 1:
        changed[place] = generator.randrange(256)
    elif how == 2:
        del changed[place : place + generator.randrange(1, 9)]
    elif how == 3:
        changed[place:place] = generator.randbytes(generator.randrange(1, 9))
    elif how == 4:
        del changed[place:]
    else:
        other = generator.randrange(len(content))
        changed[place : place + 4] = content[other : other + 4]
    return bytes(changed)


def _change_number(generator: random.Random, content: bytes) -> bytes:
    """Replace one number of one array of a safetensors file."""
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    arrays = [one for name, one in header.items() if name != "__metadata__" and min(one["shape"], default=1)]
    chosen = generator.choice(arrays)
    kind = np.dtype(_NUMBERS[chosen["dtype"]])
    first, last = chosen["data_offsets"]
    place = start + first + kind.itemsize * generator.randrange((last - first) // kind.itemsize)
    odd: list[Any] = [0, 1, 2, 100] if kind.kind in "iu" else [0.0, -0.5, 2.0, 1e30, math.inf, math.nan]
    number = kind.type(generator.choice(odd)).tobytes()
    return content[:place] + number + content[place + kind.itemsize :]


def _change_json(generator: random.Random, value: Any) -> None:
    """Change, remove or add something at a random place of a JSON value."""
    places: list[tuple[Any, Any]] = []
    _collect(value, places)
    container, key = generator.choice(places)
    how = generator.randrange(5)
    if how == 0:
        del container[key]
    elif how == 1 and isinstance(container[key], (int, float)) and not isinstance(container[key], bool):
        container[key] = container[key] * generator.choice([-1, 0, 2, 1000, 10**6]) + generator.choice([0, 1, -1])
    elif how == 2 and isinstance(container, dict):
        container[generator.choice(["order", "layers", "x", ""])] = generator.choice(ODD)
    else:
        container[key] = generator.choice(ODD)


def _collect(value: Any, places: list[tuple[Any, Any]]) -> None:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, part in list(items)[:400]:
        places.append((value, key))
        if isinstance(part, (dict, list)) and part:
            _collect(part, places)


# -- files of other programs ------------------------------------------------------------------------------


def run_imports(count: int, seed: int = 0) -> Counter[str]:
    """`count` folders of transformers and GGUF files with something changed: read, or refused by name."""
    from chainrule.interop import huggingface
    from chainrule.interop.conversion import import_model
    from chainrule.interop.gguf import write_gguf

    generator, found = random.Random(seed), Counter[str]()
    handler = signal.signal(signal.SIGALRM, _late)
    with tempfile.TemporaryDirectory(prefix="trial-") as name:
        folder = Path(name)
        settings = {**KINDS["transformer"], "preset": "llama", "tokenizer": "bpe", "device": "cpu"}
        lm = cr.train("transformer", TEXT, **settings)
        huggingface.export(lm, folder / "hf")
        write_gguf(lm, folder / "m.gguf")
        files = [folder / "hf" / file for file in ("config.json", "tokenizer.json", "model.safetensors")]
        for trial in range(count):
            path = [*files, folder / "m.gguf"][trial % 4]
            content = path.read_bytes()
            if path.suffix == ".json":
                values = json.loads(content)
                _change_json(generator, values)
                path.write_text(json.dumps(values))
            else:  # in what describes the arrays, not in their numbers
                path.write_bytes(_change_bytes(generator, content[:8000]) + content[8000:])
            found[path.name] += 1
            try:
                signal.alarm(SECONDS)
                import_model(path if path.suffix == ".gguf" else path.parent).log_prob("i love cats")
            except (ChainruleError, MemoryError) as error:
                if isinstance(error, ChainruleError) and name not in str(error):
                    found[f"wrong: {path.name}: names no file: {error}"] += 1
            except (_Late, Exception) as error:
                found[f"wrong: {path.name}: {type(error).__name__}: {str(error)[:200]}"] += 1
            finally:
                signal.alarm(0)
                path.write_bytes(content)
    signal.signal(signal.SIGALRM, handler)
    return found


# -- parquet ----------------------------------------------------------------------------------------------


def run_parquet(count: int, seed: int = 0) -> Counter[str]:
    """`count` parquet files with something changed, each read in a process of its own."""
    import pyarrow
    import pyarrow.parquet

    generator, found = random.Random(seed), Counter[str]()
    texts = pyarrow.array([f"text {i} of many, naïve and 漢字" for i in range(500)])
    sources = []
    with tempfile.TemporaryDirectory() as name:
        for compression in ("none", "snappy", "zstd"):
            for dictionary in (True, False):
                path = Path(name) / "a.parquet"
                table = pyarrow.table({"text": texts, "number": np.arange(500)})
                pyarrow.parquet.write_table(table, path, compression=compression, use_dictionary=dictionary)
                sources.append(path.read_bytes())
        for _ in range(count):
            path = Path(name) / "b.parquet"
            path.write_bytes(_change_bytes(generator, generator.choice(sources)))
            code, said = _read_alone(path)
            found["parquet"] += 1
            if code not in (0, 2) or (code == 2 and "b.parquet" not in said):
                found[f"wrong: parquet: exit code {code}: {said[:200]}"] += 1
    return found


def _read_alone(path: Path) -> tuple[int, str]:
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        code, said = 0, ""
        try:
            signal.alarm(SECONDS)
            for errors in ("strict", "replace"):
                for _ in cr.Corpus.open(path, encoding_errors=errors).documents():  # type: ignore[arg-type]
                    pass
        except ChainruleError as error:
            code, said = 2, str(error)
        except BaseException as error:
            code, said = 1, repr(error)
        os.write(send, said.encode()[:4000])
        os._exit(code)
    os.close(send)
    said = b""
    while piece := os.read(receive, 1 << 16):
        said += piece
    os.close(receive)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), said.decode(errors="replace")
