"""ARPA files: reading, refusing malformed files with a reason, and writing files that read back the same."""

from __future__ import annotations

import errno
import gzip
import io
import math
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chainrule.errors import ArpaError
from chainrule.ngram.arpa import reading as arpa
from chainrule.ngram.arpa.numbers import read_number, write_number
from chainrule.ngram.arpa.reading import ArpaLevel, ArpaModel, read_arpa
from chainrule.ngram.arpa.writing import write_arpa
from chainrule.system import parallel
from listening import Listening

LN10 = math.log(10)
TINY = """\
\\data\\
ngram 1=4
ngram 2=3

\\1-grams:
-0.7\t<unk>
-99\t<s>\t-0.3
-0.5\t</s>
-0.25\ta\t0.125

\\2-grams:
-0.5\t<s> a
-0.75\ta a
-0.125\ta </s>

\\end\\
"""


@pytest.fixture(params=["slow", "fast"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every test that takes this runs in plain Python and with the kernels."""
    fast = request.param == "fast"
    monkeypatch.setattr(parallel, "SLOW_NANOSECONDS", 0 if fast else 1 << 60)
    monkeypatch.setattr(parallel, "SLOW_NANOSECONDS", 0 if fast else 1 << 60)
    return str(request.param)


def read(text: str | bytes, folder: Path, name: str = "m.arpa") -> ArpaModel:
    (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return read_arpa(folder / name)


def write(path: Path, model: ArpaModel, **options: bool) -> bytes:
    blocks = [[(level.ids, level.log_prob, level.log_backoff)] for level in model.levels]
    write_arpa(path, model.words, blocks, [len(level.ids) for level in model.levels], **options)
    return path.read_bytes()


def assert_same(one: ArpaModel, other: ArpaModel) -> None:
    assert one.words == other.words
    assert len(one.levels) == len(other.levels)
    for a, b in zip(one.levels, other.levels, strict=True):
        for name in ("ids", "log_prob", "log_backoff"):
            x, y = getattr(a, name), getattr(b, name)
            assert x.dtype == y.dtype
            np.testing.assert_array_equal(x, y)


# -- what is read -----------------------------------------------------------------------------------------


def test_a_file_is_read_as_it_stands(way: str, tmp_path: Path) -> None:
    model = read(TINY, tmp_path)
    assert model.words == [b"<unk>", b"<s>", b"</s>", b"a"]
    unigrams, bigrams = model.levels
    assert unigrams.ids.tolist() == [[0], [1], [2], [3]]
    assert bigrams.ids.tolist() == [[1, 3], [3, 3], [3, 2]]
    # ln p = ln 10 · log10 p; -99 is zero
    np.testing.assert_array_equal(unigrams.log_prob, np.float32([-0.7 * LN10, -np.inf, -0.5 * LN10, -0.25 * LN10]))
    np.testing.assert_array_equal(unigrams.log_backoff, np.float32([0, -0.3 * LN10, 0, 0.125 * LN10]))
    np.testing.assert_array_equal(bigrams.log_backoff, np.zeros(3, np.float32))
    assert {array.dtype.name for level in model.levels for array in (level.log_prob, level.log_backoff)} == {
        "float32"
    }
    assert unigrams.ids.dtype == bigrams.ids.dtype == np.int32


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("prose before, with sections in it", "by hand\n\\1-grams:\n-1 b\nthe mark \\data\\\n\\end\\\n\n" + TINY),
        ("spaces for tabs", TINY.replace("\t", " ")),
        ("several blanks", TINY.replace("\t", " \t  ").replace(" a", "  a")),
        ("blanks around lines", TINY.replace("\n", " \t\n  ")),
        ("CRLF", TINY.replace("\n", "\r\n")),
        ("CRLF after blanks", TINY.replace("\n", " \r\n")),
        ("no blank lines", TINY.replace("\n\n", "\n")),
        ("blank lines everywhere", TINY.replace("\n", "\n\n \n")),
        ("wide counts", TINY.replace("ngram 1=", "ngram  1 =    ")),
        ("a byte-order mark", "\ufeff" + TINY),
        ("no line end at the end", TINY.rstrip("\n")),
        ("another spelling of <unk>", TINY.replace("<unk>", "<UNK>")),
        (
            "other spellings of numbers",
            TINY.replace("-0.5\t", "-.5\t").replace("-0.75", "-75E-2").replace("\t0.125", "\t+1.25e-1"),
        ),
        ("more digits than a number needs", TINY.replace("-0.75", "-0.75000000000000000000000000000000000001")),
        ("other zeros", TINY.replace("-99", "-99.999")),
        ("a backoff of the longest", TINY.replace("a a\n", "a a\t0\n")),
        ("more behind the end", TINY + "\\data\\\nnonsense\n"),
    ],
)  # fmt: skip
def test_spellings_of_the_same_model(what: str, text: str, way: str, tmp_path: Path) -> None:
    assert_same(read(text, tmp_path), read(TINY, tmp_path))


def test_text_behind_the_end_is_mentioned(tmp_path: Path) -> None:
    listener = Listening()
    for end in ("", "\n \r\n", "more\n"):
        (tmp_path / "m.arpa").write_text(TINY + end)
        read_arpa(tmp_path / "m.arpa", listener)
    assert listener.notes == [f"{tmp_path / 'm.arpa'}: the text after \\end\\ is not read"]


@pytest.mark.parametrize("name", ["m.arpa.gz", "m.arpa"])
def test_gzip_is_known_by_its_bytes(name: str, way: str, tmp_path: Path) -> None:
    assert_same(read(gzip.compress(TINY.encode()), tmp_path, name), read(TINY, tmp_path))
    assert_same(read(TINY, tmp_path, "plain.gz"), read(TINY, tmp_path))


def test_words_are_whatever_blanks_separate(way: str, tmp_path: Path) -> None:
    words = ["naïve", "語", "a\u00a0b", "\u3000", "-0.5", "\\end\\", "\x0b", "x\ry", "\x01", "<UNK>", "ngram", "𝄞"]
    lines = "".join(f"-1 {word} -0.5\n" for word in words)
    pairs = "".join(f"-1 {word} {word}\n" for word in words)
    model = read(
        f"\\data\\\nngram 1={len(words)}\nngram 2={len(words)}\n\\1-grams:\n{lines}\\2-grams:\n{pairs}\\end\\\n",
        tmp_path,
    )
    assert model.words == [word.replace("<UNK>", "<unk>").encode() for word in words]
    assert model.levels[1].ids.tolist() == [[i, i] for i in range(len(words))]


def test_an_unknown_word_of_another_spelling_beside_the_usual_one_is_a_word(way: str, tmp_path: Path) -> None:
    text = TINY.replace(" a", " <UNK>").replace("\ta", "\t<UNK>")
    assert read(text, tmp_path).words == [b"<unk>", b"<s>", b"</s>", b"<UNK>"]


def test_a_length_without_ngrams(way: str, tmp_path: Path) -> None:
    text = TINY.replace("\n\\end", "\n\\3-grams:\n\\end").replace("ngram 2=3\n", "ngram 2=3\nngram 3=0\n")
    assert read(text, tmp_path).levels[2].ids.shape == (0, 3)


# -- what is refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "line", "reason"),
    [
        ("ngram 1=4", "ngram 1=5", 11, "expected 5 1-grams, as the header says, found 4"),
        ("ngram 1=4", "ngram 1=3", 9, "expected 3 1-grams, as the header says, found more"),
        ("ngram 2=3", "ngram 2=1000", 16, "expected 1,000 2-grams, as the header says, found 3"),
        ("ngram 2=3", "ngram 2=2", 14, "expected 2 2-grams, as the header says, found more"),
        ("ngram 2=3", "ngram 3=3", 3, "expected 'ngram 2=' and how many there are, found 'ngram 3=3'"),
        ("ngram 2=3", "ngram 2=-3", 3, "expected 'ngram 2=' and how many there are, found 'ngram 2=-3'"),
        ("ngram 2=3", "-0.5\ta", 3, r"expected 'ngram 2=' and how many there are, found '-0.5\ta'"),
        ("ngram 1=4\nngram 2=3", "", 4, r"expected 'ngram 1=' and how many there are, found '\\1-grams:'"),
        ("ngram 2=3\n", "", 10, r"expected the section \end\, found '\\2-grams:'"),
        ("ngram 2=3", "ngram 2=3\nngram 3=1", 17, r"expected the section \3-grams:, found '\\end\\'"),
        ("\\1-grams:", "\\2-grams:", 5, r"expected the section \1-grams:, found '\\2-grams:'"),
        ("\\2-grams:", "\\1-grams:", 11, r"expected the section \2-grams:, found '\\1-grams:'"),
        ("\\2-grams:", "\\2-gram", 11, r"expected \2-grams: or what goes before it, found '\\2-gram'"),
        ("\\2-grams:\n", "", 11, "expected 4 1-grams, as the header says, found more"),
        ("\\data\\", "data", 16, r"the file ends without a line \data\: it is not an ARPA file"),
        ("\\end\\\n", "", 15, r"the file ends without a line \end\: it was cut off"),
        ("-0.75", "0.75", 13, "expected a log-probability, found '0.75', which is above 0"),
        ("-0.75", "nan", 13, "expected a log-probability, found 'nan', which is not a finite number"),
        ("-0.75", "-inf", 13, "expected a log-probability, found '-inf', which is not a finite number"),
        ("-0.75", "-0.7_5", 13, "expected a log-probability, found '-0.7_5', which is not a finite number"),
        ("-0.75", "-", 13, "expected a log-probability, found '-', which is not a finite number"),
        ("-0.75", "-0.75e", 13, "expected a log-probability, found '-0.75e', which is not a finite number"),
        ("-0.75", "-0.7.5", 13, "expected a log-probability, found '-0.7.5', which is not a finite number"),
        ("-0.3", "nan", 7, "expected a backoff, found 'nan', which is not a finite number"),
        ("-0.3", "inf", 7, "expected a backoff, found 'inf', which is not a finite number"),
        ("-0.3", "1e31", 7, "expected a backoff, found '1e31', which is not a finite number"),
        ("-0.3", "1e999", 7, "expected a backoff, found '1e999', which is not a finite number"),
        ("-0.3", "-0,3", 7, "expected a backoff, found '-0,3', which is not a finite number"),
        ("\t<unk>\n", "\ta\n", 9, "the 1-gram 'a' is there twice"),
        ("-0.125\ta </s>", "-0.125\ta a", 14, "the 2-gram 'a a' is there twice"),
        ("a </s>", "a b", 14, "expected words that are among the 1-grams, found 'b', which is not"),
        ("a </s>", "a", 14, "expected a log-probability, 2 words and perhaps a backoff, found 2 fields"),
        ("a </s>", "a a a a", 14, "expected a log-probability, 2 words and perhaps a backoff, found 5 fields"),
        ("-0.7\t<unk>", "-0.7", 6, "expected a log-probability, 1 word and perhaps a backoff, found 1 fields"),
        ("a </s>", "a a </s>", 14, "expected a backoff, found '</s>', which is not a finite number"),
    ],
)  # fmt: skip
def test_what_is_malformed(old: str, new: str, line: int, reason: str, way: str, tmp_path: Path) -> None:
    assert old in TINY
    with pytest.raises(ArpaError) as caught:
        read(TINY.replace(old, new, 1), tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / 'm.arpa'}: line {line}: {reason}")


@pytest.mark.parametrize(
    ("old", "new", "line", "found"),
    [
        (b"</s>\n", b"\xff\n", 8, "expected UTF-8, found ff"),
        (b"\ta\t", b"\ta\xe4\t", 9, "expected UTF-8, found e4"),
        (b"a a\n", b"a \xe4a\n", 13, "expected UTF-8, found e4"),
    ],
)
def test_what_is_not_utf8(old: bytes, new: bytes, line: int, found: str, way: str, tmp_path: Path) -> None:
    with pytest.raises(ArpaError, match=f"m.arpa: line {line}: {found}"):
        read(TINY.encode().replace(old, new, 1), tmp_path)


@pytest.mark.parametrize("text", [b"", b"\n", b"\x00\xff" * 1000, b"PK\x03\x04\n\n", "\\data\\\n".encode("utf-16")])
def test_what_is_no_arpa_file(text: bytes, way: str, tmp_path: Path) -> None:
    with pytest.raises(ArpaError, match=r"m.arpa: line \d+: .* not an ARPA file"):
        read(text, tmp_path)


def test_a_line_without_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(arpa, "_LONGEST_LINE", 1000)
    monkeypatch.setattr(arpa, "_BLOCK", 300)
    with pytest.raises(ArpaError, match="not an ARPA file: a line of more than"):
        read("x" * 5000, tmp_path)


def test_a_line_longer_than_the_kernel_looks_at_once(way: str, tmp_path: Path) -> None:
    word = "w" * 100_000
    model = read(TINY.replace("\ta", f"\t{word}").replace(" a", f" {word}"), tmp_path)
    assert model.words[3] == word.encode()
    assert model.levels[1].ids.tolist() == [[1, 3], [3, 3], [3, 2]]


def test_damaged_gzip(way: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(arpa, "_BLOCK", 10_000)
    packed = gzip.compress(random_file(3000))
    with pytest.raises(ArpaError, match=r"m.arpa: damaged gzip.*ended before"):
        read(packed[: len(packed) // 2], tmp_path)
    with pytest.raises(ArpaError, match=r"m.arpa: damaged gzip after line \d+: .*ended before"):
        read(packed[:-4], tmp_path)
    with pytest.raises(ArpaError, match=r"m.arpa: damaged gzip"):
        read(packed[:-8] + bytes(8), tmp_path)


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(ArpaError, match=r"none.arpa: No such file"):
        read_arpa(tmp_path / "none.arpa")
    with pytest.raises(ArpaError, match="Is a directory"):
        read_arpa(tmp_path)


def test_the_header_does_not_drive_memory(way: str, tmp_path: Path) -> None:
    text = TINY.replace("ngram 2=3", "ngram 2=999999999999999")
    read(TINY, tmp_path)  # what is imported and compiled is not counted
    tracemalloc.start()
    with pytest.raises(ArpaError, match="expected 999,999,999,999,999 2-grams"):
        read(text, tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 22


# -- the fast way is the slow way -------------------------------------------------------------------------


def random_file(size: int) -> bytes:
    """Numbers of all kinds, and lines of all kinds that are right."""
    random = np.random.default_rng(5)
    words = [f"w{i}" for i in range(size // 10)]

    def number() -> str:
        value = float(random.normal() * 10.0 ** random.integers(-12, 3))
        return random.choice([f"{value:.4f}", f"{value:.9g}", f"{value!r}", f"{value:.25e}", "0", "-0.0", "-99"])

    def line(ngram: str) -> str:
        log_prob, backoff = "-" + number().lstrip("-"), number()
        blank = random.choice(["\t", " ", "\t "])
        end = random.choice(["", "", "", " ", "\r", " \r", "\n", "\n\r\n"])
        return f"{log_prob}{blank}{ngram}{random.choice(['', blank + backoff])}{end}\n"

    pairs = {f"{a} {b}": None for a, b in random.choice(words, (size, 2)).tolist()}
    text = f"\\data\\\nngram 1={len(words)}\nngram 2={len(pairs)}\n\n\\1-grams:\n"
    return (text + "".join(map(line, words)) + "\\2-grams:\n" + "".join(map(line, pairs)) + "\\end\\\n").encode()


def test_fast_is_slow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(arpa, "_BLOCK", 50_000)
    text = random_file(5000)
    slow = read(text, tmp_path)
    monkeypatch.setattr(parallel, "SLOW_NANOSECONDS", 0)
    fast = read(text, tmp_path)
    assert_same(fast, slow)
    written = write(tmp_path / "slow.arpa", slow)
    monkeypatch.setattr(parallel, "SLOW_NANOSECONDS", 0)
    assert write(tmp_path / "fast.arpa", slow) == written


@settings(max_examples=300)
@given(st.floats(width=32, allow_nan=False, max_value=2.0**66))
def test_numbers_come_back_and_kernels_agree(value: float) -> None:
    from chainrule.ngram.arpa.kernels import _put_number, _read_number

    text = write_number(value)
    out = np.zeros(40, np.uint8)
    size, sure = _put_number(out, 0, value / LN10)
    assert not sure or out[:size].tobytes() == text
    again = read_number(text)
    assert again == (value if value > -99 * LN10 * (1 - 1e-7) else -math.inf)
    number, sure, after = _read_number(np.frombuffer(text + b"\n", np.uint8), 0)
    assert sure
    assert (number, after) == (again, len(text))


@settings(max_examples=300)
@given(st.from_regex(r"[-+]?([0-9]{1,25}\.?[0-9]{0,25}|\.[0-9]{1,25})([eE][-+]?[0-9]{1,4})?", fullmatch=True))
def test_the_kernel_reads_numbers_as_python_does_or_not_at_all(text: str) -> None:
    from chainrule.ngram.arpa.kernels import _read_number

    number, sure, after = _read_number(np.frombuffer(text.encode() + b"\n", np.uint8), 0)
    assert not sure or (number, after) == (read_number(text.encode()), len(text))


# -- what is written --------------------------------------------------------------------------------------

log_probs = st.floats(-200, 0, width=32) | st.just(-math.inf) | st.just(0.0)
log_backoffs = st.floats(-200, 50, width=32) | st.just(-math.inf) | st.just(0.0)
letters = st.characters(exclude_characters="\0 \t\n\v\f\r", exclude_categories=["Cs"])


@st.composite
def models(draw: st.DrawFn) -> ArpaModel:
    words = draw(st.lists(st.text(letters, min_size=1, max_size=4), min_size=1, max_size=6, unique=True))
    if "<unk>" not in words:
        words.append("<unk>")
    levels = []
    order = draw(st.integers(1, 4))
    for n in range(1, order + 1):
        ngram = st.lists(st.integers(0, len(words) - 1), min_size=n, max_size=n).map(tuple)
        ngrams = [(i,) for i in range(len(words))] if n == 1 else draw(st.lists(ngram, max_size=8, unique=True))
        floats = [
            np.array(draw(st.lists(of, min_size=len(ngrams), max_size=len(ngrams))), np.float32)
            for of in (log_probs, log_backoffs)
        ]
        floats[1][:] = floats[1] if n < order else 0
        levels.append(ArpaLevel(np.array(ngrams, np.int32).reshape(-1, n), np.minimum(floats[0], 0), floats[1]))
    return ArpaModel([word.encode() for word in words], levels)


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(model=models(), packed=st.booleans())
def test_what_is_written_comes_back(model: ArpaModel, packed: bool, way: str, tmp_path: Path) -> None:
    path = tmp_path / ("m.arpa.gz" if packed else "m.arpa")
    assert write(path, model, overwrite=True).startswith(b"\x1f\x8b") == packed
    assert_same(read_arpa(path), model)


def test_the_text_that_is_written(way: str, tmp_path: Path) -> None:
    half = float(np.log(0.5))
    write_arpa(
        tmp_path / "m.arpa",
        [b"<s>", b"a"],
        [
            iter([
                (np.array([[1]]), np.array([half]), None),
                (np.array([[0]]), np.array([-np.inf]), np.array([half])),
            ]),
            iter([(np.array([[0, 1]]), np.array([1e-7]), np.array([half]))]),
        ],
        [2, 1],
    )  # fmt: skip
    # log10 0.5 = -0.30103; nine digits of the float32 nearest to ln 0.5; what is above 0 by rounding only is 0
    assert (tmp_path / "m.arpa").read_text() == (
        "\\data\\\nngram 1=2\nngram 2=1\n\n"
        "\\1-grams:\n-0.301029996\ta\t0\n-99\t<s>\t-0.301029996\n\n"
        "\\2-grams:\n0\t<s> a\n\n\\end\\\n"
    )


def two_words() -> list[tuple[np.ndarray, np.ndarray, None]]:
    return [(np.array([[0], [1]]), np.array([-1.0, -1.0]), None)]


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        ((np.array([[0, 2]]), np.array([-1.0]), None), "ids go from 0 to 1: found 0 to 2"),
        ((np.array([[-1, 0]]), np.array([-1.0]), None), "found -1 to 0"),
        ((np.array([[0]]), np.array([-1.0]), None), "shapes"),
        ((np.array([[0, 1]]), np.array([-1.0, -1.0]), None), "shapes"),
        ((np.array([[0, 1]]), np.array([0.1]), None), "NaN or above 0"),
        ((np.array([[0, 1]]), np.array([np.nan]), None), "NaN or above 0"),
        ((np.array([[0, 1]]), np.array([-1.0]), np.array([np.nan])), "NaN or infinite"),
        ((np.array([[0, 1]]), np.array([-1.0]), np.array([np.inf])), "NaN or infinite"),
        ((np.zeros((0, 2), int), np.zeros(0), None), "there should be 1 2-grams, but 0 came"),
    ],
)
def test_blocks_that_make_no_model(
    block: tuple[np.ndarray, np.ndarray, np.ndarray | None], reason: str, way: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=reason):
        write_arpa(tmp_path / "m.arpa", [b"a", b"b"], [two_words(), [block]], [2, 1])
    assert not list(tmp_path.iterdir())


def test_every_word_has_one_unigram(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="3 words, but 2 unigrams"):
        write_arpa(tmp_path / "m.arpa", [b"a", b"b", b"c"], [two_words()], [2])
    with pytest.raises(ValueError, match="one came twice"):
        write_arpa(tmp_path / "m.arpa", [b"a", b"b", b"c", b"d"], [two_words() * 2], [4])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        (b"", "white space"),
        (b"a b", "white space"),
        (b"a\r", "white space"),
        (b"\xff", "UTF-8"),
        (b"a", "two that are"),
    ],
)
def test_words_that_cannot_be_written(word: bytes, reason: str, tmp_path: Path) -> None:
    with pytest.raises(ArpaError, match=reason):
        write_arpa(tmp_path / "m.arpa", [b"a", word], [two_words()], [2])


def test_a_file_is_replaced_only_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "m.arpa"
    path.write_text("mine")
    model = ArpaModel([b"a", b"b"], [ArpaLevel(np.int32([[0], [1]]), np.float32([-1, -1]), np.float32([0, 0]))])
    with pytest.raises(ArpaError, match=r"m.arpa exists; choose another file"):
        write(path, model)
    assert path.read_text() == "mine"
    assert write(path, model, overwrite=True).startswith(b"\\data\\")
    assert [file.name for file in tmp_path.iterdir()] == ["m.arpa"]


def test_targets_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(ArpaError, match="is a folder"):
        write_arpa(tmp_path, [b"a", b"b"], [two_words()], [2])
    with pytest.raises(ArpaError, match="there is no folder"):
        write_arpa(tmp_path / "none" / "m.arpa", [b"a", b"b"], [two_words()], [2])
    with pytest.raises(ArpaError, match="cannot be written: File name too long"):
        write_arpa(tmp_path / ("m" * 250), [b"a", b"b"], [two_words()], [2])


class FullDisk(io.BytesIO):
    """Takes twenty bytes, then no more."""

    def write(self, data: object) -> int:
        if self.tell() + len(bytes(data)) > 20:  # type: ignore[call-overload]
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(data)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["m.arpa", "m.arpa.gz"])
def test_a_full_disk_leaves_nothing(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / name).write_text("mine")
    real = Path.open
    full = lambda path, mode="r", *others: FullDisk() if mode == "wb" else real(path, mode, *others)  # noqa: E731
    with (
        monkeypatch.context() as patched,
        pytest.raises(ArpaError, match=f"{name}: cannot be written: No space left"),
    ):
        patched.setattr(Path, "open", full)
        write_arpa(tmp_path / name, [b"a", b"b"], [two_words()], [2], overwrite=True)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [(name, "mine")]


def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    def interrupted() -> Iterator[tuple[np.ndarray, np.ndarray, None]]:
        yield from two_words()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_arpa(tmp_path / "m.arpa", [b"a", b"b"], [interrupted()], [2])
    assert not list(tmp_path.iterdir())
