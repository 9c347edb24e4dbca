"""Encoder-decoder networks: what they see of a source, and how they are trained."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import chainrule as cr
from chainrule.arrays import PAD, pad, to_numpy
from chainrule.errors import SettingsError
from chainrule.networks.seq2seq.config import Seq2SeqSettings
from chainrule.networks.seq2seq.encoder_decoder import EncoderDecoder
from chainrule.seq2seq.encoder_decoder_model import EncoderDecoderModel, make_network
from chainrule.settings import closed, parse
from chainrule.testing.laws import LAWS, laws_for

TOKENIZER = cr.train_tokenizer("word", "a b c d e")  # eight tokens: no padding rows in the tables
SIZE = TOKENIZER.vocab_size

VARIANTS: dict[str, dict[str, Any]] = {
    "elman, no attention": {"cell": "elman", "attention": "none"},
    "lstm, no attention, one direction": {"cell": "lstm", "attention": "none", "bidirectional": False},
    "gru, additive": {"cell": "gru", "attention": "additive", "layers": 2},
    "lstm, dot, feeding": {"cell": "lstm", "attention": "dot", "feeding": True},
    "lstm, general": {"cell": "lstm", "attention": "general", "layers": 2},
    "lstm, scaled": {"cell": "lstm", "attention": "scaled", "shared": False},
    "transformer": {"heads": 2, "layers": 2},
    "transformer, lecture": {"heads": 2, "preset": "lecture", "shared": False},
    "transformer, alibi": {"heads": 2, "positions": "alibi", "layers": 2},
}


def network(seed: int = 0, **values: Any) -> EncoderDecoder:
    torch.manual_seed(seed)
    config = closed(Seq2SeqSettings(**{"width": 8, "layers": 1, "window": 12, "dropout": 0.0, **values}))
    made = make_network(config, SIZE, TOKENIZER.bos, SIZE, shares=config.shared)
    with torch.no_grad():
        for parameter in made.parameters():  # some begin as zeros, and would hide what they multiply
            parameter.add_(0.3 * torch.randn_like(parameter))
    return made.eval()


def model(**values: Any) -> EncoderDecoderModel:
    made = network(**values)
    return EncoderDecoderModel(made, TOKENIZER, TOKENIZER, kind="seq2seq", settings=None)


IN_CONTRACT = set(VARIANTS) - {"lstm, scaled", "transformer, alibi"}
"""Variants whose cell and attention keep the laws in test_contract.py."""


@pytest.mark.parametrize(
    "variant",
    [pytest.param(name, marks=[pytest.mark.slow] if name in IN_CONTRACT else []) for name in VARIANTS],
)
def test_variants_keep_the_laws(variant: str) -> None:
    lm = model(**VARIANTS[variant])
    for name in laws_for(lm):
        if "sav" not in name:  # a model of settings that are none is not saved
            LAWS[name](lm)


@pytest.mark.parametrize("variant", VARIANTS)
def test_rows_see_their_own_source_alone(variant: str) -> None:
    lm = model(**VARIANTS[variant])
    sources = [lm.encode_source(text) for text in ("a b c", "d", "e d c b a")]
    targets = pad([[3, 4, 5], [6, 7, 3], [4]])
    together = to_numpy(lm.score(targets, lm.begin(sources)))
    for row, source in enumerate(sources):
        alone = to_numpy(lm.score(targets[row : row + 1], lm.begin([source])))
        np.testing.assert_allclose(together[row], alone[0], atol=1e-5)
    other = to_numpy(lm.score(targets, lm.begin([sources[1], *sources[1:]])))
    assert abs(together[0] - other[0]).max() > 1e-3
    np.testing.assert_allclose(together[1:], other[1:], atol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("rows", [[0, 0, 0, 1, 1, 1], [0, 0, 2, 2], [1, 1, 1], [2, 0, 1], [0, 0, 1], [2, 1, 2]])
def test_rows_that_share_a_source_are_as_rows_that_do_not(variant: str, rows: list[int]) -> None:
    lm = model(**VARIANTS[variant])
    sources = [lm.encode_source(text) for text in ("a b c", "d", "e d c b a")]
    targets = pad([[3 + i % 4, 4, 5 + i % 2] for i in range(len(rows))])
    selected = lm.begin(sources).select(np.asarray(rows))
    expected = to_numpy(lm.score(targets, lm.begin([sources[row] for row in rows])))
    np.testing.assert_allclose(to_numpy(lm.score(targets, selected)), expected, atol=1e-5)
    joined = selected.join(lm.begin([sources[0]]))
    found = to_numpy(lm.score(np.concatenate([targets, targets[:1]]), joined))
    np.testing.assert_allclose(found[: len(rows)], expected, atol=1e-5)


def test_without_attention_a_decoder_gets_the_last_state_alone() -> None:
    made = network(cell="lstm", attention="none", bidirectional=False)
    source = torch.tensor([[3, 4, 5, 2]])
    memory = made.begin_from(source, source != PAD)
    assert memory.sources.arrays == ()
    (h_BD, c_BD), *_ = memory.target.states
    assert h_BD.shape == c_BD.shape == (1, 8)


@pytest.mark.parametrize("variant", ["lstm, general", "transformer"])
def test_label_smoothing_spreads_a_share_of_the_target(variant: str) -> None:
    made = network(**VARIANTS[variant], label_smoothing=0.2).train()
    sources, inputs = torch.tensor([[3, 4, 2], [5, 2, PAD]]), torch.tensor([[1, 3, 4], [1, 5, PAD]])
    targets = torch.tensor([[3, 4, 2], [5, 2, PAD]])
    found = made.loss((sources, inputs), targets)
    assert found.penalty is not None
    features = made.read_whole(inputs.clamp(min=0), made.encode(sources.clamp(min=0), sources != PAD))
    logits = made.head(features).flatten(0, 1)
    expected = F.cross_entropy(logits, targets.flatten(), ignore_index=PAD, label_smoothing=0.2)
    torch.testing.assert_close(found.nats / 5 + found.penalty, expected)
    plain = F.cross_entropy(logits, targets.flatten(), ignore_index=PAD)
    torch.testing.assert_close(found.nats / 5, plain)


def test_a_long_target_slides_its_window_and_keeps_its_source() -> None:
    lm = model(heads=2, layers=2, window=6)
    state = lm.begin([lm.encode_source("a b"), lm.encode_source("e d c")])
    ids = np.random.default_rng(0).integers(3, SIZE, (2, 20))
    step_by_step = state
    for t in range(ids.shape[1]):
        step_by_step = lm.extend(step_by_step, ids[:, t : t + 1])
    at_once = lm.extend(state, ids)
    np.testing.assert_allclose(
        to_numpy(lm.next_log_probs(at_once)), to_numpy(lm.next_log_probs(step_by_step)), atol=1e-5
    )


def test_no_attention_can_be_asked_for() -> None:
    assert parse(Seq2SeqSettings, {"cell": "lstm", "attention": "none"}).attention == "none"
    assert parse(Seq2SeqSettings, {"cell": "lstm"}).attention == "general"
    assert parse(Seq2SeqSettings, {}).attention == "scaled"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"attention": "dot"}, "goes with recurrent cells"),
        ({"feeding": True}, "goes with recurrent cells"),
        ({"cell": "lstm", "attention": "none", "feeding": True}, "set an attention"),
        ({"cell": "gru", "width": 7}, "should be even"),
        ({"width": 10, "heads": 4}, "multiple of heads"),
        ({"label_smoothing": 1.5}, "label_smoothing should be"),
    ],
)
def test_impossible_designs_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        Seq2SeqSettings(**values)
