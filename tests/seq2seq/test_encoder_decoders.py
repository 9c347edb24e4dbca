"""Encoder-decoder networks: what they see of a source, and how they are trained."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import chainrule as cr
from chainrule.arrays import PAD, to_numpy
from chainrule.errors import SettingsError
from chainrule.networks.seq2seq.config import Seq2SeqSettings
from chainrule.networks.seq2seq.encoder_decoder import EncoderDecoder
from chainrule.seq2seq.encoder_decoder_model import EncoderDecoderModel, make_network
from chainrule.settings import closed, parse

TOKENIZER = cr.train_tokenizer("word", "a b c d e")  # eight tokens: no padding rows in the tables
SIZE = TOKENIZER.vocab_size


def network(seed: int = 0, **values: Any) -> EncoderDecoder:
    torch.manual_seed(seed)
    config = closed(Seq2SeqSettings(**{"width": 8, "layers": 1, "window": 12, "dropout": 0.0, **values}))
    made = make_network(config, SIZE, TOKENIZER.bos, SIZE, shares=config.shared)
    with torch.no_grad():
        for parameter in made.parameters():  # some begin as zeros, and would hide what they multiply
            parameter.add_(0.3 * torch.randn_like(parameter))
    return made.eval()


@pytest.mark.parametrize(
    "design",
    [{"cell": "lstm", "attention": "general", "layers": 2}, {"cell": "transformer", "heads": 2, "layers": 2}],
)
def test_label_smoothing_spreads_a_share_of_the_target(design: dict[str, Any]) -> None:
    made = network(**design, label_smoothing=0.2).train()
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
    made = network(heads=2, layers=2, window=6)
    lm = EncoderDecoderModel(made, TOKENIZER, TOKENIZER, kind="seq2seq", settings=None)
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
