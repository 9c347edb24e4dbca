from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from chainrule.arrays import to_numpy
from chainrule.autodiff.tape_model import TapeModel
from chainrule.contract.data import TrainingData
from chainrule.contract.lm import LanguageModel
from chainrule.errors import ChainruleError, SettingsError
from chainrule.networks.settings import FeedforwardSettings
from chainrule.networks.word_vectors import load_vectors
from chainrule.settings import closed
from chainrule.tokens.ids import Encoded
from chainrule.tokens.words.tokenizer import WordTokenizer
from chainrule.training.kinds import NetworkKind

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


NETWORKS = {
    "torch": "chainrule.networks.feedforward:Feedforward",
    "tape": "chainrule.autodiff.networks.feedforward:TapeFeedforward",
}


def filled(path: Path, engine: str, *, embedding: int, tied: bool) -> tuple[np.ndarray, LanguageModel]:
    """The embedding table of a network before it was filled with vectors, and the network."""
    settings = closed(FeedforwardSettings(engine=engine, embedding=embedding, hidden=3, tied=tied))
    kind = NetworkKind("feedforward", FeedforwardSettings, NETWORKS)
    data = TrainingData(TOKENIZER, Encoded(np.zeros(0, np.uint32), 0, 0, 0, ""), None)
    before = kind.build(settings, data).model.tensors()["embedding.weight"]
    return before, kind.build(settings, data, load_vectors(path, TOKENIZER)).model


@pytest.mark.parametrize("engine", NETWORKS)
def test_a_table_is_filled_and_other_rows_stay(tmp_path: Path, engine: str) -> None:
    path = written(tmp_path, GLOVE)
    before, lm = filled(path, engine, embedding=2, tied=False)
    table = lm.tensors()["embedding.weight"]
    np.testing.assert_array_equal(table[3:8], load_vectors(path, TOKENIZER).matrix_ND)
    others = [0, 1, 2, 8, *range(9, len(before))]
    np.testing.assert_array_equal(table[others], before[others])
    if engine == "torch":
        assert lm.network.embedding.weight.requires_grad


@pytest.mark.parametrize("engine", NETWORKS)
def test_a_lookup_returns_the_vector_from_tied_tables_too(tmp_path: Path, engine: str) -> None:
    _, lm = filled(written(tmp_path, GLOVE), engine, embedding=2, tied=True)
    if isinstance(lm, TapeModel):
        looked_up = lm.network.embed(np.asarray([6]), 0.0, None).out_tensor
    else:
        looked_up = to_numpy(lm.network.embedding(torch.tensor([6])))
    np.testing.assert_allclose(looked_up, [[5.0, 6.0]], rtol=1e-6)


@pytest.mark.parametrize("engine", NETWORKS)
def test_another_size_names_the_setting(tmp_path: Path, engine: str) -> None:
    with pytest.raises(SettingsError, match=r"its vectors have 2 numbers.* 5: set embedding=2"):
        filled(written(tmp_path, GLOVE), engine, embedding=5, tied=False)


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
