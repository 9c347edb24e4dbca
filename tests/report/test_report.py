"""The report of a comparison: its figures agree with the comparison's, and its page is safe and whole."""

from __future__ import annotations

import json
import math
import re
import sys
from dataclasses import replace
from html import escape as text
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.report.conftest import HELD_OUT, edit

import chainrule as cr
from chainrule.comparison.results import Point, read_comparison
from chainrule.errors import ChainruleError, DamagedFileError, FolderError, MissingExtraError
from chainrule.report.charts import COLOURS, OTHER, learning_colours
from chainrule.report.record import ComparisonDetails, comparison_details

pytest.importorskip("altair")


def record_of(folder: Path) -> ComparisonDetails:
    return comparison_details(folder, prompts=[])


def test_the_numbers_are_those_of_evaluate(made: Path) -> None:
    """The bits of all words of the map, over the bytes, are the bits per byte that `evaluate` measures."""
    record = record_of(made)
    assert record.map is not None
    assert "".join(record.map.words) == HELD_OUT
    for row in record.drawn:
        measured = cr.evaluate(cr.load(made / row.folder), HELD_OUT.splitlines())
        assert row.loss == pytest.approx(measured.bits_per_byte, rel=1e-4)
        if math.isfinite(row.loss or math.inf):
            bits = sum(record.map.tenths[row.name]) / 10
            assert bits / len(HELD_OUT.encode()) == pytest.approx(measured.bits_per_byte, rel=0.01)


def test_the_best_and_the_frontier_are_those_of_the_comparison(made: Path) -> None:
    comparison, record = read_comparison(made), record_of(made)
    assert comparison is not None
    assert comparison.best is not None
    models = record.to_json()["models"]
    assert [row["name"] for row in models if row["is_best"]] == [comparison.best.name]
    assert record.drawn[0].name == comparison.best.name
    assert {row.kind for row in record.drawn} == {"ngram", "elman", "mixture"}
    on = {row["name"] for row in models if "megabytes" in row["frontier"]}
    assert on == comparison.frontier("megabytes")
    assert comparison.best.name in " ".join(record.answer)


def test_an_answer_of_one_sentence_says_that_nothing_is_nearly_as_good(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chainrule.report.record.sentences", lambda comparison: ["Take it."])
    none = "No model at half its cost or less comes within 5% of its bits per byte."
    assert record_of(made).answer == ["Take it.", none]


def test_everything_is_there(made: Path) -> None:
    record = comparison_details(made)
    assert record.missing == []
    assert list(record.curves) == ["elman"]
    assert record.position is not None
    assert record.frequency is not None
    assert record.frequency.by == "times the token stands in the training text"  # the ladder has a unigram model
    assert record.kinds is not None
    assert record.kinds.labels[0] == "frequent"
    of_json = record.to_json()["kinds"]
    for place, kind in enumerate(record.kinds.labels):
        means = {name: values[place] for name, values in record.kinds.means.items()}
        assert means[of_json["best"][kind]] == min(means.values())
    assert record.samples.prompts == ["", "A function is", "The order of"]
    for texts in record.samples.texts.values():
        for prompt, sample in zip(record.samples.prompts, texts, strict=True):
            assert sample.startswith(prompt)
    assert {*record.samples.variety} == {*record.samples.texts, "held-out text"}
    assert all(0 <= one.repeated_4grams <= 1 for one in record.samples.variety.values())
    texts = [tuple(texts[1:]) for texts in record.samples.texts.values()]
    assert len(set(texts)) > len(texts) / 2  # another seed for each model
    assert record.map is not None
    assert len(record.map.spans) == len(record.drawn) * (len(record.drawn) - 1)
    for pair in record.map.spans:
        for span in pair["spans"]:
            assert span["other"] > span["bits"]
            assert span["before"].lstrip("…") + span["text"] in HELD_OUT


def test_later_fields_of_a_comparison_are_shown(ladder: Path) -> None:
    values = json.loads((ladder / "compare.json").read_text())
    for number, result in enumerate(values["results"]):
        result |= {"interval": [1.25, 2.5], "parameters": 1000 + number, "peak_megabytes": None, "unheard_of": 1}
    name = values["results"][0]["name"]
    point = {"name": name, "kind": "ngram", "settings": {}, "bytes": 1, "perplexity": 8.0, "unheard_of": 1}
    point |= {"training_seconds": 1.0, "seconds": 1.0}
    curve = [
        point | {"share": tokens / 200, "tokens": tokens, "bits_per_byte": bits}
        for tokens, bits in ((50, math.inf), (100, 3.5), (200, 3.0))
    ]
    (ladder / "compare.json").write_text(json.dumps(values | {"curve": curve}))
    report = cr.report.make_report(ladder, prompts=["The"])
    assert {"cost-parameters", "learning"} <= report.charts.keys()
    assert "cost-peak-megabytes" not in report.charts
    (drawn,) = report.charts["learning"].to_dict()["datasets"].values()
    assert [(one["part"], one["bits"]) for one in drawn] == [("1/2", 3.5), ("all", 3.0)]
    assert '<th scope="col">1/4</th><th scope="col">1/2</th><th scope="col">all</th>' in report.html
    assert "<td>∞</td><td>3.500</td><td>3.000</td>" in report.html
    assert '<span class="range">±&nbsp;0.62</span>' in report.html
    assert isinstance(report.record, ComparisonDetails)
    assert report.record.comparison.results[0].interval == (1.25, 2.5)


def test_each_model_stands_against_the_best(ladder: Path) -> None:
    values = json.loads((ladder / "compare.json").read_text())
    best = record_of(ladder).drawn[0].name
    others = [result for result in values["results"] if result["name"] != best]
    others[0]["behind"], others[1]["behind"] = [0.25, 0.125, 0.375], [0.01, -0.002, 0.03]
    others[2]["behind"] = [3e-6, 1e-6, 5e-6]
    (ladder / "compare.json").write_text(json.dumps(values))
    report = cr.report.make_report(ladder, prompts=[])
    assert isinstance(report.record, ComparisonDetails)
    rows = {row["name"]: row for row in report.record.to_json()["models"]}
    far, near = (rows[result["name"]] for result in others[:2])
    assert (far["behind"], far["is_told_from_best"]) == ((0.25, 0.125, 0.375), True)
    assert (near["behind"], near["is_told_from_best"]) == ((0.01, -0.002, 0.03), False)
    assert rows[best]["behind"] is rows[best]["is_told_from_best"] is None
    section = report.html.partition('<section id="best"')[2].partition("</section>")[0]
    assert f"cannot tell <b>{text(best)}</b> from <b>{text(near['name'])}</b>." in section
    table = section.partition("<tbody>")[2]
    assert table.index(text(near["name"])) < table.index(text(far["name"]))  # the nearest first
    assert '0.010<span class="small">−0.002 to 0.030</span></td><td>no</td>' in section
    assert '0.250<span class="small">0.125 to 0.375</span></td><td>yes</td>' in section
    assert "<td>under 0.0001</td><td>yes</td>" in section
    assert "Not listed, since their figures do not compare or are infinite: " in section


def test_curves_have_distinct_colours(made: Path) -> None:
    comparison = record_of(made).comparison
    names = [f"model {number}" for number in range(12)]
    points = [Point(name, "ngram", {}, 1.0, 10, 40, 2.0, 16.0, 1.0, 1.0) for name in names]
    points.append(replace(points[0], name="never", bits_per_byte=math.inf))
    palette = {"model 3": COLOURS[0], "another": COLOURS[1]}
    found = learning_colours(replace(comparison, curve=points), palette)
    assert list(found) == names
    assert found["model 3"] == COLOURS[0]  # that of the other charts
    assert len(set(found.values()) - {OTHER}) == len(COLOURS)
    assert [name for name, colour in found.items() if colour == OTHER] == names[-2:]


class Reader(HTMLParser):
    """The elements of a page, and the text of scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.found and self.found[-1][0] == "script":
            self.scripts[-1] += data


def read_page(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    return reader


def test_the_page_loads_nothing_and_escapes_all_text(ladder: Path) -> None:
    bad = '</script><script>alert(1)</script><img src=x onerror=alert(2)> & "quoted" \x00\x1b[31m \u2028 \ud800'
    values = json.loads((ladder / "compare.json").read_text())
    for result in values["results"]:
        result["sample"] = bad
        result["name"] += " <i>"
    (ladder / "compare.json").write_text(json.dumps(values))
    (ladder / "test.txt").write_text(HELD_OUT)
    page = cr.report.write_report(ladder, prompts=[], pictures=False)
    html = page.read_text(encoding="utf-8")
    reader = read_page(html)
    assert not [attrs for tag, attrs in reader.found if tag in ("img", "link", "iframe") or "onerror" in attrs]
    assert not [attrs for _, attrs in reader.found if "src" in attrs]
    assert len(reader.scripts) == 3
    data = json.loads(reader.scripts[0])
    assert data["map"]["words"][0] == "The"
    assert "&lt;/script&gt;&lt;script&gt;alert(1)" in html
    assert "alert(1)</script>" not in html
    assert json.loads((ladder / "report.json").read_text(encoding="utf-8"))["what"] == "comparison"


def test_the_page_is_put_together_well(ladder: Path) -> None:
    """Every link leads somewhere, ids are unique, tables have captions, and charts have data."""
    page = cr.report.write_report(ladder, prompts=["The"])
    html = page.read_text(encoding="utf-8")
    reader = read_page(html)
    ids = [str(attrs["id"]) for _, attrs in reader.found if "id" in attrs]
    assert len(ids) == len(set(ids))
    links = [str(attrs["href"]) for tag, attrs in reader.found if tag == "a"]
    assert links
    assert {link.removeprefix("#") for link in links} <= set(ids)
    tags = [tag for tag, _ in reader.found]
    assert tags.count("table") == tags.count("caption") > 1
    charts = json.loads(reader.scripts[0])["charts"]
    assert [attrs["data-chart"] for _, attrs in reader.found if "data-chart" in attrs] == list(charts)
    assert not re.search(r"\{\{\w+\}\}", html.replace(reader.scripts[1], ""))
    for name in charts:
        assert (ladder / "report" / f"{name}.svg").read_text().startswith("<svg")
        assert (ladder / "report" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert page.stat().st_size < 1_500_000


def test_a_comparison_that_kept_no_text_says_how_to_give_it(ladder: Path) -> None:
    (ladder / "test.txt").unlink()
    record = record_of(ladder)
    assert record.map is None
    assert record.position is None
    assert "--test FILE" in record.missing[0]
    again = comparison_details(ladder, test=[*HELD_OUT.splitlines()], prompts=[])
    assert again.map is not None
    assert again.missing == []


def test_a_model_that_was_removed_is_still_in_the_table(ladder: Path) -> None:
    import shutil

    removed = record_of(ladder).drawn[0]
    shutil.rmtree(ladder / removed.folder)
    record = comparison_details(ladder, prompts=["The"])
    assert removed.name in [row.name for row in record.comparison.results]
    assert record.samples.texts[removed.name][1:] == [""]


def test_other_tasks_have_a_table_without_a_map(ladder: Path) -> None:
    values = json.loads((ladder / "compare.json").read_text())
    for number, result in enumerate(values["results"]):
        figures = {"values": {"BLEU": 20.0 + number}, "loss": 80.0 - number, "tokens_per_second": 100.0}
        result["test"] = {**figures, "note": "a note", "sample": "ein Hund"}
    (ladder / "compare.json").write_text(json.dumps(values | {"task": "translation"}))
    report = cr.report.make_report(ladder)
    assert isinstance(report.record, ComparisonDetails)
    assert report.record.map is None
    assert "BLEU" in report.html
    with pytest.raises(ChainruleError, match="translation has no surprisals"):
        cr.report.make_report(ladder, test=["a"])


def test_bad_folders(ladder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(FolderError, match=r"neither a comparison \(compare.json\), nor a run folder"):
        cr.report.write_report(tmp_path / "empty")
    with pytest.raises(FolderError, match="no such folder"):
        cr.report.write_report(tmp_path / "nothing")
    with pytest.raises(FolderError, match="a file, not a folder"):
        cr.report.write_report(ladder / "compare.json")
    with pytest.raises(FolderError, match="takes a text"):
        cr.report.write_report(ladder / "elman", prompts=["The"])
    edit(ladder, results=[])
    with pytest.raises(FolderError, match="no model of this comparison is finished"):
        cr.report.write_report(ladder)
    (ladder / "compare.json").write_text("{")
    with pytest.raises(FolderError, match="not the results of a comparison"):
        cr.report.write_report(ladder)


def test_two_comparisons_side_by_side(made: Path, ladder: Path) -> None:
    values = json.loads((ladder / "compare.json").read_text())
    tests = [one["test"] for one in values["results"]]
    ranked = [math.isfinite(test["bits_per_byte"]) and test["normalised"] for test in tests]
    finite = [one for one, is_ranked in zip(values["results"], ranked, strict=True) if is_ranked]
    first, second, *_ = finite
    first["test"]["bits_per_byte"] -= 0.25
    first["training_seconds"] *= 2
    second["name"] = "another"
    edit(ladder, results=values["results"], identity=values["identity"] | {"minutes": 7.0})
    report = cr.report.make_report(made, ladder)
    assert report.place == made / "against-ladder.html"
    assert "pair" in report.charts
    found = report.record.to_json()
    assert found["is_comparable"]
    rows = {row["name"]: row for row in found["models"]}
    assert rows[first["name"]]["difference"] == pytest.approx(-0.25)
    assert rows[first["name"]]["ratios"]["training_seconds"] == pytest.approx(2)
    assert rows["another"]["loss"][0] is rows["another"]["difference"] is None
    assert [one["what"] for one in found["conditions"] if not one["is_same"]] == ["minutes"]
    assert "minutes differ (" in report.html
    notes = [one.note for one in read_comparison(made).results if one.note]  # type: ignore[union-attr]
    assert notes and all(f'<span class="small">{text(note)}</span>' in report.html for note in notes)
    assert f"Of {len(finite) - 1} models in both: 1 better in " in found["answer"]


def test_two_comparisons_of_other_texts_do_not_compare(made: Path, ladder: Path) -> None:
    (ladder / "test.txt").write_text("another text\n")
    report = cr.report.make_report(made, ladder)
    record = report.record.to_json()
    assert not record["is_comparable"]
    assert {row["difference"] for row in record["models"]} == {None}
    assert "The test texts differ. So the losses" in report.html
    assert report.charts == {}
    assert ">difference<" not in report.html
    (ladder / "test.txt").unlink()  # the fingerprints of the tokens are still the same
    assert cr.report.make_report(made, ladder).record.to_json()["is_comparable"]
    edit(ladder, identity={})
    assert "The test texts may differ" in cr.report.make_report(made, ladder).html


def test_bad_pairs(made: Path, ladder: Path, tmp_path: Path) -> None:
    with pytest.raises(FolderError, match=r"nothing: no such folder"):
        cr.report.make_report(made, tmp_path / "nothing")
    with pytest.raises(FolderError, match=r"not a comparison, since it has no compare.json"):
        cr.report.make_report(made / "elman", made)
    edit(ladder, task="translation")
    with pytest.raises(FolderError, match=r"compares models for language, and .* for translation"):
        cr.report.make_report(made, ladder)
    for damaged in ("{", "[]", '{"format": "chainrule-comparison", "results": 3}'):
        (ladder / "compare.json").write_text(damaged)
        with pytest.raises(FolderError, match="not the results of a comparison, or damaged"):
            cr.report.make_report(made, ladder)


def test_surprisals_of_another_text_are_refused(ladder: Path) -> None:
    (ladder / "test.txt").write_text("another text\n")
    with pytest.raises(DamagedFileError, match="not the surprisals of"):
        cr.report.make_report(ladder)


def test_a_missing_library_is_named(ladder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(MissingExtraError, match=r"a report needs altair, .* pip install 'chainrule\[report\]'"):
        cr.report.write_report(ladder)
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(MissingExtraError, match="a report needs vl-convert-python"):
        cr.report.write_report(ladder)


def test_notebooks_show_comparisons_and_reports(made: Path) -> None:
    comparison = read_comparison(made)
    assert comparison is not None
    assert comparison.best is not None
    table = comparison._repr_html_()
    assert f"<b>{comparison.best.name} (best)</b>" in table
    trained = [one for one in comparison.results if one.tokens_seen is not None]
    rows = 2 * (len(comparison.results) + 1) + len(trained) + 1  # of the figures, of the samples and of trainings
    assert table.count("<tr>") == rows
    report = cr.report.make_report(made, prompts=[])
    bundle = report._repr_mimebundle_()
    assert bundle["text/plain"].startswith("<Report Comparison ladder: cost-training-seconds")
    assert bundle["text/html"].startswith("<iframe")
    assert read_page(bundle["text/html"]).found[0][1]["srcdoc"] == report.html
    assert report.charts["position"]._repr_mimebundle_()
