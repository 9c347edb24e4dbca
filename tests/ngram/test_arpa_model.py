"""Models from ARPA files and back: missing values are computed from the others, and nothing is lost."""

from __future__ import annotations

import gzip
import hashlib
import math
from pathlib import Path

import numpy as np
import pytest

import chainrule as cr
from chainrule.arrays import pad
from chainrule.errors import ArpaError, ModelError, SettingsError
from chainrule.ngram.ngram_model import NgramModel
from listening import Listening

LN10 = math.log(10)
SMALL = """\
\\data\\
ngram 1=5
ngram 2=4
ngram 3=1

\\1-grams:
-0.5\tb\t-0.25
-2\t<unk>
-0.75\t</s>
-99\t<s>\t-0.125
-1\ta\t0.0625

\\2-grams:
-0.375\t<s> a\t-0.5
-0.625\ta b\t-0.0625
-0.875\tb </s>
-1.5\tb b\t0.125

\\3-grams:
-0.1\t<s> a b

\\end\\
"""
HOLES = """\
\\data\\
ngram 1=5
ngram 2=1
ngram 3=1
ngram 4=1

\\1-grams:
-1\t<unk>
-0.5\ta\t-0.25
-0.75\tb\t-0.125
-99\t<s>\t-0.0625
-0.375\t</s>

\\2-grams:
-0.625\ta b\t-0.3125

\\3-grams:
-0.1\tb a b

\\4-grams:
-0.2\t<s> b b a

\\end\\
"""
TOY = "i love cats\ni love dogs\ncats chase mice\n"


def load(text: str, folder: Path, name: str = "m.arpa") -> NgramModel:
    (folder / name).write_text(text, encoding="utf-8")
    return cr.load_arpa(folder / name)


def log10s(lm: NgramModel, text: str) -> list[float]:
    """log10 p of each token of a line; the sums in these tests are computed by hand."""
    return (lm.score(pad([[*lm.tokenizer.encode(text).tolist(), lm.tokenizer.eos]]))[0] / LN10).tolist()


def again(lm: NgramModel, folder: Path) -> NgramModel:
    cr.save_arpa(lm, folder / "again.arpa", overwrite=True)
    return cr.load_arpa(folder / "again.arpa")


# -- from a file ------------------------------------------------------------------------------------------


def test_scores_are_those_of_the_file(tmp_path: Path) -> None:
    lm = load(SMALL, tmp_path)
    assert [lm.tokenizer.token(i) for i in range(lm.tokenizer.vocab_size)] == ["<unk>", "<s>", "</s>", "b", "a"]
    expected = {
        # p(a | <s>), p(b | <s> a), and behind "a b": its backoff, and what follows b
        "a b": [-0.375, -0.1, -0.0625 - 0.875],
        # b after <s>, b after b, and b </s> is known, but "b b" costs 0.125, which is above 0 and legal
        "b b": [-0.125 - 0.5, -1.5, 0.125 - 0.875],
        # an unknown word: from <s> to the unigram; behind it there is no context, and no price
        "zebra a": [-0.125 - 2, -1, 0.0625 - 0.75],
        "": [-0.125 - 0.75],
        "a": [-0.375, -0.5 + 0.0625 - 0.75],
    }
    for text, scores in expected.items():
        np.testing.assert_allclose(log10s(lm, text), scores, atol=1e-6, err_msg=text)


def test_the_start_is_never_predicted_whatever_the_file_says(tmp_path: Path) -> None:
    """KenLM gives <s> the log-probability 0, others a small one; some have n-grams with <s> inside."""
    text = SMALL.replace("-99\t<s>", "0\t<s>").replace("-1.5\tb b\t0.125", "-1.5\tb <s>\t0.125")
    (tmp_path / "m.arpa").write_text(text, encoding="utf-8")
    progress = Listening()
    lm = cr.load_arpa(tmp_path / "m.arpa", progress=progress)
    for prefix in ([], [3], [4, 3], [0]):
        assert lm.next_log_probs(lm.extend(lm.start(1), pad([prefix])))[0, 1] == -math.inf
    assert lm.metrics["ngrams"] == [5, 3, 1]
    assert progress.notes[0] == "n-grams left out because <s> stands after a word in them, which it never does: 1"


def test_special_words_that_a_file_lacks(tmp_path: Path) -> None:
    """<s> and </s> are impossible. An unknown word costs a factor of 10^-100, as in KenLM (config.hh)."""
    lm = load("\\data\\\nngram 1=2\n\n\\1-grams:\n-0.30103\ta\n-0.30103\tb\n\n\\end\\\n", tmp_path)
    assert (lm.tokenizer.vocab_size, lm.settings.order) == (5, 1)
    np.testing.assert_allclose(np.exp(lm.next_log_probs(lm.start(1)))[0], [0, 0, 0, 0.5, 0.5], atol=1e-6)
    np.testing.assert_allclose(log10s(lm, "zebra a"), [-100, -0.30103, -math.inf], atol=1e-4)
    assert log10s(again(lm, tmp_path), "zebra a") == log10s(lm, "zebra a")
    # -99 or less, which readers take for 0, would make it impossible
    assert "<unk>" not in (tmp_path / "again.arpa").read_text()


def test_an_unknown_word_that_a_file_lacks_backs_off(tmp_path: Path) -> None:
    """After "a", which has a backoff of 10^-0.5, it costs that as well."""
    text = "\\data\\\nngram 1=4\nngram 2=1\n\n\\1-grams:\n-99\t<s>\n-0.5\t</s>\n-0.5\ta\t-0.5\n-0.5\tb\n\n"
    lm = load(text + "\\2-grams:\n-0.25\ta b\n\n\\end\\\n", tmp_path)
    np.testing.assert_allclose(log10s(lm, "a zebra"), [-0.5, -100.5, -0.5], atol=1e-4)
    assert math.isfinite(cr.evaluate(lm, "a zebra").perplexity)


def test_missing_contexts_are_filled_in(tmp_path: Path) -> None:
    """Of "<s> b b a" neither "<s> b b" nor "<s> b" is listed, and of "b a b" not "b a"."""
    lm = load(HOLES, tmp_path)
    # 2-grams: a b, <s> b, b a; 3-grams: b a b, <s> b b
    assert lm.metrics["ngrams"] == [5, 3, 2, 1]
    p_b_after_start, p_b_after_b = -0.0625 - 0.75, -0.125 - 0.75
    scores = log10s(lm, "b b a b")
    # then b after "b b a": not there; "b b a" and "b a" are no listed contexts, but b a b is listed
    np.testing.assert_allclose(scores[:4], [p_b_after_start, p_b_after_b, -0.2, -0.1], atol=1e-6)
    # </s> after "b a b" (longest), "a b" with its price, and "b" with its
    np.testing.assert_allclose(scores[4], -0.3125 - 0.125 - 0.375, atol=1e-6)
    assert again(lm, tmp_path).metrics == lm.metrics


def test_filled_in_contexts_never_get_a_probability_above_one(tmp_path: Path) -> None:
    """A broken file may ask for it: a backoff of 10 times a probability of 0.5."""
    text = HOLES.replace("<s>\t-0.0625", "<s>\t1").replace("-0.75\tb", "-0.30103\tb")
    lm = load(text, tmp_path)
    assert log10s(lm, "b")[0] == 0
    lm.save(tmp_path / "model")
    assert log10s(again(lm, tmp_path), "b b a b") == log10s(lm, "b b a b")


def test_empty_lengths_on_top_are_dropped(tmp_path: Path) -> None:
    text = SMALL.replace("ngram 3=1", "ngram 3=0").replace("-0.1\t<s> a b\n", "")
    assert load(text, tmp_path).settings.order == 2


def test_compressed_files_and_where_they_come_from(tmp_path: Path) -> None:
    path = tmp_path / "m.arpa.gz"
    path.write_bytes(gzip.compress(SMALL.encode()))
    lm = cr.load_arpa(path, context="stream")
    assert lm.context == "stream"
    assert lm.provenance["arpa"] == "m.arpa.gz"
    assert lm.provenance["arpa_sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()


def test_an_imported_model_is_a_model_like_any_other(tmp_path: Path) -> None:
    lm = load(SMALL, tmp_path)
    lm.save(tmp_path / "model")
    loaded = cr.load(tmp_path / "model")
    assert isinstance(loaded, NgramModel)
    assert (loaded.settings, loaded.provenance) == (lm.settings, lm.provenance)
    assert log10s(loaded, "a b b zebra a") == log10s(lm, "a b b zebra a")
    assert set(cr.generate(lm, "a", max_tokens=5, seed=1).split()) <= {"a", "b", "<unk>"}


def test_imported_is_no_way_to_train() -> None:
    for smoothing in ("imported", "mixed"):
        with pytest.raises(SettingsError, match=f"smoothing={smoothing} marks .* it cannot be trained"):
            cr.train("ngram", cr.Corpus.from_text(TOY), smoothing=smoothing, tokenizer="word")


# -- to a file --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [SMALL, HOLES], ids=["small", "holes"])
def test_what_is_written_is_read_again(text: str, tmp_path: Path) -> None:
    lm = load(text, tmp_path)
    copy = again(lm, tmp_path)
    assert (copy.tokenizer.to_json(), copy.metrics) == (lm.tokenizer.to_json(), lm.metrics)
    np.testing.assert_array_equal(copy.automaton.log_prob.plain, lm.automaton.log_prob.plain)
    np.testing.assert_array_equal(copy.automaton.log_backoff.plain, lm.automaton.log_backoff.plain)


@pytest.mark.parametrize(
    "settings",
    [
        {"smoothing": "modified-kneser-ney"},
        {"smoothing": "katz", "context": "stream"},
        {"smoothing": "mle"},
        {"smoothing": "laplace", "order": 1},
        {"smoothing": "witten-bell", "bits": 3},
        {"smoothing": "witten-bell", "entropy": 0.01},
    ],
    ids=lambda settings: "-".join(map(str, settings.values())),
)
def test_models_trained_here_keep_every_score(settings: dict[str, object], tmp_path: Path) -> None:
    lm = cr.train("ngram", cr.Corpus.from_text(TOY), **{"order": 3, **settings}, tokenizer="word")
    cr.save_arpa(lm, tmp_path / "m.arpa")
    copy = cr.load_arpa(tmp_path / "m.arpa", context=lm.context)
    text = "i love mice\ncats chase zebras\n\nmice\n"
    np.testing.assert_array_equal(copy.surprisals(text), lm.surprisals(text))


def test_a_file_for_the_eye(tmp_path: Path) -> None:
    """p(a) = 1 after <s>, then </s>: maximum likelihood of one line; unigrams a and </s> are half and half."""
    lm = cr.train("ngram", cr.Corpus.from_text("a\n"), order=2, smoothing="mle", tokenizer="word")
    cr.save_arpa(lm, tmp_path / "m.arpa")
    assert (tmp_path / "m.arpa").read_text().splitlines() == [
        "\\data\\", "ngram 1=4", "ngram 2=2", "",
        "\\1-grams:", "-99\t<unk>\t0", "-99\t<s>\t-99", "-0.301029996\t</s>\t0", "-0.301029996\ta\t-99", "",
        "\\2-grams:", "0\ta </s>", "0\t<s> a", "",
        "\\end\\",
    ]  # fmt: skip


def test_a_text_with_the_word_unk_of_its_own(tmp_path: Path) -> None:
    """As in WikiText: a reader of the file uses that word for the words it does not know."""
    lm = cr.train(
        "ngram", cr.Corpus.from_text("a <unk> b\n<unk> b\n"), order=2, smoothing="witten-bell", tokenizer="word"
    )
    progress = Listening()
    cr.save_arpa(lm, tmp_path / "m.arpa", progress=progress)
    assert len(progress.notes) == 1
    assert "has the word <unk>" in progress.notes[0]
    copy = cr.load_arpa(tmp_path / "m.arpa")
    assert copy.tokenizer.vocab_size == lm.tokenizer.vocab_size - 1
    np.testing.assert_array_equal(log10s(copy, "a zebra b"), log10s(lm, "a <unk> b"))


def test_two_kinds_of_unknown_words_are_refused(tmp_path: Path) -> None:
    text = cr.Corpus.from_text("a <unk> b\n<unk> b\nrare b\n")
    lm = cr.train("ngram", text, order=2, tokenizer=cr.TokenizerChoice("word", min_count=2))
    with pytest.raises(ArpaError, match="ARPA files have one <unk> for both"):
        cr.save_arpa(lm, tmp_path / "m.arpa")
    assert list(tmp_path.iterdir()) == []


def test_words_that_look_like_ends_are_refused(tmp_path: Path) -> None:
    lm = cr.train("ngram", cr.Corpus.from_text("a </s> b\n"), order=2, tokenizer="word")
    with pytest.raises(ArpaError, match="two that are b'</s>'"):
        cr.save_arpa(lm, tmp_path / "m.arpa")


@pytest.mark.parametrize("tokenizer", ["char", "byte", "bpe"])
def test_tokens_that_are_no_words_are_refused(tokenizer: str, tmp_path: Path) -> None:
    lm = cr.train("ngram", cr.Corpus.from_text(TOY * 3), order=2, tokenizer=tokenizer)
    with pytest.raises(ArpaError, match=f"a model of {tokenizer} tokens cannot be written"):
        cr.save_arpa(lm, tmp_path / "m.arpa")


def test_models_without_a_bound_are_refused(tmp_path: Path) -> None:
    lm = cr.train("ngram", cr.Corpus.from_text(TOY), smoothing="infinite", tokenizer="word")
    with pytest.raises(ModelError, match="bounded order"):
        cr.save_arpa(lm, tmp_path / "m.arpa")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"context": "stream"}, "begin each line anew"),
        ({"smoothing": "stupid-backoff"}, "gives scores, which readers will take for probabilities; contexts that"),
        ({"tokenizer": "word:unicode"}, "split as word:unicode does"),
    ],
)
def test_what_a_reader_cannot_know_is_said(options: dict[str, object], words: str, tmp_path: Path) -> None:
    lm = cr.train("ngram", cr.Corpus.from_text(TOY), order=2, **{"tokenizer": "word", **options})
    progress = Listening()
    cr.save_arpa(lm, tmp_path / "m.arpa", progress=progress)
    assert [words in note for note in progress.notes] == [True]


def test_a_file_that_exists_is_kept(tmp_path: Path) -> None:
    lm = load(SMALL, tmp_path)
    with pytest.raises(ArpaError, match="exists"):
        cr.save_arpa(lm, tmp_path / "m.arpa")
    assert (tmp_path / "m.arpa").read_text() == SMALL
    cr.save_arpa(lm, tmp_path / "m.arpa", overwrite=True)
    assert (tmp_path / "m.arpa").read_text() != SMALL


KENLM_TEST = """\\data\\
ngram 1=5
ngram 2=2

\\1-grams:
-1.0\t<unk>
0\t<s>\t0.5
-0.6\t</s>
-0.3\tfoo\t0.7
-0.2\tbar\t-0.1

\\2-grams:
-0.4\t<s> foo
-0.9\tfoo foo

\\end\\
"""


def test_backoffs_above_one_are_scored_as_kenlm_scores_them(tmp_path: Path) -> None:
    """KenLM's own test file has positive log-backoffs that make probabilities above one; so it gives scores."""
    progress = Listening()
    (tmp_path / "m.arpa").write_text(KENLM_TEST, encoding="utf-8")
    lm = cr.load_arpa(tmp_path / "m.arpa", progress=progress)
    assert not lm.normalised
    assert "scores" in progress.notes[-1]
    # bar after <s>: 0.5 - 0.2, above 0; then the line's end after bar: -0.1 - 0.6
    np.testing.assert_allclose(log10s(lm, "bar"), [0.3, -0.7], atol=1e-6)
    lm.save(tmp_path / "m")
    loaded = cr.load(tmp_path / "m")
    assert not loaded.normalised
    np.testing.assert_allclose(log10s(loaded, "bar"), [0.3, -0.7], atol=1e-6)
    assert loaded.perplexity("bar") == pytest.approx(10 ** ((0.7 - 0.3) / 2))


def test_a_backoff_above_one_alone_makes_no_scores(tmp_path: Path) -> None:
    """Katz's backoffs exceed one where the words seen after a context are common elsewhere: sums stay one."""
    (tmp_path / "text").write_text("a b\na c\na b\nb a\nc a\na a b\n" * 3)
    cr.save_arpa(
        cr.train("ngram", tmp_path / "text", order=2, smoothing="katz", tokenizer="word"), tmp_path / "k.arpa"
    )
    assert cr.load_arpa(tmp_path / "k.arpa").normalised
