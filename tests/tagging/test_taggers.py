"""Taggers keep their laws, learn what the lectures say they can learn, and resume bit for bit."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import chainrule as cr
from chainrule.errors import ModelError, SettingsError
from chainrule.networks.tagging.config import TaggerSettings, WordInputs
from chainrule.networks.tagging.tagger import TaggerNetwork
from chainrule.settings import closed
from chainrule.tagging.examples import TaggedExamples, WordDropout
from chainrule.tagging.reading import SubwordReader, WordReader, numbered
from chainrule.testing import check_tagger_laws
from chainrule.text.tagged import Tagged
from chainrule.tokens.words.tokenizer import WordTokenizer
from chainrule.training.layouts import in_pieces
from chainrule.training.objectives import Sequences, Stretches
from stopping import interrupted
from toy_models import with_random_weights

from .toys import TINY, save_masked, sentences, tagged_by_the_first_word, tagged_by_the_last_word

DESIGNS: dict[str, dict[str, Any]] = {
    "lstm": {"cell": "lstm", "layers": 2},
    "one direction": {"cell": "gru", "bidirectional": False, "characters": "none"},
    "elman": {"cell": "elman", "characters": "cnn"},
    "words alone": {"layers": 0, "characters": "cnn"},
    "transformer": {"cell": "transformer", "heads": 2, "window": 6},
    "alibi": {"cell": "transformer", "heads": 2, "positions": "alibi", "preset": "lecture"},
    "pretrained": {"pretrained": "masked"},
    "frozen": {"pretrained": "masked", "frozen": True, "layers": 0},
}


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pretrained") / "masked"
    save_masked(folder)
    return folder


@pytest.fixture(autouse=True)
def masked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pretrained: Path) -> None:
    """A folder `masked` with a masked model, where the tests run."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(pretrained, "masked")


def trained(design: dict[str, Any], given: Any = None, **settings: Any) -> Any:
    return cr.train("tagger", given or sentences(), **{**TINY, "steps": 2, **design, **settings})


@pytest.mark.parametrize("design", DESIGNS)
def test_laws(design: str) -> None:
    check_tagger_laws(with_random_weights(trained(DESIGNS[design])))


def accuracy(tagger: Any, given: list[list[tuple[str, str]]]) -> float:
    return cr.tagging.evaluate_tagger(tagger, given).accuracy


FAST: dict[str, Any] = {"batch": 128, "learning_rate": 0.03, "dropout": 0.0, "word_dropout": 0.0, "average": "none"}


@pytest.mark.parametrize("characters", ["lstm", "cnn"])
def test_the_spelling_tells_the_tag_of_an_unknown_word(characters: str) -> None:
    """Words in -ing and -ed, each seen once: the table knows none of those that are asked for."""
    draw = np.random.default_rng(0)
    stems = ["".join(draw.choice(list("abcdefgh"), 5)) for _ in range(160)]
    given = [[(stem + ending, ending.upper())] for stem in stems for ending in ("ing", "ed")]
    design = {"layers": 0, "characters": characters, "spelling": 16}
    learned = trained(design, given[:240], **{**FAST, "word_dropout": 0.5}, steps=80)
    measured = cr.tagging.evaluate_tagger(learned, given[240:])
    assert measured.unknown == measured.count == 80
    assert measured.unknown_accuracy > 0.95
    assert measured.baseline_unknown == 0.5


def test_one_direction_cannot_see_the_end_of_a_sentence_and_two_can() -> None:
    """Every word is tagged by the last one: before it, one direction can only guess among three."""
    train, test = tagged_by_the_last_word(300), tagged_by_the_last_word(60, seed=1)
    found = {
        both: accuracy(trained({"bidirectional": both, "characters": "none"}, train, **FAST, steps=200), test)
        for both in (False, True)
    }
    ends = sum(map(len, test)), len(test)
    by_chance = (ends[1] + (ends[0] - ends[1]) / 3) / ends[0]
    assert found[True] == 1.0
    assert found[False] < by_chance + 0.15


def test_many_to_one() -> None:
    """The end of a sentence is tagged by its first word: one direction is enough, and its state must last."""
    train, test = (tagged_by_the_first_word(count, seed, longest=4) for count, seed in ((300, 0), (60, 1)))
    learned = trained({"bidirectional": False, "characters": "none"}, train, **FAST, steps=300)
    assert accuracy(learned, test) == 1.0


def test_upper_layers_take_both_directions() -> None:
    """The lecture's shapes: a layer of D units is D/2 in each direction, and the layer above takes all D."""
    config = closed(TaggerSettings(cell="elman", layers=3, width=12, embedding=5, characters="none"))
    shapes = {name: tuple(w.shape) for name, w in TaggerNetwork(config, 20, 4).layers.named_parameters()}
    for way in ("forwards", "backwards"):
        assert shapes[f"stack.{way}.0.weights.weight_ih_l0"] == (6, 5)
        assert shapes[f"stack.{way}.1.weights.weight_ih_l0"] == (6, 12)
        assert shapes[f"stack.{way}.2.weights.weight_hh_l0"] == (6, 6)
    one = TaggerNetwork(replace(config, bidirectional=False), 20, 4)
    assert not [name for name, _ in one.named_parameters() if "backwards" in name]


def test_word_dropout_reads_rare_words_as_unknown() -> None:
    """A word seen n times is dropped with probability a / (a + n), and the same ones again if resumed."""
    dropout = WordDropout.of(0.5, np.asarray([1, 4, 1000]), 0, seed=3)
    assert dropout.chances_N.round(3).tolist() == [0.333, 0.111, 0.0]
    words_BT = np.tile(np.asarray([0, 1, 2]), (4000, 1))
    is_dropped_BT = dropout.is_dropped(words_BT, epoch=1, place=0)
    np.testing.assert_allclose(is_dropped_BT.mean(axis=0), dropout.chances_N, atol=0.03)
    assert np.array_equal(is_dropped_BT, dropout.is_dropped(words_BT, epoch=1, place=0))
    assert not np.array_equal(is_dropped_BT, dropout.is_dropped(words_BT, epoch=2, place=0))

    reader = WordReader(WordTokenizer([b"a", b"b"]), spells=True)
    tags, words = (
        Sequences(np.zeros(4000, np.uint32), np.asarray([0]), np.asarray([4000])),
        np.zeros(4000, np.int64),
    )
    dropout = WordDropout.of(1.0, np.asarray([1, 1]), 0, 0)
    examples = TaggedExamples(tags, words, reader.read([b"a", b"b"]), None, dropout)
    stretches = Stretches(np.zeros((1, 4001), np.int64), np.asarray([0]), np.asarray([4000]), np.asarray([0]), True)
    for epoch, share in ((None, 0.0), (0, 0.5)):
        inputs = WordInputs(*examples.objective.batch(stretches._replace(epoch=epoch)).inputs)
        assert set(inputs.words_BT.ravel()) <= {0, 3}
        assert (inputs.words_BT == 0).mean() == pytest.approx(share, abs=0.03)
        assert bytes(inputs.spellings_UC[0, 1:2].tolist()) == b"a"  # the spelling is read all the same


def test_a_pretrained_encoder_is_tuned_or_stays_as_it_is() -> None:
    """It is saved with the tagger, as a part of its folder, and the folder it came from is not needed again."""
    before = {name: array.copy() for name, array in cr.load("masked").tensors().items()}
    for frozen in (False, True):
        tagger = trained({"pretrained": "masked", "frozen": frozen}, steps=3)
        after = tagger.parts()["pretrained"].tensors()
        assert frozen == all(np.array_equal(before[name], after[name]) for name in before)
        assert not any("encoder" in name for name in tagger.tensors())
        tagger.save(f"tagger-{frozen}")
        Path("masked").rename("elsewhere")
        words = [["the", "cat", "sees"]]
        assert np.array_equal(cr.load(f"tagger-{frozen}").log_probs(words)[0], tagger.log_probs(words)[0])
        Path("elsewhere").rename("masked")


def test_subwords_of_words() -> None:
    """The mean of the features of a word's subwords, in a sentence that is longer than the encoder's window."""
    tagger = trained({"pretrained": "masked", "layers": 0, "characters": "none"})
    words = ["the", "househouse", "sees"] * 6
    distinct, (row,) = numbered([words])
    inputs = tagger.reader.read(distinct).inputs(row[None])
    tensors = WordInputs(*(torch.from_numpy(array) for array in inputs))
    encoder, tokenizer = tagger.network.words.pretrained.encoder, tagger.pretrained.tokenizer
    ids = [tokenizer.encode(f" {word}").tolist() for word in words]
    # a line begins with <s> and ends with </s>, of which a tagger takes no features
    flat = torch.tensor([tokenizer.bos, *(i for some in ids for i in some), tokenizer.eos])
    assert len(flat) > 2 * 8
    features_SD = torch.cat([encoder(piece[None])[0] for piece in flat.split(8)])
    lengths = [1, *(len(some) for some in ids), 1]
    expected = torch.stack([part.mean(dim=0) for part in features_SD.split(lengths)])[1:-1]
    found_TD = tagger.network.words.pretrained(tensors.subwords_BS, tensors.word_of_BS, len(words))[0]
    torch.testing.assert_close(found_TD, expected)


def test_subwords_are_those_of_words_in_a_text() -> None:
    """A space stands before a word, but not before a comma or a contraction; </s> around it where context flows."""
    tokenizer = cr.train_tokenizer("char", "I can't, or won’t (yet).")
    read = {context: SubwordReader.of(tokenizer, context) for context in ("line", "stream")}
    words = ["I", "ca", "n't", ",", "or", "wo", "n’t", "(", "yet", ")", "."]
    ragged = read["line"].read([word.encode() for word in words])
    found = [ragged.ids[start : start + count] for start, count in zip(ragged.starts, ragged.counts, strict=True)]
    assert "".join(tokenizer.decode(ids.tolist()) for ids in found) == " I can't, or won’t ( yet)."
    assert (read["line"].start, read["stream"].start) == (tokenizer.bos, tokenizer.eos)


def test_the_parameters_of_a_pretrained_encoder_count() -> None:
    alone, tuned, frozen = (trained(design) for design in ({}, {"pretrained": "masked"}, DESIGNS["frozen"]))
    assert alone.metrics["parameters"] == sum(array.size for array in alone.tensors().values()) - len(
        alone.frequent_V
    )
    encoder = sum(weight.numel() for weight in tuned.network.words.pretrained.encoder.parameters())
    assert encoder > 0
    for tagger in (tuned, frozen):
        own = sum(array.size for array in tagger.tensors().values()) - len(tagger.frequent_V)
        assert tagger.metrics["parameters"] == own + encoder


def test_a_tuned_encoder_leaves_out_features() -> None:
    for share in (0.0, 0.25):
        tagger = trained({"pretrained": "masked", "encoder_dropout": share}, steps=1)
        config = tagger.network.words.pretrained.encoder.config
        assert (config.dropout, config.attention_dropout) == (share, share)


def test_resuming_is_exact(tmp_path: Path) -> None:
    """A run of six steps, and one that is stopped after three and goes on: the same weights, with word dropout."""
    options: Any = {"steps": 6, "validate_every": 2, "word_dropout": 0.3, "dropout": 0.2, "average": "ema"}
    path = tmp_path / "train.txt"
    path.write_text("".join(f"{one.line}\n" for one in Tagged.of(sentences())))
    whole = trained({}, path, **options)
    with interrupted(3):
        trained({}, path, run=tmp_path / "run", **options)
    resumed = cr.resume(tmp_path / "run")
    for name, array in whole.tensors().items():
        assert np.array_equal(array, resumed.tensors()[name]), name


def test_long_sentences_are_read_in_pieces() -> None:
    _, starts, lengths, skips = in_pieces(np.asarray([0]), np.asarray([7]), 4, 1)
    assert (starts.tolist(), lengths.tolist(), skips.tolist()) == ([0, 3], [4, 4], [0, 1])
    tagger = trained({"cell": "transformer", "heads": 2, "window": 4})
    (log_probs_TK,) = tagger.log_probs([["the", "cat"] * 9])
    np.testing.assert_allclose(np.exp(log_probs_TK).sum(axis=1), 1.0, rtol=1e-5)


def test_the_most_frequent_tag() -> None:
    given = [[("a", "X"), ("a", "Y"), ("a", "Y"), ("b", "X")]] * 4 + [[("b", "X"), ("c", "X")]]
    tagger = trained({}, given, valid=given)
    assert tagger.frequent_tags(["a", "b", "zzz"]) == ["Y", "X", "X"]


def test_evaluation_counts() -> None:
    """A tagger that is always right on known words; the figures by hand."""
    tagger = trained({}, tagged_by_the_last_word(4))
    tagger.log_probs = lambda some: [np.log(np.full((len(words), 3), [0.5, 0.3, 0.2])) for words in some]
    assert tagger.tags == ["A", "B", "C"]
    measured = cr.tagging.evaluate_tagger(tagger, [[("a", "A"), ("b", "B")], [("zzz", "A"), ("c", "NEW")]])
    assert (measured.count, measured.correct, measured.accuracy) == (4, 2, 0.5)
    assert (measured.unknown, measured.unknown_accuracy) == (1, 1.0)
    assert measured.names == ["A", "B", "C", "NEW"]
    assert measured.confused() == [("B", "A", 1), ("NEW", "A", 1)]
    figures = {one.name: one for one in measured.by_name}
    assert (figures["A"].precision, figures["A"].recall, figures["B"].f1) == (0.5, 1.0, 0.0)
    assert measured.nats == np.inf
    assert measured.to_json()["tags"]["A"]["words"] == 2


def test_texts_are_split_and_tagged() -> None:
    tagger = trained({})
    (one, two) = cr.tag(tagger, ["The cat's here.", "a"])
    assert one.words == ("The", "cat", "'s", "here", ".")
    assert set(one.tags) <= {"DET", "NOUN", "VERB"} and two.words == ("a",)
    assert cr.tag(tagger, ["cat's here."], split="whitespace")[0].words == ("cat's", "here.")


def test_weights_that_are_not_a_number_are_an_error() -> None:
    tagger = trained({})
    next(tagger.network.parameters()).data[:] = float("nan")
    with pytest.raises(ModelError, match="the model gives NaN"):
        cr.tag(tagger, ["the cat"])
    with pytest.raises(ModelError, match="the model gives NaN"):
        cr.tagging.evaluate_tagger(tagger, [[("the", "DET")]])


def test_misuse_is_one_clear_line() -> None:
    tagger = trained({})
    lm: Any = cr.train("ngram", ["i love cats"], order=2, tokenizer="word")
    with pytest.raises(ModelError, match="kind ngram does not tag words"):
        cr.tag(lm, ["a"])
    with pytest.raises(ModelError, match="kind ngram does not tag words"):
        cr.tagging.evaluate_tagger(lm, [[("a", "X")]])
    for use in (cr.generate, cr.suggest, cr.score, cr.evaluate, cr.explain):
        with pytest.raises(ModelError, match=r"kind tagger does not predict text: chainrule\.tag is for it"):
            use(tagger, "the cat")  # type: ignore[operator]
    with pytest.raises(ModelError, match="a list of texts"):
        cr.tag(tagger, "a")
    with pytest.raises(ModelError, match="a sentence is a list of words"):
        tagger.log_probs(["the cat"])
    lm.save("ngram")
    for settings, message in (
        ({"pretrained": "ngram"}, "begins from a masked model, and this is one of the kind 'ngram'"),
        ({"frozen": True}, "frozen=true is for a pretrained encoder"),
        ({"width": 15}, "width should be even"),
        ({"tokenizer": "bpe"}, "its tokenizer should be word, not bpe"),
        ({"compile": "yes"}, "compile=yes is not offered"),
    ):
        with pytest.raises(SettingsError, match=message):
            trained(settings)


def test_words_below_the_minimum_count_are_unknown() -> None:
    choice = cr.TokenizerChoice("word", min_count=3)
    given = [[("the", "DET"), ("cat", "NOUN")]] * 4 + [[("the", "DET"), ("rare", "NOUN")]]
    tagger = trained({}, given, valid=given, tokenizer=choice)
    assert tagger.is_known(["the", "cat", "rare"]).tolist() == [True, True, False]


def test_spellings_keep_both_ends_of_a_long_word() -> None:
    words = [b"ab", b"x" * 15 + b"middle" + b"y" * 15]
    spellings_NC = WordReader(WordTokenizer([b"ab"]), spells=True).read(words).spellings_NC
    assert spellings_NC is not None and spellings_NC.shape == (2, 32)
    assert spellings_NC[0, :5].tolist() == [256, ord("a"), ord("b"), 257, -1]
    assert bytes(spellings_NC[1, 1:31].astype(np.uint8).tolist()) == b"x" * 15 + b"y" * 15
