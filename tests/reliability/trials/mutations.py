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
from pathlib import Path
from typing import Any

import numpy as np

import chainrule as cr
from chainrule.errors import ChainruleError
from chainrule.folder import integrity
from chainrule.system.disk.checksums import CHECKSUM, signed, unsigned
from chainrule.tokens.registry import dump_tokenizer, parse_tokenizer, train_tokenizer

TEXT = "i love cats\ni love dogs\ncats chase mice\nwe chase 12 cats, don't we?\n" * 5
KINDS: dict[str, dict[str, Any]] = {
    "ngram": {"order": 3},
    "anygram": {},
    "transformer": {"layers": 1, "width": 16, "heads": 2, "window": 16, "steps": 1},
    "lstm": {"hidden": 8, "embedding": 8, "layers": 1, "steps": 1},
    "feedforward": {"hidden": 8, "embedding": 8, "steps": 1},
}
SECONDS, GIGABYTES = 10, 8
ODD: list[Any] = [
    *(0, -1, 1, 2, 3, 7, 255, 1000, 2**31, 2**63, 2**64, 10**9, 10**12, 10**30),
    *(0.0, -1.5, 1e-300, 1e300, math.inf, math.nan, True, False, None, "", "x", "0", [], {}, [1], {"a": 1}),
    *("line", "stream", "../x", "a" * 10_000, "\u0000", "\ud7ff"),
]


class _Late(BaseException):
    pass


def run(count: int, seed: int = 0) -> Counter[str]:
    """`count` mutations; returns how many of each sort there were, and problems under "wrong: ..."."""
    generator, found = random.Random(seed), Counter[str]()
    before = resource.getrlimit(resource.RLIMIT_AS)
    # beside what the process has reserved: a library may reserve more than that without using it
    reserved = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (reserved + (GIGABYTES << 30), before[1]))
    handler = signal.signal(signal.SIGALRM, _late)
    folder = Path(tempfile.mkdtemp(prefix="trial-"))
    try:
        models = {}
        for kind, settings in KINDS.items():
            tokenizer = "word" if kind in ("ngram", "anygram") else "char"
            lm = cr.train(kind, cr.Corpus.from_text(TEXT), tokenizer=tokenizer, **settings)
            lm.save(folder / kind)
            models[kind] = lm.log_prob("i love cats")
        tokenizers = [
            dump_tokenizer(train_tokenizer(name, cr.Corpus.from_text(TEXT)))
            for name in ("word", "word:unicode", "char", "byte", "bpe", "wordpiece", "unigram")
        ]
        for trial in range(count):
            sort = ("manifest", "signed manifest", "tokenizer", "arrays")[trial % 4]
            kind = generator.choice(list(KINDS))
            if sort == "tokenizer":
                problem = _tokenizer(generator, generator.choice(tokenizers))
            else:
                problem = _folder(generator, sort, folder / kind, models[kind])
            found[sort] += 1
            if problem:
                found[f"wrong: {sort}: {problem}"] += 1
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)
        shutil.rmtree(folder, ignore_errors=True)
    return found


def _late(*_: object) -> None:
    raise _Late


def _folder(generator: random.Random, sort: str, folder: Path, expected: float) -> str | None:
    """Load a model in which one file was changed, and put the file back."""
    name = "model.safetensors" if sort == "arrays" else "manifest.json"
    path, manifest = folder / name, folder / "manifest.json"
    content, listed = path.read_bytes(), manifest.read_bytes()
    if sort == "signed manifest":
        changed = json.loads(content)
        _change_json(generator, changed)
        changed[CHECKSUM] = unsigned()
        path.write_bytes(signed(json.dumps(changed)))
    else:
        path.write_bytes(_change_bytes(generator, content))
    if sort == "arrays" and generator.random() < 0.7:  # as if it had been written so
        entry = json.loads(listed)
        entry["files"][name] = {"bytes": path.stat().st_size, "sha256": integrity.sha256(path)}
        manifest.write_bytes(signed(json.dumps({**entry, CHECKSUM: unsigned()})))
    is_told = sort == "manifest" or path.read_bytes() == content
    try:
        signal.alarm(SECONDS)
        found = cr.load(folder).log_prob("i love cats")
        signal.alarm(0)
        if is_told and found != expected:
            return f"another score, {found} for {expected}"
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
