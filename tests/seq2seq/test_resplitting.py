"""BPE dropout in training: other splits in each epoch, the same ones again, and a run that goes on bit by bit."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chainrule as cr
from chainrule.errors import Interrupted, SettingsError
from chainrule.seq2seq.resplitting import ResplitPairs
from chainrule.tokens.base import lines_of
from chainrule.tokens.subwords.tokenizer import SubwordTokenizer
from chainrule.tokens.vocabulary import Limit
from chainrule.training.examples import PairExamples
from chainrule.training.layouts import Lines, Size
from chainrule.training.objectives import Feed, Gatherer, NextToken, Sequences
from chainrule.training.redrawn import Redrawn
from stopping import stopping

PAIRS = [(f"the {a} cat sees {b} dogs", f"die {a} Katze sieht {b} Hunde") for a in "abcdef" for b in "uvwxyz"]
SETTINGS: dict[str, Any] = {
    "layers": 1,
    "width": 16,
    "heads": 2,
    "window": 64,
    "batch": 256,
    "steps": 20,
    "validate_every": 5,
    "dropout": 0.1,
    "split_dropout": 0.3,
}
CHOICE = cr.TokenizerChoice("bpe", vocab_size=300)


def _pairs(longest: int | None = None) -> ResplitPairs:
    sides = [("\n".join(side) + "\n").encode() for side in zip(*PAIRS, strict=True)]
    bpe = SubwordTokenizer.train(iter(sides), "bpe", Limit(top=300))
    sequences = []
    for side in reversed(sides):
        lines = [[*bpe.encode_line(line), bpe.eos] for line in lines_of(side)]
        ends = np.cumsum([len(line) for line in lines])
        sequences.append(Sequences(np.concatenate(lines), np.append(0, ends[:-1]), ends))
    pairs = PairExamples(*sequences, NextToken.of(bpe, "line"), longest)
    return ResplitPairs.from_pairs(pairs, (bpe, bpe), 0.3, seed=1)


def _texts(pairs: ResplitPairs, side: Sequences) -> list[str]:
    spans = zip(side.starts.tolist(), side.ends.tolist(), strict=True)
    return [pairs.tokenizers[0].decode(side.ids[start : end - 1].tolist()) for start, end in spans]


def test_an_epoch_has_splits_of_its_own_of_the_same_texts() -> None:
    pairs = _pairs()
    first, second, again = pairs.of_epoch(0), pairs.of_epoch(1), pairs.of_epoch(0)
    for one in (first, second):
        assert _texts(pairs, one.sources) == [source for source, _ in PAIRS]
        assert _texts(pairs, one.targets) == [target for _, target in PAIRS]
    assert np.array_equal(first.targets.ids, again.targets.ids)
    assert not np.array_equal(first.targets.ids, second.targets.ids)
    assert pairs.tokens < min(first.tokens, second.tokens)


def test_pairs_stay_within_the_window() -> None:
    longest = int(_pairs().targets.lengths.max())
    for number in range(3):
        found = _pairs(longest).of_epoch(number)
        assert max(found.targets.lengths.max(), found.sources.lengths.max()) <= longest


def test_feeds_are_the_same_in_any_order_of_epochs() -> None:
    pairs = _pairs()

    def make(number: int) -> Feed:
        one = pairs.of_epoch(number)
        layout = Lines(one.targets.starts, one.targets.ends, 0, Size(64, 256, 256), 0)
        return Feed(layout, Gatherer(one.targets.ids, one.objective))

    def batches(feed: Feed, number: int) -> list[Any]:
        epoch = feed.layout.epoch(number)
        return [feed.gatherer.batch(epoch[i].parts[0]).targets_BT for i in range(len(epoch))]

    onwards, anew = Redrawn(make(0), make).feed(), Redrawn(make(0), make).feed()
    found = {number: batches(onwards, number) for number in (0, 1, 2, 3)}
    for number in (2, 3, 1, 0):
        for one, other in zip(found[number], batches(anew, number), strict=True):
            assert np.array_equal(one, other)
    assert onwards.layout.count(3) == len(onwards.layout.epoch(0))
    assert onwards.layout.tokens == pairs.of_epoch(0).tokens


def test_a_run_goes_on_bit_by_bit(tmp_path: Path) -> None:
    whole = cr.train("seq2seq", PAIRS, valid=PAIRS[:6], tokenizer=CHOICE, **SETTINGS)
    with pytest.MonkeyPatch.context() as patched:
        stopping(patched, 7, number=signal.SIGTERM)
        with pytest.raises(Interrupted):
            cr.train("seq2seq", PAIRS, valid=PAIRS[:6], tokenizer=CHOICE, run=tmp_path, **SETTINGS)
    resumed = cr.train("seq2seq", PAIRS, valid=PAIRS[:6], tokenizer=CHOICE, run=tmp_path, resume=True, **SETTINGS)
    for name, weight in whole.tensors().items():
        assert np.array_equal(resumed.tensors()[name], weight)


def test_tokens_without_merges_are_refused() -> None:
    with pytest.raises(SettingsError, match="which word tokens have not: take bpe"):
        cr.train("seq2seq", PAIRS, tokenizer="word", **SETTINGS)
    with pytest.raises(SettingsError, match="split_dropout is for pairs"):
        cr.train("seq2seq", ["a b"], tokenizer="bpe", pretrain="spans", **SETTINGS)
