from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from chainrule.errors import ChainruleError, SettingsError
from chainrule.neural.layers import Embedding
from chainrule.neural.network import Table
from chainrule.neural.vectors import fill, load_vectors
from chainrule.tokens.word import WordTokenizer

TOKENIZER = WordTokenizer([b"cats", b"The", b"the", b"Dogs", b"\xc3\xa9t\xc3\xa9", b"rare"])  # ids from 3
GLOVE = "the 1 2\ndogs 3 4\nDogs 5 6\nété -7e-1 .8\nunused 9 9\ncats 1.5 2.5 \n"


def written(folder: Path, text: str | bytes, name: str = "vectors.txt") -> Path:
    path = folder / name
    data = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


@pytest.mark.parametrize("text", [GLOVE, "6 2\n" + GLOVE], ids=["glove", "word2vec"])
@pytest.mark.parametrize("name", ["vectors.txt", "vectors.txt.gz"])
def test_tokens_are_found_as_they_are_or_in_lower_case(tmp_path: Path, text: str, name: str) -> None:
    vectors = load_vectors(written(tmp_path, text, name), TOKENIZER)
    assert vectors.ids_N.tolist() == [3, 4, 5, 6, 7]
    # The has the vector of the, Dogs its own
    np.testing.assert_allclose(vectors.matrix_ND, [[1.5, 2.5], [1, 2], [1, 2], [5, 6], [-0.7, 0.8]])
    # five of six: "rare" has none, and special tokens do not count
    assert vectors.coverage == 5 / 6
    assert str(vectors).endswith(f"{name}: vectors of size 2 for 5 of 6 tokens (83.3%)")


def test_the_first_vector_of_a_word_counts_and_words_may_have_spaces(tmp_path: Path) -> None:
    vectors = load_vectors(written(tmp_path, "the 1 2\nthe 3 4\nat home 5 6\n. . 7 8\n"), TOKENIZER)
    assert vectors.matrix_ND.tolist() == [[1, 2], [1, 2]]


def test_special_tokens_are_no_words(tmp_path: Path) -> None:
    vectors = load_vectors(written(tmp_path, "<unk> 1 2\n</s> 1 2\n"), TOKENIZER)
    assert vectors.coverage == 0
    assert str(vectors).endswith("vectors of size 2, and none for any of 6 tokens: of other words?")


def test_a_table_is_filled_and_other_rows_stay(tmp_path: Path) -> None:
    vectors = load_vectors(written(tmp_path, GLOVE), TOKENIZER)
    table = Embedding(TOKENIZER.vocab_size, 2, tied=False)
    before = table.weight.detach().clone()
    fill(Table(table.weight, table.scale, "embedding"), vectors)
    assert torch.equal(table.weight[3:8], torch.from_numpy(vectors.matrix_ND))
    others = [0, 1, 2, 8, *range(9, len(before))]
    assert torch.equal(table.weight[others], before[others])
    assert table.weight.requires_grad


def test_what_is_looked_up_is_the_vector_in_tied_tables_too(tmp_path: Path) -> None:
    table = Embedding(TOKENIZER.vocab_size, 2, tied=True)
    fill(Table(table.weight, table.scale, "embedding"), load_vectors(written(tmp_path, GLOVE), TOKENIZER))
    torch.testing.assert_close(table(torch.tensor([6])), torch.tensor([[5.0, 6.0]]))


def test_another_size_names_the_setting(tmp_path: Path) -> None:
    vectors = load_vectors(written(tmp_path, GLOVE), TOKENIZER)
    with pytest.raises(SettingsError, match=r"its vectors have 2 numbers.* 5: set embedding=2"):
        fill(Table(Embedding(TOKENIZER.vocab_size, 5, tied=False).weight, 1.0, "embedding"), vectors)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("the 1 2\ncats 1\n", "line 2: expected a word and 2 numbers, as above, found 2 columns"),
        ("the 1 2\ncats 1 2 3\n", "line 2: expected a word and 2 numbers, as above, found 4 columns"),
        ("the 1 2\n\ncats 1 2\n", "line 2: expected a word and 2 numbers"),
        ("the\n", "line 1: expected a word and its numbers, found 1 columns"),
        ("the 1 two\n", "line 1: expected numbers behind the word: .*two"),
        ("the 1 nan\n", "line 1: expected finite numbers"),
        ("3 2\nthe 1 2\ncats 3 4\n", "its first line promises 3 words, there are 2: is it whole"),
        ("", "there is no vector in it"),
        (b"1 2\nthe \x00\x01\xff\xfe\x00", "line 2, byte 7: expected UTF-8; is this a binary file of word2vec"),
        (b"PK\x03\x04", "a zip archive"),
    ],
)
def test_faults_are_named(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(ChainruleError, match=message):
        load_vectors(written(tmp_path, text), TOKENIZER)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ChainruleError, match=r"none\.txt: No such file"):
        load_vectors(tmp_path / "none.txt", TOKENIZER)
