"""Classifiers keep their laws, learn what they can learn, and resume bit for bit."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chainrule as cr
from chainrule.classification.bayes import BayesClassifier
from chainrule.classification.evaluate import evaluate_classifier, measure
from chainrule.contract.confusion import Confusion
from chainrule.contract.kinds import HeldOut, LadderEntry, find_kind
from chainrule.errors import CorpusError, DamagedFileError, ModelError, SettingsError
from chainrule.testing import CLASSIFIER_LAWS, check_classifier_laws
from chainrule.text.labelled import Labelled
from stopping import interrupted
from toy_models import with_random_weights

TINY: dict[str, Any] = {"width": 16, "embedding": 8, "layers": 1, "batch": 128, "precision": "float32"}
DESIGNS: dict[str, dict[str, Any]] = {
    "lstm": {"encoder": "lstm", "pooling": "last", "layers": 2},
    "gru": {"encoder": "gru", "pooling": "mean", "bidirectional": False},
    "elman": {"encoder": "elman", "pooling": "first", "window": 8},
    "bag of words": {"encoder": "bagofwords"},
    "transformer": {"encoder": "transformer", "heads": 2, "pooling": "mean", "window": 16},
    "transformer, last": {"encoder": "transformer", "heads": 2, "pooling": "last"},
    "transformer, first": {"encoder": "transformer", "heads": 2, "pooling": "first"},
}
BAYES: dict[str, dict[str, Any]] = {
    "ngram": {"lm_settings": "order=3", "tokenizer": "char"},
    "uniform": {"lm_settings": "order=1 smoothing=laplace", "prior": "uniform"},
    "majority": {"kind": "none"},
    "lstm": {"kind": "lstm", "lm_settings": "steps=2 hidden=8 embedding=8 layers=1 batch=64 precision=float32"},
}
WORDS = {"de": "die Katze sieht den Hund im Haus", "en": "the cat sees a dog in our house"}


def sentences(count: int = 60, seed: int = 0) -> list[tuple[str, str]]:
    """Texts of a few words of German or English; twice as many are English."""
    draw = random.Random(seed)
    labels = [draw.choice(["de", "en", "en"]) for _ in range(count)]
    return [(" ".join(draw.choices(WORDS[one].split(), k=draw.randint(2, 6))), one) for one in labels]


def by_place(count: int, place: int, seed: int = 0) -> list[tuple[str, str]]:
    """Texts of letters whose label is the one at a place: its order tells it, and not how often each occurs."""
    draw = random.Random(seed)
    rows = [[draw.choice("abc") for _ in range(draw.randint(3, 6))] for _ in range(count)]
    return [(" ".join(row), row[place].upper()) for row in rows]


def trained(design: dict[str, Any], given: Any = None, **settings: Any) -> Any:
    return cr.train("classifier", given or sentences(), **{**TINY, "steps": 2, **design, **settings})


def accuracy(classifier: Any, given: Any) -> float:
    return evaluate_classifier(classifier, given).accuracy


# -- laws -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("design", DESIGNS)
def test_laws(design: str) -> None:
    check_classifier_laws(with_random_weights(trained(DESIGNS[design])))


@pytest.mark.parametrize("name", BAYES)
def test_laws_of_bayes(name: str) -> None:
    check_classifier_laws(cr.train("bayes", sentences(), **BAYES[name]))  # type: ignore[arg-type]


class Sound(BayesClassifier):
    """A sound classifier; each of those below breaks one law."""

    def __init__(self) -> None:
        made: Any = cr.train("bayes", sentences(), lm_settings="order=2", tokenizer="char")
        super().__init__(made.models, made.log_prior_K, made.tokenizer, made.label_tokenizer, made.settings)


class Unnormalised(Sound):
    def log_probs_of_lines(self, lines: Sequence[str]) -> np.ndarray:
        return super().log_probs_of_lines(lines) - 0.1


class SeesNeighbours(Sound):
    """It forgets which tokens of a batch are padding."""

    def log_probs_of_lines(self, lines: Sequence[str]) -> np.ndarray:
        longest = max(map(len, lines))
        return super().log_probs_of_lines([f"{line}{'e' * (longest - len(line))}" for line in lines])


class SortsTexts(Sound):
    def log_probs_of_lines(self, lines: Sequence[str]) -> np.ndarray:
        return super().log_probs_of_lines(sorted(lines, key=len))


class RepeatsALabel(Sound):
    @property
    def labels(self) -> list[str]:  # type: ignore[override]
        return ["en", "de"]


class GivesTheWorst(Sound):
    def classify(self, texts: Sequence[str]) -> Any:
        worst = self.log_probs(texts).argmin(axis=1)
        return [
            type(one)(one.text, self.labels[i], one.probability, one.log_probs)
            for one, i in zip(super().classify(texts), worst, strict=True)
        ]


class TakesNothing(Sound):
    def log_probs(self, texts: Sequence[str]) -> np.ndarray:
        return super().log_probs([text.strip() or "e" for text in texts])


class SavesAnotherPrior(Sound):
    def tensors(self) -> dict[str, np.ndarray]:
        return {name: array[::-1].copy() for name, array in super().tensors().items()}


BROKEN = {
    "probabilities_sum_to_one": Unnormalised,
    "a_batch_is_its_rows": SeesNeighbours,
    "the_order_changes_nothing": SortsTexts,
    "labels_have_an_order": RepeatsALabel,
    "the_best_label_is_given": GivesTheWorst,
    "nothing_has_no_label": TakesNothing,
    "saving_is_exact": SavesAnotherPrior,
}


@pytest.mark.parametrize("law", CLASSIFIER_LAWS)
def test_each_law_finds_a_classifier_that_breaks_it(law: str) -> None:
    CLASSIFIER_LAWS.check(Sound(), [law])
    with pytest.raises(AssertionError, match=f"breaks the law {law}"):
        CLASSIFIER_LAWS.check(BROKEN[law](), [law])


# -- learning ---------------------------------------------------------------------------------------------

FAST: dict[str, Any] = {"learning_rate": 0.03, "dropout": 0.0, "average": "none", "tokenizer": "word"}


@pytest.mark.parametrize("design", DESIGNS)
def test_networks_learn(design: str) -> None:
    learned = trained(DESIGNS[design], sentences(200), **FAST, steps=60)
    assert accuracy(learned, sentences(60, seed=1)) > 0.95


@pytest.mark.parametrize("place", [0, -1])
def test_the_order_of_words_is_for_networks_that_see_it(place: int) -> None:
    """The label is the first letter, or the last: a state keeps it, and a bag of words cannot tell it."""
    train, test = by_place(400, place), by_place(80, place, seed=1)
    recurrent = trained({"pooling": "last", "bidirectional": False, "embedding": 8}, train, **FAST, steps=250)
    assert accuracy(recurrent, test) == 1.0
    bag = trained({"encoder": "bagofwords"}, train, **FAST, steps=250)
    assert accuracy(bag, test) < 0.75


def test_bayes_is_bayes_rule() -> None:
    """With unigrams: p(label) Π p(token | label), normalised; p(label) is its share of the texts."""
    given = sentences(30)
    classifier: Any = cr.train("bayes", given, lm_settings="order=1 smoothing=laplace", tokenizer="word")
    text = "the cat sees"
    shares = [sum(label == one for _, label in given) / len(given) for one in classifier.labels]
    joint = [np.log(p) + lm.log_prob(text) for p, lm in zip(shares, classifier.models, strict=True)]
    np.testing.assert_allclose(classifier.log_probs([text])[0], joint - np.logaddexp(*joint), rtol=1e-9)
    assert accuracy(classifier, sentences(60, seed=1)) == 1.0
    majority: Any = cr.train("bayes", given, kind="none")
    assert {one.label for one in cr.classify(majority, ["die Katze", "the cat"])} == {"en"}


def test_an_impossible_text_keeps_the_prior() -> None:
    given = [("a b", "x"), ("b a", "x"), ("c d", "y")]
    classifier: Any = cr.train("bayes", given, lm_settings="order=2 smoothing=mle", tokenizer="word")
    np.testing.assert_allclose(np.exp(classifier.log_probs(["b c", "a b"])), [[2 / 3, 1 / 3], [1, 0]])


@pytest.mark.parametrize("frozen", [False, True])
def test_a_masked_model_gives_a_classifier_its_encoder(frozen: bool, tmp_path: Path) -> None:
    """Its tokenizer comes with it; it is a part of the folder, and the first folder is not needed again."""
    sizes: Any = {"layers": 1, "width": 16, "heads": 2, "window": 12, "steps": 2, "batch": 64}
    cr.train("masked", [text for text, _ in sentences()], tokenizer="char", **sizes).save(tmp_path / "masked")
    before = {name: array.copy() for name, array in cr.load(tmp_path / "masked").tensors().items()}
    settings: Any = {"batch": 128, "steps": 3, "pretrained": str(tmp_path / "masked"), "frozen": frozen}
    classifier: Any = cr.train("classifier", sentences(), **settings)
    assert (classifier.settings.encoder, classifier.settings.width, classifier.settings.window) == (
        "transformer",
        16,
        12,
    )
    assert classifier.tokenizer.name == "char"
    after = classifier.parts()["pretrained"].tensors()
    assert frozen == all(np.array_equal(before[name], after[name]) for name in before)
    assert not any("encoder" in name for name in classifier.tensors())
    encoder = sum(weight.numel() for weight in classifier.network.body.parameters())
    assert classifier.metrics["parameters"] == encoder + sum(a.size for a in classifier.tensors().values())
    (tmp_path / "masked").rename(tmp_path / "elsewhere")
    check_classifier_laws(classifier)


def test_resuming_is_exact(tmp_path: Path) -> None:
    """A run of six steps, and one that is stopped after three and goes on: the same weights; fields are kept."""
    options: Any = {"steps": 6, "validate_every": 2, "dropout": 0.2, "average": "ema", "encoder": "lstm"}
    path = tmp_path / "train.csv"
    path.write_text("body,lang\n" + "".join(f"{text},{label}\n" for text, label in sentences()))
    given = Labelled.open(path, field="body", label_field="lang")
    whole = trained({}, given, **options)
    with interrupted(3):
        trained({}, given, run=tmp_path / "run", **options)
    resumed = cr.resume(tmp_path / "run")
    for name, array in whole.tensors().items():
        assert np.array_equal(array, resumed.tensors()[name]), name


def test_metrics_count_tokens() -> None:
    classifier = trained({}, epochs=2, steps=None, tokenizer="word")
    read = sum(len(text.split()) + 1 for text, _ in sentences())
    assert classifier.metrics["tokens_seen"] == pytest.approx(2 * 0.95 * read, rel=0.1)


# -- figures ----------------------------------------------------------------------------------------------


def test_figures_show_their_arithmetic() -> None:
    """Four of German and two of English, all called German: P = 4/6 and R = 1, so F1 = 0.8, and 0 for English."""
    given = [("x", "de")] * 4 + [("y", "en")] * 2
    majority: Any = cr.train("bayes", given, kind="none")
    found = evaluate_classifier(majority, given)
    assert found.confusion_KK.tolist() == [[4, 0], [2, 0]]
    assert found.accuracy == found.baseline == pytest.approx(4 / 6)
    assert found.macro_f1 == pytest.approx(0.4)
    assert [(one.name, one.count, one.f1) for one in found.by_name] == [
        ("de", 4, pytest.approx(0.8)),
        ("en", 2, 0.0),
    ]
    assert found.calibration_error == pytest.approx(0, abs=1e-9)  # p = 4/6, and 4 of 6 are right
    assert found.nats == pytest.approx(-(4 * np.log(4 / 6) + 2 * np.log(2 / 6)) / 6)
    assert found.confused() == [("en", "de", 2)] and found.intervals == {}
    unknown = evaluate_classifier(majority, [*given, ("z", "fr")])
    assert unknown.names == ["de", "en", "fr"] and unknown.nats == np.inf and unknown.accuracy == 4 / 7


def test_a_name_has_figures_if_it_is_right_or_given() -> None:
    found = Confusion(["never right", "often", "never"], np.array([[0, 0, 0], [2, 1, 0], [0, 0, 0]]))
    assert [(one.name, one.count) for one in found.by_name] == [("never right", 0), ("often", 3)]


def test_intervals_shrink_with_texts() -> None:
    majority: Any = cr.train("bayes", [("x", "de")] * 4 + [("y", "en")] * 2, kind="none")
    few, many = (
        evaluate_classifier(majority, [("x", "de")] * (2 * n) + [("y", "en")] * n).intervals["accuracy"]
        for n in (10, 1000)
    )
    assert few[0] < many[0] < 2 / 3 < many[1] < few[1]
    # the standard deviation of a share of 3,000 texts: sqrt(p (1 - p) / n), 1.96 of them on either side
    assert (many[1] - many[0]) / 2 == pytest.approx(1.96 * np.sqrt(2 / 9 / 3000), rel=0.15)


def test_classifiers_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = (LadderEntry("small", {**TINY, "steps": 3}),)
    monkeypatch.setitem(find_kind("classifier").__dict__, "ladder", tiny)
    found = cr.compare(sentences(120), tmp_path / "ladder", task="classification")
    assert [one.name for one in found.results] == ["majority", "naive Bayes", "5-gram Bayes", "small"]
    assert found.best is not None and found.best.test.values["accuracy"] > 90  # type: ignore[union-attr]
    assert {"accuracy", "±", "macro F1", "ECE"} == set(found.results[0].figures)
    best: Any = cr.load(tmp_path / "ladder" / found.best.folder)
    assert accuracy(best, sentences(60, seed=1)) > 0.9


def test_the_figures_of_a_comparison_are_those_of_evaluate() -> None:
    classifier: Any = cr.train("bayes", sentences(), lm_settings="order=2")
    encoded: Any = type("Encoded", (), {"tokens": 100})()
    figures, found = (
        measure(classifier, HeldOut(Labelled.of(sentences()), encoded)),
        evaluate_classifier(classifier, sentences()),
    )
    assert figures.values["macro F1"] == pytest.approx(100 * found.macro_f1)
    assert figures.loss == pytest.approx(1 - found.accuracy) and "\t" in figures.sample


# -- misuse -----------------------------------------------------------------------------------------------


def test_misuse_is_one_clear_line(tmp_path: Path) -> None:
    classifier: Any = cr.train("bayes", sentences(), lm_settings="order=2")
    lm: Any = cr.train("ngram", ["i love cats"], order=2, tokenizer="word")
    with pytest.raises(ModelError, match="kind ngram does not classify texts"):
        cr.classify(lm, ["a"])
    with pytest.raises(ModelError, match=r"kind bayes does not predict text: chainrule\.classify is for it"):
        cr.generate(classifier, "a")
    for use in (classifier.log_probs, lambda text: cr.classify(classifier, text)):
        with pytest.raises(ModelError, match="a list of texts"):
            use("a")
    for kind in ("bayes", "classifier"):
        with pytest.raises(
            CorpusError, match="every text has the label 'x': a classifier needs two labels or more"
        ):
            cr.train(kind, [("a", "x"), ("b", "x"), ("c", "x")])
    lm.save(tmp_path / "lm")
    for settings, message in (
        ({"pretrained": str(tmp_path / "lm")}, "a classifier begins from a masked model, and this is one of the"),
        ({"frozen": True}, "frozen=true is for a pretrained encoder"),
        ({"width": 15}, "width should be even"),
        ({"encoder": "bagofwords", "pooling": "last"}, "a bag of words is a mean"),
        ({"window": 1}, "window should be at least 2"),
        ({"compile": "yes"}, "compile=yes is not offered"),
    ):
        with pytest.raises(SettingsError, match=message):
            trained(settings)
    for bayes, message in (
        ({"kind": "tagger"}, "takes a kind that predicts text"),
        ({"lm_settings": "depth=3"}, "unknown setting 'depth'"),
        ({"lm_settings": "order"}, "takes key=value"),
        ({"kind": "mixture"}, "a mixture is made of trained models"),
    ):
        with pytest.raises(SettingsError, match=message):
            cr.train("bayes", sentences(), **bayes)  # type: ignore[arg-type]


def test_a_damaged_folder_is_refused(tmp_path: Path) -> None:
    classifier: Any = cr.train("bayes", sentences(), kind="none")
    classifier.log_prior_K = np.log([0.5, 0.2])
    classifier.save(tmp_path / "model")
    with pytest.raises(DamagedFileError, match="not a distribution over 2 labels"):
        cr.load(tmp_path / "model")
