"""The benchmark and the recipe of translation run, however small."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import recipes
from benchmarks import seq2seq
from benchmarks.harness import import_error
from benchmarks.seq2seq import peers

import chainrule as cr
from chainrule.seq2seq.encoder_decoder_model import EncoderDecoderModel

from .toys import pairs_of


def test_the_benchmark_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plot = tmp_path / "plot.svg"
    seq2seq.main(["--small", "--device", "cpu", "--keep", str(tmp_path / "models"), "--plot", str(plot)])
    printed = " ".join(capsys.readouterr().out.split())
    for said in ("lstm, no attention", "(copying the source)", "sentences/s", "left out: Joey NMT", "nrefs:1"):
        assert said in printed
    assert "lstm, attention" in plot.read_text(encoding="utf-8")
    assert (tmp_path / "models" / "lstm-no-attention" / "manifest.json").is_file()


def classic(**settings: object) -> EncoderDecoderModel:
    """A Transformer of the design of the peers, hardly trained."""
    given = {
        **peers.DESIGN,
        "width": 16,
        "layers": 2,
        "heads": 2,
        "hidden": 24,
        "steps": 3,
        "batch": 256,
        **settings,
    }
    lm = cr.train("seq2seq", cr.Pairs.of(pairs_of("reverse", 60)), tokenizer="word", device="cpu", **given)
    assert isinstance(lm, EncoderDecoderModel)
    return lm


def test_which_models_the_peers_can_take() -> None:
    assert peers.unlike(classic()) is None
    assert "placement=pre" in str(peers.unlike(classic(placement="post")))
    assert "norm=layernorm" in str(peers.unlike(classic(preset="fast")))
    assert "share a table" in str(peers.unlike(classic(shared=False)))


def test_the_vocabulary_of_a_peer_has_every_token_of_ours_once() -> None:
    lm = classic()
    tokenizer = lm.tokenizer
    ours = peers.vocabulary(lm).tolist()
    assert ours[:4] == [tokenizer.unk, tokenizer.bos, tokenizer.bos, tokenizer.eos]
    assert sorted(ours[1:4:2] + ours[:1] + ours[4:]) == list(range(tokenizer.vocab_size))


@pytest.mark.parametrize("name", peers.PEERS)
def test_a_peer_with_our_weights_writes_what_ours_writes(name: str) -> None:
    make, modules = peers.PEERS[name]
    if (why := import_error(modules)) is not None:
        pytest.skip(why)
    lm = classic(steps=150, width=32, hidden=64)
    texts = [source for source, _ in pairs_of("reverse", 40, seed=1)]
    ours = cr.translate(lm, texts, cr.Beam(1, ending="best"))
    assert make(lm, 1).translate(texts, 16) == ours


def test_the_recipe_runs(tmp_path: Path) -> None:
    for number, name in enumerate(("train", "val", "test_2016_flickr")):
        for side, suffix in enumerate(("en", "de")):
            lines = [pair[side] for pair in pairs_of("reverse", 30, seed=number)]
            (tmp_path / "multi30k").mkdir(exist_ok=True)
            path = tmp_path / "multi30k" / f"{name}.{suffix}"
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    recipe = recipes.find("multi30k_gru")
    recipe = replace(recipe, tokenizer=replace(recipe.tokenizer, vocab_size=300))
    lm, measured = recipes.run(recipe, tmp_path, device="cpu", settings={"steps": 2, "width": 16, "minutes": None})
    assert (lm.kind, measured.pairs) == ("seq2seq", 30)  # type: ignore[union-attr]
