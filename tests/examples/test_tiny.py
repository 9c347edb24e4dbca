"""Tests of the essay examples/tiny.py: its models keep the laws, and give the library's numbers."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.harness import load_module

import chainrule as cr
from chainrule.contract import chain
from chainrule.contract.kinds import find_kind
from chainrule.contract.lm import State
from chainrule.decode.beam import beam_search
from chainrule.inference.neural_model import NeuralModel
from chainrule.networks.feedforward import Feedforward
from chainrule.networks.recurrent.rnn import Recurrent
from chainrule.networks.seq2seq.recurrent import RecurrentEncoderDecoder
from chainrule.networks.transformer.decoder import Transformer
from chainrule.seq2seq.encoder_decoder_model import EncoderDecoderModel
from chainrule.settings import closed, parse
from chainrule.testing.laws import LAWS
from chainrule.text.builtin import builtin_documents
from chainrule.tokens.char import CharTokenizer
from chainrule.tokens.subwords.merges import learn_merges
from toy_models import Delegate

FILE = Path(__file__).parents[2] / "examples" / "tiny.py"
TEXT = "to be, or not to be: that is the question\nwhether 'tis nobler in the mind to suffer\nthe slings\n" * 3


tiny: Any = load_module(FILE, "tiny")
TOKENIZER = tiny.learn_tokens(TEXT)
FEW = tiny.Tokenizer("abcde")
FEW_V = len(FEW.tokens)
tiny.State.keys = State.keys  # of the contract: no two states need be told alike
MODELS: dict[str, Callable[[Any], Any]] = {
    "add-k": lambda tokenizer: tiny.Ngram(tokenizer, order=3, k=0.1),
    "kneser-ney": lambda tokenizer: tiny.Ngram(tokenizer, order=5),
    "feedforward": lambda tokenizer: tiny.Feedforward(tokenizer, order=4, embedding=5, hidden=7),
    "elman": lambda tokenizer: tiny.Recurrent(tokenizer, "elman", embedding=5, hidden=7),
    "lstm": lambda tokenizer: tiny.Recurrent(tokenizer, "lstm", embedding=5, hidden=7),
    "gru": lambda tokenizer: tiny.Recurrent(tokenizer, "gru", embedding=5, hidden=7),
    "transformer": lambda tokenizer: tiny.Transformer(tokenizer, layers=2, width=8, heads=2, window=6),
    "encoder-decoder": lambda tokenizer: tiny.EncoderDecoder(tokenizer, width=6),
}
NETWORKS = [name for name in MODELS if name not in ("add-k", "kneser-ney")]


def made(name: str, tokenizer: Any = FEW) -> Any:
    """A model of the essay, with counts of a small text, or with weights so large that probabilities differ."""
    model, rng = MODELS[name](tokenizer), np.random.default_rng(1)
    if name not in NETWORKS:
        return counted(model, [tokenizer.encode("abcabcadeab\nabbacde\n" if tokenizer is FEW else TEXT)])
    for node in model.weights.values():
        node.value = rng.normal(0, 0.4, node.value.shape)
    return model


def counted(model: Any, texts: list[np.ndarray]) -> Any:
    model.fill({"ids": np.concatenate([[tiny.BOS, *ids] for ids in texts])})
    return model


class Adapter(Delegate):
    """A model of the essay as one of chainrule: the same methods, beside what a model folder wants."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.tokenizer, self.context = CharTokenizer(model.tokenizer.characters), "stream"

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        self.inner.save(f"{folder}.npz")


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("name", MODELS)
def test_law(name: str, law: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cr, "load", lambda path, **_: Adapter(tiny.load(f"{path}.npz")))
    LAWS[law](Adapter(made(name)))


# -- the same numbers as the library ------------------------------------------------------------------------------


def assert_close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("context", ["stream", "line"])
@pytest.mark.parametrize(
    ("ours", "smoothing"),
    [({"order": 5}, "kneser-ney"), ({"order": 1}, "kneser-ney"), ({"order": 3, "k": 0.01}, "add-k")],
)
def test_counts_give_the_same_probabilities(ours: Any, smoothing: str, context: Any) -> None:
    tokenizer = CharTokenizer(TOKENIZER.characters)
    theirs = cr.train(
        "ngram", TEXT, tokenizer=tokenizer, context=context, order=ours["order"], smoothing=smoothing, valid=None
    )
    ids = TOKENIZER.encode(TEXT)
    ends = [0, *np.flatnonzero(ids == tiny.EOS) + 1] if context == "line" else [0, len(ids)]
    model = counted(tiny.Ngram(TOKENIZER, **ours), [ids[a:b] for a, b in pairwise(ends)])
    rows = np.random.default_rng(0).integers(2, len(TOKENIZER.tokens), (4, 30))
    rows[0] = ids[:30]
    assert_close(model.score(rows), theirs.score(rows))
    found = model.next_log_probs(model.extend(model.start(4), rows))
    assert_close(found, theirs.next_log_probs(theirs.extend(theirs.start(4), rows)))


IN_A_CELL = {"W": "weight_ih", "U": "weight_hh", "b": "bias_ih"}
IN_A_BLOCK = {"qkv": "attention.qkv", "out": "attention.out", "up": "feedforward.up", "down": "feedforward.out"}
LIBRARY: dict[str, tuple[str, type[Any], dict[str, Any], dict[str, str]]] = {
    "feedforward": (
        "feedforward",
        Feedforward,
        {"order": 4, "embedding": 5, "hidden": 7, "layers": 1, "activation": "tanh", "tied": False},
        {"W": "hidden.linears.0.weight", "b": "hidden.linears.0.bias", "U": "head.weight"},
    ),
    **{
        cell: (
            cell,
            Recurrent,
            {"embedding": 5, "hidden": 7, "layers": 1, "tied": False, **reset},
            {ours: f"layers.0.weights.{theirs}_l0" for ours, theirs in IN_A_CELL.items()},
        )
        for cell, reset in (("elman", {}), ("lstm", {}), ("gru", {"reset": "before"}))
    },
    "transformer": (
        "transformer",
        Transformer,
        {"preset": "lecture", "layers": 2, "width": 8, "heads": 2, "window": 6}
        | {"tied": False, "bias": False, "gain": False},
        {f"{ours}{i}": f"blocks.{i}.{theirs}.weight" for i in range(2) for ours, theirs in IN_A_BLOCK.items()},
    ),
}


def twin(name: str, model: Any) -> tuple[Any, dict[str, Any]]:
    """The library's network with the weights of the essay's, and its parameters by our names."""
    kind, network_class, values, names = LIBRARY[name]
    network = network_class(closed(parse(find_kind(kind).settings, values)), model.V, tiny.BOS).double().eval()
    return network, share_weights(model, network, names)


def share_weights(model: Any, network: Any, names: dict[str, str]) -> dict[str, Any]:
    theirs = dict(network.named_parameters())
    names = {"E": "embedding.weight", "O": "head.weight", "c": "head.bias", **names}
    if "embedding" in theirs:
        names["E"] = "embedding"
    shared = {name: theirs[names[name]] for name in model.weights}
    with torch.no_grad():
        for weight in network.parameters():
            weight.zero_()
        for name, weight in shared.items():
            ours = torch.from_numpy(as_theirs(name, model.weights[name].value))
            weight[: len(ours)] = ours
    return shared


def as_theirs(name: str, ours: np.ndarray) -> np.ndarray:
    """A matrix of the library has a row for each output; the table of embeddings has one for each token in both."""
    return ours if name == "E" else ours.T


@pytest.mark.parametrize("name", LIBRARY)
def test_weights_give_the_same_probabilities(name: str) -> None:
    model = made(name)
    network, _ = twin(name, model)
    theirs = NeuralModel(network, CharTokenizer("abcde"), "stream", kind=name, settings=network.config)
    rows = np.random.default_rng(0).integers(2, FEW_V, (3, 20))  # longer than the window
    rows[1, 13:] = tiny.PAD
    assert_close(model.score(rows), theirs.score(rows).numpy())
    found = model.next_log_probs(model.extend(model.start(3), rows))
    assert_close(found, theirs.next_log_probs(theirs.extend(theirs.start(3), rows)).numpy())


@pytest.mark.parametrize("name", LIBRARY)
def test_the_tape_gives_the_same_gradients(name: str) -> None:
    model = made(name)
    network, shared = twin(name, model)
    ids = np.random.default_rng(0).integers(2, FEW_V, (3, 6))
    targets = np.roll(ids, -1, axis=1)
    loss = model.loss(ids, targets)
    tiny.backward(model.loss, ids, targets)
    logits = network.head(network(torch.from_numpy(ids)).features_BTD)
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.from_numpy(targets).flatten())
    expected.backward()
    assert_close(loss.value, expected.item())
    for each, weight in shared.items():
        gradient = as_theirs(each, model.weights[each].grad)
        assert_close(gradient, weight.grad[: len(gradient)].numpy())


def test_an_encoder_decoder_gives_the_same_probabilities() -> None:
    model, rng = tiny.EncoderDecoder(FEW, cell="lstm", width=6), np.random.default_rng(2)
    for node in model.weights.values():
        node.value = rng.normal(0, 0.5, node.value.shape)
    values = {"cell": "lstm", "attention": "dot", "bidirectional": False, "layers": 1, "width": 6, "tied": False}
    settings = closed(parse(find_kind("seq2seq").settings, values))
    network = RecurrentEncoderDecoder(settings, model.V, tiny.BOS, model.V, shares=True).double().eval()
    sides = {"encoder": "encoder.forwards.0", "decoder": "decoder.0"}
    cells = product(sides.items(), IN_A_CELL.items())
    names = {f"{side}.{ours}": f"{place}.weights.{theirs}_l0" for (side, place), (ours, theirs) in cells}
    share_weights(model, network, {**names, "M": "mix.weight"})
    tokenizer = CharTokenizer("abcde")
    theirs = EncoderDecoderModel(network, tokenizer, tokenizer, kind="seq2seq", settings=settings)
    sources = [np.asarray([3, 4, 5, 2]), np.asarray([6, 2]), np.asarray([7, 7, 3, 3, 4, 2])]
    rows = rng.integers(2, FEW_V, (3, 9))
    state = model.start(sources)
    assert_close(model.score(rows, state), theirs.score(rows, theirs.begin(sources)).numpy())


def test_a_reset_after_the_product_is_the_librarys_too() -> None:
    model, rows = made("gru"), np.random.default_rng(0).integers(2, FEW_V, (3, 9))
    model.layer.cell = partial(tiny.gru, reset_after=True)
    _, network_class, values, names = LIBRARY["gru"]
    settings = closed(parse(find_kind("gru").settings, {**values, "reset": "after"}))
    network = network_class(settings, model.V, tiny.BOS).double().eval()
    share_weights(model, network, names)
    theirs = NeuralModel(network, CharTokenizer("abcde"), "stream", kind="gru", settings=settings)
    assert_close(model.score(rows), theirs.score(rows).numpy())


# -- tokens, gradients, writing ----------------------------------------------------------------------------------


def test_merges_are_those_of_the_library() -> None:
    """The library's BPE begins with all 256 bytes; on the same words it merges the same pairs in the same order."""
    text = " ".join(re.findall("[a-z]+", b"".join(builtin_documents("builtin:shakespeare")[:300]).decode()))
    expected = learn_merges(Counter(text.replace(" ", " Ġ").split(" ")), vocab_size=256 + 30)
    assert tiny.learn_tokens(text, merges=30).tokens[-30:] == [one.token.decode() for one in expected]


def test_the_lecture_merges_love() -> None:
    tokenizer = tiny.learn_tokens("love love cats", merges=3)
    assert tokenizer.tokens[-1] == "love" and len(tokenizer.tokens) == 3 + 9 + 3
    assert [tokenizer.tokens[i] for i in tokenizer.encode("love cats\n")] == ["love", *" cats\n"]


@pytest.mark.parametrize("text", ["aaaa", "aaaaa\naaa", "a b  c a b", TEXT])
def test_text_survives_its_tokens(text: str) -> None:
    tokenizer = tiny.learn_tokens(text, merges=20)
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert len(ids) < len(text) and not any(" " in token[1:] for token in tokenizer.tokens)


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_are_slopes(name: str) -> None:
    """Moving all weights a little along a direction changes the loss by the gradient's part in that direction."""
    model, rng = made(name), np.random.default_rng(0)
    rows = rng.integers(2, FEW_V, (2, 2, 5))
    batch = ([[3, 4, 2], [5, 2]], [[3, 3, 4, 2], [5, 2]]) if name == "encoder-decoder" else tuple(rows)
    tiny.backward(model.loss, *batch)
    direction = {name: rng.normal(size=node.value.shape) for name, node in model.weights.items()}
    slope = sum((node.grad * direction[name]).sum() for name, node in model.weights.items())
    losses = []
    for step in (1e-5, -2e-5):
        for name, node in model.weights.items():
            node.value = node.value + step * direction[name]
        losses.append(float(model.loss(*batch).value))
    assert (losses[0] - losses[1]) / 2e-5 == pytest.approx(slope, rel=1e-6)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_learns(name: str) -> None:
    model = MODELS[name](FEW)
    ids = FEW.encode("abcde\n" * 40)
    pairs = [(ids[i : i + 6], ids[i + 1 : i + 7]) for i in range(20)]
    if name == "encoder-decoder":
        pairs = [([3, 4, 2], [4, 3, 3, 2]), ([5, 2], [7, 2])]
    before = float(model.loss(*zip(*pairs, strict=True)).value)
    tiny.learn(model, pairs, rows=8, steps=60, rate=0.03)
    assert float(model.loss(*zip(*pairs, strict=True)).value) < 0.4 * before


@pytest.mark.parametrize("name", MODELS)
def test_a_beam_is_greedy_or_exact(name: str) -> None:
    """One beam takes the best token at each step; a beam of all texts finds the best of them."""
    model = made(name)
    lm = Adapter(model)
    (greedy,) = beam_search(lm, lm.start(1), cr.Beam(1, 0.0, "best"), max_tokens=6, end=tiny.EOS)[0]
    ids, log_prob = tiny.beam_search(model, model.start(1), 1, 6)
    assert log_prob == pytest.approx(greedy.log_prob) and ids == greedy.ids
    for power in (0.0, 1.0):
        best = max(chain.every_sequence(lm, 3), key=lambda one: one[1] / len(one[0]) ** power)
        found = tiny.beam_search(model, model.start(1), 1000, 3, power)
        assert found[0] == best[0] and found[1] == pytest.approx(best[1])


def test_samples_come_from_the_tokens_that_are_left() -> None:
    model, rng = made("kneser-ney"), np.random.default_rng(0)
    p = np.exp(model.next_log_probs(model.start(1))[0])
    best = np.argsort(-p)
    drawn = [tiny.sample(model, model.start(1), 1, rng)[0] for _ in range(1000)]
    assert np.bincount(drawn, minlength=model.V) / 1000 == pytest.approx(p, abs=0.05)
    assert {tiny.sample(model, model.start(1), 1, rng, top_k=2)[0] for _ in range(50)} == set(best[:2].tolist())
    assert {tiny.sample(model, model.start(1), 1, rng, top_p=p[best[0]] - 0.01)[0] for _ in range(20)} == {best[0]}
    assert {tiny.sample(model, model.start(1), 1, rng, temperature=0.01)[0] for _ in range(20)} == {best[0]}


# -- the file -----------------------------------------------------------------------------------------------------


def test_it_is_short_and_needs_numpy_alone() -> None:
    source = FILE.read_text()
    assert len(source.splitlines()) <= 600
    roots = {
        (node.module if isinstance(node, ast.ImportFrom) else node.names[0].name).split(".")[0]  # type: ignore[union-attr]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, (ast.Import, ast.ImportFrom))
    }
    assert roots - set(sys.stdlib_module_names) == {"numpy"}


def test_the_command_trains_every_family(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT * 4)
    command = [sys.executable, str(FILE), str(tmp_path / "text.txt"), "--share", "0.001"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert all(name in done.stdout for name in tiny.FAMILIES), done.stdout


def test_a_name_that_is_no_family_and_no_text_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "short.txt").write_text("too short\n")
    for wrong in ("lstmm", str(tmp_path / "short.txt")):
        monkeypatch.setattr(sys, "argv", ["tiny.py", "lstm", wrong])
        with pytest.raises(SystemExit) as ended:
            tiny.main()
        assert ended.value.code == 2
