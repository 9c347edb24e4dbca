"""A network is diagnosed on the tape, without torch, and its gradients are those of torch to the last digits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.running import without_torch

import chainrule as cr
from chainrule.autodiff.tape_model import TapeModel, in_engine
from chainrule.contract.lm import start_token
from chainrule.errors import DiagnosisError
from chainrule.explanation.diagnosis import Diagnosis
from chainrule.explanation.torch_trace import trace_embeddings
from chainrule.inference.neural_model import NeuralModel

CORPUS = cr.Corpus.from_text("i love cats\ni love dogs\ncats chase mice\n" * 3)
TEXT = "i love cats chase mice cats"
DESIGNS: dict[str, tuple[str, dict[str, Any]]] = {
    "feedforward": ("feedforward", {"order": 4, "tied": True}),
    "direct": ("feedforward", {"order": 3, "direct": True, "layers": 2}),
    "bag of words": ("bagofwords", {"window": 5}),
    "endless bag": ("bagofwords", {"window": None, "tied": True}),
    "elman": ("elman", {"layers": 2, "tied": False, "context": "stream"}),
    "lstm": ("lstm", {"layers": 2}),
    "learned start": ("lstm", {"layers": 1, "learned_start": True, "tied": False}),
    "gru": ("gru", {"layers": 2, "last": 5}),
    "qrnn": ("qrnn", {"layers": 2}),
    "lecture's": ("transformer", {"preset": "lecture"}),
    "gpt2": ("transformer", {"preset": "gpt2", "context": "stream"}),
    "llama": ("transformer", {"preset": "llama", "heads": 4, "kv_heads": 2, "layers": 2}),
    "fast": ("transformer", {"kv_heads": 1, "layers": 2}),
    "alibi": ("transformer", {"positions": "alibi", "window": 5}),
}
SMALL = {"embedding": 4, "hidden": 6, "layers": 1}
SMALL_TRANSFORMER = {"width": 8, "heads": 2, "hidden": 6, "layers": 1, "window": 12}


def made(design: str) -> TapeModel:
    """A network of random weights, large enough to say something."""
    kind, settings = DESIGNS[design]
    small = SMALL_TRANSFORMER if kind == "transformer" else SMALL
    lm = cr.train(kind, CORPUS, engine="tape", steps=1, **{**small, **settings}, tokenizer="word")
    assert isinstance(lm, TapeModel)
    rng = np.random.default_rng(1)
    for parameter in lm.network.parameters.values():
        parameter.out_tensor[:] = rng.normal(0, 0.5, parameter.out_tensor.shape)
    return lm


def assert_same(found: Diagnosis, expected: Diagnosis) -> None:
    assert (found.tokens, found.target) == (expected.tokens, expected.target)
    assert found.nats == pytest.approx(expected.nats, abs=1e-9)
    np.testing.assert_allclose(found.embedding_gradient_T, expected.embedding_gradient_T, rtol=1e-9, atol=1e-12)
    assert found.state_gradients.keys() == expected.state_gradients.keys()
    for name, norms_LT in expected.state_gradients.items():
        np.testing.assert_allclose(found.state_gradients[name], norms_LT, rtol=1e-9, atol=1e-12)
    assert list(found.gates) == list(expected.gates)
    for name, layers in expected.gates.items():
        for one, other in zip(found.gates[name], layers, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)
    if expected.attention_LHTT is None:
        assert found.attention_LHTT is None
    else:
        assert found.attention_LHTT is not None
        np.testing.assert_allclose(found.attention_LHTT, expected.attention_LHTT, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("design", DESIGNS)
def test_the_tape_gives_the_gradients_of_torch(design: str) -> None:
    lm = made(design)
    found, in_torch = cr.diagnose(lm, TEXT), in_engine(lm, "torch")
    assert isinstance(in_torch, NeuralModel)
    assert_same(found, cr.diagnose(in_torch, TEXT))
    assert found.embedding_gradient_T[-1] > 1e-6
    ids = lm.tokenizer.encode(TEXT).tolist()[-len(found.tokens) :]
    read = [start_token(lm.tokenizer, lm.context), *ids[:-1]]
    if DESIGNS[design][0] == "transformer":
        assert found.attention_LHTT is not None
        np.testing.assert_allclose(found.attention_LHTT.sum(axis=-1), 1, rtol=1e-12)
        with pytest.raises(DiagnosisError, match="the kind transformer has no layer `embedding`"):
            trace_embeddings(in_torch, read, ids[-1])
    else:
        assert found.attention_LHTT is None
        by_torch = trace_embeddings(in_torch, read, ids[-1])
        assert found.nats == pytest.approx(by_torch.nats, abs=1e-9)
        np.testing.assert_allclose(found.embedding_gradient_T, by_torch.embedding_gradient_T, rtol=1e-9, atol=1e-12)
    # the model itself stays in single precision
    assert {one.out_tensor.dtype for one in lm.network.parameters.values()} == {np.dtype(np.float32)}


def test_a_torch_network_of_a_plug_in_is_diagnosed_by_its_embeddings() -> None:
    lm = in_engine(made("gru"), "torch")
    expected = cr.diagnose(lm, TEXT)
    lm.kind = "another"
    found = cr.diagnose(lm, TEXT)
    np.testing.assert_allclose(found.embedding_gradient_T, expected.embedding_gradient_T, rtol=1e-9, atol=1e-12)
    assert not found.gates and not found.state_gradients and found.attention_LHTT is None
    assert sum(1 for _ in found.records()) == 1 + len(found.tokens)


def test_diagnosis_needs_no_torch(tmp_path: Path) -> None:
    """Also of a folder that torch trained."""
    lm = in_engine(made("gru"), "torch")
    lm.save(tmp_path / "m")
    done = without_torch(["diagnose", tmp_path / "m", TEXT])
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert "h, layer 1" in done.stdout and "update, layer 0" in done.stdout
