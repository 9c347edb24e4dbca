"""N-grams in torch: estimated, pruned and walked on a device, whatever torch's default device is.

The device is torch's CPU under its full name, so that arrays are tensors; the default device is `meta`, which has
no numbers: an array that is made without a device is found out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import chainrule as cr
from chainrule.contract.data import TrainingData
from chainrule.contract.kinds import find_kind
from chainrule.ngram.ngram_model import NgramModel
from chainrule.settings import parse
from chainrule.testing import LAWS
from chainrule.tokens.ids import encode_corpus

DEVICE = "cpu:0"
TOY = "i love cats\ni love dogs\ncats chase mice\nyes\nno\n"


@pytest.fixture
def elsewhere() -> Iterator[None]:
    with torch.device("meta"):
        yield


def trained(device: str, tmp_path: Path, **settings: object) -> NgramModel:
    corpus = cr.Corpus.from_text(TOY)
    tokenizer = cr.train_tokenizer("word", corpus)
    encoded = encode_corpus(corpus, tokenizer, tmp_path / f"{device[-1]}.ids")
    kind = find_kind("ngram")
    lm = kind.train(parse(kind.settings, settings), TrainingData(tokenizer, encoded, None, device=device))
    assert isinstance(lm, NgramModel)
    return lm


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(
    "settings",
    [
        {"order": 3},
        {"order": 3, "smoothing": "katz"},
        {"order": 4, "prune": "0,0,1"},
        {"order": 5, "prune": "0,9", "smoothing": "witten-bell"},  # no n-gram of two and more words is left
        {"order": 5, "memory": "1MB"},  # far below what it takes: on the CPU, arrays would go to disk
    ],
    ids=str,
)
def test_a_device_estimates_the_model_that_the_cpu_estimates(settings: dict[str, object], tmp_path: Path) -> None:
    there, here = trained(DEVICE, tmp_path, **settings), trained("cpu", tmp_path, **settings)
    for name, array in here.tensors().items():
        np.testing.assert_allclose(there.tensors()[name], array, rtol=1e-6, atol=1e-6, err_msg=name)


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("context", ["line", pytest.param("stream", marks=pytest.mark.slow)])
def test_a_model_on_a_device_keeps_the_laws(law: str, context: cr.lm.Context) -> None:
    lm = cr.train("ngram", cr.Corpus.from_text(TOY), order=3, context=context, tokenizer="word").on(DEVICE)
    assert lm.device == DEVICE
    assert isinstance(lm.next_log_probs(lm.start(1)), torch.Tensor)
    LAWS[law](lm)


def test_a_model_loaded_onto_a_device_computes_there(tmp_path: Path) -> None:
    cr.train("ngram", cr.Corpus.from_text(TOY), order=3, tokenizer="word").save(tmp_path / "m")
    lm = cr.load(tmp_path / "m", device=DEVICE)
    assert isinstance(lm.score(np.asarray([[3, 4]])), torch.Tensor)
    here = cr.load(tmp_path / "m")
    assert isinstance(here.score(np.asarray([[3, 4]])), np.ndarray)
    assert cr.generate(lm, "i", seed=4) == cr.generate(here, "i", seed=4)


def test_a_kind_that_stays_on_the_cpu_says_so(tmp_path: Path) -> None:
    cr.train("anygram", cr.Corpus.from_text(TOY), tokenizer="word").save(tmp_path / "m")
    with pytest.raises(cr.ChainruleError, match=f"anygram computes on the CPU only, not on {DEVICE}"):
        cr.load(tmp_path / "m", device=DEVICE)
