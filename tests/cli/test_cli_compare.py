"""`chainrule compare`: a ladder of models on one scale."""

from __future__ import annotations

import json
import math
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from chainrule.comparison import budget as budgets
from chainrule.comparison import ladder as ladders
from chainrule.comparison import measured_training
from chainrule.comparison.advice import pick
from chainrule.comparison.measured_training import MeasuredTraining
from chainrule.comparison.results import read_comparison
from chainrule.contract import kinds
from chainrule.contract.kinds import LadderEntry, find_kind
from chainrule.errors import ModelError

from .running import Fails, Run, on_terminal, strict_json

KIND = kinds.find_kind("ngram")
NAMES = [entry.name for entry in KIND.ladder]
MODELS = len(NAMES)
NGRAMS = ("--kind", "ngram")


@pytest.fixture(autouse=True)
def no_page(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """No report, which takes seconds, but where a test is about it."""
    if "report" not in request.node.name:
        monkeypatch.setattr("chainrule.cli.verbs.compare.write_page", lambda out: None)


def test_a_report_is_written_at_the_end(run: Run, corpus: Path, tmp_path: Path) -> None:
    words = ("compare", corpus, "--ladder", "quick", *NGRAMS, "--out", tmp_path / "out")
    ran = run(*words)
    assert ran.code == 0, ran.err
    assert f"The report: {tmp_path / 'out' / 'report.html'}" in " ".join(ran.out.split())
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    found = read_comparison(tmp_path / "out")
    assert found is not None and found.advice is not None and found.advice in page
    assert "The report:" not in run(*words, "--no-report").out


@pytest.fixture(scope="module")
def ladder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compare") / "ladder"


@pytest.fixture
def comparison(run: Run, ladder: Path, corpus: Path) -> dict:
    if not ladder.exists():
        ran = run("compare", corpus, "--out", ladder, "--tokenizer", "word", "--kind", "ngram", "--json")
        about = [line.removeprefix("note: ").partition(":")[0] for line in ran.err.splitlines()]
        assert about  # the text is too small for some estimates: a note names each model that this concerns, once
        assert len(about) == len(set(about))
        assert set(about) <= {result["name"] for result in ran.json["results"]}
        assert ran.json == strict_json((ladder / "compare.json").read_text(encoding="utf-8"))
    content: dict = json.loads((ladder / "compare.json").read_text(encoding="utf-8"))
    return content


def test_every_model_is_measured_on_text_that_no_model_has_seen(comparison: dict, corpus: Path) -> None:
    parts = comparison["parts"]
    assert sum(part["bytes"] for part in parts.values()) == corpus.stat().st_size
    assert len(comparison["results"]) == len({result["name"] for result in comparison["results"]}) == MODELS
    for result in comparison["results"]:
        assert result["test"]["tokens"] == parts["test"]["tokens"]
        assert result["test"]["bytes"] == parts["test"]["bytes"]


def test_every_entry_leaves_a_model_that_other_verbs_take(run: Run, comparison: dict, ladder: Path) -> None:
    for result in comparison["results"]:
        folder = ladder / result["folder"]
        assert run("generate", folder).code == 0
        shown = run("inspect", folder)
        assert shown.code == 0, shown.err
        assert run("inspect", folder, "--json").json["metrics"]["perplexity"] == result["test"]["perplexity"]


def test_a_folder_that_is_not_empty_is_left_alone(fails: Fails, comparison: dict, ladder: Path, toy: Path) -> None:
    before = sorted(ladder.iterdir())
    assert "holds another comparison" in fails("compare", toy, "--out", ladder)
    assert sorted(ladder.iterdir()) == before


def test_the_table_has_a_row_per_model_and_samples(run: Run, corpus: Path, tmp_path: Path) -> None:
    ran = run("compare", corpus, "--out", tmp_path / "ladder", "--kind", "ngram")
    assert ran.code == 0
    assert all("give no valid" in line for line in ran.err.splitlines())
    table = ran.out.partition("Samples")[0]
    for name in NAMES:
        assert len(re.findall(rf"^{re.escape(name)} +", table, flags=re.MULTILINE)) == 1, name
    assert "bits/byte" in ran.out
    assert ran.out.partition("\nTake ")[0].count("5-gram, jelinek-mercer") == 2
    command = ran.out.partition("\nTry: chainrule ")[2].partition("\n")[0].split()
    assert command[0] == "generate" and run(*command).out.count("\n") == 5
    assert str(tmp_path / "ladder") in ran.out


def test_the_table_and_samples_fit_a_terminal(corpus: Path, tmp_path: Path) -> None:
    words = ("compare", corpus, "--ladder", "quick", *NGRAMS, "--no-report", "--out", tmp_path / "out")
    shown = [re.sub(r"\x1b\[[\d;?]*\w", "", line) for line in on_terminal(80, *words).splitlines()]
    table = shown[next(place for place, line in enumerate(shown) if line.startswith("model")) :]
    lines = table[: next(place for place, line in enumerate(table) if line.startswith("Try: "))]
    assert max(len(line) for line in lines) <= 80
    assert "…" not in "".join(lines) and any("modified-kneser-ney" in line for line in lines)


def test_the_seed_decides_the_split(run: Run, corpus: Path, tmp_path: Path) -> None:
    def held_out(seed: int) -> str:
        folder = tmp_path / f"ladder-{seed}"
        assert run("compare", corpus, "--out", folder, "--seed", seed, "--tokenizer", "word", *NGRAMS).code == 0
        manifest = json.loads((folder / "unigram-mle" / "manifest.json").read_text(encoding="utf-8"))
        fingerprint: str = manifest["provenance"]["held_out_sha256"]
        return fingerprint

    assert held_out(1) != held_out(2)


@pytest.fixture
def only_net(monkeypatch: pytest.MonkeyPatch) -> None:
    """No kind but "net", which needs torch, and no torch."""
    net = replace(kinds.find_kind("ngram"), name="net", requires_torch=True)
    monkeypatch.setattr(sys.modules[__name__], "KIND_OF_NETS", net, raising=False)
    monkeypatch.setattr(kinds, "_BUILT_IN", {"net": f"{__name__}:KIND_OF_NETS"})
    monkeypatch.setattr(kinds, "has_torch", lambda: False)


@pytest.mark.usefixtures("only_net")
def test_a_kind_whose_library_is_missing_is_left_out_with_a_note(
    run: Run, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(kinds._BUILT_IN, "ngram", "chainrule.ngram.train:KIND")
    ran = run("compare", corpus, "--out", tmp_path / "ladder", "--json")
    assert len(ran.json["results"]) == sum(entry.standard for entry in KIND.ladder)
    left_out = [line for line in ran.err.splitlines() if "give no valid" not in line]
    assert len(left_out) == 1
    assert left_out[0].startswith("note: left out: the kind net needs torch")
    named = run("compare", corpus, "--out", tmp_path / "ladder-2", "--kind", "net")
    assert named.code == 2
    assert "pip install 'chainrule[neural]'" in named.err


@pytest.mark.usefixtures("only_net")
def test_a_ladder_without_models_is_an_error(run: Run, corpus: Path, tmp_path: Path) -> None:
    ran = run("compare", corpus, "--out", tmp_path / "ladder")
    assert ran.code == 2, ran.err
    note, error = ran.err.splitlines()
    assert "torch" in note
    assert error.startswith("chainrule: error: ")


@pytest.mark.parametrize(("content", "message"), [("", "text.txt is empty"), ("one line\n", "too few")])
def test_a_corpus_too_small_to_split_leaves_nothing_behind(
    fails: Fails, tmp_path: Path, content: str, message: str
) -> None:
    text = tmp_path / "text.txt"
    text.write_text(content, encoding="utf-8")
    assert message in fails("compare", text, "--out", tmp_path / "ladder")
    assert not (tmp_path / "ladder").exists()


def test_valid_and_test_text_can_be_given(run: Run, corpus: Path, held_out: Path, tmp_path: Path) -> None:
    size = held_out.stat().st_size
    both = run(
        "compare", corpus, "--held-out", held_out, "--test", held_out, "--out", tmp_path / "a", *NGRAMS, "--json"
    ).json
    assert both["parts"]["train"]["bytes"] == corpus.stat().st_size
    assert both["parts"]["valid"]["bytes"] == both["parts"]["test"]["bytes"] == size
    one = run("compare", corpus, "--test", held_out, "--out", tmp_path / "b", *NGRAMS, "--json").json
    assert one["parts"]["test"]["bytes"] == size
    assert one["parts"]["train"]["bytes"] + one["parts"]["valid"]["bytes"] == corpus.stat().st_size


def test_a_comparison_is_replaced_only_if_asked(run: Run, fails: Fails, toy: Path, tmp_path: Path) -> None:
    assert run("compare", toy, "--out", tmp_path / "a", *NGRAMS).code == 0
    assert "--overwrite" in fails("compare", toy, "--seed", "7", "--out", tmp_path / "a", *NGRAMS)
    assert run("compare", toy, "--out", tmp_path / "a", "--overwrite", *NGRAMS).code == 0
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "a.txt").write_text("dear friend")
    assert "is no comparison" in fails("compare", toy, "--out", tmp_path / "letters", "--overwrite")
    assert (tmp_path / "letters" / "a.txt").read_text() == "dear friend"


def test_words_are_marked_as_not_paying_for_everything(run: Run, corpus: Path, tmp_path: Path) -> None:
    assert "* a lower bound" in run("compare", corpus, "--tokenizer", "word", "--out", tmp_path / "w", *NGRAMS).out
    assert "* a lower bound" not in run("compare", corpus, "--out", tmp_path / "b", *NGRAMS).out


def test_what_lies_beside_a_comparison_is_never_removed(run: Run, toy: Path, tmp_path: Path, fails: Fails) -> None:
    assert run("compare", toy, "--out", tmp_path / "a", *NGRAMS).code == 0
    (tmp_path / "a" / "thesis.txt").write_text("years of work")
    assert run("compare", toy, "--out", tmp_path / "a", "--overwrite", *NGRAMS).code == 0
    assert (tmp_path / "a" / "thesis.txt").read_text() == "years of work"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "compare.json").write_text('{"results": [{"folder": "../a"}]}')
    assert "is no comparison" in fails("compare", toy, "--out", tmp_path / "other", "--overwrite")
    assert (tmp_path / "a" / "compare.json").exists()


NETWORKS = """
[[model]]
kind = "feedforward"
name = "feed-forward"
settings = { steps = 60, minutes = 5 }

[[model]]
kind = "transformer"
name = "transformer"
settings = { steps = 60, minutes = 5, layers = 2, width = 32 }

[[model]]
kind = "ngram"
name = "bigram"
settings = { order = 2 }

[[model]]
kind = "ngram"
name = "trigram"
settings = { order = 3 }
"""


def test_networks_stand_on_the_same_ladder(run: Run, corpus: Path, tmp_path: Path) -> None:
    # more time than the steps take: what is learned does not depend on the machine
    (tmp_path / "ladder.toml").write_text(NETWORKS, encoding="utf-8")
    words = ("--ladder", tmp_path / "ladder.toml", "--minutes", "5")
    ran = run("compare", corpus, "--out", tmp_path / "a", "--tokenizer", "word", *words, "--json")
    assert ran.code == 0, ran.err
    perplexity = {result["name"]: result["test"]["perplexity"] for result in ran.json["results"]}
    assert list(perplexity) == ["feed-forward", "transformer", "bigram", "trigram", "mixture"]
    mixture = ran.json["results"][-1]
    assert mixture["kind"] == mixture["name"] == "mixture"
    network, counted = mixture["settings"]["models"]
    assert network in ("feed-forward", "transformer") and counted in ("bigram", "trigram")
    assert perplexity["mixture"] < 1.02 * min(perplexity[network], perplexity[counted])
    assert run("inspect", tmp_path / "a" / "mixture").code == 0
    assert perplexity["transformer"] < ran.json["vocab_size"]
    assert run("generate", tmp_path / "a" / "transformer", "--max-tokens", "5").code == 0


def test_a_comparison_that_was_stopped_shows_what_it_has_and_goes_on(
    run: Run, fails: Fails, corpus: Path, toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("compare", corpus, *NGRAMS, "--out", tmp_path / "out")
    train, trained = MeasuredTraining.train, list[str]()

    def third_stops(training: MeasuredTraining, kind: kinds.Kind, entry: LadderEntry) -> object:
        if len(trained) == 2:
            raise KeyboardInterrupt
        trained.append(entry.name)
        return train(training, kind, entry)

    with monkeypatch.context() as patched:
        patched.setattr(MeasuredTraining, "train", third_stops)
        ran = run(*words)
    assert ran.code == 130
    shown = [line for line in ran.out.splitlines() if line.startswith(tuple(NAMES))]
    assert all(any(line.startswith(name) for line in shown) for name in NAMES[:2])
    assert not any(NAMES[2] in line for line in shown) and "the same command goes on" in ran.out
    assert "holds another comparison" in fails("compare", toy, *NGRAMS, "--out", tmp_path / "out")
    again = run(*words, "--json")
    assert f"2 of {MODELS} models are there from before" in again.err
    whole = run("compare", corpus, *NGRAMS, "--out", tmp_path / "whole", "--json").json
    assert [result["name"] for result in again.json["results"]] == NAMES
    for found, expected in zip(again.json["results"], whole["results"], strict=True):
        assert found["test"]["nats"] == expected["test"]["nats"]
        assert found["interval"] == expected["interval"]


def test_models_that_stand_already_are_measured_with_their_own_tokens(
    run: Run, model: Path, mle_model: Path, corpus: Path, tmp_path: Path
) -> None:
    words = ("compare", corpus, "--out", tmp_path / "out", *NGRAMS, "--ladder", "quick", "--tokenizer", "char")
    ran = run(*words, "--include", model, "--include", mle_model, "--json")
    assert ran.code == 0, ran.err
    included = {one["name"]: one for one in ran.json["results"] if "included" in one["settings"]}
    assert list(included) == ["model", "mle-model"]
    run("evaluate", model, tmp_path / "out" / "test.txt")
    expected = run("evaluate", model, tmp_path / "out" / "test.txt", "--json").json
    assert included["model"]["test"]["bits_per_byte"] == pytest.approx(expected["bits_per_byte"])
    assert run("generate", tmp_path / "out" / "model", "--prompt", "i").code == 0
    found = read_comparison(tmp_path / "out")
    assert found is not None and found.best is not None and found.best.test.lossless  # words give a lower bound
    assert not {"model", "mle-model"} & {one.name for one in found.comparable}
    again = run(*words, "--include", model, "--json")
    assert [one["name"] for one in again.json["results"]] == [*(e.name for e in KIND.ladder if e.quick), "model"]


def test_models_that_exist_are_reused(run: Run, corpus: Path, tmp_path: Path) -> None:
    words = ("compare", corpus, "--out", tmp_path / "out", "--json", *NGRAMS)
    quick = run(*words, "--ladder", "quick")
    assert [one["name"] for one in quick.json["results"]] == [one.name for one in KIND.ladder if one.quick]
    times = {one["name"]: one["training_seconds"] for one in quick.json["results"]}
    full = run(*words)
    assert f"{len(times)} of {MODELS} models are there from before; going on with the others" in full.err
    assert [one["name"] for one in full.json["results"]] == NAMES
    assert times.items() <= {one["name"]: one["training_seconds"] for one in full.json["results"]}.items()
    again = run(*words)
    assert f"{MODELS} of {MODELS} models are there from before\n" in again.err
    assert again.json["results"] == full.json["results"]


def test_a_model_that_fails_does_not_stop_the_others(
    run: Run, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = MeasuredTraining.train

    def some_fail(training: MeasuredTraining, kind: kinds.Kind, entry: LadderEntry) -> object:
        if entry.name in NAMES[1:3]:
            raise RuntimeError(f"no luck with {entry.name}")
        return train(training, kind, entry)

    words = ("compare", corpus, *NGRAMS, "--ladder", "full", "--out", tmp_path / "out")
    with monkeypatch.context() as patched:
        patched.setattr(MeasuredTraining, "train", some_fail)
        ran = run(*words)
        assert ran.code == 0
        assert f"{NAMES[1]} failed, and the others go on: no luck with {NAMES[1]}" in ran.err
        assert f"{NAMES[2]} failed: no luck with {NAMES[2]}" in ran.out
        found = read_comparison(tmp_path / "out")
        assert found is not None and found.is_finished
        assert [one.name for one in found.results] == [NAMES[0], *NAMES[3:]]
        patched.setattr(MeasuredTraining, "train", lambda *_: (_ for _ in ()).throw(RuntimeError("nothing works")))
        none = run("compare", corpus, *NGRAMS, "--out", tmp_path / "none")
        assert (none.code, none.out) == (2, "")
        assert "error: no model could be trained; the first error: nothing works" in none.err
    again = run(*words, "--json")  # what failed is tried again
    assert [one["name"] for one in again.json["results"]] == NAMES and again.json["failures"] == []


LADDER = """
[[model]]
kind = "ngram"
name = "pairs"
settings = { order = 2 }

[[model]]
kind = "elman"
settings = { hidden = 8 }
share = 3
"""


def test_a_ladder_is_read_from_a_file(run: Run, fails: Fails, corpus: Path, tmp_path: Path) -> None:
    path, out = tmp_path / "ladder.toml", tmp_path / "out"
    path.write_text(LADDER, encoding="utf-8")
    ran = run("compare", corpus, "--ladder", path, "--minutes", "0.05", "--out", out, "--json")
    assert ran.code == 0, ran.err
    assert [one["name"] for one in ran.json["results"]] == ["pairs", "elman hidden=8", "mixture"]
    network = ran.json["results"][1]
    assert ran.json["results"][2]["settings"]["models"] == ["elman hidden=8", "pairs"]
    assert network["settings"]["hidden"] == 8 and network["settings"]["minutes"] <= 0.05
    for content, message in (
        ("", "a ladder is a list of [[model]] tables"),
        ("[[model]]\nname = 'x'\n", "model 1: it has no kind"),
        ("[[model]]\nkind = 'ngram'\nsize = 3\n", "'size' is not one of"),
        ("[[model]]\nkind = 'ngram'\nsettings = { order = 'x' }\n", "model 1: "),
        ("[[model]]\nkind = 'ngram'\nshare = 0\n", "should be a number above 0"),
        ("[[model]]\nkind = 'tagger'\n", "the kind tagger is for another task"),
        ("[[", "cannot be read"),
    ):
        path.write_text(content, encoding="utf-8")
        assert message in fails("compare", corpus, "--ladder", path, "--out", tmp_path / "x"), content
    names = "quick, standard, full, lecture-networks, lecture-ngrams, or a file"
    assert names in fails("compare", corpus, "--ladder", "ful", "--out", tmp_path / "x")


def test_networks_share_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    for clock in ("perf_counter", "process_time"):
        monkeypatch.setattr(budgets.time, clock, lambda: now[0])
    counted, small, large = (
        LadderEntry("a", {}),
        LadderEntry("b", {"minutes": 1}),
        LadderEntry("c", {"minutes": 1}, share=3.0),
    )
    budget = budgets.TimeBudget(2.0, spent=20.0, each=2.0, began=0.0, computed=0.0)
    assert budget.within(counted, [small, large]) is counted
    now[0] = 20.0  # 80 s are left
    first = budget.within(small, [large])
    assert first.settings["minutes"] * 60 == pytest.approx((80 - 6 * 2) / 4, abs=0.01)
    now[0] = 50.0
    budget.took(first, 29.0)  # measuring took 12 s where 2 were expected: now 7 are
    assert budget.within(large, []).settings["minutes"] * 60 == pytest.approx(50 - 5 * 7, abs=0.01)
    now[0] = 105.0  # 5 s late
    assert budget.within(large, []).settings["minutes"] * 60 == pytest.approx(1.0, abs=0.01)
    now[0] = 500.0
    with pytest.raises(ModelError, match="the 2 minutes were over before its turn"):
        budget.within(large, [])
    assert budgets.TimeBudget(None).within(large, []) is large


def test_intervals_are_those_of_the_documents(run: Run, tmp_path: Path) -> None:
    random, words = np.random.default_rng(0), ["a", "b", "c", "dd", "ee"]
    lines = [" ".join(random.choice(words, 1 + number % 7)) for number in range(400)]
    text = tmp_path / "text.txt"
    text.write_text("\n".join(lines) + "\n", encoding="utf-8")
    ran = run("compare", text, "--out", tmp_path / "out", "--tokenizer", "word", "--ladder", "quick", *NGRAMS)
    assert "\nTake " in ran.out
    found = read_comparison(tmp_path / "out")
    assert found is not None and found.best is not None and found.best.interval is not None
    for one in found.results:
        if one.interval is not None:
            assert one.interval[0] < one.test.bits_per_byte < one.interval[1]
            if one is not found.best:
                assert one.behind is not None and one.behind[1] <= one.behind[0] <= one.behind[2]
    taken = pick(found)
    assert found.advice is not None and taken is not None and found.advice.startswith(f"Take {taken.name}")


def test_the_best_model_and_the_frontiers_are_marked(run: Run, comparison: dict, ladder: Path) -> None:
    found = read_comparison(ladder)
    assert found is not None and found.is_finished and found.best is not None
    by_bits = sorted((one for one in found.results if one.test.normalised), key=lambda one: one.test.bits_per_byte)
    assert found.best == by_bits[0]
    for cost in found.costs:
        cheapest, last, frontier = float("inf"), None, set()
        sign = -1 if cost.more_is_better else 1
        points = [
            (one.test.bits_per_byte, sign * price, one.name)
            for one in by_bits
            if math.isfinite(one.test.bits_per_byte) and (price := cost.of(one)) is not None
        ]
        for bits, price, name in sorted(points):  # from the best on, each that costs less than all better ones
            if price < cheapest or (bits, price) == last:
                cheapest, last = price, (bits, price)
                frontier.add(name)
        assert found.frontier(cost.key) == frontier


def test_a_comparison_stopped_after_a_model_was_saved_can_be_overwritten(
    run: Run, toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    with monkeypatch.context() as patched:
        patched.setattr(measured_training, "megabytes", stop)
        assert run("compare", toy, "--kind", "anygram", "--tokenizer", "char", "--out", out).code == 130
    assert (out / "any-gram-infinite" / "manifest.json").exists()
    ran = run("compare", toy, "--kind", "anygram", "--tokenizer", "char", "--out", out, "--overwrite")
    assert ran.code == 0, ran.err


def stop(*_: object) -> None:
    raise KeyboardInterrupt


def test_two_models_of_one_name_get_distinct_names(
    run: Run, toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = find_kind("anygram")
    twice = replace(
        kind, ladder=(LadderEntry("one / two", {}), LadderEntry("one, two", {}), LadderEntry("one, two", {}))
    )
    monkeypatch.setattr(ladders, "find_kind", lambda name: twice)
    ran = run("compare", toy, "--kind", "anygram", "--tokenizer", "char", "--out", tmp_path / "out", "--json")
    names = [one["name"] for one in ran.json["results"]]
    assert names == ["one / two (anygram)", "one, two (anygram 2)", "one, two (anygram 3)"]
    assert len({one["folder"] for one in ran.json["results"]}) == 3


def test_a_model_that_cannot_be_computed_here_is_refused_before_any_training(
    fails: Fails, toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = find_kind("lstm")
    small = replace(kind, ladder=(LadderEntry("lstm", {"precision": "float8"}),))
    monkeypatch.setattr(ladders, "find_kind", lambda name: small)
    assert "float8 needs a GPU" in fails("compare", toy, "--kind", "lstm", "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()
