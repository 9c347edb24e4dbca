"""Text from pipes, changing files, damaged parquet files, and pieces without end."""

from __future__ import annotations

import base64
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import chainrule as cr
from chainrule.errors import CorpusError, EncodingError, TokenizerError
from chainrule.text.split import split
from chainrule.tokens import ids as ids_module
from chainrule.tokens.base import encode_lines_slowly
from chainrule.tokens.ids import learn_and_encode
from chainrule.tokens.registry import parse_tokenizer, train_tokenizer
from chainrule.tokens.subwords import sections as sections_module
from chainrule.tokens.subwords.library import spans_of
from chainrule.tokens.subwords.merges import count_pieces, learn_merges
from chainrule.tokens.subwords.tokenizer import SubwordTokenizer
from chainrule.tokens.vocabulary import Limit

LINES = "".join(f"line {i} of a text with {i % 13} kinds of words\n" for i in range(5000))


def run(*words: object, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "chainrule", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **options)  # type: ignore[call-overload,no-any-return]


# -- pipes ------------------------------------------------------------------------------------------------


def fed(path: Path, content: bytes) -> threading.Thread:
    """A named pipe, and the thread that writes to it once."""
    os.mkfifo(path)
    thread = threading.Thread(target=path.write_bytes, args=(content,), daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("content", [LINES * 8, "one line\nand one more\n"], ids=["large", "small"])
def test_a_pipe_is_read_once_and_gives_the_text_of_the_file(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.txt").write_text(content)
    writer = fed(tmp_path / "pipe", content.encode())
    piped, plain = (
        cr.train("ngram", tmp_path / name, order=2, smoothing="jelinek-mercer", tokenizer="word")
        for name in ("pipe", "a.txt")
    )
    writer.join(10)
    assert piped.provenance["corpus_tokens"] == plain.provenance["corpus_tokens"]
    assert piped.provenance["corpus_sha256"] == plain.provenance["corpus_sha256"]
    assert piped.perplexity("one line") == plain.perplexity("one line")


def test_a_process_substitution_is_text_like_any_other(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(LINES)
    options = "--tokenizer word --set smoothing=jelinek-mercer --json --out m"
    command = f"{sys.executable} -m chainrule train ngram <(cat a.txt) {options}"
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    tokens = len(LINES.split()) + LINES.count("\n")
    provenance = cr.load(tmp_path / "m").provenance
    assert provenance["corpus_tokens"] + provenance["held_out_tokens"] == tokens


def test_the_name_of_a_pipe_says_what_is_in_it(tmp_path: Path) -> None:
    fed(tmp_path / "pipe.jsonl", b'{"text": "from a pipe"}\n{"text": "of records"}\n')
    corpus = cr.Corpus.open(tmp_path / "pipe.jsonl")
    assert b"".join(corpus.documents()) == b"from a pipe\nof records\n" == b"".join(corpus.documents())
    assert corpus.name.endswith("pipe.jsonl")


def test_tokenize_does_not_hang_on_a_named_pipe(tmp_path: Path) -> None:
    fed(tmp_path / "pipe", LINES.encode())
    done = run("tokenize", tmp_path / "pipe", "--tokenizer", "bpe", "--vocab-size", 300, "--json")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null"])
def test_a_device_is_refused_in_one_line(device: str) -> None:
    if not Path(device).exists():
        pytest.skip(f"no {device} here")
    with pytest.raises(CorpusError, match=f"{device} is a device or a socket"):
        cr.Corpus.open(device)


# -- files that change or are damaged ---------------------------------------------------------------------


def test_a_text_that_changes_while_it_is_split_is_said_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log.txt"
    path.write_text("a first line\na second line\na third line\n")
    corpus, documents, passes = cr.Corpus.open(path), cr.Corpus.documents, []

    def growing(self: cr.Corpus) -> object:
        if passes:
            with path.open("a") as file:
                file.write("a line that was not there\n")
        passes.append(1)
        return documents(self)

    monkeypatch.setattr(cr.Corpus, "documents", growing)
    with pytest.raises(CorpusError, match=r"log\.txt: changed while it was read"):
        split(corpus, {"train": 0.5, "valid": 0.5}, tmp_path)


def parquet(path: Path, values: list[bytes]) -> Path:
    import pyarrow
    import pyarrow.parquet

    array = pyarrow.array(values, pyarrow.binary()).view(pyarrow.string())
    pyarrow.parquet.write_table(pyarrow.table({"text": array}), path, compression="none")
    return path


def test_invalid_utf8_in_a_parquet_file_names_its_row_or_is_replaced(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", [b"right", b"wr\xffng"])
    with pytest.raises(EncodingError, match=r"a\.parquet: row 2: line 1, byte 3"):
        list(cr.Corpus.open(path).documents())
    corpus = cr.Corpus.open(path, encoding_errors="replace")
    assert list(corpus.documents()) == [b"right\n", "wr\ufffdng\n".encode()]
    assert corpus.replaced == 1


def test_a_damaged_page_of_a_parquet_file_names_the_file(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", [b"some text %d" % i for i in range(2000)])
    content = bytearray(path.read_bytes())
    content[4:60] = bytes(56)
    path.write_bytes(content)
    with pytest.raises(CorpusError, match=r"a\.parquet: not a parquet file, or a damaged one"):
        list(cr.Corpus.open(path).documents())


# -- ids --------------------------------------------------------------------------------------------------


class ShortWrites:
    """A file whose writes stop half-way, as they may on a disk that is nearly full."""

    def __init__(self, file: object) -> None:
        self.file = file

    def __getattr__(self, name: str) -> object:
        return getattr(self.file, name)

    def write(self, data: object) -> int:
        content = bytes(data)  # type: ignore[call-overload]
        return self.file.write(content[: max(1, len(content) // 2)])  # type: ignore[attr-defined,no-any-return]


def test_short_writes_lose_no_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unbuffered, a write may take less than it is given; the buffer must go on with the rest."""
    opened, plain = Path.open, cr.Corpus.from_text(LINES)

    def short(self: Path, mode: str = "r", buffering: int = -1, **options: object) -> object:
        file = opened(self, mode, buffering, **options)  # type: ignore[call-overload]
        return ShortWrites(file) if buffering == 0 else file

    monkeypatch.setattr(Path, "open", short)
    _, encoded = learn_and_encode(plain, Limit(), "whitespace", tmp_path / "ids")
    assert encoded.tokens == len(LINES.split()) + LINES.count("\n")


def test_a_full_disk_names_the_file(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    (tmp_path / "ids").symlink_to("/dev/full")
    with pytest.raises(OSError, match="ids") as raised:
        ids_module.encode_corpus(cr.Corpus.from_text(LINES * 50), train_tokenizer("byte", cr.Corpus.from_text("a")),
                                 tmp_path / "ids")  # fmt: skip
    assert raised.value.filename == str(tmp_path / "ids")


# -- long pieces ------------------------------------------------------------------------------------------

_RANDOM = random.Random(0)
PIECES = {
    "base64": base64.b64encode(_RANDOM.randbytes(90_000)).decode(),
    "DNA": "".join(_RANDOM.choices("ACGT", k=120_000)),
    "NULs": "\0" * 1_000_000,
    "Chinese": "".join(chr(0x4E00 + _RANDOM.randrange(3000)) for _ in range(40_000)),
    "spaces": " " * 200_000,
}


@pytest.mark.parametrize("name", PIECES)
@pytest.mark.parametrize("algorithm", ["bpe", "wordpiece"])
def test_learning_takes_time_that_grows_with_the_text_only(name: str, algorithm: str) -> None:
    """A piece of 160 kB took 39 seconds. The limit is far above what it takes, and far below that."""
    text = PIECES[name] + "\n"
    began = time.process_time()
    tokenizer = train_tokenizer(algorithm, cr.Corpus.from_text("some words\n" + text))
    ids = tokenizer.encode_lines(text.encode())
    assert time.process_time() - began < 20
    if algorithm == "bpe":
        assert tokenizer.decode(ids) == text


def test_the_rule_is_recorded_and_older_tokenizers_cut_nothing() -> None:
    tokenizer = train_tokenizer("bpe", cr.Corpus.from_text("aaaa " * 200))
    assert isinstance(tokenizer, SubwordTokenizer)
    described = tokenizer.to_json()
    assert described["longest_piece"] == 256
    del described["longest_piece"]
    older = SubwordTokenizer.from_json(described)
    line = "a" * 600
    whole: list[int] = older.reference.encode(line).ids
    assert older.encode_line(line.encode()) == whole
    cut = [i for part in (line[:256], line[256:512], line[512:]) for i in older.reference.encode(part).ids]
    assert tokenizer.encode_line(line.encode()) == cut


@pytest.fixture(scope="module")
def subwords() -> dict[str, SubwordTokenizer]:
    text = cr.Corpus.from_text("the cat's 12 hats, naïve 漢字 and words_of_many kinds!\n" * 20)
    found = {name: train_tokenizer(name, text) for name in ("bpe", "wordpiece", "unigram")}
    return {name: tokenizer for name, tokenizer in found.items() if isinstance(tokenizer, SubwordTokenizer)}


TEXTS = st.lists(
    st.one_of(
        st.text(alphabet="ab1 _'é漢\t\u00a0", max_size=60),
        st.builds(lambda c, n: c * n, st.sampled_from(["a", "1", " ", "'", "é", "漢", "\0", "\u3000"]),
                  st.integers(200, 700)),
    ),
    max_size=6,
).map("".join)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(text=TEXTS)
def test_sections_join_to_the_line_and_long_lines_change_no_token(
    subwords: dict[str, SubwordTokenizer], text: str
) -> None:
    line = text.replace("\n", "")
    parts = sections_module.sections(line, 256, spans_of)
    assert "".join(parts) == line
    assert len(parts) == 1 or all(end - start <= 256 for part in parts for start, end in spans_of(part))
    block = f"{line}\nanother line\n{line}".encode()
    for tokenizer in subwords.values():
        np.testing.assert_array_equal(tokenizer.encode_lines(block), encode_lines_slowly(tokenizer, block))
        if tokenizer.unk is None:
            assert tokenizer.decode(tokenizer.encode_lines(block + b"\n")) == block.decode() + "\n"


def test_a_long_line_gives_the_tokens_of_its_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = train_tokenizer("bpe", cr.Corpus.from_text(LINES))
    assert isinstance(tokenizer, SubwordTokenizer)
    line = " ".join(LINES.split("\n")) + "  \t two  spaces 'll " + "x" * 200
    expected: list[int] = tokenizer.reference.encode(line).ids
    monkeypatch.setattr(sections_module, "LONGEST_SECTION", 1000)
    assert len(sections_module.sections(line, 256, spans_of)) > 100
    assert tokenizer.encode_line(line.encode()) == expected
    assert tokenizer.encode_lines(line.encode()).tolist() == [*expected, tokenizer.eos]


def test_the_slow_reference_learns_the_same_merges_from_long_pieces() -> None:
    text = "abcabcabc" * 100 + "\nabc abd\n" * 3
    tokenizer = train_tokenizer("bpe", cr.Corpus.from_text(text), Limit(top=262))
    merges = [merge.token for merge in learn_merges(count_pieces([text.encode()]), 262)]
    assert isinstance(tokenizer, SubwordTokenizer)
    assert [tokenizer._piece_bytes[i] for i in range(256, 262)] == merges


def test_a_signal_is_heard_while_a_tokenizer_is_learned(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(" ".join("".join(_RANDOM.choices("abcdefghij", k=8)) for _ in range(600_000)))
    command = [sys.executable, "-m", "chainrule", "tokenize", str(tmp_path / "a.txt"), "--vocab-size", "60000"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        time.sleep(2.5)
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert said.strip().endswith("stopped")
    assert time.monotonic() - began < 10


def test_a_unigram_tokenizer_that_cannot_spell_a_byte_is_refused() -> None:
    import json

    from chainrule.tokens.registry import dump_tokenizer

    tokenizer = train_tokenizer("unigram", cr.Corpus.from_text("some words of a text\n" * 20))
    described = json.loads(dump_tokenizer(tokenizer))
    model = described["tokenizers"]["model"]
    model["vocab"] = [entry for entry in model["vocab"] if entry[0] != "q"]
    with pytest.raises(TokenizerError, match="expected byte-level pieces"):
        parse_tokenizer(json.dumps(described), "here")
