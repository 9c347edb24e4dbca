"""Tests that the benchmark of the tape runs at a very small size, and that its sides train the same networks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from benchmarks import autodiff


def test_it_runs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    before = torch.get_num_threads()
    autodiff.main(["--small", "--rounds", "1", "--threads", "1"])
    torch.set_num_threads(before)
    printed = " ".join(capsys.readouterr().out.split())
    for said in (
        "feed-forward, SGD",
        "feed-forward, Adam",
        "LSTM, Adam",
        "Transformer, Adam",
        "torch, a plain loop",
        "the process grew by",
    ):
        assert said in printed


def test_the_full_sizes_are_the_lectures() -> None:
    first = autodiff.tasks(small=False)[0]
    settings = first.parsed
    assert first.vocab_size == 10_000
    assert (settings.order - 1, settings.embedding, settings.hidden, settings.batch) == (3, 64, 128, 256)


def test_every_side_takes_steps() -> None:
    """Weights change on both engines, and all batches have the full size."""
    task = autodiff.tasks(small=True)[0]
    for framework in ("tape", "torch"):
        work, engine, text = autodiff.engine_steps(task, framework)
        before = engine.weights()
        work()
        after = engine.weights()
        assert not np.array_equal(after["embedding.weight"], before["embedding.weight"])
        epoch = text.layout.epoch(0)
        assert {epoch[number].targets for number in range(len(epoch) - 1)} == {16}


def test_the_plain_transformer_has_as_many_weights_and_sees_no_future() -> None:
    task = autodiff.tasks(small=True)[-1]
    plain = autodiff.plain_network(task)
    ours = autodiff.engine_steps(task, "tape")[1].network.parameters
    rows = ours["embedding"].out_tensor.shape[0] - task.vocab_size  # padding of both tables
    width = task.settings["width"]
    assert sum(one.numel() for one in plain.parameters()) == (
        sum(one.out_tensor.size for one in ours.values()) - 2 * rows * width
    )
    there, other = (plain(torch.tensor([[5, 6, last, last]]), None)[0] for last in (7, 8))
    torch.testing.assert_close(there[:2], other[:2])
    assert not torch.allclose(there[2], other[2])


def test_the_plain_network_reads_three_words() -> None:
    torch.manual_seed(0)
    network = autodiff.PlainFeedforward(20, 4, 6)
    logits, _ = network(torch.tensor([[5, 6, 7, 8]]), None)
    alone, _ = network(torch.tensor([[9, 9, 6, 7, 8]]), None)
    assert logits.shape == (4, 20)
    torch.testing.assert_close(logits[-1], alone[-1])
