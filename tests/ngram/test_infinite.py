"""N-grams of any length: counts and predictions are right, and the fast paths equal the slow ones."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import chainrule as cr
from chainrule.arrays import pad
from chainrule.contract import chain
from chainrule.contract.data import TrainingData
from chainrule.contract.lm import Context
from chainrule.errors import DamagedFileError
from chainrule.folder import read_folder
from chainrule.ngram.infinite import any_length_model as infinite
from chainrule.ngram.infinite import suffixes, walk
from chainrule.ngram.infinite.any_length_model import AnyLengthModel, train_anygram
from chainrule.ngram.loading import load_anygram
from chainrule.testing import LAWS
from chainrule.tokens.ids import Encoded
from listening import Listening

sys.path.insert(0, str(Path(__file__).parent.parent / "contract"))

TOY = "i love cats\ni love dogs\ncats chase mice\n"
BOS, EOS, SIZE = 1, 2, 7
CONTEXTS: list[Context] = ["line", "stream"]
COMPILED, SLOW = -1, 1 << 60


def encoded(tokenizer: cr.Tokenizer, text: str) -> Encoded:
    ids = tokenizer.encode_lines(text.encode()).astype(tokenizer.id_dtype)
    return Encoded(ids, text.count("\n"), len(text.encode()), 0, "")


def train(
    text: str, context: Context = "line", valid: str | None = None, tokenizer: str = "word", few: int = SLOW
) -> AnyLengthModel:
    learned = cr.train_tokenizer(tokenizer, cr.Corpus.from_text(text))
    held_out = None if valid is None else encoded(learned, valid)
    return train_anygram(TrainingData(learned, encoded(learned, text), held_out, context), small=few, few=few)


# -- the laws -------------------------------------------------------------------------------------------------


@cache
def lawful(context: Context, tokenizer: str) -> AnyLengthModel:
    return train(TOY if tokenizer == "word" else "abba\nbaa\n\nab\n", context, tokenizer=tokenizer)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("tokenizer", ["word", "char"])
def test_law(law: str, context: Context, tokenizer: str) -> None:
    LAWS[law](lawful(context, tokenizer))


# -- sorting --------------------------------------------------------------------------------------------------

texts = st.lists(st.lists(st.integers(3, 5), max_size=8), min_size=1, max_size=12)
repeats = st.builds(lambda line, times: [line] * times, st.lists(st.integers(3, 5), max_size=3), st.integers(1, 40))


def as_ids(text: list[list[int]]) -> np.ndarray:
    return np.asarray([token for line in text for token in [*line, EOS]], dtype=np.uint32)


def sorted_slowly(ids: np.ndarray, boundary: int) -> list[int]:
    """Sort events by their contexts, equal ones by position, as Python does: the reference for the faster sorts."""

    def context(i: int) -> list[int]:
        tokens: list[int] = []
        while len(tokens) < len(ids) and not (tokens and tokens[-1] == boundary):
            tokens.append(int(ids[(i - 1 - len(tokens)) % len(ids)]))
        return tokens

    return sorted(range(len(ids)), key=context)


@settings(max_examples=60)
@given(texts | repeats, st.sampled_from([EOS, -1]))
def test_contexts_are_sorted_as_python_sorts(text: list[list[int]], boundary: int) -> None:
    ids = as_ids(text)
    expected = sorted_slowly(ids, boundary)
    assert suffixes.order_of(ids, boundary).tolist() == expected
    assert suffixes._order_compiled(ids, suffixes._starts(ids, SIZE), boundary).tolist() == expected


@settings(max_examples=40)
@given(texts | repeats, st.sampled_from(CONTEXTS))
def test_compiled_and_numpy_build_the_same(text: list[list[int]], context: Context) -> None:
    slow, fast = (suffixes.build(as_ids(text), SIZE, EOS, context, small=small) for small in (SLOW, COMPILED))
    for name in ("follower", "places", "shared", "fresh"):
        np.testing.assert_array_equal(getattr(slow, name), getattr(fast, name), err_msg=name)


def test_long_repeats_are_sorted_to_their_ends() -> None:
    """Two copies of 700 tokens that differ in the first: only their whole length tells them apart."""
    half = np.random.default_rng(0).integers(3, 60, 700).astype(np.uint32)
    ids = np.concatenate([half, [EOS], [4], half[1:], [EOS], np.full(300, 5, np.uint32), [EOS]]).astype(np.uint32)
    for context in CONTEXTS:
        slow, fast = (suffixes.build(ids, 60, EOS, context, small=small) for small in (SLOW, COMPILED))
        assert fast.places.tolist() == slow.places.tolist()
        assert fast.shared.tolist() == slow.shared.tolist()
        assert fast.shared.max() == 255


# -- counting -------------------------------------------------------------------------------------------------


def events(ids: list[int], context: Context) -> Iterator[tuple[list[int], int]]:
    """Each event behind all that its context has; with stream context the text is a circle, read once."""
    if context == "stream":
        for i, token in enumerate(ids):
            yield [*ids[i:], *ids[:i]], token
        return
    before = [BOS]
    for token in ids:
        yield list(before), token
        before = [BOS] if token == EOS else [*before, token]


def brute(ids: list[int], context: Context, h: list[int], w: int) -> tuple[int, int, int]:
    """N(· h w), N(· h ·) and N(h ·), by looping; a line's beginning has a token of its own before it."""
    n, pairs = len(h), set()
    for number, (before, token) in enumerate(events(ids, context)):
        if len(before) >= n and before[len(before) - n :] == h:
            pairs.add((before[-n - 1] if len(before) > n else -number - 1, token))
    return sum(token == w for _, token in pairs), len(pairs), len({token for _, token in pairs})


@settings(max_examples=60)
@given(texts, st.lists(st.integers(2, 6), min_size=1, max_size=6), st.sampled_from(CONTEXTS))
def test_evidence_is_that_of_a_loop(text: list[list[int]], row: list[int], context: Context) -> None:
    ids = as_ids(text)
    walker = walk.Walker(suffixes.build(ids, SIZE, EOS, context), BOS, EOS, context, SLOW)
    seen = []
    walker.walk(np.asarray([row]), walk.state_of([walker.start]), lambda rows, places, *found: seen.append(found))
    (evidence, used, matched) = seen[0]
    for t, token in enumerate(row):
        # <s> stands for the beginning of a line, or in a stream for the end of the line before
        read = [BOS if context == "line" else EOS]
        for before in row[:t]:
            read = [BOS] if context == "line" and before == EOS else [*read, before]
        lengths = []
        for n, count, total, words in evidence[: used[0, t], :, 0, t].tolist():
            assert (count, total, words) == brute(ids.tolist(), context, read[len(read) - n :], token)
            lengths.append(n)
        counts = [occurrences(ids.tolist(), context, read[len(read) - n :]) for n in range(len(read) + 1)]
        # the empty context, and behind it one level for each distinct count: the longest context that has it
        assert lengths == [0] + [n for n, c in enumerate(counts) if n and c and c not in counts[n + 1 :]]
        ends = [
            (n + 1, followed(ids.tolist(), context, read[len(read) - n :], token)) for n in range(len(read) + 1)
        ]
        assert tuple(matched[0, t]) == max(((n, c) for n, c in ends if c), default=(0, 0))


def occurrences(ids: list[int], context: Context, h: list[int]) -> int:
    return sum(followed(ids, context, h, w) for w in range(SIZE))


def followed(ids: list[int], context: Context, h: list[int], w: int) -> int:
    return sum(token == w and before[len(before) - len(h) :] == h for before, token in events(ids, context))


@settings(max_examples=40)
@given(texts | repeats, texts, st.sampled_from(CONTEXTS))
def test_compiled_walks_are_the_slow_ones(text: list[list[int]], rows: list[list[int]], context: Context) -> None:
    words = "\n".join(" ".join("abc"[token - 3] for token in line) for line in text) + "\n"
    slow, fast = train(words, context), train(words, context, few=COMPILED)
    size = slow.tokenizer.vocab_size
    ids = pad([[token % size for token in row] for row in rows])
    np.testing.assert_array_equal(fast.score(ids), slow.score(ids))
    ended = [lm.extend(lm.start(len(ids)), ids) for lm in (slow, fast)]
    assert ended[0].depth_B.tolist() == ended[1].depth_B.tolist()
    for b in range(len(ids)):
        assert ended[0].row(b) == ended[1].row(b)
    for place in range(ids.shape[1]):  # a state goes on where it is, on either path
        before, after = np.split(ids, [place], axis=1)
        np.testing.assert_array_equal(
            fast.score(after, slow.extend(slow.start(len(ids)), before)), slow.score(ids)[:, place:]
        )


def test_a_long_row_is_walked_in_pieces() -> None:
    text = " ".join("ab"[i * i % 7 % 2] for i in range(3000)) + "\n"
    slow, fast = train(text, "stream"), train(text, "stream", few=COMPILED)
    row = slow.sequences(text)[0].astype(np.int64)[None]
    np.testing.assert_array_equal(fast.score(row), slow.score(row))


def test_many_short_texts_are_worth_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = train("a b a b b a\n" * 20, "line")
    compiled: list[int] = []
    monkeypatch.setattr(walk, "_KERNELS", "a module that is not loaded")
    monkeypatch.setattr(walk.Walker, "_walk_compiled", lambda self, ids, *rest: compiled.append(ids.size))
    rows = np.full((10, 100), lm.tokenizer.encode("a")[0])
    for _ in range(walk.FEW // rows.size):
        lm.extend(lm.start(10), rows)
    assert not compiled
    lm.extend(lm.start(10), rows)
    assert compiled == [rows.size]


def test_ranges_beyond_the_table_are_counted() -> None:
    values = np.random.default_rng(1).integers(0, 12, 1000).astype(np.uint8)
    from chainrule.ngram.infinite import kernels

    table = np.zeros((8, 1000 // 64 + 1), dtype=np.int64)
    kernels.tabulate(values, 64, table)
    for first, last, limit in [(0, 1000, 3), (1, 999, 7), (64, 640, 0), (63, 641, 8), (5, 70, 2), (500, 500, 3)]:
        found = kernels.at_most(values, table, 64, limit, first, last)
        assert found == np.count_nonzero(values[first:last] <= limit)


# -- predicting -----------------------------------------------------------------------------------------------


def test_by_hand() -> None:
    """p(cats | <s> i love) with d = 1/2 and θ = 1 everywhere."""
    lm = train(TOY)
    half = infinite.Smoothing(np.full(8, 0.5), np.full(8, 1.0))
    lm = AnyLengthModel(lm.suffixes, half, lm.tokenizer)
    uniform = 1 / 8  # six words, </s>, <unk>
    # Pairs of a word and the one before it: <s> i, <s> cats, i love, love cats, love dogs, cats </s>, cats chase,
    # dogs </s>, chase mice, mice </s>. They are ten, of seven words; cats is in two of them.
    empty = (2 - 0.5 + (1 + 0.5 * 7) * uniform) / (10 + 1)
    # "love", "i love" and "<s> i love" occurred at the same two places: one level, that of three tokens. Before it
    # lie the beginnings of two lines, which are two; cats and dogs follow once each.
    whole = (1 - 0.5 + (1 + 0.5 * 2) * empty) / (2 + 1)
    after = lm.next_log_probs(chain.after(lm, lm.tokenizer.encode("i love").tolist()))[0]
    cats = int(lm.tokenizer.encode("cats")[0])
    np.testing.assert_allclose(np.exp(after[cats]), whole, rtol=1e-12)


@settings(max_examples=40)
@given(texts | repeats, texts, st.sampled_from(CONTEXTS))
def test_every_context_sums_to_one(text: list[list[int]], rows: list[list[int]], context: Context) -> None:
    words = "\n".join(" ".join("abc"[token - 3] for token in line) for line in text) + "\n"
    lm = train(words, context)
    ids = pad([[token % lm.tokenizer.vocab_size for token in row] for row in rows])
    state = lm.extend(lm.start(len(ids)), ids)
    np.testing.assert_allclose(np.exp(lm.next_log_probs(state)).sum(axis=1), 1.0, atol=1e-9)
    np.testing.assert_allclose(lm.score(ids), chain.score(lm, ids), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("few", [COMPILED, SLOW])
def test_contexts_longer_than_the_counts_reach(few: int) -> None:
    """Four copies of a long line: two lines part from the others after 100 tokens, two after 300."""
    words = [f"w{i * i % 83}" for i in range(600)]
    lines = [["x", *words], ["y", *words], ["a", *words[300:]], ["b", *words[500:], "z"]]
    lm = train("\n".join(map(" ".join, lines)) + "\n", few=few)
    for line in (["y", *words], words, ["a", *words[100:]]):
        ids = lm.tokenizer.encode(" ".join(line)).astype(np.int64)[None]
        np.testing.assert_allclose(lm.score(ids)[:, -40:], chain.score(lm, ids)[:, -40:], rtol=1e-9)
        state = lm.extend(lm.start(1), ids)
        np.testing.assert_allclose(np.exp(lm.next_log_probs(state)).sum(), 1.0, atol=1e-9)
        assert lm.score(ids)[0, -1] > np.log(0.3)  # a copy that long can go on in one way only


@pytest.mark.parametrize("few", [COMPILED, SLOW])
def test_a_token_over_and_over_has_no_more_levels_than_there_is_room(few: int) -> None:
    lm = train("a " * 500 + "\n", few=few)
    state = lm.extend(lm.start(1), lm.tokenizer.encode("a " * 300).astype(np.int64)[None])
    assert state.depth_B.tolist() == [walk.MOST_LEVELS]
    np.testing.assert_allclose(np.exp(lm.next_log_probs(state)).sum(), 1.0, atol=1e-9)


def test_held_out_text_tunes_the_smoothing() -> None:
    lines = b"".join(cr.Corpus.open("builtin:python").blocks()).decode().splitlines(keepends=True)
    text = ["".join(lines[:300]), "".join(lines[300:500])]
    fixed, tuned = train(text[0]), train(text[0], valid=text[1])
    assert tuned.perplexity(text[1]) < fixed.perplexity(text[1])
    compiled = train(text[0], valid=text[1], few=COMPILED)
    np.testing.assert_array_equal(compiled.smoothing.discount, tuned.smoothing.discount)
    assert tuned.metrics["discounts"] == tuned.smoothing.discount.round(4).tolist()


def test_tuning_finds_the_least() -> None:
    np.testing.assert_allclose(infinite._least(lambda x: (x - 0.3) ** 2, 0.0, 1.0), 0.3, atol=0.01)


def test_no_held_out_text_is_said() -> None:
    progress = Listening()
    tokenizer = cr.train_tokenizer("word", cr.Corpus.from_text(TOY))
    train_anygram(TrainingData(tokenizer, encoded(tokenizer, TOY), None, progress=progress))
    assert progress.notes == ["no held-out text to tune the smoothing on: it gets discounts that suit most text"]


@pytest.mark.parametrize("few", [COMPILED, SLOW])
def test_longest_match(few: int) -> None:
    lm = train(TOY, few=few)
    matches = lm.longest_match("i love cats\ndogs chase mice\n")
    #                                  i  love cats </s> dogs chase mice </s>
    assert matches.length.tolist() == [2, 3, 4, 5, 1, 1, 2, 3]
    assert matches.occurrences.tolist() == [2, 2, 1, 1, 1, 1, 1, 1]


# -- the folder -----------------------------------------------------------------------------------------------

Change = Callable[[np.ndarray], np.ndarray]


def set_to(place: int, value: float) -> Change:
    def change(array: np.ndarray) -> np.ndarray:
        array[place] = value
        return array

    return change


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("follower", set_to(3, 200)),
        ("follower", set_to(3, BOS)),
        ("follower", lambda a: a[:-1]),
        ("follower", lambda a: a.astype(np.float32)),
        ("follower", lambda a: a[:0]),
        ("places", set_to(0, 4_000_000)),
        ("places", lambda a: a[::-1]),
        ("places", np.zeros_like),
        ("places", lambda a: a.astype(np.int64)),
        ("places", lambda a: a[None]),
        ("shared", set_to(0, 1)),
        ("shared", np.zeros_like),
        ("fresh", set_to(2, 77)),
        ("discount", set_to(0, 1.0)),
        ("discount", set_to(0, np.nan)),
        ("strength", set_to(1, 0.0)),
        ("strength", set_to(1, np.inf)),
        ("strength", lambda a: a[:3]),
    ],
)
def test_arrays_that_make_no_model(tmp_path: Path, name: str, change: Change) -> None:
    train(TOY).save(tmp_path / "m")
    content = read_folder(tmp_path / "m")
    tensors = {key: np.array(array) for key, array in content.tensors.items()}
    tensors[name] = np.ascontiguousarray(change(tensors[name]))
    with pytest.raises(DamagedFileError, match="not those of a model of n-grams of any length"):
        load_anygram(replace(content, tensors=tensors))


def test_an_array_that_is_missing(tmp_path: Path) -> None:
    train(TOY).save(tmp_path / "m")
    content = read_folder(tmp_path / "m")
    with pytest.raises(DamagedFileError, match="has no array 'places'"):
        load_anygram(replace(content, tensors={k: v for k, v in content.tensors.items() if k != "places"}))


def test_small_texts_need_no_compiler() -> None:
    script = """
import subprocess
import sys
import numpy as np
from chainrule.contract.data import TrainingData
from chainrule.ngram.infinite.any_length_model import train_anygram
from chainrule.tokens.char import ByteTokenizer
from chainrule.tokens.ids import Encoded
tokenizer = ByteTokenizer()
text = Encoded(tokenizer.encode_lines(b"abba\\nbaa\\n").astype(tokenizer.id_dtype), 2, 9, 0, "")
lm = train_anygram(TrainingData(tokenizer, text, text))
assert lm.perplexity("abba") < 100
print("numba" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
