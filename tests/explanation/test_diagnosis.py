"""Diagnoses agree with the network: gradients, gates and attention weights."""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from chainrule.autodiff.tape_model import kinds_on_tape
from chainrule.contract import kinds
from chainrule.errors import DiagnosisError
from chainrule.explanation.diagnosis import Diagnosis, diagnose, gradients_picture, with_recurrent_norm
from chainrule.inference.neural_model import NeuralModel
from chainrule.networks.bag_of_words import BagOfWords
from chainrule.networks.feedforward import Feedforward
from chainrule.networks.network import Network
from chainrule.networks.recurrent.rnn import Recurrent
from chainrule.networks.settings import NeuralSettings
from chainrule.networks.transformer.config import TransformerConfig
from chainrule.networks.transformer.decoder import Transformer
from chainrule.ngram.ngram_model import NgramModel
from chainrule.settings import closed, parse
from chainrule.tokens.words.tokenizer import WordTokenizer
from listening import Listening

LETTERS = "abcdefgh"
TOKENIZER = WordTokenizer([letter.encode() for letter in LETTERS])
TEXT = "a b c d e f g h a c"

DESIGNS: list[dict[str, Any]] = [
    {"preset": "gpt2"},
    {"preset": "lecture"},
    {"preset": "llama", "heads": 4, "kv_heads": 2},
    {"positions": "alibi", "kv_heads": 1, "zero_init": False},
]


def model(kind: str, network: type[Network], context: Any, settings: dict[str, Any]) -> NeuralModel:
    """A model in double precision, of weights that single precision holds too."""
    torch.manual_seed(5)
    chosen = closed(parse(kinds.find_kind(kind).settings, {**settings, "engine": "torch"}))
    made = network(chosen, TOKENIZER.vocab_size, TOKENIZER.bos).double()
    return NeuralModel(made, TOKENIZER, context, kind=kind, settings=chosen)


def recurrent(cell: str, context: Any = "line", **settings: Any) -> NeuralModel:
    return model(cell, Recurrent, context, {"embedding": 5, "hidden": 6, "layers": 2, **settings})


def transformer(**settings: Any) -> NeuralModel:
    small = {"layers": 2, "width": 8, "heads": 2, "window": 12, "hidden": 8, "initial_std": 0.5}
    return model("transformer", Transformer, "line", {**small, **settings})


def feedforward(order: int = 4) -> NeuralModel:
    return model("feedforward", Feedforward, "line", {"order": order, "embedding": 5, "hidden": 6})


def bag_of_words() -> NeuralModel:
    return model("bagofwords", BagOfWords, "line", {"window": 12, "embedding": 5, "hidden": 6})


def read(text: str = TEXT) -> tuple[Tensor, int]:
    """The tokens that are read, [1, T], and the token that is predicted."""
    ids = TOKENIZER.encode(text).tolist()
    return torch.tensor([[TOKENIZER.bos, *ids[:-1]]]), ids[-1]


def loss(lm: NeuralModel, features_D: Tensor, target: int) -> Tensor:
    logits_V = lm.network.head(features_D)
    logits_V = torch.cat([logits_V[: TOKENIZER.bos], torch.tensor([-math.inf]), logits_V[TOKENIZER.bos + 1 :]])
    return functional.cross_entropy(logits_V, torch.tensor(target))


MODELS = {
    "feedforward": feedforward,
    "bagofwords": bag_of_words,
    "elman": lambda: recurrent("elman", tied=False, activation="relu"),
    "lstm": lambda: recurrent("lstm", tied=False, learned_start=True),
    "gru": lambda: recurrent("gru", tied=False),
    "transformer": lambda: transformer(preset="gpt2", tied=False),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_loss_is_the_models_and_the_model_stays_as_it_is(name: str) -> None:
    lm = MODELS[name]()
    before = {name: weight.clone() for name, weight in lm.network.state_dict().items()}
    found = diagnose(lm, TEXT)
    scores_BT = lm.score(TOKENIZER.encode(TEXT)[None].astype(np.int64))
    assert found.nats == pytest.approx(-scores_BT[0, -1].item(), rel=1e-6)
    assert (found.tokens, found.target) == (("<s>", *"abcdefgha"), "c")
    assert all(torch.equal(weight, before[name]) for name, weight in lm.network.state_dict().items())
    assert all(weight.requires_grad for weight in lm.network.parameters())
    torch.testing.assert_close(lm.score(TOKENIZER.encode(TEXT)[None].astype(np.int64)), scores_BT)


@pytest.mark.parametrize("name", MODELS)
def test_embedding_gradients_are_slopes(name: str) -> None:
    """The gradient of a token that occurs once is that of its row of the table."""
    lm = MODELS[name]()
    found = diagnose(lm, TEXT)
    table_VD = dict(lm.network.named_parameters()).get("embedding.weight", lm.network.embedding)
    assert isinstance(table_VD, Tensor)
    ids_1T, target = read()
    step, epsilon = found.tokens.index("h"), 1e-6

    def loss_with(unit: int, change: float) -> float:
        with torch.no_grad():
            table_VD[ids_1T[0, step], unit] += change
            nats = loss(lm, lm.network(ids_1T).features_BTD[0, -1], target).item()
            table_VD[ids_1T[0, step], unit] -= change
        return nats

    slopes = [
        (loss_with(unit, epsilon) - loss_with(unit, -epsilon)) / (2 * epsilon) for unit in range(table_VD.shape[1])
    ]
    assert found.embedding_gradient_T[step] == pytest.approx(np.linalg.norm(slopes), rel=1e-5)
    assert found.embedding_gradient_T[step] > 1e-4


def test_a_feedforward_network_depends_on_its_last_tokens_only() -> None:
    norms_T = diagnose(feedforward(order=4), TEXT).embedding_gradient_T
    assert (norms_T[:-3] == 0).all()
    assert (norms_T[-3:] > 0).all()


@pytest.mark.parametrize("cell", ["elman", "lstm", "gru"])
def test_state_gradients_are_those_of_a_memory_that_is_read_on_from(cell: str) -> None:
    """Reading stops after step t, the memory becomes a variable, and the fused layers read on."""
    lm = recurrent(cell, hidden=4)
    found = diagnose(lm, TEXT)
    ids_1T, target = read()
    for t in range(ids_1T.shape[1] - 1):
        memory = lm.network(ids_1T[:, : t + 1]).memory.detach()
        (*_, top) = memory.states
        for part in top:
            part.requires_grad_()
        reading = lm.network(ids_1T[:, t + 1 :], memory)
        slopes = torch.autograd.grad(loss(lm, reading.features_BTD[0, -1], target), top)
        assert found.state_gradients["h"][-1, t] == pytest.approx(slopes[0].norm().item(), rel=1e-9)
        if cell == "lstm":
            # h_t = o_t ⊙ tanh(c_t) is another way from c_t:  dL/dc = ∂L/∂c + ∂L/∂h ⊙ o (1 - tanh²(c))
            o_H = torch.tensor(found.gates["output"][-1][t])
            total = slopes[1] + slopes[0] * o_H * (1 - top[1].tanh().square())
            assert found.state_gradients["c"][-1, t] == pytest.approx(total.norm().item(), rel=1e-9)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_the_states_follow_from_the_gates(cell: str) -> None:
    lm = recurrent(cell)
    found = diagnose(lm, TEXT)
    ids_1T, _ = read()
    states = lm.network(ids_1T).memory.states
    for layer, state in enumerate(states):
        gates = {name: torch.tensor(layers[layer]) for name, layers in found.gates.items()}
        h = c = torch.zeros(gates["candidate"].shape[1])
        for t in range(ids_1T.shape[1]):
            g = {name: values_TH[t] for name, values_TH in gates.items()}
            if cell == "lstm":
                # c_t = f_t ⊙ c_{t-1} + i_t ⊙ g_t,  h_t = o_t ⊙ tanh(c_t)
                c = g["forget"] * c + g["input"] * g["candidate"]
                h = g["output"] * c.tanh()
            else:
                # h_t = (1 - z_t) ⊙ n_t + z_t ⊙ h_{t-1}
                h = (1 - g["update"]) * g["candidate"] + g["update"] * h
        for got, expected in zip((h, c), state, strict=False):
            torch.testing.assert_close(got, expected[0])
        for name, expected in zip("hc", state, strict=False):
            torch.testing.assert_close(torch.tensor(found.states[name][layer][-1]), expected[0])


@pytest.mark.parametrize("design", DESIGNS, ids=str)
def test_the_last_token_is_followed_through_the_fused_layers(design: dict[str, Any]) -> None:
    """What hooks see in the torch network: inputs and outputs of blocks, and what their two parts add."""
    lm = transformer(**design)
    diagnosis = diagnose(lm, TEXT)
    found = diagnosis.followed
    assert found is not None and diagnosis.attention_LHTT is not None
    seen: list[tuple[Tensor, ...]] = []
    added: dict[str, list[Tensor]] = {"attention": [], "feedforward": []}
    for block in lm.network.blocks:  # type: ignore[union-attr]
        block.register_forward_hook(lambda _, inputs, out: seen.append((inputs[0], out)))
        for name, outputs in added.items():
            part = getattr(block, name).out
            part.register_forward_hook(lambda _, inputs, out, outputs=outputs: outputs.append(out))
            if name == "feedforward":
                part.register_forward_pre_hook(lambda _, inputs: hidden.append(inputs[0]))
    hidden: list[Tensor] = []
    ids_1T, target = read()
    reading = lm.network(ids_1T)
    last = lambda x: x[0, -1].detach().numpy()  # noqa: E731
    np.testing.assert_allclose(found.first_D, last(seen[0][0]))
    for layer, (block, (_, out)) in enumerate(zip(found.blocks, seen, strict=True)):
        np.testing.assert_allclose(block.out_D, last(out))
        np.testing.assert_allclose(block.attention_D, last(added["attention"][layer]))
        np.testing.assert_allclose(block.feedforward_D, last(added["feedforward"][layer]))
        np.testing.assert_allclose(block.hidden_I, last(hidden[layer]))
        weights_HT = np.exp(block.attended.scores_HT - block.attended.scores_HT.max(axis=-1, keepdims=True))
        weights_HT /= weights_HT.sum(axis=-1, keepdims=True)
        np.testing.assert_allclose(weights_HT, diagnosis.attention_LHTT[layer, :, -1])
    expected = -loss(lm, reading.features_BTD[0, -1], target).item()
    assert diagnosis.log_probs_V is not None
    for log_probs_V in (diagnosis.log_probs_V, found.log_probs_SV[-1]):
        assert log_probs_V[target] == pytest.approx(expected)
        assert np.exp(log_probs_V).sum() == pytest.approx(1)
    np.testing.assert_allclose(np.exp(found.log_probs_SV).sum(axis=-1), 1)


@pytest.mark.parametrize("design", DESIGNS, ids=str)
def test_attention_weights_are_those_of_the_fused_layers(design: dict[str, Any]) -> None:
    """The weights times the values are the outputs of each layer's heads."""
    lm = transformer(**design)
    weights_LHTT = diagnose(lm, TEXT).attention_LHTT
    assert weights_LHTT is not None
    qkv, taken = [], []
    for block in lm.network.blocks:  # type: ignore[union-attr]
        block.attention.qkv.register_forward_hook(lambda _, inputs, out: qkv.append(out[0]))
        block.attention.out.register_forward_pre_hook(lambda _, inputs: taken.append(inputs[0][0]))
    ids_1T, _ = read()
    lm.network(ids_1T)
    config = lm.network.config
    assert isinstance(config, TransformerConfig)
    size = config.width // config.heads
    for weights_HTT, qkv_TD, taken_TD in zip(weights_LHTT, qkv, taken, strict=True):
        v_TGK = qkv_TD[:, -config.kv_heads * size :].unflatten(1, (config.kv_heads, size))
        for head in range(config.heads):
            v_TK = v_TGK[:, head * config.kv_heads // config.heads]
            expected_TK = taken_TD[:, head * size : (head + 1) * size]
            torch.testing.assert_close(torch.tensor(weights_HTT[head]) @ v_TK, expected_TK)
    np.testing.assert_allclose(weights_LHTT.sum(axis=-1), 1)
    assert (np.triu(weights_LHTT, k=1) == 0).all()
    assert (weights_LHTT[..., 1:, 0] > 0).all()


# -- the lecture's point ------------------------------------------------------------------------------------

STEPS = 50
LONG = " ".join(LETTERS[i * i % 8] for i in range(STEPS))


def with_recurrent_weights(cell: str, scale: float, *, inputs: float = 1.0, forget: float = 0.0) -> NeuralModel:
    """One layer whose U is orthogonal times `scale`, and whose W is times `inputs`."""
    lm = recurrent(cell, layers=1, hidden=16)
    (layer,) = lm.network.layers  # type: ignore[union-attr]
    W, U, b, _ = layer.weights.parameters()
    with torch.no_grad():
        W *= inputs
        U *= scale
        if cell == "lstm":
            b.chunk(4)[1].fill_(forget)
    return lm


def ratio(found: Diagnosis, state: str) -> float:
    """Of the oldest to the newest gradient, 49 steps apart."""
    (norms_T,) = found.state_gradients[state]
    assert len(norms_T) == STEPS
    return float(norms_T[0] / norms_T[-1])


def test_the_gradient_of_an_elman_network_vanishes() -> None:
    """∂h_t/∂h_{t-1} = diag(1 - h_t²) U, and no 1 - h² is above 1: with U = 0.5 Q each step back halves at least."""
    found = ratio(diagnose(with_recurrent_weights("elman", 0.5), LONG), "h")
    assert 0 < found <= 0.5**49 < 1e-6


def test_the_gradient_of_an_elman_network_explodes() -> None:
    """With inputs so small that tanh is a straight line, each step back is a multiplication by U = 1.2 Q."""
    found = ratio(diagnose(with_recurrent_weights("elman", 1.2, inputs=1e-6), LONG), "h")
    assert 1.2**49 > 7500
    assert found == pytest.approx(1.2**49, rel=0.01)


def test_the_gradient_stays_if_the_weights_are_orthogonal() -> None:
    found = ratio(diagnose(with_recurrent_weights("elman", 1.0, inputs=1e-6), LONG), "h")
    assert found == pytest.approx(1, rel=1e-5)  # float32, over many steps


def test_the_cell_of_an_lstm_keeps_the_gradient() -> None:
    """With the U of the network that forgets: through the cell alone about σ(6)^49 = 0.886 is left.

    What reaches c_t through the states h in between may add to that or take from it.
    """
    found = diagnose(with_recurrent_weights("lstm", 0.5, forget=6.0), LONG)
    assert ratio(found, "c") > 1e-2
    shut = diagnose(with_recurrent_weights("lstm", 0.5, forget=-6.0), LONG)
    assert ratio(shut, "c") < 1e-6


def test_through_the_cell_only_the_forget_gate_multiplies() -> None:
    """With U = 0 there is no other way back: ∂c_T/∂c_t = Π f, and so for each unit."""
    found = diagnose(with_recurrent_weights("lstm", 0.0, forget=4.0), LONG)
    (forget_TH,), (norms_T,) = found.gates["forget"], found.state_gradients["c"]
    product_H = np.prod(forget_TH[1:], axis=0)
    assert product_H.min() <= norms_T[0] / norms_T[-1] <= product_H.max()
    assert product_H.max() < 1


@pytest.mark.parametrize("norm", [0.5, 1.2])
def test_recurrent_matrices_are_scaled_to_a_norm(norm: float) -> None:
    """The start of an Elman network is orthogonal: U alone leaves norm^k of the gradient after k steps."""
    lm = recurrent("elman", layers=1, hidden=16)
    before = diagnose(lm, LONG)
    found = diagnose(lm, LONG, recurrent_norm=norm)
    (alone_T,) = found.alone["h"]
    np.testing.assert_allclose(alone_T / alone_T[-1], norm ** np.arange(STEPS)[::-1], rtol=1e-4)
    # tanh only shrinks: no gradient is above what U alone would leave
    assert (found.state_gradients["h"][0] <= alone_T * (1 + 1e-9)).all()
    np.testing.assert_array_equal(diagnose(lm, LONG).embedding_gradient_T, before.embedding_gradient_T)


def test_what_the_recurrent_matrix_alone_leaves() -> None:
    """Where tanh is a straight line, U is the only factor: also a U that is far from orthogonal."""
    lm = with_recurrent_weights("elman", 1.0, inputs=1e-6)
    with torch.no_grad():
        lm.network.layers[0].weights.weight_hh_l0 *= torch.linspace(0.2, 1.2, 16)  # type: ignore[index, union-attr]
    found = diagnose(lm, LONG)
    np.testing.assert_allclose(found.alone["h"], found.state_gradients["h"], rtol=1e-5)


def test_each_gate_has_a_matrix_of_that_norm() -> None:
    matrices = with_recurrent_norm(recurrent("lstm"), 0.7).network.recurrent_matrices()
    assert len(matrices) == 2 * 4
    assert [np.linalg.norm(one, ord=2) for one in matrices] == pytest.approx([0.7] * 8, rel=1e-5)


def test_only_recurrent_matrices_are_scaled() -> None:
    with pytest.raises(DiagnosisError, match="kind transformer has no recurrent matrix to scale"):
        diagnose(transformer(), TEXT, recurrent_norm=0.5)
    with pytest.raises(DiagnosisError, match="should be above 0, not 0"):
        diagnose(recurrent("elman"), TEXT, recurrent_norm=0)


@pytest.mark.parametrize(("cell", "state", "gate"), [("lstm", "c", "forget"), ("gru", "h", "update")])
def test_what_the_gates_alone_leave(cell: str, state: str, gate: str) -> None:
    """By hand from the gates: the product over the later steps, in each unit."""
    lm = recurrent(cell, learned_start=True)
    found = diagnose(lm, TEXT)
    assert list(found.alone) == [state]
    for layer, norms_T in enumerate(found.alone[state]):
        gates_TH = found.gates[gate][layer]
        assert norms_T[-1] == pytest.approx(found.state_gradients[state][layer, -1])
        products_TH = [np.prod(gates_TH[step + 1 :], axis=0) for step in range(len(gates_TH))]
        for norm, product_H in zip(norms_T, products_TH, strict=True):
            assert product_H.min() * norms_T[-1] <= norm <= product_H.max() * norms_T[-1] * (1 + 1e-9)
    records = [one for one in found.records() if one["what"] == "gradient_norm_alone"]
    assert len(records) == 2 * len(found.tokens) and {one["by"] for one in records} == {"gates"}


def test_through_the_cell_alone_is_the_gradient_if_there_is_no_other_way() -> None:
    """With U = 0, only the forget gates and each step's own output lead back to a cell."""
    found = diagnose(with_recurrent_weights("lstm", 0.0, forget=4.0), LONG)
    np.testing.assert_allclose(found.state_gradients["c"], found.alone["c"], rtol=1e-9)


def test_gradients_of_several_models_are_in_one_picture() -> None:
    models = {"plain": recurrent("elman"), "gated": recurrent("lstm"), "seeing <all>": transformer(preset="gpt2")}
    picture = gradients_picture({name: diagnose(lm, TEXT) for name, lm in models.items()})
    assert ET.fromstring(picture).tag.endswith("svg")
    names = re.findall(r'<text x="96" y="[0-9]+">(.*?)</text>', picture)
    assert names == [
        *(f"plain: h, layer {n}{by}" for by in ("", " by U alone") for n in (0, 1)),
        *(f"gated: {state}, layer {n}" for state in "hc" for n in (0, 1)),
        *(f"gated: c, layer {n} by gates alone" for n in (0, 1)),
        "seeing &lt;all&gt;: embedding",
    ]
    assert picture.count("<circle") == 10 * len(names)
    assert "embedding" in diagnose(models["plain"], TEXT).svg()


# -- texts and records --------------------------------------------------------------------------------------


def test_records_hold_all_figures(tmp_path: Path) -> None:
    found = diagnose(recurrent("lstm"), TEXT)
    found.save(tmp_path / "records.jsonl")
    lines = (tmp_path / "records.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    assert records == list(found.records())
    # a prediction; 10 steps of embeddings, of 2 layers of h, c and c by gates alone, and of 4 gates in 2 layers
    assert len(records) == 1 + 10 + 10 * 2 * 3 + 10 * 4 * 2
    assert records[0] == {"what": "prediction", "step": 10, "token": "c", "nats": found.nats}
    value = found.state_gradients["c"][1, 3]
    norm = {"what": "gradient_norm", "layer": 1, "state": "c", "step": 3, "token": "c", "value": value}
    assert norm in records
    (gate,) = (r for r in records if (r.get("gate"), r.get("layer"), r["step"]) == ("forget", 0, 9))
    assert gate["values"] == pytest.approx(found.gates["forget"][0][9], abs=1e-6)
    assert gate["mean"] == pytest.approx(found.gates["forget"][0][9].mean())


def test_records_of_attention_have_a_row_for_each_query() -> None:
    found = diagnose(transformer(), TEXT)
    records = [record for record in found.records() if record["what"] == "attention"]
    assert [(r["layer"], r["head"], r["query"]) for r in records] == list(np.ndindex(2, 2, 10))
    for record in records:
        assert len(record["weights"]) == record["query"] + 1
        assert sum(record["weights"]) == pytest.approx(1, abs=1e-5)
        assert record["token"] == found.tokens[record["query"]]


def test_a_token_can_be_chosen() -> None:
    lm = recurrent("gru")
    chosen, shorter = diagnose(lm, TEXT, token=4), diagnose(lm, "a b c d")
    assert list(chosen.records()) == list(shorter.records())
    assert diagnose(lm, "a").tokens == ("<s>",)
    for token in (0, 11):
        with pytest.raises(DiagnosisError, match=f"tokens 1 to 10; there is none with the number {token}"):
            diagnose(lm, TEXT, token=token)


@pytest.mark.parametrize(("make", "read_tokens"), [(lambda: recurrent("elman"), 200), (transformer, 12)])
def test_long_texts_are_cut(make: Any, read_tokens: int) -> None:
    progress = Listening()
    found = diagnose(make(), " ".join("abcdefgh" * 40), progress=progress)
    assert (len(found.tokens), found.tokens[0], found.target) == (read_tokens, "<s>", "h")
    assert progress.notes == [f"of 320 tokens the last {read_tokens} are read, as if the text began there"]


def test_lines_are_read_one_by_one_and_streams_whole() -> None:
    progress = Listening()
    assert diagnose(recurrent("gru"), "a b\r\nc d\n", progress=progress).tokens == ("<s>", "c", "d")
    assert progress.notes == ["the model knows single lines: only the last one is read"]
    found = diagnose(recurrent("gru", "stream"), "a b\nc d\n")
    assert (found.tokens, found.target) == (("</s>", "a", "b", "</s>", "c", "d"), "</s>")


def test_unknown_words_are_counted() -> None:
    progress = Listening()
    assert diagnose(recurrent("gru"), "a zebra b", progress=progress).tokens == ("<s>", "a", "<unk>")
    assert progress.notes == ["1 of 3 tokens are unknown to the model"]


@pytest.mark.parametrize("text", ["", "  "])
def test_an_empty_text_shows_nothing(text: str) -> None:
    with pytest.raises(DiagnosisError, match="no token to predict"):
        diagnose(recurrent("gru"), text)


def test_only_networks_are_diagnosed() -> None:
    ngram = NgramModel.__new__(NgramModel)
    with pytest.raises(DiagnosisError, match=f"nothing to differentiate; .* {', '.join(kinds_on_tape())}"):
        diagnose(ngram, TEXT)
    found = {name: kinds.find_kind(name) for name in kinds._BUILT_IN}
    neural = {name for name, kind in found.items() if issubclass(kind.settings, NeuralSettings)}
    assert {name for name in neural if found[name].task == "language"} == set(kinds_on_tape())


def test_at_least_one_token_is_read() -> None:
    with pytest.raises(DiagnosisError, match="longest should be at least 1, not 0"):
        diagnose(recurrent("lstm"), TEXT, longest=0)


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("preset", ["gpt2", "lecture"])
def test_a_token_is_followed_with_and_without_residual_connections(preset: str, residual: bool) -> None:
    """What the head would predict after the last block is what it predicts."""
    found = diagnose(transformer(preset=preset, residual=residual), "a b c d")
    assert found.followed is not None and found.log_probs_V is not None
    expected = found.log_probs_V[np.isfinite(found.log_probs_V)]
    last = found.followed.log_probs_SV[-1][np.isfinite(found.log_probs_V)]
    np.testing.assert_allclose(last, expected, atol=1e-9)
