"""Toy tasks are learned exactly, and translating, aligning and measuring do what they say."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

import chainrule as cr
from chainrule.errors import CorpusError, DecodingError, ModelError, SettingsError
from chainrule.seq2seq.alignments import Alignment
from chainrule.seq2seq.contract import ConditionalModel
from chainrule.seq2seq.evaluate import evaluate_pairs, score_pairs
from chainrule.seq2seq.pictures import alignment_picture, length_plot
from chainrule.seq2seq.quality import OfLength, Quality, by_length
from chainrule.seq2seq.translate import translate_stream

from .toys import made, pairs_of, trained


@pytest.fixture(scope="module")
def reverser() -> ConditionalModel:
    """A model that reverses up to four words."""
    pairs = pairs_of("reverse", 2500, longest=4)
    return trained(pairs, cell="gru", attention="dot", steps=400, learning_rate=0.01, batch=384)


def exact(lm: ConditionalModel, task: str, longest: int) -> float:
    """The share of new sources that are translated exactly."""
    new = pairs_of(task, 100, seed=1, longest=longest)
    found = cr.translate(lm, [source for source, _ in new])
    return sum(one == target for one, (_, target) in zip(found, new, strict=True)) / len(new)


def test_reverse_is_learned_exactly(reverser: ConditionalModel) -> None:
    assert exact(reverser, "reverse", 4) == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("task", ["copy", "reverse", "sort"])
@pytest.mark.parametrize("cell", ["gru", "transformer"])
def test_toy_tasks_are_learned(task: str, cell: str) -> None:
    pairs = pairs_of(task, 2500, longest=4)
    rate = {"learning_rate": 0.01} if cell == "gru" else {"layers": 2}
    lm = trained(pairs, cell=cell, steps=600, width=48, **rate)
    assert exact(lm, task, 4) >= 0.95  # the last digits of sums, and so one sentence or two, differ among machines


def test_attention_points_to_the_word_that_is_written(reverser: ConditionalModel) -> None:
    for source, target in pairs_of("reverse", 20, seed=2, longest=4):
        if len(set(source.split())) < len(source.split()):
            continue  # equal words are equally right
        alignment = cr.seq2seq.align(reverser, source)
        assert alignment.target == (*target.split(), "</s>")
        words = len(source.split())
        assert alignment.best()[:words] == list(range(words))[::-1]
        np.testing.assert_allclose(alignment.weights_TS.sum(axis=1), 1, atol=1e-5)


def test_texts_in_and_translations_out(reverser: ConditionalModel) -> None:
    assert cr.translate(reverser, "a b c") == "c b a"
    assert cr.translate(reverser, []) == []
    assert cr.translate(reverser, ["", "a\nb", " "]) == ["", "b a", ""]
    assert cr.translate(reverser, "a b", cr.Greedy()) == cr.translate(reverser, "a b", beams=1) == "b a"
    assert cr.translate(reverser, "a b c", max_tokens=2) in ("c b", "c", "c a")
    sources = [source for source, _ in pairs_of("reverse", 70, seed=3)]
    streamed = [(text, best[0].text) for text, best in translate_stream(reverser, sources, at_once=2)]
    assert streamed == list(zip(sources, cr.translate(reverser, sources), strict=True))


def test_a_stream_waits_for_no_more_texts_than_asked(reverser: ConditionalModel) -> None:
    read = []

    def lines() -> object:
        for line in ("a b", "c d", "e f"):
            read.append(line)
            yield line

    found = translate_stream(reverser, lines(), at_once=1, grows=False)  # type: ignore[arg-type]
    assert next(found)[1][0].text == "b a"
    assert read == ["a b"]


def test_what_cannot_be_translated_is_said(reverser: ConditionalModel) -> None:
    ngram = cr.train("ngram", ["a b"], tokenizer="word")
    for call in (lambda: cr.translate(ngram, "a"), lambda: cr.seq2seq.align(ngram, "a")):
        with pytest.raises(ModelError, match=r"kind ngram does not translate: chainrule\.generate is for it"):
            call()
    with pytest.raises(ModelError, match="evaluate it on Pairs"):
        cr.evaluate(reverser, "a b")
    with pytest.raises(DecodingError, match="one of beams and a strategy"):
        cr.translate(reverser, "a", cr.Greedy(), beams=2)
    with pytest.raises(DecodingError, match="2 beams cannot give 3"):
        list(translate_stream(reverser, ["a"], cr.Beam(2), best=3))
    with pytest.raises(DecodingError, match="at least one token"):
        cr.translate(reverser, "a", max_tokens=0)
    with pytest.raises(DecodingError, match="list of texts"):
        cr.translate(reverser, [1])  # type: ignore[list-item]
    with pytest.raises(ModelError, match="has no attention"):
        cr.seq2seq.align(made("no attention"), "a b")
    with pytest.raises(SettingsError, match="pairs are lines"):
        cr.train("seq2seq", [("a", "b"), ("c", "d")], context="stream", steps=1)
    with pytest.raises(SettingsError, match="ngram has no sources"):
        cr.train("ngram", ["a b"], source_tokenizer="word", tokenizer="word")
    with pytest.raises(CorpusError, match=r"Pairs\.open"):
        cr.train("seq2seq", "a text", steps=1)


def test_a_long_source_is_cut() -> None:
    lm = made("transformer")  # a window of 5
    assert len(lm.encode_source("a b c d e f")) == 5
    assert lm.encode_source("a b c d e f")[-1] == lm.source_tokenizer.eos
    measured = evaluate_pairs(lm, [("a b c d e f", "a"), ("a", "b")])
    assert measured.cut == 1


def test_measurements(reverser: ConditionalModel) -> None:
    pairs = pairs_of("reverse", 40, seed=4, longest=4)
    measured = cr.evaluate(reverser, cr.Pairs.of(pairs))
    own = [-float(np.sum(_score(reverser, source, target))) for source, target in pairs]
    tokens = sum(len(target.split()) + 1 for _, target in pairs)
    assert (measured.tokens, measured.pairs) == (tokens, 40)
    assert measured.nats == pytest.approx(sum(own) / tokens, rel=1e-4)
    assert measured.perplexity == pytest.approx(math.exp(measured.nats))
    written = cr.translate(reverser, [source for source, _ in pairs])
    quality = Quality.of(written, [target for _, target in pairs])
    assert (measured.bleu, measured.chrf) == (quality.bleu, quality.chrf)
    assert measured.bleu > 80 > 50 > measured.copied_bleu
    assert "version" in measured.signatures["bleu"]
    assert [one.name for one in measured.lengths] == ["1-8"]


def _score(lm: ConditionalModel, source: str, target: str) -> np.ndarray:
    nats, _ = score_pairs(lm, [(source, target)])
    return np.asarray([-nats])


def test_bleu_is_sacrebleus() -> None:
    """The example of sacrebleu's own README, of one reference."""
    found = Quality.of(["The dog bit the man."], ["The dog bit the man."])
    assert found.bleu == pytest.approx(100)
    # 4 of 6 words; of two-grams 2 of 5, of three-grams 1 of 4, of four-grams none: smoothed to 1 / (2 · 3)
    some = Quality.of(["the cat sat on a mat"], ["the cat lay on the mat"])
    expected = 100 * (4 / 6 * 1 / 5 * (1 / 2 / 4) * (1 / 4 / 3)) ** 0.25
    assert some.bleu == pytest.approx(expected, rel=1e-6)


def test_lengths_are_sorted_into_buckets() -> None:
    words = [8, 9, 12, 13, 61]
    pairs = [(" ".join(["w"] * n), "one two three four") for n in words]
    found = by_length(pairs, ["one two three four"] * 4 + ["x"])
    assert [(one.name, one.pairs, round(one.bleu)) for one in found] == [
        ("1-8", 1, 100),
        ("9-12", 2, 100),
        ("13-16", 1, 100),
        ("61+", 1, 0),
    ]


def test_few_long_sources_are_one_group() -> None:
    words = [8] * 60 + [12] * 38 + [25, 40]
    pairs = [(" ".join(["w"] * n), "one two three four") for n in words]
    found = by_length(pairs, ["one two three four"] * 100)
    assert [(one.name, one.pairs) for one in found] == [("1-8", 60), ("9-12", 38), ("21-40", 2)]
    found = by_length(pairs + pairs[:60], ["one two three four"] * 160)  # the two are too few now
    assert [(one.name, one.pairs) for one in found] == [("1-8", 120), ("9-40", 40)]


def test_pictures_are_svg() -> None:
    weights = np.asarray([[0.9, 0.1, 0.0], [0.2, 0.3, 0.5], [0.0, 0.0, 1.0]])
    alignment = Alignment(("<a>", " b", "</s>"), ("B", "&", "</s>"), weights)
    pictures = [
        alignment_picture([alignment, alignment]),
        length_plot([("with <attention>", [OfLength(1, 8, 3, 31.0), OfLength(9, 12, 3, 29.0)]), ("none", [])]),
    ]
    for picture in pictures:
        root = ET.fromstring(picture)
        assert root.tag.endswith("svg")
        assert "prefers-color-scheme: dark" in picture
    shades = [float(part.partition('"')[0]) for part in pictures[0].split('fill-opacity="')[1:]]
    assert shades == [0.9, 0.1, 0.2, 0.3, 0.5, 1.0] * 2  # what is next to nothing is not drawn
    assert "&lt;attention&gt;" in pictures[1] and "&amp;" in pictures[0]


def test_words_of_subwords() -> None:
    """The weights of the parts of a source word add up; those of a target word's parts are averaged."""
    weights = np.asarray([[0.5, 0.25, 0.25, 0.0], [0.0, 0.5, 0.5, 0.0], [0.0, 0.0, 0.0, 1.0]])
    found = Alignment(("a", " bi", "g", "</s>"), (" x", "y", "</s>"), weights).of_words()
    assert (found.source, found.target) == (("a", "big", "</s>"), ("xy", "</s>"))
    np.testing.assert_allclose(found.weights_TS, [[0.25, 0.75, 0.0], [0.0, 0.0, 1.0]])
    plain = Alignment(("a", "b", "</s>"), ("c", "</s>"), np.eye(3)[:2]).of_words()
    assert (plain.source, plain.target) == (("a", "b", "</s>"), ("c", "</s>"))


def test_a_tokenizer_for_each_side_is_saved_and_resumed(tmp_path: Path) -> None:
    pairs = [(f"a{i} b{i % 3}", f"c{i % 5} d") for i in range(30)]
    small = {"width": 16, "layers": 1, "cell": "gru", "batch": 64, "validate_every": 2, "average": "none"}
    whole = cr.train("seq2seq", pairs, tokenizer="word", source_tokenizer="char", steps=6, **small)
    run = tmp_path / "run"
    cr.train(
        "seq2seq", pairs, tokenizer="word", source_tokenizer="char", run=run, steps=3, schedule="constant", **small
    )
    assert isinstance(whole, ConditionalModel)
    assert (whole.tokenizer.name, whole.source_tokenizer.name) == ("word", "char")
    resumed = cr.resume(run, corpus=pairs, steps=4)
    assert isinstance(resumed, ConditionalModel)
    assert resumed.source_tokenizer.name == "char"
    whole.save(tmp_path / "model")
    again = cr.load(tmp_path / "model")
    assert cr.translate(again, "a1 b1") == cr.translate(whole, "a1 b1")
    assert again.provenance["corpus_pairs"] + 0 >= 28
