"""A vocabulary and ids in one pass equal those of two passes."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chainrule.errors import CorpusError
from chainrule.system import parallel
from chainrule.text import files
from chainrule.text.corpus import Corpus
from chainrule.tokens.base import lines_of
from chainrule.tokens.ids import encode_corpus, learn_and_encode
from chainrule.tokens.vocabulary import Limit, choose
from chainrule.tokens.words import learning
from chainrule.tokens.words.learning import rank
from chainrule.tokens.words.splitting import Splitting, split_words
from chainrule.tokens.words.table import WordTable
from chainrule.tokens.words.tokenizer import WordTokenizer


def counted_slowly(blocks: list[bytes], splitting: Splitting) -> Counter[bytes]:
    return Counter(word for block in blocks for line in lines_of(block) for word in split_words(line, splitting))


examples = settings(max_examples=60, deadline=None, derandomize=True)
limits = pytest.mark.parametrize("limit", [Limit(), Limit(min_count=2), Limit(top=5), Limit(percent=40, top=90)])

# few letters and long common beginnings, so that there are ties of every length; NUL is the least of bytes
words = st.lists(
    st.tuples(st.sampled_from([0, 1, 7, 8, 9, 24, 31, 32, 33, 80]), st.text("ab\x00é", min_size=1, max_size=3)).map(
        lambda drawn: "x" * drawn[0] + drawn[1]
    ),
    max_size=40,
)


@given(words=words, limit=st.builds(Limit, st.integers(1, 3), st.none() | st.integers(1, 9)))
@example(words=["a", "a\x00", "a\x00\x00", "a\x00\x00\x00\x00\x00\x00\x00b"], limit=Limit())
@example(words=[], limit=Limit(percent=50))
@examples
def test_words_are_ranked_as_choose_does(words: list[str], limit: Limit) -> None:
    block = " ".join(words).encode()
    table = WordTable("whitespace")
    table.learn(block)
    assert table.spelled(rank(table, limit)) == choose(counted_slowly([block], "whitespace"), limit)


def assert_one_pass_gives_what_two_give(corpus: Corpus, limit: Limit, splitting: Splitting, folder: Path) -> None:
    tokenizer, encoded = learn_and_encode(corpus, limit, splitting, folder / "one")
    blocks = list(corpus.blocks())
    assert tokenizer.spellings == choose(counted_slowly(blocks, splitting), limit)
    expected = encode_corpus(corpus, WordTokenizer(tokenizer.spellings, splitting), folder / "two")
    assert (folder / "one").read_bytes() == (folder / "two").read_bytes()
    np.testing.assert_array_equal(encoded.ids, expected.ids)
    assert encoded.ids.dtype == expected.ids.dtype
    assert not encoded.ids.flags.writeable
    for figure in ("lines", "bytes", "unknown", "fingerprint", "tokens"):
        assert getattr(encoded, figure) == getattr(expected, figure)


@limits
@pytest.mark.parametrize("splitting", ["whitespace", "unicode"])
@pytest.mark.parametrize("worth", [1, 5_000, 1 << 30], ids=["kernels", "both", "python"])
def test_one_pass_gives_what_two_give(
    worth: int, splitting: Splitting, limit: Limit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty blocks in two files, of which the first lacks its last line end; ids take two bytes."""
    monkeypatch.setattr(files, "BLOCK_SIZE", 1_000)
    monkeypatch.setattr(parallel, "SLOW_NANOSECONDS", worth)
    draw = random.Random(2)
    text = "".join(draw.choice("aabbc\x00é漢🙂'_    \t\n") for _ in range(15_000)).strip().encode()
    (tmp_path / "a.txt").write_bytes(text)
    (tmp_path / "b.txt").write_bytes(b"last words\n")
    corpus = Corpus.open(tmp_path / "a.txt", tmp_path / "b.txt")
    assert len(list(corpus.blocks())) >= 20
    assert_one_pass_gives_what_two_give(corpus, limit, splitting, tmp_path)


def test_ids_of_four_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """70,000 words are more than two bytes can number."""
    monkeypatch.setattr(files, "BLOCK_SIZE", 100_000)
    (tmp_path / "a.txt").write_bytes(b"".join(b"%d %d\n" % (i % 70_000, i % 7) for i in range(100_000)))
    assert_one_pass_gives_what_two_give(Corpus.open(tmp_path / "a.txt"), Limit(), "whitespace", tmp_path)
    assert (tmp_path / "one").stat().st_size == 4 * 300_000


def test_the_file_is_the_ids_and_nothing_else(tmp_path: Path) -> None:
    learn_and_encode(Corpus.from_text("b a\nb\n"), Limit(), "whitespace", tmp_path / "ids")
    assert (tmp_path / "ids").read_bytes() == bytes([3, 0, 4, 0, 2, 0, 3, 0, 2, 0])  # b a </s> b </s>


def test_a_text_without_words_has_line_ends_only(tmp_path: Path) -> None:
    tokenizer, encoded = learn_and_encode(Corpus.from_text("\n \n"), Limit(), "whitespace", tmp_path / "ids")
    assert tokenizer.words == []
    assert encoded.ids.tolist() == [2, 2]


def test_an_empty_text_and_one_that_would_be_overwritten_are_errors(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.touch()
    with pytest.raises(CorpusError, match=r"a\.txt is empty"):
        learn_and_encode(Corpus.open(path), Limit(), "whitespace", tmp_path / "ids")
    with pytest.raises(CorpusError, match="would overwrite the text itself"):
        learn_and_encode(Corpus.open(path), Limit(), "whitespace", path)


def test_many_short_blocks_are_together_worth_a_kernel() -> None:
    learner = learning.WordLearner("whitespace")
    block = b"i love cats\n" * 20_000  # 240 KB: the fifth makes it more than a megabyte
    assert [learner.learn(block)[1] for _ in range(6)] == [0, 0, 0, 0, 1, 1]
    vocabulary = learner.vocabulary(Limit())
    assert vocabulary.spell() == [b"cats", b"i", b"love"]
    assert vocabulary.lines == 120_000


def test_a_short_text_needs_no_numba() -> None:
    """Importing Numba takes longer than reading a short text."""
    script = (
        "import sys; sys.modules['numba'] = None; import chainrule as cr; text = cr.Corpus.open('builtin:python'); "
        "lm = cr.train('ngram', text, smoothing='laplace'); print(lm.tokenizer.vocab_size > 1000)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == "True\n", done.stderr
