"""What results show in a notebook: as the command line prints them, and every text is escaped."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

import chainrule as cr
from chainrule.comparison.results import Comparison, Result
from chainrule.evaluation.measure import Measured
from chainrule.evaluation.pseudo import PseudoMeasured
from chainrule.explanation.diagnosis import Diagnosis
from chainrule.seq2seq.alignments import Alignment
from chainrule.seq2seq.evaluate import TranslationMeasured
from chainrule.seq2seq.quality import OfLength
from chainrule.system.disk.tables import Curves
from chainrule.system.display import Html, ResultTable, coloured, to_html

HOSTILE = '<script>alert("x")</script>'
TEXTS = [f"i love {HOSTILE}", "i love cats & dogs", "cats chase mice", "dogs chase cats"]
VOID = {"br", "img"}


class Checked(HTMLParser):
    """Reads HTML, and finds out whether its elements are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        assert not any(name.startswith("on") for name, _ in attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def text_of(html: str) -> str:
    """Return the text that a browser shows, after a check that nothing in it runs."""
    found = Checked()
    found.feed(html)
    found.close()
    assert not found.open
    assert "script" not in found.seen
    return found.text


def words_of(tokenizer: str = "word", **settings: Any) -> cr.LanguageModel:
    return cr.train("ngram", TEXTS, tokenizer=tokenizer, **{"order": 2, "smoothing": "laplace", **settings})


@pytest.fixture(scope="module")
def network() -> cr.LanguageModel:
    small = {"engine": "tape", "embedding": 4, "hidden": 4, "layers": 1, "steps": 1}
    return cr.train("lstm", TEXTS, tokenizer="char", **small)


def test_a_lower_bound_has_its_mark() -> None:
    words, bytes_ = cr.evaluate(words_of(), TEXTS), cr.evaluate(words_of("byte"), TEXTS)
    assert words.is_lower_bound
    assert not bytes_.is_lower_bound
    for shown in (str(words), repr(words), text_of(words._repr_html_())):
        assert f"{words.bits_per_byte:.3f}"[:4] in shown
        assert re.search(r"\d\*", shown)
        assert "* a lower bound: white space" in shown
    for shown in (str(bytes_), repr(bytes_), text_of(bytes_._repr_html_())):
        assert "*" not in shown
    assert repr(words).count("\n") == 0


def test_scores_are_in_brackets() -> None:
    measured = cr.evaluate(words_of(smoothing="stupid-backoff"), TEXTS)
    assert f"perplexity ({measured.perplexity:.3f}" in str(measured)[: str(measured).index(",")] + ")"
    assert "(…) computed from scores" in text_of(measured._repr_html_())


def test_an_explanation_of_an_ngram_model() -> None:
    found = cr.explain(words_of(), f"i love {HOSTILE}")
    shown = text_of(found._repr_html_())
    assert found.title in shown
    assert "in the model" in shown
    assert "most likely: " in shown
    assert repr(found) == f"<NgramExplanation {found.title}>"


def test_an_explanation_of_a_mixture() -> None:
    one, other = words_of(), words_of(smoothing="kneser-ney", order=3)
    found = cr.explain(cr.mix([one, other], weights=[0.5, 0.5]), "i love cats")
    shown = text_of(found._repr_html_())
    assert "adds to p" in shown
    assert "p = 0.5 · " in shown


def test_an_explanation_of_a_network_is_its_picture(network: cr.LanguageModel) -> None:
    found = cr.explain(network, "i <")
    html: str = found._repr_html_()
    assert found._repr_svg_() in html  # type: ignore[attr-defined]
    assert "L = -ln p(< | " in text_of(html)
    ET.fromstring(found._repr_svg_())  # type: ignore[attr-defined]
    assert len(repr(found)) < 200


def test_styles_of_pictures_stay_in_them(network: cr.LanguageModel) -> None:
    """Where a page takes a picture in as it is, its style would apply to all of the page."""
    alignment = Alignment(("a",), ("b",), np.ones((1, 1)))
    for picture in (cr.explain(network, "i l")._repr_svg_(), alignment._repr_svg_()):  # type: ignore[attr-defined]
        root = ET.fromstring(picture)
        style = next(one.text or "" for one in root.iter("{http://www.w3.org/2000/svg}style"))
        rules = [line.strip() for line in style.splitlines() if "{" in line and not line.startswith("@")]
        assert rules
        assert all(rule.startswith(f".{root.get('class')} ") for rule in rules)


def test_a_diagnosis(network: cr.LanguageModel) -> None:
    found = cr.diagnose(network, "i love <")
    shown = text_of(found._repr_html_())
    assert "8 tokens, then '<'" in shown
    assert "gradient by" in shown
    assert "forget, layer 0" in shown
    assert "█" in shown
    weights = np.tril(np.ones((1, 2, 3, 3))) / np.arange(1, 4)[:, None]
    attending = Diagnosis(1.0, np.ones(3), attention_LHTT=weights, tokens=("<s>", HOSTILE, "b"), target="c")
    assert "attention of 'b'" in text_of(attending._repr_html_())
    assert HOSTILE in text_of(attending._repr_html_())


def test_surprisals_colour_the_text() -> None:
    scores = cr.score(words_of(), [f"i love {HOSTILE}", "dogs  chase\ncats"])
    html = scores._repr_html_()
    shown = text_of(html)
    assert f"i love {HOSTILE}" in shown
    assert "dogs  chase\ncats" in shown.replace("↵", "")
    assert html.count('title="') == len(scores.ids)
    assert all(0 <= float(depth) <= 0.85 for depth in re.findall(r"89 38 / ([\d.]+)", html))


@pytest.mark.parametrize("tokenizer", ["word", "char", "byte", "bpe"])
def test_surprisals_show_the_text_of_every_tokenizer(tokenizer: str) -> None:
    text = "i love naïve 猫 & <b>dogs</b>"
    scores = cr.score(words_of(tokenizer), text)
    assert text in text_of(scores._repr_html_()).replace("↵", "")


def test_many_surprisals_are_cut() -> None:
    scores = cr.score(words_of(), ["cats chase mice"] * 50)
    shown = text_of(scores._repr_html_())
    assert shown.count("cats chase mice") == 20
    assert "30 more texts" in shown


def test_an_anomaly() -> None:
    (odd,) = cr.tasks.anomalies(words_of(), ["i love cats", f"mice {HOSTILE} love"], top=1)
    shown = text_of(odd._repr_html_())
    assert shown.startswith(f"2: {odd.bits:.2f} bits")
    assert HOSTILE in shown


@pytest.mark.parametrize(("count", "steps"), [(5, [1, 2, 3, 4, 5]), (25, [1, 4, 7, 10, 13, 16, 19, 22, 25])])
def test_a_table_of_curves_has_few_rows_and_the_last_one(
    count: int, steps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    curves = Curves([{"step": step} for step in range(1, count + 1)])
    assert [row[0] for row in curves._table().rows] == [str(step) for step in steps]
    assert "altair" in text_of(curves._repr_html_())


def test_curves_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [{"step": step, "loss": 5.0 - step / 10, "validation_loss": 5.0 - step / 20} for step in range(1, 31)]
    pytest.importorskip("vl_convert")
    assert "svg" in Curves(records)._repr_html_()
    assert "bits per token" in Curves(records)._repr_html_()
    monkeypatch.setitem(sys.modules, "altair", None)
    shown = text_of(Curves(records)._repr_html_())
    assert "validation_loss" in shown
    assert "2.000" in shown
    assert "pip install 'chainrule[report]'" in shown
    assert text_of(Curves([])._repr_html_()) is not None


def test_an_alignment_draws_itself() -> None:
    found = Alignment((HOSTILE, "</s>"), ("cat & dog", "</s>"), np.array([[0.9, 0.1], [0.2, 0.8]]))
    picture = ET.fromstring(found._repr_svg_())
    assert not list(picture.iter("{http://www.w3.org/2000/svg}script"))
    assert "cat & dog" in [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert repr(found).startswith("<Alignment of ")


def compared(**others: Any) -> Comparison:
    test = Measured(8.0, 2.1, 3.0, 1.25, 10, 100, 0.0, False, 0, True, 1.0, 10.0)
    result = Result(HOSTILE, "ngram", {}, "a", test, 0.1, 0.2, sample="<b>it was</b>\nso")
    parts = {name: {"tokens": 10, "bytes": 100, "lines": 2} for name in ("train", "valid", "test")}
    return Comparison(
        format="chainrule-comparison",
        identity={},
        tokenizer="word",
        vocab_size=9,
        context="line",
        parts=parts,
        results=[result],
        advice="Take it.",
        **others,
    )


def test_a_comparison() -> None:
    found = compared()
    shown = text_of(found._repr_html_())
    assert "word, vocabulary 9; trained on 10 tokens" in shown
    assert f"{HOSTILE} (best)1.250*" in shown
    assert "* a lower bound" in shown
    assert "<b>it was</b> / so" in shown
    assert "Take it." in shown
    assert repr(found) == f"<Comparison of 1 model; the best is {HOSTILE}>"


def test_other_measurements() -> None:
    pseudo = PseudoMeasured(12.5, -2.5, 100, 0.01, 1.0, 100.0)
    assert "12.50" in text_of(pseudo._repr_html_())
    assert "is no perplexity" in text_of(pseudo._repr_html_())
    lengths = (OfLength(1, 8, 5, 30.0), OfLength(9, None, 2, 20.0))
    quality = (31.5, 50.25, 3.0, {}, lengths, 1.0, 7.0)
    shown = text_of(TranslationMeasured(8.0, 2.1, 3.0, 7, 70, 0, *quality)._repr_html_())
    assert "31.5" in shown
    assert "7 pairs, 70 tokens of targets; copying the sources has BLEU 3.0" in shown
    assert "9+" in shown


def test_tables_of_ngrams() -> None:
    lm = words_of(counts=True)
    shown = text_of(lm.ngrams("i love")._repr_html_())  # type: ignore[attr-defined]
    assert "tokens after" in shown
    assert "count" in shown
    shown = text_of(lm.bigrams(f"cats chase {HOSTILE}")._repr_html_())  # type: ignore[attr-defined]
    assert "c(row column)" in shown
    assert "p(column | row)" in shown


def test_a_table_escapes_and_marks() -> None:
    table = ResultTable(["<i>", "n"], [["<b>", "1"], ["x", Html("<b>2</b>")], ["short"]], "a & b", strong=[0])
    html = table.to_html()
    assert text_of(html) == "a & b<i>n<b>1x2short"
    assert "<b>&lt;b&gt;</b>" in html
    assert "a\x00" not in to_html(["a\x00\ud800"])
    to_html(["a\x00\ud800"]).encode()
    assert text_of(coloured([("a<", 1.0), ("b", None), ("c", float("inf"))])) == "a<bc"
