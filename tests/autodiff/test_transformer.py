"""The Transformer on the tape is torch's, for all that its settings offer: probabilities, gradients, positions."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
import torch

import chainrule as cr
from chainrule.arrays import PAD
from chainrule.autodiff import Tape, no_grad
from chainrule.autodiff.networks import transformer as on_tape
from chainrule.autodiff.networks.transformer import TapeTransformer
from chainrule.autodiff.tape.gradcheck import check_parameters
from chainrule.autodiff.tape_model import TapeModel
from chainrule.errors import ChainruleError, SettingsError
from chainrule.networks.transformer import positions as in_torch
from chainrule.networks.transformer.config import PRESETS, TransformerConfig
from chainrule.networks.transformer.decoder import Transformer

V, BOS = 11, 1
IDS_BT = np.array([[3, 5, 4, 10, 2, 7], [9, 3, 3, PAD, PAD, PAD]])
TARGETS_BT = np.array([[5, 4, 10, 2, 7, 8], [3, 3, 2, PAD, PAD, PAD]])
SMALL: dict[str, Any] = {"layers": 2, "width": 12, "heads": 6, "hidden": 10, "window": 8, "zero_init": False}
DROPOUTS = {f"{where}dropout": 0.3 for where in ("", "embedding_", "token_", "attention_", "hidden_", "layer_")}


def choices(name: str) -> tuple[Any, ...]:
    """All values that a setting offers."""
    hint = get_type_hints(TransformerConfig)[name]
    return (False, True) if hint is bool else get_args(hint)


def twins(**settings: Any) -> tuple[Transformer, TapeTransformer]:
    """One network in torch and on the tape, in double precision, with weights large enough to say something."""
    config = TransformerConfig(**{**SMALL, **settings})
    torch.manual_seed(0)
    network = Transformer(config, V, BOS).double().train()
    with torch.no_grad():
        for weight in network.parameters():
            weight.normal_(0, 0.4)
    tensors = {name: weight.detach().numpy().copy() for name, weight in network.named_parameters()}
    return network, TapeTransformer(config, V, BOS, tensors)


def assert_same(**settings: Any) -> None:
    """ln p of every token after every prefix, and the gradient of the loss in every weight."""
    expected, network = twins(**settings)
    reading = expected(torch.from_numpy(IDS_BT).clamp(min=0))
    with no_grad():
        logits_BTV = network.logits(network.read(np.maximum(IDS_BT, 0)).features).out_tensor[..., :V]
    log_probs_BTV = logits_BTV - np.logaddexp.reduce(logits_BTV, axis=-1, keepdims=True)
    wanted_BTV = expected.head(reading.features_BTD).log_softmax(dim=-1).detach().numpy()
    np.testing.assert_allclose(log_probs_BTV, wanted_BTV, rtol=0, atol=1e-10, err_msg=str(settings))
    with Tape() as tape:
        network.loss(IDS_BT, TARGETS_BT, count=1)
        tape.backward()
    expected.loss(torch.from_numpy(IDS_BT), torch.from_numpy(TARGETS_BT)).nats.backward()
    for name, weight in expected.named_parameters():
        assert weight.grad is not None
        found = network.parameters[name].dense_gradient()
        np.testing.assert_allclose(found, weight.grad.numpy(), rtol=0, atol=1e-10, err_msg=f"{name}, {settings}")


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("positions", choices("positions"))
def test_presets_positions_activations_and_heads(preset: str, positions: str) -> None:
    """Every preset with every kind of positions; the activations and numbers of heads take turns."""
    turn = list(PRESETS).index(preset) + choices("positions").index(positions)
    for i, (activation, kv_heads) in enumerate(product(choices("activation"), (1, 2, 3, 6))):
        if i % 3 == turn % 3:
            assert_same(preset=preset, positions=positions, activation=activation, kv_heads=kv_heads)


@pytest.mark.parametrize("norm", choices("norm"))
@pytest.mark.parametrize("placement", choices("placement"))
def test_norms_biases_and_tables(norm: str, placement: str) -> None:
    names = ("gain", "bias", "tied", "qk_norm", "scaled_embedding", "embedding_norm")
    for values in product((False, True), repeat=len(names)):
        assert_same(norm=norm, placement=placement, **dict(zip(names, values, strict=True)))


def test_numbers_of_the_design() -> None:
    for settings in (
        {"norm_eps": 0.3},
        {"positions": "rotary", "rotary_base": 7.0},
        {"layers": 3},
        {"heads": 1},
        {"head_size": 8},
        {"qk_gain": True, "positions": "rotary"},
        {"qk_gain": True, "head_size": 10, "kv_heads": 2},
    ):
        assert_same(**{"qk_norm": True, **settings})


@pytest.mark.parametrize("preset", PRESETS)
def test_gradients_with_dropout(preset: str) -> None:
    """The same masks at each call: a small step then sees the function that backward saw."""
    _, network = twins(preset=preset, activation="gelu", kv_heads=2, **DROPOUTS)
    report = check_parameters(
        lambda: network.loss(IDS_BT, TARGETS_BT, randomness=np.random.default_rng(3)).module,
        list(network.parameters.values()),
        entries=6,
    )
    assert report.passed, str(report)


@pytest.mark.parametrize("name", DROPOUTS)
def test_each_dropout_changes_what_is_read_in_training_only(name: str) -> None:
    none = dict.fromkeys(DROPOUTS, 0.0)
    _, network = twins(**{**none, name: 0.3})
    with no_grad():
        plain = network.loss(IDS_BT, TARGETS_BT).mean
        dropped = {network.loss(IDS_BT, TARGETS_BT, randomness=np.random.default_rng(n)).mean for n in range(8)}
    assert len(dropped | {plain}) > 2
    _, still = twins(**none)
    with no_grad():
        assert still.loss(IDS_BT, TARGETS_BT, randomness=np.random.default_rng(0)).mean == plain


def test_tables_of_positions_are_torchs() -> None:
    np.testing.assert_array_equal(on_tape.sinusoidal_table(9, 7), in_torch.sinusoidal_table(9, 7).numpy())
    cos_TI, sin_TI = on_tape.rotary_tables(9, 6, 100.0)
    cos_TK, sin_TK = (table.numpy() for table in in_torch.rotary_tables(9, 6, 100.0))
    np.testing.assert_array_equal(np.concatenate([cos_TI, cos_TI], axis=1), cos_TK)
    np.testing.assert_array_equal(np.concatenate([-sin_TI, sin_TI], axis=1), sin_TK)
    for heads in (1, 2, 3, 6, 8, 12):
        np.testing.assert_array_equal(on_tape.alibi_slopes(heads), in_torch.alibi_slopes(heads).numpy())
    # two heads: 2^-4 and 2^-8, times the distance
    bias_HTT = twins(positions="alibi", heads=2)[1].places(3).bias
    np.testing.assert_array_equal(np.tril(bias_HTT)[1], np.array([[0, 0, 0], [1, 0, 0], [2, 1, 0]]) / -256)


def test_settings_left_open_are_chosen_for_the_tape() -> None:
    """Averaged weights, which are chosen for torch, are not chosen; they are refused if they are set."""
    text = cr.Corpus.from_text("i love cats\ni love dogs\ncats chase mice\n" * 5)
    lm = cr.train("transformer", text, valid=text, epochs=40, layers=1, width=8, engine="tape", tokenizer="word")
    assert isinstance(lm, TapeModel)
    assert (lm.settings.optimiser, lm.settings.average) == ("muon", "none")
    assert lm.settings.dropout > 0
    assert lm.perplexity("i love cats") < lm.tokenizer.vocab_size
    with pytest.raises(SettingsError, match="average=ema is not for engine=tape"):
        cr.train("transformer", text, engine="tape", average="ema", tokenizer="word")


def test_word_vectors_fill_the_table(tmp_path: Path) -> None:
    (tmp_path / "vectors.txt").write_text("love 1 2 3 4\ncats 5 6 7 8\n", encoding="utf-8")
    text = cr.Corpus.from_text("i love cats\n" * 5)
    small: dict[str, Any] = {"layers": 1, "heads": 2, "steps": 1, "learning_rate": 1e-9, "engine": "tape"}
    vectors = str(tmp_path / "vectors.txt")
    lm = cr.train("transformer", text, width=4, scaled_embedding=True, vectors=vectors, **small, tokenizer="word")
    (love,) = lm.tokenizer.encode("love")
    # multiplied by sqrt(4) at the lookup
    np.testing.assert_allclose(2 * lm.tensors()["embedding"][love], [1, 2, 3, 4], atol=1e-5)
    with pytest.raises(ChainruleError, match="width"):
        cr.train("transformer", text, width=8, vectors=vectors, **small, tokenizer="word")


def test_more_tokens_than_the_window_holds_are_refused() -> None:
    _, network = twins()
    with pytest.raises(ValueError, match="a window of 8 tokens was given 9"):
        network.read(np.full((1, 9), 3))
    with no_grad():
        memory = network.read(np.full((1, 5), 3), network.begin(1)).memory
    with pytest.raises(ValueError, match="a window of 8 tokens was given 9"):
        network.read(np.full((1, 4), 3), memory)


@pytest.mark.parametrize("kv_heads", [6, 2])
@pytest.mark.parametrize("positions", choices("positions"))
def test_reading_on_from_a_cache_gives_the_same_features(positions: str, kv_heads: int) -> None:
    """The rows have 5 and 3 tokens, read in pieces of 1 to 3; an old cache is read on from, as beams do."""
    _, network = twins(positions=positions, kv_heads=kv_heads, qk_norm=True)
    with no_grad():
        wanted_BTD = network.read(np.maximum(IDS_BT, 0)).features.out_tensor
        memory, pieces, caches = network.begin(2), [], []
        for first, last in ((0, 1), (1, 4), (4, 5), (5, 6)):
            caches.append(memory)
            piece_BT = IDS_BT[:, first:last]
            reading = network.read(np.maximum(piece_BT, 0), memory, piece_BT != PAD)
            pieces.append(reading.features.out_tensor)
            memory = reading.memory
        features_BTD = np.concatenate(pieces, axis=1)
        np.testing.assert_allclose(features_BTD[IDS_BT != PAD], wanted_BTD[IDS_BT != PAD], rtol=0, atol=1e-12)
        assert memory.lengths_B.tolist() == [6, 3]

        # other tokens after the first four: the newest cache keeps its own
        branch = network.read(np.array([[7, 7], [7, 7]]), caches[2]).memory
        after = network.read(np.array([[9], [9]]), memory.select(np.array([1, 0]))).features.out_tensor
        other = network.read(np.array([[9], [9]]), branch).features.out_tensor
        for row, (ids, found_D) in enumerate(
            [([9, 3, 3, 9], after[0, 0]), ([*IDS_BT[0], 9], after[1, 0]), ([3, 5, 4, 10, 7, 7, 9], other[0, 0])]
        ):
            expected_TD = network.read(np.array([ids])).features.out_tensor[0]
            np.testing.assert_allclose(found_D, expected_TD[-1], rtol=0, atol=1e-12, err_msg=str(row))

        # rows that come together have caches of other lengths and capacities
        joined = memory.join(network.read(np.full((1, 2), 4), network.begin(1)).memory)
        together = network.read(np.array([[9], [9], [9]]), joined).features.out_tensor
        expected_TD = network.read(np.array([[4, 4, 9]])).features.out_tensor[0]
        np.testing.assert_allclose(together[2, 0], expected_TD[-1], rtol=0, atol=1e-12)


def test_floating_point_operations_are_counted_as_in_torch() -> None:
    for settings in ({"preset": "gpt2"}, {"preset": "llama", "kv_heads": 2}):
        expected, network = twins(**settings)
        assert network.flops_per_token() == expected.flops_per_token()
