"""One prediction explained: the lecture's way and the fast way are one network, and agree with the model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chainrule as cr
from chainrule.arrays import PAD, to_numpy
from chainrule.autodiff import Tape
from chainrule.autodiff.networks.feedforward import TapeBagOfWords, TapeFeedforward, TapeHiddenLayers
from chainrule.autodiff.networks.network import TapeNetwork
from chainrule.autodiff.networks.recurrent import TapeQrnn, TapeRecurrent
from chainrule.autodiff.networks.transformer import TapeTransformer
from chainrule.autodiff.tape.tape import no_grad
from chainrule.autodiff.tape_model import TapeModel
from chainrule.contract.lm import LanguageModel
from chainrule.errors import DiagnosisError, ModelError
from chainrule.explanation.networks import NetworkExplanation
from chainrule.explanation.pictures.prediction import Prediction
from chainrule.networks.config import BagOfWordsConfig, FeedforwardConfig, QrnnConfig, RecurrentConfig
from chainrule.networks.transformer.config import TransformerConfig
from chainrule.ngram.ngram_model import NgramModel
from listening import Listening

BOS, VOCABULARY = 1, 8  # as many as a table has rows, so that none is padding
TEXT = "i love cats\ni love dogs\ncats chase mice\n" * 3
SMALL = RecurrentConfig(embedding=3, hidden=4, layers=1)
NETWORKS: dict[type, type[TapeNetwork]] = {
    FeedforwardConfig: TapeFeedforward,
    BagOfWordsConfig: TapeBagOfWords,
    RecurrentConfig: TapeRecurrent,
    QrnnConfig: TapeQrnn,
    TransformerConfig: TapeTransformer,
}
DESIGNS: dict[str, Any] = {
    "lecture": FeedforwardConfig(order=4, embedding=2, hidden=5, activation="tanh"),
    "deep": FeedforwardConfig(order=3, embedding=3, hidden=3, layers=2, activation="sigmoid", tied=True),
    "direct": FeedforwardConfig(order=3, embedding=2, hidden=3, direct=True, tied=True),
    "bag": BagOfWordsConfig(embedding=3, hidden=4, activation="tanh"),
    "tied bag": BagOfWordsConfig(embedding=3, hidden=4, layers=1, tied=True, window=None),
    "elman": replace(SMALL, cell="elman", tied=False),
    "relu": replace(SMALL, cell="elman", activation="relu"),
    "lstm": replace(SMALL, cell="lstm", layers=2),
    "gru": replace(SMALL, cell="gru", layers=2, tied=False),
    "qrnn": QrnnConfig(embedding=3, hidden=4, layers=2),
    "learned start of a wide qrnn": QrnnConfig(embedding=3, hidden=4, layers=1, kernel=3, learned_start=True),
    "narrow qrnn": QrnnConfig(embedding=3, hidden=4, layers=1, kernel=1, tied=False),
    "learned start": replace(SMALL, cell="lstm", learned_start=True),
    "lecture's transformer": TransformerConfig(preset="lecture", layers=1, width=4, heads=2, hidden=5, window=4),
    "gpt2": TransformerConfig(preset="gpt2", layers=2, width=4, heads=2, hidden=5, window=4),
    "llama": TransformerConfig(preset="llama", layers=1, width=8, heads=4, kv_heads=2, hidden=5, window=4),
    "fast": TransformerConfig(layers=2, width=6, heads=3, kv_heads=1, hidden=5, window=4, positions="alibi"),
}


def made(design: Any) -> TapeNetwork:
    rng, network = np.random.default_rng(2), NETWORKS[type(design)]
    tensors = {name: rng.normal(0, 0.5, shape) for name, shape in network.shapes(design, VOCABULARY).items()}
    tensors.setdefault("head.bias", np.zeros(VOCABULARY))[BOS] = -np.inf
    return network(design, VOCABULARY, BOS, tensors)


@pytest.mark.parametrize("name", DESIGNS)
def test_the_lecture_s_way_is_the_fast_way(name: str) -> None:
    network, ids, target = made(DESIGNS[name]), [1, 4, 6, 4], 3
    with Tape() as tape:
        slow = Prediction(network, ids, target, str)
        tape.backward()
    targets_BT = np.full((1, len(ids)), PAD)
    targets_BT[0, -1] = target
    with Tape() as tape:
        fast = network.loss(np.array([ids]), targets_BT)
        tape.backward()
    assert float(slow.loss.out_tensor) == pytest.approx(fast.mean, abs=1e-12)
    for key, parameter in network.parameters.items():
        # a learned start is taken apart into h and, of an LSTM, c
        rows = [slow.parameters[f"{key}.{n}"] for n in range(parameter.out_tensor.shape[0]) if "starts" in key]
        got = np.stack([row.dense_gradient() for row in rows]) if rows else slow.parameters[key].dense_gradient()
        assert np.allclose(got, parameter.dense_gradient(), rtol=0, atol=1e-12), key


@pytest.mark.parametrize(
    ("design", "name"), [*((cell, "what was read") for cell in ("lstm", "qrnn")), ("bag", "sum before")]
)
def test_what_was_read_before_is_data(design: str, name: str) -> None:
    network = made(DESIGNS[design])
    with Tape():
        whole = float(Prediction(network, [1, 4, 6, 4], 3, str).loss.out_tensor)
    with no_grad():
        memory = network.read(np.array([[1, 4]])).memory
    with Tape() as tape:
        part = Prediction(network, [6, 4], 3, str, memory)
        assert float(part.loss.out_tensor) == pytest.approx(whole, abs=1e-12)
        names = {node.name for module in tape.modules for node in module.in_modules}
    assert name in names and "zeros" not in names


def explain(lm: LanguageModel, text: str, **options: Any) -> NetworkExplanation:
    found = cr.explain(lm, text, **options)
    assert isinstance(found, NetworkExplanation)
    return found


# -- trained models ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("explain") / "corpus.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.fixture(scope="module", params=["tape", "torch"])
def lm(request: pytest.FixtureRequest, corpus: Path) -> LanguageModel:
    return cr.train("gru", corpus, steps=2, embedding=4, hidden=4, layers=1, engine=request.param, tokenizer="word")


def test_the_explanation_agrees_with_the_model(lm: LanguageModel) -> None:
    found = explain(lm, "cats chase mice", last=2)
    ids = lm.tokenizer.encode("cats chase mice")[None]
    assert found.nats == pytest.approx(-float(to_numpy(lm.score(ids))[0, -1]), abs=1e-5)
    log_probs = to_numpy(lm.next_log_probs(lm.extend(lm.start(1), ids[:, :2])))[0]
    best = np.argsort(-log_probs)[:5]
    assert [token for token, _ in found.likely] == [lm.tokenizer.token(int(i)) for i in best]
    assert [p for _, p in found.likely] == pytest.approx(np.exp(log_probs[best]).tolist(), abs=1e-5)
    assert found.kind == "gru"
    assert found.tokens == ("<s>", "cats", "chase")
    assert (found.target, found.shown) == ("mice", 2)
    assert found.title.startswith("L = -ln p(mice | … cats chase) = ")
    symbols = {node.symbol for node in found.graph.nodes}
    # r, z and n are the gates, h the state, at each of two steps
    assert {"E", "W", "U", "b", "d", "h₀", "x₁", "e₁", "r₁", "z₂", "n₂", "h₂", "z", "y", "L"} <= symbols


def test_the_next_word_may_be_another(lm: LanguageModel) -> None:
    assert explain(lm, "cats chase", next_word="mice").nats == explain(lm, "cats chase mice").nats
    assert explain(lm, "", next_word="cats").tokens == ("<s>",)
    with pytest.raises(DiagnosisError, match=r"one token; 'cats mice' is 2: cats, mice"):
        explain(lm, "i love", next_word="cats mice")
    with pytest.raises(DiagnosisError, match="no token to predict"):
        explain(lm, "")


def test_unknown_words_and_lines_are_noted(lm: LanguageModel) -> None:
    progress = Listening()
    found = explain(lm, "cats chase mice\nzebras love cats", progress=progress)
    assert found.tokens == ("<s>", "<unk>", "love")
    assert progress.notes == [
        "the model knows single lines: only the last one is read",
        "1 of 3 tokens are unknown to the model",
    ]


def test_tokens_that_cannot_be_printed_are_written_out(corpus: Path) -> None:
    lm = cr.train("elman", corpus, tokenizer="char", steps=1, embedding=4, hidden=4, layers=1, engine="tape")
    assert explain(lm, "i ", next_word="l").tokens == ("<s>", "i", "' '")
    assert "' '" in explain(lm, "i l").svg()


def test_the_end_of_a_line_can_be_predicted(lm: LanguageModel) -> None:
    found = explain(lm, "i love cats", next_word="</s>")
    assert (found.tokens[-1], found.target) == ("cats", "</s>")


def test_bad_calls_say_what_to_do(lm: LanguageModel) -> None:
    with pytest.raises(DiagnosisError, match="at least 1, not 0"):
        explain(lm, "i love", last=0)
    with pytest.raises(ModelError, match=r"expected a model, not 'folder': chainrule.load\(FOLDER\) returns one"):
        cr.explain("folder", "i love")  # type: ignore[arg-type]


def test_other_kinds_are_refused(corpus: Path) -> None:
    class Other(NgramModel):
        @property
        def explained_by(self) -> str:  # type: ignore[override]
            raise AttributeError

    with pytest.raises(ModelError, match="kind ngram cannot be explained: it declares no `explained_by`"):
        cr.explain(Other.__new__(Other), "i love cats")


def test_a_network_of_a_plug_in_is_explained_as_it_computes(corpus: Path) -> None:
    """Without a drawing of its own, a network on the tape is drawn with all tokens at once."""

    class Plugin(TapeHiddenLayers):
        begin, read = TapeFeedforward.begin, TapeFeedforward.read  # type: ignore[assignment]

    lm = cr.train("feedforward", corpus, steps=2, order=3, embedding=4, hidden=4, engine="tape", tokenizer="word")
    expected = explain(lm, "i love cats")
    lm.kind = "another"
    assert isinstance(lm, TapeModel)
    lm.network = Plugin(lm.network.config, lm.network.vocab_size, lm.network.bos, lm.tensors())
    found = explain(lm, "i love cats")
    assert found.nats == pytest.approx(expected.nats)
    assert {"hidden.linears.0.weight", "z", "y", "L"} <= {node.symbol for node in found.graph.nodes}


@pytest.mark.parametrize("engine", ["tape", "torch"])
@pytest.mark.parametrize("preset", ["lecture", "gpt2", "llama", "bert", "fast"])
def test_a_transformer_is_explained_in_its_window(corpus: Path, engine: str, preset: str) -> None:
    """The window of four has slid by two, twice: "chase" is read in that of the tokens 4 to 7."""
    sizes = {"width": 8, "heads": 2, "layers": 2, "window": 4}
    lm = cr.train("transformer", corpus, steps=2, preset=preset, engine=engine, **sizes, tokenizer="word")
    text, progress = "i love cats i love cats chase mice", Listening()
    found = explain(lm, text, last=1, progress=progress)
    ids = lm.tokenizer.encode(text)[None]
    assert found.nats == pytest.approx(-float(to_numpy(lm.score(ids))[0, -1]), abs=1e-5)
    log_probs = to_numpy(lm.next_log_probs(lm.extend(lm.start(1), ids[:, :-1])))[0]
    assert [p for _, p in found.likely] == pytest.approx(np.exp(np.sort(log_probs)[::-1][:5]).tolist(), abs=1e-5)
    assert (found.tokens, found.shown) == (("i", "love", "cats", "chase"), 4)
    assert found.title.startswith("L = -ln p(mice | i love cats chase) = ")
    assert progress.notes == ["of 8 tokens the last 4 are in the window of the network"]
    symbols = [node.symbol for node in found.graph.nodes]
    assert len(set(symbols)) == len(symbols)
    assert {"x", "E", "h⁰", "q¹", "k¹", "v¹", "A¹", "h¹", "Wqkv²", "W₁²", "h²", "z", "y", "L"} <= set(symbols)
    values = {node.symbol: node for node in found.graph.nodes}
    assert (values["x"].name, values["x"].shape) == ("i love cats chase", (4,))
    assert values["q¹"].shape == (2, 4, 4) and values["h²"].shape == (4, 8)
    assert "<svg" in found.svg()


def test_a_long_text_is_cut_in_titles(corpus: Path) -> None:
    lm = cr.train(
        "transformer", corpus, steps=1, width=8, heads=2, layers=1, window=64, engine="tape", tokenizer="word"
    )
    found = explain(lm, "i love cats " * 10)
    assert found.shown == 30
    assert found.title.startswith("L = -ln p(cats | … cats i love cats i love cats i love cats i love) = ")
    assert {node.name for node in found.graph.nodes if node.symbol == "x"} == {"<s> … love"}


@pytest.mark.parametrize("engine", ["tape", "torch"])
@pytest.mark.parametrize("last", [2, 50])
def test_a_bag_of_words_is_explained_in_its_window(corpus: Path, engine: str, last: int) -> None:
    """The window of four has slid by two, twice: "chase" is read in that of the tokens 4 to 7."""
    lm = cr.train("bagofwords", corpus, steps=2, embedding=4, hidden=4, window=4, engine=engine, tokenizer="word")
    text, progress = "i love cats i love cats chase mice", Listening()
    found = explain(lm, text, last=last, progress=progress)
    ids = lm.tokenizer.encode(text)[None]
    assert found.nats == pytest.approx(-float(to_numpy(lm.score(ids))[0, -1]), abs=1e-5)
    assert found.tokens == ("i", "love", "cats", "chase")
    assert found.shown == min(last, 4)
    assert progress.notes == ["of 8 tokens the last 4 are in the window of the network"]
    equations = [node.equation for node in found.graph.nodes]
    assert "m = 0.25 s" in equations
    assert ("a₁ = stack(s₀; e₁; e₂)" in equations) == (last == 2)


def test_a_stream_is_explained_from_where_it_begins() -> None:
    lm = cr.train(
        "gru",
        cr.Corpus.from_text(TEXT),
        context="stream",
        engine="tape",
        steps=2,
        hidden=4,
        embedding=3,
        tokenizer="word",
    )
    found = explain(lm, "cats", next_word="chase", last=5)
    assert found.tokens == ("</s>", "cats")
    state = lm.extend(lm.start(1), np.asarray([lm.tokenizer.encode("cats")]))
    likely = to_numpy(lm.next_log_probs(state))[0, lm.tokenizer.encode("chase")[0]]
    assert found.nats == pytest.approx(-likely, rel=1e-5)


@pytest.mark.parametrize("engine", ["tape", "torch"])
@pytest.mark.parametrize("design", [{"preset": "lecture"}, {"kv_heads": 1}, {"positions": "alibi"}], ids=str)
def test_the_numbers_of_a_head_are_those_of_attention(corpus: Path, engine: str, design: dict[str, Any]) -> None:
    """Recomputed from the parts: scores from q and k, weights from scores, the mean from weights and values."""
    sizes = {"width": 8, "heads": 2, "layers": 2, "window": 6}
    lm = cr.train("transformer", corpus, steps=2, engine=engine, **{**sizes, **design}, tokenizer="word")
    found, diagnosis = explain(lm, "cats chase mice cats"), cr.diagnose(lm, "cats chase mice cats")
    records = found.record()["attention"]
    assert [(one["layer"], one["head"]) for one in records] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for record in records:
        layer, head = record["layer"], record["head"]
        q_K = np.array(record["query"])
        k_TK, v_TK = (np.array([one[name] for one in record["tokens"]]) for name in ("key", "value"))
        scores_T, weights_T = (np.array([one[name] for one in record["tokens"]]) for name in ("score", "weight"))
        assert [one["token"] for one in record["tokens"]] == ["<s>", "cats", "chase", "mice"]
        bias_T = -np.arange(4)[::-1] * 2.0 ** (-4 * (head + 1)) if design.get("positions") == "alibi" else 0
        np.testing.assert_allclose(scores_T, k_TK @ q_K / np.sqrt(4) + bias_T, atol=1e-4)
        np.testing.assert_allclose(weights_T, np.exp(scores_T) / np.exp(scores_T).sum(), rtol=1e-9)
        np.testing.assert_allclose(record["mean"], weights_T @ v_TK, atol=1e-5)
        assert diagnosis.attention_LHTT is not None
        np.testing.assert_allclose(weights_T, diagnosis.attention_LHTT[layer, head, -1], atol=1e-6)
        assert np.abs(v_TK).max() > 0.01


def test_a_head_that_there_is_not_is_refused(lm: LanguageModel) -> None:
    with pytest.raises(DiagnosisError, match="no attention: queries, keys and values are parts of a Transformer"):
        explain(lm, "cats chase mice").head()
    assert explain(lm, "cats chase mice").record()["attention"] == []
