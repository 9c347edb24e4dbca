"""The rule for settings that are left open."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chainrule as cr
from chainrule.contract.data import TrainingData
from chainrule.contract.kinds import find_kind
from chainrule.networks.config import count_parameters
from chainrule.networks.defaults import (
    MINUTES,
    MOST_EPOCHS,
    RunEstimate,
    batch_size,
    complete,
    dropout_share,
    with_time,
)
from chainrule.networks.settings import NeuralSettings
from chainrule.networks.transformer.settings import heads_for
from chainrule.settings import closed, open_names, parse
from chainrule.tokens.base import Tokenizer
from chainrule.tokens.ids import Encoded
from chainrule.training import kinds
from chainrule.training.kinds import NetworkKind
from listening import Listening

KINDS = ("feedforward", "bagofwords", "elman", "lstm", "gru", "qrnn", "transformer")
LINE = "the cat sat on the mat and the dog sat on the log\n"


def tokenizer(size: int = 67) -> Tokenizer:
    return cr.train(
        "ngram", cr.Corpus.from_text("".join(chr(200 + i) for i in range(size - 3)) + "\n"), tokenizer="char"
    ).tokenizer


def texts(tokens: int, size: int = 67) -> TrainingData:
    ids = np.zeros(tokens, np.uint16)
    return TrainingData(tokenizer(size), Encoded(ids, 0, tokens, 0, "x"), None)


def chosen(kind: str, rate: float, tokens: int = 10**6, **values: Any) -> Any:
    """The settings for a machine that makes so many operations per second, whatever the size of a network."""
    settings = parse(find_kind(kind).settings, values)
    data = texts(tokens)

    def timed(settings: Any) -> float:
        return rate / settings.cost(data.tokenizer.vocab_size).flops

    return complete(settings, data, timed, 60 * settings.minutes)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_stays_open(kind: str) -> None:
    settings = chosen(kind, 3e10, minutes=1)
    assert open_names(settings) == []
    assert parse(find_kind(kind).settings, vars(settings)) == settings


@pytest.mark.parametrize("kind", KINDS)
def test_more_time_or_a_faster_machine_takes_a_larger_network(kind: str) -> None:
    costs = [
        chosen(kind, rate, minutes=minutes).cost(67).hidden
        for rate, minutes in ((3e9, 0.1), (3e10, 1), (3e10, 5), (3e12, 5))
    ]
    assert costs == sorted(costs) and costs[0] < costs[-1]
    assert chosen(kind, 3e11, minutes=1).cost(67).hidden == chosen(kind, 3e10, minutes=10).cost(67).hidden


@pytest.mark.parametrize("kind", KINDS)
def test_a_short_text_takes_a_small_network(kind: str) -> None:
    cost = chosen(kind, 1e15, tokens=2000, minutes=60).cost(67).hidden
    smallest = min(
        replace(closed(parse(find_kind(kind).settings, {})), **sizes).cost(67).hidden for sizes in sizes_of(kind)
    )
    assert cost <= max(smallest, 10 * 2000)


def test_elman_networks_that_read_a_text_often_are_regularised_their_own_way() -> None:
    often = {kind: chosen(kind, 1e12, tokens=10**5, minutes=5) for kind in ("elman", "lstm")}
    assert (often["elman"].layers, often["elman"].weight_dropout, often["elman"].schedule) == (1, 0.0, "linear")
    assert often["elman"].input_dropout == often["elman"].output_dropout == 0.5
    assert often["lstm"].weight_dropout > 0 and often["lstm"].schedule == "cosine"


def test_a_qrnn_has_the_regularisation_of_an_lstm_but_keeps_its_weights() -> None:
    often = {kind: chosen(kind, 1e12, tokens=10**5, minutes=5) for kind in ("qrnn", "lstm")}
    assert often["qrnn"].weight_dropout == 0
    for name in ("input_dropout", "hidden_dropout", "output_dropout", "alpha", "beta", "clip"):
        assert getattr(often["qrnn"], name) == getattr(often["lstm"], name) > 0


@pytest.mark.parametrize(
    ("kind", "most"), [("feedforward", 1.5), ("bagofwords", 1.5), ("elman", 1.5), ("lstm", 10)]
)
def test_a_network_that_has_dropout_only_is_small_for_a_small_text(kind: str, most: float) -> None:
    """However much time there is; LSTMs, whose weights are regularised too, are larger."""
    hidden = chosen(kind, 1e14, tokens=4 * 10**5, minutes=5).cost(67).hidden
    assert hidden <= most * 4 * 10**5
    assert (hidden > 1.5 * 4 * 10**5) == (kind == "lstm")


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_a_wide_layer_comes_before_a_second_layer(kind: str) -> None:
    short, longer = (chosen(kind, 1e13, tokens=10**7, minutes=minutes) for minutes in (1, 8))
    assert (short.layers, short.hidden) == (1, 896)
    assert longer.layers > 1


@pytest.mark.parametrize(("kind", "width"), [("transformer", "width"), ("elman", "hidden"), ("lstm", "hidden")])
def test_few_steps_are_larger_ones(kind: str, width: str) -> None:
    """Of 1,500 steps and fewer twice as large, above 3,000 as large as in any run; not those of LSTMs."""

    def rate(steps: int, **others: Any) -> float:
        given = {width: 64, "batch": 512, "steps": steps, **others}
        settings: Any = complete(parse(find_kind(kind).settings, given), texts(10**6), lambda _: 1.0, None)
        return float(settings.learning_rate)

    times = (1, 1, 1, 1) if kind == "lstm" else (2, 2, 1.5, 1)
    expected = [rate(9000) * factor for factor in times]
    assert [rate(steps) for steps in (400, 1500, 2000, 3000)] == pytest.approx(expected, rel=0.02)
    assert rate(400, optimiser="sgd") == rate(9000, optimiser="sgd") == 1.0


def test_a_wide_gru_takes_smaller_steps() -> None:
    rates = {width: chosen("gru", 1e13, minutes=1, hidden=width).learning_rate for width in (64, 1152)}
    assert rates == {64: 0.02, 1152: 0.0016}
    assert chosen("gru", 1e13, minutes=1, hidden=1152, optimiser="sgd").learning_rate == 1.0


def sizes_of(kind: str) -> list[dict[str, Any]]:
    found = find_kind(kind).settings()
    assert isinstance(found, NeuralSettings)
    return found.sizes()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tied", [True, False])
def test_costs_are_those_of_the_network(kind: str, tied: bool) -> None:
    """Every parameter but biases, norms and the table of embeddings, which is only looked up."""
    settings = closed(
        parse(
            find_kind(kind).settings, {"tied": tied, "preset": "fast"} if kind == "transformer" else {"tied": tied}
        )
    )
    train = find_kind(kind).train.__self__  # type: ignore[attr-defined]
    assert isinstance(train, NetworkKind)
    lm = train.build(settings, texts(10)).model
    matrices = {name: array.shape for name, array in lm.tensors().items() if array.ndim == 2}
    if not tied:
        matrices = {name: shape for name, shape in matrices.items() if not name.startswith("embedding")}
    assert settings.cost(67).hidden + settings.cost(67).head == count_parameters(matrices, 67)


def with_overhead(settings: Any) -> float:
    """A machine on which any step takes 10 ms longer than a million tokens a second would."""
    seconds: float = 0.01 + settings.batch / 1e6
    return settings.batch / seconds


def test_a_batch_is_larger_where_steps_take_long_whatever_their_size() -> None:
    def batch(tokens: int, **values: Any) -> int:
        settings, data = parse(find_kind("transformer").settings, {"minutes": 5, **values}), texts(tokens)
        return int(complete(settings, data, with_overhead, 300.0).batch)

    assert batch(10**8) >= 16_384  # half of the time of a step and more is spent on tokens
    assert batch(10**6) < 16_384  # read many times
    assert batch(10**8, batch=512) == 512


def test_a_run_too_short_for_a_few_steps_takes_smaller_ones() -> None:
    def batch(seconds: float, **values: Any) -> int:
        settings = parse(find_kind("lstm").settings, {"minutes": seconds / 60, **values})
        return int(complete(settings, texts(10**6), lambda tried: 5000.0, seconds).batch)

    # 0.9 * 5,000 tokens a second are learned from: 2 s have 9,000, so 40 steps of 225
    assert (batch(0.3), batch(1), batch(2), batch(10)) == (64, 64, 128, 256)
    assert batch(1, batch=256) == 256


def test_what_is_set_stays() -> None:
    settings = chosen("lstm", 3e10, minutes=5, hidden=77, batch=99, input_dropout=0.3, learning_rate=0.5)
    assert (settings.hidden, settings.batch, settings.input_dropout, settings.learning_rate) == (77, 99, 0.3, 0.5)
    settings = chosen("transformer", 3e10, minutes=5, width=96, optimiser="adamw", kv_heads=2)
    assert (settings.width, settings.optimiser, settings.kv_heads, settings.heads % 2) == (96, "adamw", 2, 0)


def test_the_text_is_not_read_for_ever() -> None:
    settings = chosen("lstm", 1e15, tokens=10_000, minutes=60)
    assert (settings.minutes, settings.epochs) == (60, MOST_EPOCHS)
    assert chosen("lstm", 1e15, tokens=10_000, minutes=60, epochs=3).epochs == 3


@pytest.mark.parametrize("kind", KINDS)
def test_steps_and_epochs_take_the_same_network_on_every_machine(kind: str) -> None:
    for length in ({"epochs": 2}, {"steps": 300}):
        settings = parse(find_kind(kind).settings, length)
        done = complete(settings, texts(10**6), pytest.fail, None)  # nothing is timed
        assert open_names(done) == [] and done.minutes is None


def test_a_run_without_a_length_has_a_time() -> None:
    settings = parse(find_kind("lstm").settings, {})
    assert with_time(settings).minutes == MINUTES
    assert with_time(replace(settings, steps=3)).minutes is None


def test_formulas() -> None:
    assert batch_size(RunEstimate(10**6, 4.1e6)) == 1024
    assert batch_size(RunEstimate(10**9, 7e7)) == 8192
    assert batch_size(RunEstimate(100, 1e6)) == 64
    assert (
        dropout_share(RunEstimate(100, 300))
        == 0
        < dropout_share(RunEstimate(100, 1000))
        < dropout_share(RunEstimate(100, 5000))
    )
    assert [heads_for(width, None) for width in (32, 48, 64, 96, 128, 256, 384, 512)] == [1, 2, 2, 3, 4, 4, 6, 8]
    assert heads_for(96, 4) == 4


@pytest.mark.parametrize("engine", ["torch", "tape"])
def test_a_run_by_the_clock_is_resumed_as_it_was_chosen(engine: str, tmp_path: Path) -> None:
    text, progress = cr.Corpus.from_text(LINE * 400), Listening()
    kept = {"run": tmp_path / "run", "engine": engine}
    lm = cr.train("elman", text, valid=text, minutes=0.01, progress=progress, **kept, tokenizer="word")
    assert any(note.startswith("elman: chosen embedding=") for note in progress.notes)
    assert lm.metrics["steps"] >= 1 and np.isfinite(lm.metrics["validation_nats"])
    more = lm.metrics["steps"] + 3
    again = cr.train("elman", text, valid=text, steps=more, resume=True, **kept, tokenizer="word")
    assert again.metrics["steps"] == more
    names = ("embedding", "hidden", "layers", "batch", "learning_rate")
    assert [getattr(again.settings, name) for name in names] == [getattr(lm.settings, name) for name in names]


# -- the engine -------------------------------------------------------------------------------------------


def engine_chosen(monkeypatch: pytest.MonkeyPatch, kind: str, tape_is: float, **settings: Any) -> str:
    """Train a network by the clock where the tape is so many times as fast as torch; return the engine it took."""
    rates = {"torch": 1000.0, "tape": 1000.0 * tape_is}
    monkeypatch.setattr(kinds, "tokens_per_second", lambda build, data, texts, tried: rates[tried.engine])
    lm = cr.train(kind, ["a b c d e f"] * 40, tokenizer="word", **{"minutes": 0.01, **settings})
    return str(lm.settings.engine)


def test_the_faster_engine_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    assert engine_chosen(monkeypatch, "lstm", 1.5) == "tape"
    assert engine_chosen(monkeypatch, "lstm", 0.7) == "torch"
    assert engine_chosen(monkeypatch, "transformer", 1.5) == "tape"


def test_an_engine_is_kept_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert engine_chosen(monkeypatch, "lstm", 1.5, engine="torch") == "torch"
    assert engine_chosen(monkeypatch, "lstm", 1.5, average="ema") == "torch"  # which the tape does not have
    assert engine_chosen(monkeypatch, "lstm", 1.5, minutes=None, steps=2) == "torch"  # the same on every machine


def test_both_engines_are_really_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Transformer by the clock: averaged weights of torch are not asked of the tape."""
    timed, real = [], kinds.tokens_per_second

    def measured(build: Any, data: Any, texts: Any, tried: Any) -> float:
        timed.append((tried.engine, tried.optimiser))
        return real(build, data, texts, tried)

    monkeypatch.setattr(kinds, "tokens_per_second", measured)
    lm = cr.train("transformer", ["a b c d e f"] * 40, tokenizer="word", minutes=0.02)
    assert {*timed} == {("torch", "muon"), ("tape", "muon")}
    assert lm.metrics["steps"] > 0
