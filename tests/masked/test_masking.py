"""Which tokens are hidden: the shares, the randomness, and equal batches in both libraries."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.masked.conftest import SMALL, toy_lines

import chainrule as cr
from chainrule.arrays import PAD
from chainrule.masked.masking import Masking, predicted_count
from chainrule.networks.transformer.masked import first_targets, most_targets
from chainrule.training.engines.torch_engine import DeviceGatherer
from chainrule.training.layouts import Lines, Predicting, Rows, Size, Windows
from chainrule.training.objectives import Gatherer, NextToken

VOCAB = 1000
IDS = np.random.default_rng(0).integers(3, VOCAB, 40_000).astype(np.uint16)
MASKING = Masking(NextToken(2, None), VOCAB, seed=5)


def rows(starts: list[int], lengths: list[int], skips: list[int], epoch: int | None = 0) -> Rows:
    return Rows(np.asarray(starts), np.asarray(lengths), np.asarray(skips), max(lengths), epoch)


def full_rows(epoch: int | None = 0) -> Rows:
    return rows(list(range(0, 40_000, 200)), [200] * 200, [0] * 200, epoch)


def test_fifteen_percent_are_predicted_of_which_80_10_10() -> None:
    read_BS, targets_BT = Gatherer(IDS, MASKING).batch(full_rows())
    true_BT, read_BT = IDS.reshape(200, 200), read_BS[:, 1:]
    is_predicted = targets_BT != PAD
    assert (is_predicted.sum(axis=1) == 30).all()  # 15 % of 200, in every row
    assert (targets_BT[is_predicted] == true_BT[is_predicted]).all()
    assert (read_BT[~is_predicted] == true_BT[~is_predicted]).all()
    is_masked = read_BT[is_predicted] == VOCAB
    stays = read_BT[is_predicted] == true_BT[is_predicted]
    # of 200 rows: a tenth has no [MASK], within four standard deviations, sqrt(0.09 / 200) = 0.021
    is_plain_B = ~(read_BT == VOCAB).any(axis=1)
    assert abs(is_plain_B.mean() - 0.1) < 0.085
    # of some 5,400 in the other rows: 8/9 and 1/18 within four, sqrt(p (1 - p) / 5400) = 0.0043 and 0.0031
    is_of_plain = np.repeat(is_plain_B, 30)
    assert abs(is_masked[~is_of_plain].mean() - 8 / 9) < 0.017
    assert abs(stays[~is_of_plain].mean() - 1 / 18) < 0.0125
    # of some 600 in the plain rows: a half, sqrt(1/4 / 600) = 0.02
    assert abs(stays[is_of_plain].mean() - 0.5) < 0.08
    others = read_BT[is_predicted][~is_masked & ~stays]
    assert len(np.unique(others)) > 300 and others.max() < VOCAB
    # every column is as likely as the others: 30 of 200 rows, standard deviation 5
    assert abs(is_predicted.sum(axis=0) - 30).max() < 5 * 4.6


def test_the_shares_of_all_rows_are_80_10_10() -> None:
    gatherer = Gatherer(IDS, MASKING)
    fates = []
    for epoch in range(20):  # 4,000 rows, of which 400 +- 19 have no [MASK]
        read_BS, targets_BT = gatherer.batch(full_rows(epoch))
        is_predicted = targets_BT != PAD
        read, true = read_BS[:, 1:][is_predicted], targets_BT[is_predicted]
        fates.append([(read == VOCAB).mean(), (read == true).mean()])
    masked, stays = np.mean(fates, axis=0)
    assert abs(masked - 0.8) < 0.02 and abs(stays - 0.1) < 0.01


def test_each_epoch_hides_others_and_a_validation_always_the_same() -> None:
    gatherer = Gatherer(IDS, MASKING)
    first, again, second = (gatherer.batch(full_rows(epoch)).targets_BT for epoch in (0, 0, 1))
    assert (first == again).all()
    overlap = ((first != PAD) & (second != PAD)).sum() / 6000
    assert 0.1 < overlap < 0.2  # as chance has it
    valid = [gatherer.batch(full_rows(None)).targets_BT for _ in range(2)]
    assert (valid[0] == valid[1]).all() and (valid[0] != first).any()
    other = Gatherer(IDS, Masking(NextToken(2, None), VOCAB, seed=6)).batch(full_rows()).targets_BT
    assert (other != first).any()


def test_randomness_belongs_to_the_token_and_not_to_the_batch() -> None:
    gatherer = Gatherer(IDS, MASKING)
    together = gatherer.batch(full_rows())
    alone = gatherer.batch(rows([400], [200], [0]))
    assert (together.inputs[2] == alone.inputs[0]).all()
    assert (together.targets_BT[2] == alone.targets_BT[0]).all()


@pytest.mark.parametrize("some", [full_rows(), rows([0, 7, 300, 0], [10, 3, 20, 0], [0, 0, 5, 0]), full_rows(None)])
def test_both_libraries_make_equal_batches(some: Rows) -> None:
    host = Gatherer(IDS, MASKING).batch(some)
    device = DeviceGatherer(IDS, MASKING, torch.device("cpu")).batch(some)
    assert isinstance(host.inputs, tuple) is isinstance(device.inputs, tuple)
    pairs = zip(
        (*host.inputs, host.targets_BT) if isinstance(host.inputs, tuple) else host,
        (*device.inputs, device.targets_BT) if isinstance(device.inputs, tuple) else device,
        strict=True,
    )
    assert all((ours == theirs.numpy()).all() for ours, theirs in pairs)


def test_short_padded_and_skipped_rows() -> None:
    (read_BS, is_token_BS), targets_BT = Gatherer(IDS, MASKING).batch(
        rows([0, 7, 300, 0], [10, 3, 20, 0], [0, 0, 5, 0])
    )
    # 1.5 rounds up to 2, 0.45 is at least 1, of 15 tokens that are not skipped 2.25 is 2, and nothing of nothing
    assert (targets_BT != PAD).sum(axis=1).tolist() == [2, 1, 2, 0]
    assert (targets_BT[2, :5] == PAD).all()  # context only
    assert is_token_BS.sum(axis=1).tolist() == [11, 4, 21, 1]
    assert read_BS[0, 0] == 2 and read_BS[1, 0] == IDS[6]


def test_layouts_know_how_many_targets_there_are() -> None:
    size = Size(20, 200, 200)
    starts = np.arange(0, 900, 30)
    for layout in (Windows(1000, size, 0), Lines(starts, starts + np.arange(1, 31), 5, size, 0)):
        predicting = Predicting(layout, MASKING.count)
        gatherer = Gatherer(IDS, MASKING)
        epoch = predicting.epoch(0)
        for number in range(len(epoch)):
            step = epoch[number]
            found = sum(int((gatherer.batch(part).targets_BT != PAD).sum()) for part in step.parts)
            assert found == step.targets
        assert predicting.read == layout.tokens > predicting.tokens


def test_first_targets_are_all_targets_of_each_row() -> None:
    targets_BT = torch.tensor([[PAD, 5, PAD, 7], [PAD, PAD, PAD, 9]])
    places_BP = first_targets(targets_BT, 2)
    assert targets_BT.gather(1, places_BP).tolist() == [[5, 7], [9, PAD]]
    for share in (0.15, 0.3, 0.333, 0.5):
        for length in range(1, 600):
            assert most_targets(length, share) >= predicted_count(np.asarray(length), share)


def test_a_run_that_is_resumed_is_the_same(tmp_path: Path) -> None:
    text = toy_lines(300)

    def train(run: Path, steps: int, resume: bool = False) -> dict[str, np.ndarray]:
        model = cr.train(
            "masked",
            text,
            tokenizer="word",
            run=run,
            resume=resume,
            **{**SMALL, "steps": steps, "schedule": "constant", "validate_every": 100, "dropout": 0.1},
        )
        return dict(model.tensors())

    whole = train(tmp_path / "whole", 12)
    train(tmp_path / "parts", 5)
    resumed = train(tmp_path / "parts", 12, resume=True)
    assert all((whole[name] == resumed[name]).all() for name in whole)
