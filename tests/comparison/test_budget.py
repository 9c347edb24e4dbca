"""Tests of budgets that are the same for every network, and of networks that are trained from several seeds."""

import json
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import chainrule as cr
from chainrule.comparison import budget as budgets
from chainrule.comparison import compare as comparing
from chainrule.comparison import ladder as ladders
from chainrule.comparison.budget import EqualBudget, TimeBudget
from chainrule.comparison.results import Comparison, read_comparison
from chainrule.comparison.surprisals import read_surprisals
from chainrule.comparison.tables import comparison_parts
from chainrule.contract.kinds import LadderEntry, find_kind
from chainrule.errors import ChainruleError, ModelError, SettingsError
from chainrule.system.display import ResultTable

TEXTS = [f"{who} {what} {when}" for who in ("cats", "dogs") for what in ("run", "eat") for when in range(40)]


@pytest.fixture
def ladder(tmp_path: Path) -> Path:
    path = tmp_path / "ladder.json"
    models = [
        {"kind": "ngram", "name": "bigram", "settings": {"order": 2}},
        {"kind": "elman", "name": "elman", "settings": {"engine": "tape", "batch": 64}},
        {"kind": "lstm", "name": "lstm", "settings": {"engine": "tape", "batch": 64}},
    ]
    path.write_text(json.dumps({"model": models}), encoding="utf-8")
    return path


def compared(ladder: Path, out: Path, **options: object) -> Comparison:
    chosen = cr.TokenizerChoice("char")
    return cr.compare(TEXTS, out, ladder=ladder, tokenizer=chosen, split="line", **options)  # type: ignore[arg-type]


def test_budgets_are_parsed() -> None:
    assert EqualBudget.parse("steps=1000") == EqualBudget("steps", 1000)
    assert (
        EqualBudget.parse("parameters=1.5M")
        == EqualBudget.parse("parameters=1.5m")
        == EqualBudget("parameters", 1.5e6)
    )
    for wrong in ("steps", "steps=", "hours=3", "tokens=-1", "flops=1e999", "tokens=0.5", "tokens=2mm"):
        with pytest.raises(SettingsError, match="a budget"):
            EqualBudget.parse(wrong)


def test_each_network_gets_the_same_steps(ladder: Path, tmp_path: Path) -> None:
    found = compared(ladder, tmp_path / "out", budget="steps=25")
    assert [one.steps for one in found.results] == [None, 25, 25, None]
    assert found.results[0].epochs == 1 and found.results[0].training_flops == 2 * found.parts["train"]["tokens"]
    table = next(
        one for one in comparison_parts(found) if isinstance(one, ResultTable) and one.headings[0] == "training"
    )
    assert [row[:2] for row in table.rows] == [["bigram", ""], ["elman", "25"], ["lstm", "25"]]
    with pytest.raises(ChainruleError, match="of other texts or settings"):
        compared(ladder, tmp_path / "out", budget="steps=30")


def test_each_network_reads_as_many_tokens(ladder: Path, tmp_path: Path) -> None:
    found = compared(ladder, tmp_path / "out", budget="tokens=5k")
    assert [one.tokens_seen for one in found.results[1:3]] == [pytest.approx(5000, rel=0.05)] * 2


def test_each_network_computes_as_much(ladder: Path, tmp_path: Path) -> None:
    found = compared(ladder, tmp_path / "out", budget="flops=5e8")
    assert [one.training_flops for one in found.results[1:3]] == [pytest.approx(5e8, rel=0.05)] * 2


def test_networks_have_as_many_parameters(ladder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chainrule.comparison.measured_training.LEAST_STEPS", 1)
    found = compared(ladder, tmp_path / "out", budget="parameters=30k", minutes=0.05)
    assert [one.parameters for one in found.results[1:3]] == [pytest.approx(30_000, rel=0.15)] * 2


def test_a_budget_of_training_leaves_no_choice_of_time(ladder: Path, tmp_path: Path) -> None:
    with pytest.raises(ChainruleError, match="leave out the minutes"):
        compared(ladder, tmp_path / "out", budget="steps=5", minutes=1.0)
    with pytest.raises(ChainruleError, match="leave out the curve or the budget"):
        compared(ladder, tmp_path / "out", budget="steps=5", curve=True)


def test_networks_are_trained_from_several_seeds(
    ladder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    each: list[float] = []
    made = TimeBudget.__init__
    monkeypatch.setattr(TimeBudget, "__init__", lambda *args: (each.append(args[3]), made(*args))[1])
    found = compared(ladder, tmp_path / "out", budget="steps=25", seeds=3)
    bigram, elman, *_ = found.results
    assert not bigram.seeds and len(set(elman.seeds)) == 3
    assert elman.loss == pytest.approx(sum(elman.seeds) / 3)
    size = found.parts["test"]["bytes"]
    for name, bits in zip(elman.surprisals, elman.seeds, strict=True):
        kept = read_surprisals(tmp_path / "out", name, size)
        assert kept is not None and kept.nats.sum() / size / 0.693147 == pytest.approx(bits, rel=1e-4)
    assert elman.interval is not None and elman.interval[0] < elman.loss < elman.interval[1]
    assert any("trained from 3 seeds" in str(one) for one in comparison_parts(found))
    assert any("kind of word are those of the first seed" in str(one) for one in comparison_parts(found))
    assert read_comparison(tmp_path / "out") == found
    once = compared(ladder, tmp_path / "once", budget="steps=25")
    assert each[0] == 3 * each[1] > 0  # every training is measured
    assert once.results[1].loss == elman.seeds[0]
    assert any("each network was trained once" in str(one) for one in comparison_parts(once))


def test_speeds_are_medians_after_the_first_use(
    ladder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from chainrule.comparison import measured_training

    seconds = iter([0.0, 8.0, 0.2, 0.4] * 9)  # a few tokens, then the whole text three times
    measured = measured_training.measure
    monkeypatch.setattr(
        measured_training, "measure", lambda *a, **options: replace(measured(*a, **options), seconds=next(seconds))
    )
    bigram = compared(ladder, tmp_path / "out", kinds=["ngram"]).results[0]
    assert bigram.test.seconds == 0.4
    assert bigram.test.tokens_per_second == pytest.approx(bigram.test.tokens / 0.4)


@pytest.mark.parametrize(("busy", "shares"), [(1.0, [17.7] * 3), (4.0, [10.3] * 3)])
def test_a_busy_machine_is_known_before_the_first_network(
    monkeypatch: pytest.MonkeyPatch, busy: float, shares: list[float]
) -> None:
    """The first of three equal networks gets as much as the others, whatever it takes to measure one."""
    now, computed = [0.0], [0.0]
    monkeypatch.setattr(budgets.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(budgets.time, "process_time", lambda: computed[0])
    budget, found = TimeBudget(1.25, each=1.0, began=0.0, computed=0.0), []
    now[0], computed[0] = 15.0 if busy == 1 else 16.0, 15.0 if busy == 1 else 4.0  # models that are counted
    networks = [LadderEntry(f"net {number}", {"minutes": 1}) for number in range(3)]
    for number, network in enumerate(networks):
        entry = budget.within(network, networks[number + 1 :])
        seconds = 60 * entry.settings["minutes"]
        found.append(seconds)
        now[0] += seconds + busy
        budget.took(entry, seconds + busy)
    # 75 s: (75 - 15 - 1 * 7) / 3, and (75 - 16 - 4 * 7) / 3; the mixture takes four times as long as measuring one
    assert found == pytest.approx(shares, abs=0.1)


def test_the_text_is_read_within_the_minutes(ladder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded, kept = comparing.encode_examples, []

    def slowly(*args: Any) -> Any:
        time.sleep(0.5)
        return encoded(*args)

    def keep(*args: Any) -> TimeBudget:
        kept.append(TimeBudget(*args))
        return kept[0]

    monkeypatch.setattr(comparing, "encode_examples", slowly)
    monkeypatch.setattr(comparing, "TimeBudget", keep)
    compared(ladder, tmp_path / "out", kinds=["ngram"], minutes=1)
    assert 0.5 <= kept[0].spent < 10


@pytest.mark.parametrize("slower", [1.0, 4.0, 30.0])
def test_the_minutes_hold_on_a_machine_that_slows_down(monkeypatch: pytest.MonkeyPatch, slower: float) -> None:
    """Training ends by the clock; what it takes to count and to measure models takes longer after a minute."""
    now = [0.0]
    monkeypatch.setattr(budgets.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(budgets.time, "process_time", lambda: now[0])  # all of it is computed

    def work(seconds: float) -> None:
        quick = min(seconds, max(0.0, 60 - now[0]))
        now[0] += quick + slower * (seconds - quick)

    budget, left_out = TimeBudget(4.0, each=1.0, began=0.0, computed=0.0), []
    networks = [LadderEntry(f"net {number}", {"minutes": 1}) for number in range(6)]
    work(20)  # n-gram models
    for number, network in enumerate(networks):
        try:
            entry = budget.within(network, networks[number + 1 :])
        except ModelError as error:
            left_out.append(str(error))
            continue
        began, seconds = now[0], 60 * entry.settings["minutes"]
        now[0] += seconds
        work(2.0)  # to measure it
        budget.took(entry, now[0] - began)
    work(8.0)  # the mixture
    once = slower * 10.0  # what is measured last, when no time is left to make up for it
    assert 240 * 0.9 < now[0] < 240 * 1.1 + (once + budgets.LATE_SECONDS if slower > 4 else 0)
    assert bool(left_out) == (slower > 4)
    assert all("the 4 minutes were over before its turn" in error for error in left_out)


def test_the_first_network_does_not_pay_for_what_torch_loads(
    ladder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    from chainrule.system import devices

    loaded: list[str] = []
    monkeypatch.setattr(devices, "import_module", loaded.append)
    began = budgets.time.perf_counter
    monkeypatch.setattr(budgets.time, "perf_counter", lambda: (loaded.append("the clock"), began())[1])
    compared(ladder, tmp_path / "counted", kinds=["ngram"])
    assert set(loaded) == {"the clock"}
    loaded.clear()
    network = {"kind": "elman", "settings": {"engine": "torch", "batch": 64, "steps": 1}}
    ladder.write_text(json.dumps({"model": [network]}), encoding="utf-8")
    compared(ladder, tmp_path / "network")
    assert loaded[:2] == ["torch._dynamo", "the clock"]


def test_a_model_may_have_tokens_of_its_own(tmp_path: Path) -> None:
    own = {"tokenizer": "bpe", "vocab_size": 270}
    models: list[dict[str, Any]] = [
        {"kind": "ngram", "name": "bigram", "settings": {"order": 2}},
        {"kind": "ngram", "name": "subwords", "settings": {"order": 2}, **own},
        {"kind": "elman", "name": "elman", "settings": {"engine": "tape", "batch": 64}, **own},
    ]
    ladder, out = tmp_path / "ladder.json", tmp_path / "out"
    ladder.write_text(json.dumps(models), encoding="utf-8")
    found = compared(ladder, out, budget="tokens=2k")
    tokens = found.results[1].tokens
    assert tokens is not None and tokens.startswith("(bpe, 27")
    assert [one.tokens for one in found.results] == [None, tokens, tokens, tokens]
    assert found.results[3].settings["models"] == ["elman", "subwords"]  # a mixture has one kind of tokens
    for one in found.results:
        again = cr.evaluate(cr.load(out / one.folder), out / "test.txt")
        assert one.test.bits_per_byte == pytest.approx(again.bits_per_byte, rel=1e-5)
    elman = found.results[2]
    assert elman.tokens_seen == pytest.approx(2000, rel=0.1)  # of its own tokens
    assert elman.epochs == pytest.approx(elman.tokens_seen / found.results[1].tokens_seen)
    shown = [str(part) for part in comparison_parts(found)]
    assert any("so that perplexity does not compare: subwords (bpe, 27" in part for part in shown)
    models[1]["vocab_size"] = 280
    ladder.write_text(json.dumps(models), encoding="utf-8")
    changed = compared(ladder, out, budget="tokens=2k").results
    assert changed[1].tokens != tokens and changed[2].training_seconds == elman.training_seconds
    with pytest.raises(ChainruleError, match="without learning curves"):
        compared(ladder, out, curve=True)
    ladder.write_text(json.dumps([models[0] | {"vocab_size": 300}]), encoding="utf-8")
    with pytest.raises(ChainruleError, match="a tokenizer of its own"):
        compared(ladder, out)


def test_a_training_that_only_waited_is_timed_again(
    ladder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine the first training, which compiles loops, may take long, and yet it computes little."""
    from chainrule.comparison import measured_training

    now = iter(range(0, 100_000, 100))  # each look at the clock is 100 seconds later; the CPU did nothing
    clock = SimpleNamespace(perf_counter=lambda: float(next(now)), process_time=lambda: 0.0)
    monkeypatch.setattr(measured_training, "time", clock)
    trained: list[object] = []
    ngram = find_kind("ngram")
    counted = replace(ngram, train=lambda settings, data: trained.append(data) or ngram.train(settings, data))
    monkeypatch.setattr(ladders, "find_kind", lambda name: counted if name == "ngram" else find_kind(name))
    compared(ladder, tmp_path / "out", kinds=["ngram"])
    assert len(trained) == 2
