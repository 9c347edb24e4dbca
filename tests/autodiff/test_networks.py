"""Networks on the tape are the torch networks of the same weights, and their gradients are right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import chainrule as cr
from chainrule.arrays import PAD
from chainrule.autodiff import Tape, Value, no_grad
from chainrule.autodiff.networks.network import dropout, keep_mask
from chainrule.autodiff.tape.gradcheck import check_parameters
from chainrule.autodiff.tape_model import TapeModel, as_tape_model, in_engine
from chainrule.errors import DamagedFileError, ModelError
from chainrule.inference.neural_model import NeuralModel

from .twins import DESIGNS, IN_TORCH, KINDS, ON_TAPE, TOKENIZER, WINDOWED, V, settings_of, twins

RNG = np.random.default_rng(0)
IDS_BT = np.array([[3, 5, 4, 10, 2, 7], [9, 3, 3, PAD, PAD, PAD]])
TARGETS_BT = np.array([[5, 4, 10, 2, 7, 8], [3, 3, 2, PAD, PAD, PAD]])


def torch_model(design: str) -> NeuralModel:
    network, _ = twins(design, np.float32)
    kind = DESIGNS[design][0]
    return NeuralModel(network, TOKENIZER, "stream", kind=kind, settings=settings_of(design, engine="torch"))


@pytest.mark.parametrize("design", DESIGNS)
def test_parameters_have_the_names_shapes_and_order_of_torchs(design: str) -> None:
    network, _ = twins(design)
    expected = {name: tuple(weight.shape) for name, weight in network.named_parameters()}
    found = ON_TAPE[DESIGNS[design][0]].shapes(settings_of(design), V)
    assert found == expected


@pytest.mark.parametrize("design", DESIGNS)
def test_the_same_weights_give_the_same_probabilities(design: str, tmp_path: Path) -> None:
    """A folder of either engine, loaded by the other."""
    lm = torch_model(design)
    on_tape = as_tape_model(lm)
    np.testing.assert_allclose(on_tape.score(IDS_BT), cr.to_numpy(lm.score(IDS_BT)), atol=1e-5)
    lm.save(tmp_path / "torch")
    on_tape.save(tmp_path / "tape")
    loaded = cr.load(tmp_path / "torch"), cr.load(tmp_path / "tape")
    assert [type(one) for one in loaded] == [NeuralModel, TapeModel]
    rough, in_torch = loaded[1].on("cpu", "bfloat16"), in_engine(loaded[1], "torch")
    assert isinstance(rough, NeuralModel) and rough.network.head.weight.dtype == torch.bfloat16
    assert isinstance(in_torch, NeuralModel) and in_torch.network.head.weight.dtype == torch.float32
    for other in (loaded[0], loaded[1], in_torch):
        np.testing.assert_allclose(cr.to_numpy(other.score(IDS_BT)), on_tape.score(IDS_BT), atol=1e-5)
        state = other.extend(other.start(2), IDS_BT)
        expected = on_tape.next_log_probs(on_tape.extend(on_tape.start(2), IDS_BT))
        np.testing.assert_allclose(cr.to_numpy(other.next_log_probs(state)), expected, atol=1e-5)


@pytest.mark.parametrize("design", DESIGNS)
def test_a_whole_network_has_right_gradients(design: str) -> None:
    _, network = twins(design)
    report = check_parameters(
        lambda: network.loss(IDS_BT, TARGETS_BT).module, list(network.parameters.values()), entries=6
    )
    assert report.passed, str(report)
    assert len(report.inputs) == len(network.parameters)


@pytest.mark.parametrize("design", ["lstm", "relu elman", "qrnn"])
def test_penalties_and_left_out_weights_have_right_gradients(design: str) -> None:
    """The same masks at each call: a small step then sees the function that backward saw."""
    _, network = twins(design, alpha=2.0, beta=1.0, weight_dropout=0.5, embedding_dropout=0.2, output_dropout=0.5)
    report = check_parameters(
        lambda: network.loss(IDS_BT, TARGETS_BT, randomness=np.random.default_rng(3)).module,
        list(network.parameters.values()),
        entries=6,
    )
    assert report.passed, str(report)


@pytest.mark.parametrize("design", ["lstm", "feedforward"])
def test_losses_and_penalties_are_torchs(design: str) -> None:
    """Where nothing is left to chance but the penalties are on."""
    more = {"alpha": 2.0, "beta": 1.0} if design == "lstm" else {}
    in_torch, network = twins(design, **more)
    found = in_torch.loss(torch.from_numpy(IDS_BT), torch.from_numpy(TARGETS_BT))
    targets = (TARGETS_BT != PAD).sum()
    expected = found.nats.item() / targets
    with no_grad():
        loss = network.loss(IDS_BT, TARGETS_BT, randomness=np.random.default_rng(0))
    assert loss.mean == pytest.approx(expected, abs=1e-12)
    penalty = 0.0 if found.penalty is None else found.penalty.item()
    assert float(loss.module.out_tensor) == pytest.approx(expected + penalty, abs=1e-12)
    # half of a step that has twice as many targets
    with no_grad():
        half = network.loss(IDS_BT, TARGETS_BT, count=2 * targets, randomness=np.random.default_rng(0))
    assert float(half.module.out_tensor) == pytest.approx((expected + penalty) / 2, abs=1e-12)


@pytest.mark.parametrize("design", [design for design in DESIGNS if design not in WINDOWED])
def test_reading_on_is_reading_at_once(design: str) -> None:
    _, network = twins(design)
    ids_BT = RNG.integers(3, V, (3, 9))
    with no_grad():
        whole = network.read(ids_BT)
        first = network.read(ids_BT[:, :4])
        rest = network.read(ids_BT[:, 4:], first.memory)
    pieces = np.concatenate([first.features.out_tensor, rest.features.out_tensor], axis=1)
    np.testing.assert_allclose(pieces, whole.features.out_tensor, atol=1e-12)


@pytest.mark.parametrize("slide", [0.25, 0.5, 0.75, 1.0])
def test_windows_that_are_read_at_once_are_those_that_slide_one_by_one(slide: float) -> None:
    _, network = twins("bagofwords")
    lm = TapeModel(network, TOKENIZER, "stream", kind="bagofwords", settings=settings_of("bagofwords"), slide=slide)
    ids_BT = RNG.integers(3, V, (3, 43))
    scores_BT, after = lm.read(lm.start(3), ids_BT)
    state, one_by_one = lm.start(3), []
    for place in range(ids_BT.shape[1]):
        one_by_one.append(lm.next_log_probs(state)[range(3), ids_BT[:, place]])
        state = lm.extend(state, ids_BT[:, place : place + 1])
    np.testing.assert_allclose(scores_BT, np.stack(one_by_one, axis=1), atol=1e-6)
    np.testing.assert_allclose(lm.next_log_probs(after), lm.next_log_probs(state), atol=1e-6)
    more_BT = ids_BT[:, :7]  # after both, the same tokens are still in the window
    np.testing.assert_allclose(lm.score(more_BT, after), lm.score(more_BT, state), atol=1e-6)
    with_padding_BT = np.where([[True], [True], [False]], ids_BT, PAD)
    np.testing.assert_allclose(lm.score(with_padding_BT)[:2], scores_BT[:2], atol=1e-6)


def test_no_gradient_flows_into_what_was_remembered() -> None:
    """Truncated back-propagation through time: the first half's token has no gradient from the second half."""
    _, network = twins("elman", tied=False)
    with no_grad():
        memory = network.read(np.array([[3, 4]])).memory
    with Tape() as tape:
        network.loss(np.array([[5, 6]]), np.array([[6, 7]]), memory)
        tape.backward()
    gradient = network.table.dense_gradient()
    assert gradient[[5, 6]].any(axis=1).all()
    assert not gradient[[3, 4]].any()


def test_what_is_remembered_is_a_copy() -> None:
    """The arrays of a tape are used again at the next step."""
    _, network = twins("lstm", embedding=8, hidden=64)
    tape, rng = Tape(reuse=True), np.random.default_rng(0)
    with tape:
        memory = network.loss(rng.integers(3, V, (200, 2)), rng.integers(3, V, (200, 2))).memory
        tape.backward()
    before = [part.copy() for state in memory.states for part in state]
    with tape:
        network.loss(rng.integers(3, V, (200, 2)), rng.integers(3, V, (200, 2)))
        tape.backward()
    after = [part for state in memory.states for part in state]
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_masks_leave_out_a_share_and_keep_the_expectation(share: float) -> None:
    mask = keep_mask((400, 100), share, np.random.default_rng(0))
    # 40,000 draws: a share of 0.5 has a standard deviation of 0.0025
    assert np.mean(mask == 0) == pytest.approx(share, abs=0.0125)
    assert set(np.unique(mask)) == {np.float32(0), np.float32(1 / (1 - np.float32(share)))}
    assert mask.mean() == pytest.approx(1, abs=0.03)


def test_dropout_is_the_same_along_an_axis_and_only_where_there_is_randomness() -> None:
    x = Value(np.ones((5, 3, 4)))
    assert dropout(x, 0.5, None) is x
    assert dropout(x, 0.0, np.random.default_rng(0)) is x
    with no_grad():
        dropped = dropout(x, 0.5, np.random.default_rng(0), (1, 3, 4)).out_tensor
    assert (dropped == dropped[0]).all()
    assert set(np.unique(dropped)) == {0.0, 2.0}


@pytest.mark.parametrize("kind", KINDS)
def test_randomness_changes_what_is_read_in_training_only(kind: str) -> None:
    _, network = twins(kind, **_dropouts(kind))
    with no_grad():
        losses = [network.loss(IDS_BT, TARGETS_BT, randomness=np.random.default_rng(n)).mean for n in range(3)]
        again = network.loss(IDS_BT, TARGETS_BT, randomness=np.random.default_rng(0)).mean
        still = [network.loss(IDS_BT, TARGETS_BT).mean for _ in range(2)]
    assert len(set(losses)) == 3
    assert again == losses[0]
    assert still[0] == still[1] not in losses


def _dropouts(kind: str) -> dict[str, Any]:
    if kind == "bagofwords":
        return {"dropout": 0.3}
    if kind == "transformer":
        return {f"{where}dropout": 0.3 for where in ("", "embedding_", "token_", "attention_", "hidden_", "layer_")}
    if kind == "feedforward":
        return {"dropout": 0.3, "token_dropout": 0.2}
    return {f"{where}_dropout": 0.3 for where in ("input", "hidden", "output", "embedding", "weight")}


@pytest.mark.parametrize("design", DESIGNS)
def test_a_network_begins_as_torchs_does(design: str) -> None:
    """The same spread of every weight: means and deviations of many draws, and exact where nothing is drawn."""
    wide = {"width": 24} if design in WINDOWED else {"embedding": 32}
    settings = settings_of(design, **wide, hidden=64)
    torch.manual_seed(0)
    expected = IN_TORCH[DESIGNS[design][0]](settings, 800, TOKENIZER.bos)
    found = ON_TAPE[DESIGNS[design][0]].initial(settings, 800, np.random.default_rng(0))
    for name, weight in expected.named_parameters():
        theirs = weight.detach().numpy()
        assert found[name].dtype == theirs.dtype == np.float32
        assert found[name].std() == pytest.approx(theirs.std(), rel=0.1, abs=1e-7), name
        # two means of n draws: five standard deviations of their difference
        assert abs(found[name].mean() - theirs.mean()) <= 5 * theirs.std() * (2 / theirs.size) ** 0.5, name
        if "weight_hh" in name and settings.orthogonal:
            gate = found[name][: found[name].shape[1]]
            np.testing.assert_allclose(gate @ gate.T, np.eye(len(gate)), atol=1e-5)


def test_what_the_tape_does_not_compute_is_refused() -> None:
    ngram = cr.train("ngram", cr.Corpus.from_text("i love cats\n"), tokenizer="word")
    with pytest.raises(
        ModelError, match="of the kind ngram is not one that the tape computes: feedforward, bagofwords"
    ):
        as_tape_model(ngram)


def test_a_damaged_folder_is_named(tmp_path: Path) -> None:
    lm = as_tape_model(torch_model("feedforward"))
    lm.network.parameters["head.bias"].out_tensor = np.zeros(3, np.float32)
    lm.save(tmp_path / "m")
    with pytest.raises(DamagedFileError, match=r"head.bias has the shape \[3\], not \[16\]"):
        cr.load(tmp_path / "m")
