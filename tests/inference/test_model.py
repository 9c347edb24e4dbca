"""Networks as language models: devices, precisions, folders, and sampling by captured steps."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import chainrule as cr
from chainrule.arrays import PAD, to_numpy
from chainrule.autodiff.tape_model import TapeModel
from chainrule.contract.capabilities import Capabilities
from chainrule.contract.data import TrainingData
from chainrule.contract.kinds import find_kind
from chainrule.decode.sample import Choice, sample_after
from chainrule.decode.strategies import Sample
from chainrule.errors import DamagedFileError, ModelError, SettingsError, TrainingError
from chainrule.folder import read_folder, write_tensors
from chainrule.inference import neural_model as model_module
from chainrule.inference.gpu.captured import TOKENS_THAT_REPAY
from chainrule.inference.gpu.graph_sampling import GraphSampler
from chainrule.inference.neural_model import NeuralModel
from chainrule.inference.state import last_window
from chainrule.inference.torch_model import load_network
from chainrule.networks.transformer.config import TransformerConfig
from chainrule.networks.transformer.decoder import Transformer
from chainrule.networks.transformer.settings import TransformerSettings
from chainrule.settings import closed, parse
from chainrule.testing import LAWS, NOT_OFFERED
from chainrule.tokens.ids import Encoded
from chainrule.training.engines.torch_engine import TorchEngine, _is_float8
from listening import Listening
from manifests import read_manifest, write_manifest

TEXT = cr.Corpus.from_text("i love cats\ni love dogs\ncats chase mice\n" * 5)


def small(**settings: object) -> NeuralModel:
    sizes = {"layers": 2, "width": 16, "heads": 2, "window": 64, "steps": 3}
    lm = cr.train("transformer", TEXT, context="stream", tokenizer="word", **sizes, **settings)
    assert isinstance(lm, NeuralModel)
    with torch.no_grad():
        for weight in lm.network.parameters():
            weight += torch.randn(weight.shape, generator=torch.Generator().manual_seed(2)) * 0.3
    return lm


@pytest.mark.parametrize("engine", ["torch", "tape"])
def test_a_stream_begins_as_after_a_line(engine: str) -> None:
    """<s> stands before every line, but only once before a stream: too little to learn from."""
    for context, read in (("line", "bos"), ("stream", "eos")):
        sizes = {"steps": 1, "hidden": 8, "embedding": 4, "tied": False}
        lm = cr.train("gru", TEXT, context=context, engine=engine, tokenizer="word", **sizes)
        matter = []
        for special in ("bos", "eos"):
            before = to_numpy(lm.next_log_probs(lm.start(1)))
            if isinstance(lm, TapeModel):
                lm.network.table.out_tensor[getattr(lm.tokenizer, special)] += 1
            else:
                lm.network.embedding.weight.data[getattr(lm.tokenizer, special)] += 1
            if not np.array_equal(to_numpy(lm.next_log_probs(lm.start(1))), before):
                matter.append(special)
        assert matter == [read], context


@pytest.mark.parametrize(("size", "slide"), [(4, 3), (4, 2), (4, 4), (4, 1), (1, 1), (2, 1)])
def test_the_last_window_is_the_first_that_reaches_the_end(size: int, slide: int) -> None:
    for length in range(20):
        begin = 0
        while begin + size < length:
            begin += slide
        assert last_window(length, size, slide) == begin


@pytest.mark.parametrize("share", [0.0001, 0.6, 1.0])
@pytest.mark.parametrize("known", [0, 1, 4, 9])
def test_many_windows_are_scored_at_once(share: float, known: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As plainly, a token at a time, but in calls of 3 windows of 5 tokens for two rows."""
    lm = cr.train("bagofwords", TEXT, steps=1, window=5, slide=share, context="stream", tokenizer="word")
    assert isinstance(lm, NeuralModel)
    ids_BT = np.random.default_rng(0).integers(3, 7, (2, 40 + known))
    state, plain = lm.extend(lm.start(2), ids_BT[:, :known]), []
    for t in range(known, ids_BT.shape[1]):
        plain.append(lm.next_log_probs(state)[[0, 1], ids_BT[:, t]])
        state = lm.extend(state, ids_BT[:, t : t + 1])
    sizes, forward = [], lm.network.forward
    monkeypatch.setattr(lm.network, "forward", lambda x, *rest: (sizes.append(len(x)), forward(x, *rest))[1])
    monkeypatch.setattr(model_module, "TOKENS_AT_ONCE", 30)
    before = lm.extend(lm.start(2), ids_BT[:, :known])
    sizes.clear()
    scores_BT = lm.score(ids_BT[:, known:], before)
    torch.testing.assert_close(scores_BT, torch.stack(plain, dim=1), rtol=1e-4, atol=1e-5)
    assert max(sizes) == 2 * 3


def test_large_vocabularies_are_scored_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    lm, ids_BT = small(), np.asarray([[3, 4, 5, 6, 3, 4]])
    expected = lm.score(ids_BT)
    monkeypatch.setattr(model_module, "LOGITS_AT_ONCE", 2 * lm.tokenizer.vocab_size)
    monkeypatch.setattr(model_module, "TOKENS_AT_ONCE", 2)
    torch.testing.assert_close(lm.score(ids_BT), expected)


def test_a_model_computes_in_the_precision_it_is_asked_for(tmp_path: Path) -> None:
    lm = small()
    lm.save(tmp_path / "m")
    exact, rough = cr.load(tmp_path / "m"), cr.load(tmp_path / "m", dtype="bfloat16")
    assert isinstance(rough, NeuralModel) and rough.network.head.weight.dtype == torch.bfloat16
    assert exact.perplexity("i love cats") == lm.perplexity("i love cats")
    # eight bits of a number: some percent of a perplexity
    assert rough.perplexity("i love cats") == pytest.approx(lm.perplexity("i love cats"), rel=0.1)
    assert rough.perplexity("i love cats") != lm.perplexity("i love cats")
    with pytest.raises(SettingsError, match="cannot be used here"):
        cr.load(tmp_path / "m", device="nonsense")


def test_a_folder_that_lacks_a_weight_is_damaged(tmp_path: Path) -> None:
    small().save(tmp_path / "m")
    tensors = dict(read_folder(tmp_path / "m").tensors)
    tensors["embedding"] = tensors["embedding"][:, :3]
    rewrite(tmp_path / "m", tensors)
    with pytest.raises(DamagedFileError, match=r"embedding has the shape \[\d+, 3\], not \[\d+, 16\]"):
        cr.load(tmp_path / "m")
    del tensors["embedding"]
    rewrite(tmp_path / "m", tensors)
    with pytest.raises(DamagedFileError, match="no array 'embedding'"):
        cr.load(tmp_path / "m")


def rewrite(folder: Path, tensors: dict[str, np.ndarray]) -> None:
    """Other arrays in a folder whose manifest knows of them."""
    import hashlib

    tensors = {name: np.array(array) for name, array in tensors.items()}
    path = folder / "model.safetensors"
    write_tensors(path, tensors)
    manifest = read_manifest(folder)
    manifest["files"][path.name] = {
        "bytes": path.stat().st_size,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
    }
    write_manifest(folder, manifest)


CHOOSING: list[cr.decode.Strategy] = [cr.Sample(), cr.TopK(4) | cr.Temperature(0.9), cr.TopP(0.8), cr.Greedy()]


@pytest.mark.parametrize(
    ("strategy", "preset"),
    [
        pytest.param(strategy, preset, marks=[] if i == j else [pytest.mark.slow])
        for i, preset in enumerate(["lecture", "gpt2", "llama", "fast"])
        for j, strategy in enumerate(CHOOSING)
    ],
)
def test_captured_steps_sample_the_same_as_single_steps(
    strategy: cr.decode.Strategy, preset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm = small(preset=preset)
    prompts = [[3, 4], [5], [6, 5, 4, 3]]

    def write() -> list[tuple[int, ...]]:
        # 70 tokens: the window of 64 slides on the way
        found = sample_after(lm, prompts, strategy, max_tokens=70, seed=3, end=lm.tokenizer.unk)
        return [continuation.ids for continuation in found]

    one_by_one = write()
    monkeypatch.setattr(NeuralModel, "capabilities", Capabilities(frozenset({"write"})))
    monkeypatch.setattr(NeuralModel, "_has_loops", False)
    assert write() == one_by_one
    assert lm.captured.samplers and not lm.captured.has_failed


def test_the_state_after_captured_steps_is_a_value() -> None:
    lm = small()
    choose, uniforms = Choice(cr.Sample(), None), np.random.default_rng(0).random((2, 4))
    start = lm.extend(lm.start(2), np.asarray([[3, 4], [5, 6]]))
    first = lm.captured.write(start, choose, uniforms)
    assert first is not None
    after, tokens, scores = first
    before = lm.next_log_probs(after).clone()
    again = lm.captured.write(start, choose, uniforms)  # from the older state: it takes the place of the newer one
    assert again is not None and torch.equal(again[1], tokens) and torch.equal(again[2], scores)
    torch.testing.assert_close(lm.next_log_probs(after), before)
    longer, token = lm.extend(after, tokens[:, -1:]), lm.extend(again[0], tokens[:, -1:])
    torch.testing.assert_close(lm.next_log_probs(longer), lm.next_log_probs(token))
    expected = lm.extend(start, torch.cat([tokens, tokens[:, -1:]], dim=1))
    torch.testing.assert_close(lm.next_log_probs(longer), lm.next_log_probs(expected), rtol=1e-4, atol=1e-5)


def test_trying_a_step_out_changes_no_state() -> None:
    """A step is tried before it is captured, in arrays that may hold the keys and values of a state."""
    lm = small()
    choose, uniforms = Choice(cr.Sample(), None), np.random.default_rng(0).random((2, 4))
    first = lm.captured.write(lm.extend(lm.start(2), np.asarray([[3, 4], [5, 6]])), choose, uniforms)
    assert first is not None
    state, tokens, _ = first
    sampler = lm.captured.samplers[2, 0]
    _, step = sampler.captured[choose]
    sampler._try_out(step)
    found, expected = (
        lm.captured.write(state, choose, uniforms),
        lm.extend(lm.start(2), np.asarray([[3, 4], [5, 6]])),
    )
    assert found is not None
    expected = lm.extend(expected, torch.cat([tokens, found[1]], dim=1))
    torch.testing.assert_close(lm.next_log_probs(found[0]), lm.next_log_probs(expected), rtol=1e-4, atol=1e-5)


def test_reading_ahead_by_a_captured_step_is_extending(monkeypatch: pytest.MonkeyPatch) -> None:
    lm, plain, drafted = small(), small(), torch.tensor([[5, 6, 4]])
    monkeypatch.setattr(NeuralModel, "_has_graphs", property(lambda model: model is lm))
    for kept in (1, 2, 3):
        start = lm.extend(lm.start(1), np.asarray([[3, 4]]))
        ahead = lm.read_ahead(start, drafted)
        assert ahead is not None
        for t in range(3):
            expected = plain.next_log_probs(plain.extend(start, drafted[:, : t + 1]))
            torch.testing.assert_close(ahead[0][:, t], expected, rtol=1e-4, atol=1e-5)
        after = ahead[1](kept)
        # read on, over the tokens that were dropped, by a captured step and by a plain one
        again = lm.read_ahead(after, drafted)
        assert again is not None and [*lm.captured.readers] == [3]
        whole = plain.next_log_probs(plain.extend(start, torch.cat([drafted[:, :kept], drafted], dim=1)))
        torch.testing.assert_close(again[0][:, -1], whole, rtol=1e-4, atol=1e-5)
        found = plain.next_log_probs(plain.extend(after, drafted))
        torch.testing.assert_close(found, whole, rtol=1e-4, atol=1e-5)


def test_single_tokens_are_read_by_a_captured_step(monkeypatch: pytest.MonkeyPatch) -> None:
    lm, plain = small(), small()
    monkeypatch.setattr(NeuralModel, "_has_graphs", property(lambda model: model is lm))
    lm.captured.tokens_read = TOKENS_THAT_REPAY - 2
    ids = np.random.default_rng(0).integers(3, 7, 70)  # more than the window has
    state, expected = lm.start(1), plain.start(1)
    assert not lm.captured.samplers
    kept = []
    for token in ids:
        state, expected = lm.extend(state, token[None, None]), plain.extend(expected, token[None, None])
        kept.append((state, expected))
    assert [*lm.captured.samplers] == [(1, 0)]
    for state, expected in kept:  # older states stay valid
        torch.testing.assert_close(lm.next_log_probs(state), plain.next_log_probs(expected), rtol=1e-4, atol=1e-5)


def test_few_sizes_serve_all_numbers_of_rows() -> None:
    """Rows end one after the other; a captured step serves as many rows as its size, and fewer."""
    lm, choose = small(), Choice(cr.Sample(), None)
    prompts, uniforms = (
        np.asarray([[3, 4], [5, 6], [4, 3], [6, 6], [5, 5]]),
        np.random.default_rng(0).random((5, 4)),
    )
    state = lm.extend(lm.start(5), prompts)
    alone = [
        lm.captured.write(lm.extend(lm.start(1), prompts[i : i + 1]), choose, uniforms[i : i + 1]) for i in range(5)
    ]
    rows = np.arange(5)
    for kept in (rows, rows[:3], rows[1:]):
        found = lm.captured.write(state.select(kept), choose, uniforms[kept])
        assert found is not None and found[0].features_BD.shape[0] == len(kept)
        after = lm.extend(found[0], found[1][:, -1:])
        for place, row in enumerate(kept):
            one = alone[row]
            assert one is not None and torch.equal(found[1][place], one[1][0])
            torch.testing.assert_close(found[2][place], one[2][0])
            expected = lm.next_log_probs(lm.extend(one[0], one[1][:, -1:]))[0]
            torch.testing.assert_close(lm.next_log_probs(after)[place], expected, rtol=1e-4, atol=1e-5)
    assert sorted(lm.captured.samplers) == [(1, 0), (4, 0), (8, 0)]


def test_few_captured_steps_are_kept() -> None:
    lm = small()
    sampler = lm.captured.single()
    kept = [sampler._captured(Choice(cr.TopK(k), None)) for k in range(1, 12)]
    assert len(sampler.captured) == 8
    assert sampler._captured(Choice(cr.TopK(11), None)) is kept[-1]


def _fail(*arguments: Any, **options: Any) -> Any:
    raise TypeError("list indices must be integers or slices, not NoneType")


def test_a_captured_step_that_fails_ends_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    lm, plain = small(), small()
    monkeypatch.setattr(NeuralModel, "_has_graphs", property(lambda model: model is lm))
    monkeypatch.setattr(GraphSampler, "read_next", _fail)
    with pytest.warns(RuntimeWarning, match="a fast path failed.*TypeError: list indices") as warned:
        texts = [cr.generate(lm, "cats", strategy=cr.TopP(0.9), max_tokens=12, seed=seed) for seed in (0, 1)]
    assert len(warned) == 1 and lm.captured.has_failed
    assert texts == [cr.generate(plain, "cats", strategy=cr.TopP(0.9), max_tokens=12, seed=seed) for seed in (0, 1)]


def test_nan_ends_a_search() -> None:
    lm = small()
    with torch.no_grad():
        lm.network.head.weight[3] = torch.nan
    with pytest.raises(ModelError, match="NaN"):
        cr.generate(lm, "cats", strategy=cr.Beam(2))


def test_a_reader_that_fails_ends_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    lm, plain, ids_1T = small(), small(), np.asarray([[3, 4, 5]])
    monkeypatch.setattr(NeuralModel, "_has_graphs", property(lambda model: model is lm))
    monkeypatch.setattr("chainrule.inference.gpu.captured.GraphReader", _fail)
    with pytest.warns(RuntimeWarning, match="a fast path failed"):
        found = lm.read_ahead(lm.start(1), ids_1T)
    expected = plain.read_ahead(plain.start(1), ids_1T)
    assert found is not None and expected is not None
    torch.testing.assert_close(found[0], expected[0])


@pytest.mark.parametrize("slide", [0.0, 1.5, -1.0])
def test_a_window_slides_by_some_of_it(slide: float) -> None:
    with pytest.raises(SettingsError, match="slide should be above 0 and at most 1"):
        TransformerSettings(slide=slide)


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        ("lstm", {"embedding": 4, "hidden": 8}),
        ("feedforward", {"embedding": 4, "hidden": 8}),
        ("bagofwords", {"embedding": 4, "hidden": 8}),
        ("transformer", {"width": 4, "heads": 1, "preset": "lecture"}),
    ],
)
def test_vectors_are_where_training_begins(kind: str, sizes: dict[str, Any], tmp_path: Path) -> None:
    vectors, progress = tmp_path / "vectors.txt", Listening()
    vectors.write_text("cats 1 2 3 4\nmice 5 6 7 8\nunheard 0 0 0 0\n")
    lm = cr.train(
        kind, TEXT, steps=1, learning_rate=1e-9, vectors=str(vectors), progress=progress, **sizes, tokenizer="word"
    )
    assert isinstance(lm, NeuralModel)
    assert any("2 of " in note and "vectors.txt" in note for note in progress.notes), progress.notes
    table = lm.network.table()
    (cats,) = lm.tokenizer.encode("cats")
    torch.testing.assert_close(
        table.weight_VD[int(cats)] * table.scale, torch.tensor([1.0, 2, 3, 4]), atol=1e-5, rtol=0
    )
    # cats and mice, of all but the three special tokens
    assert lm.metrics["vectors_coverage"] == pytest.approx(2 / (lm.tokenizer.vocab_size - 3), abs=1e-4)


def test_eight_bits_are_refused_where_there_are_none() -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine may have them")
    for kind in ("feedforward", "transformer"):
        with pytest.raises(SettingsError, match="precision=float8 needs a GPU"):
            find_kind(kind).check(parse(find_kind(kind).settings, {"precision": "float8"}), "cpu")


def test_eight_bits_take_sides_of_sixteen() -> None:
    settings = TransformerSettings(precision="float8")
    assert _is_float8(settings, torch.zeros(32, 48)) and not _is_float8(TransformerSettings(), torch.zeros(8, 8))
    with pytest.raises(SettingsError, match="multiples of 16, not 24 and 48"):
        _is_float8(settings, torch.zeros(24, 48))


def test_the_last_model_names_its_training_text(tmp_path: Path) -> None:
    far = {"learning_rate": 0.1, "schedule": "constant", "validate_every": 1, "dropout": 0.0, "tied": False}
    options: Any = {"valid": TEXT, "steps": 20, "tokenizer": "word", **far}
    sizes = {"embedding": 128, "hidden": 512, "batch": 4096}
    lm = cr.train("feedforward", TEXT, run=tmp_path, **sizes, **options)
    last = cr.load(tmp_path / "last")
    assert last.provenance["corpus_sha256"] == lm.provenance["corpus_sha256"]
    assert last.metrics["steps"] == lm.metrics["steps"] == 20
    size = lm.tokenizer.vocab_size  # E, W and b, U and c
    assert lm.metrics["parameters"] == size * 128 + (4 * 128 + 1) * 512 + (512 + 1) * size
    # steps as large as these get worse again
    assert cr.evaluate(last, TEXT).nats > cr.evaluate(lm, TEXT).nats
    for one in (lm, last):
        assert cr.evaluate(one, TEXT).nats == pytest.approx(one.metrics["validation_nats"], abs=1e-4)
    # averaged weights are what is measured, and the last ones are no average
    cr.train("feedforward", TEXT, run=tmp_path / "ema", average="ema", **options)
    assert cr.load(tmp_path / "ema" / "last").metrics["validation_nats"] is None


@pytest.mark.parametrize("kind", ["bagofwords", "transformer"])
def test_a_window_may_drop_all_it_has(kind: str) -> None:
    lm = cr.train(kind, TEXT, steps=1, window=4, slide=1.0, context="stream", tokenizer="word")
    ids = np.asarray([[3, 4, 5, 6, 3, 4, 5, 6, 3]])
    single = [lm.next_log_probs(lm.extend(lm.start(1), ids[:, :n]))[0, ids[0, n]] for n in range(9)]
    np.testing.assert_allclose(lm.score(ids)[0], single, atol=1e-5)


def test_rows_of_tokens_are_those_of_the_state() -> None:
    lm = small()
    with pytest.raises(ValueError, match="1 rows of tokens for a state of 2"):
        lm.extend(lm.start(2), np.asarray([[3]]))


def test_what_does_not_fit_into_memory_is_said() -> None:
    def built() -> Any:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 40000000000 bytes")

    data = TrainingData(small().tokenizer, Encoded(np.zeros(0, np.uint32), 0, 0, 0, ""), None)
    with pytest.raises(TrainingError, match="the network does not fit into memory: set a smaller width"):
        TorchEngine.build(lambda fill: fill(built), closed(TransformerSettings()), data)


@pytest.mark.parametrize("pieces", [[1], [30], [64], [65], [200], [63, 1, 1, 130, 5]])
def test_of_a_long_text_only_the_last_window_is_read(pieces: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    lm, ids = small(), np.random.default_rng(0).integers(3, 8, (2, 200))
    whole = place = lm.start(2)
    for t in range(sum(pieces)):
        whole = lm.extend(whole, ids[:, t : t + 1])
    read, forward = [], lm.network.forward
    monkeypatch.setattr(lm.network, "forward", lambda x, *rest: (read.append(x.shape[1]), forward(x, *rest))[1])
    at = 0
    for piece in pieces:
        place = lm.extend(place, ids[:, at : at + piece])
        at += piece
    torch.testing.assert_close(lm.next_log_probs(place), lm.next_log_probs(whole), rtol=1e-4, atol=1e-5)
    assert sum(read) <= 64 * len(pieces)


def test_a_precision_that_is_none_is_refused(tmp_path: Path) -> None:
    small().save(tmp_path / "m")
    with pytest.raises(SettingsError, match="dtype should be float32 or bfloat16 or float64, not 'potato'"):
        cr.load(tmp_path / "m", dtype="potato")


@pytest.mark.parametrize("share", [0.0001, 0.6, 1.0])
@pytest.mark.parametrize("size", [2, 5])
def test_a_captured_step_slides_a_window_as_the_plain_way_does(size: int, share: float) -> None:
    """Three rows write more than their windows hold; one of them has ended, and stays as it is."""
    kind = {"window": size, "slide": share, "context": "stream"}
    lm = cr.train("bagofwords", TEXT, steps=20, **kind, tokenizer="word")
    assert isinstance(lm, NeuralModel)
    state = lm.extend(lm.start(3), np.asarray([[3, 4, 5], [4, PAD, PAD], [5, 6, PAD]]))
    uniforms_BT = np.random.default_rng(0).random((3, 12))
    choose = Choice(Sample(), end=None)
    found = lm.captured.write(state, choose, uniforms_BT, None, torch.tensor([True, True, False]))
    assert found is not None
    after, ids_BT, scores_BT = found
    assert (ids_BT[2] == PAD).all() and (ids_BT[:2] != PAD).all()
    for t in range(12):
        known_B = lm.next_log_probs(state)[[0, 1], ids_BT[:2, t]]
        torch.testing.assert_close(scores_BT[:2, t], known_B, rtol=1e-4, atol=1e-5)
        state = lm.extend(state, ids_BT[:, t : t + 1])
    for _ in range(2 * size):  # the memory after the last step, too
        torch.testing.assert_close(lm.next_log_probs(after), lm.next_log_probs(state), rtol=1e-4, atol=1e-5)
        more_B1 = np.asarray([[3], [4], [5]])
        after, state = lm.extend(after, more_B1), lm.extend(state, more_B1)


def test_a_few_tokens_are_written_without_a_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short text is written plainly; a long one, and the next short one, by a captured step."""
    monkeypatch.setattr(NeuralModel, "_has_graphs", True)
    lm, again = small(), small()
    cr.generate(lm, "cats", max_tokens=TOKENS_THAT_REPAY - 8)
    assert not lm.captured.samplers
    cr.generate(lm, "cats", max_tokens=8)
    cr.generate(again, "cats", max_tokens=TOKENS_THAT_REPAY)
    assert lm.captured.samplers and again.captured.samplers


@pytest.mark.parametrize("preset", ["lecture", "gpt2", "llama", "fast"])
def test_captured_steps_keep_the_law_of_writing(preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lm, written = small(preset=preset), []

    def write(self: NeuralModel, *arguments: Any) -> Any:
        written.append(self.captured.write(*arguments))
        return written[-1]

    monkeypatch.setattr(NeuralModel, "write", write)
    monkeypatch.setattr(NeuralModel, "capabilities", Capabilities(frozenset({"write"})))
    monkeypatch.setattr(NeuralModel, "_has_loops", False)
    assert LAWS["writing_is_choosing_and_extending"](lm) != NOT_OFFERED
    assert [found is None for found in written] == [False, False, False, True], "the last one looks back"


class Computing(Transformer):
    """A network that reads its weights while it is built."""

    def __init__(self, config: TransformerConfig, vocab_size: int, bos: int = 0) -> None:
        super().__init__(config, vocab_size, bos)
        self.largest = self.embedding.detach().max().item()


def test_a_network_that_cannot_be_built_without_numbers_is_loaded_all_the_same() -> None:
    build = partial(Computing, TransformerConfig(layers=1, width=16, heads=2, window=8), 12)
    made = build()
    arrays = {name: weight.detach().numpy() for name, weight in made.named_parameters()}
    loaded = load_network(build, arrays)
    for name, weight in loaded.named_parameters():
        assert (weight.detach().numpy() == arrays[name]).all()
