"""Tuning on prompts and replies: what counts in the loss, what is kept of the model before, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chainrule as cr
from chainrule.cli.main import main
from chainrule.contract.data import Sources, TrainingData
from chainrule.decode.replies import reply_many
from chainrule.errors import CorpusError, ModelError, SettingsError
from chainrule.evaluation.replies import evaluate_replies
from chainrule.runs.prepare import encode_pairs
from chainrule.testing import check_laws
from chainrule.text.templates import TEMPLATE, prompted, replied
from chainrule.training.objectives import Sequences
from chainrule.training.tuning import ReplyExamples
from listening import Listening
from stopping import interrupted

LINES = ["the cat sees the dog", "the dog likes the mouse", "a mouse hears a cat"] * 8
PAIRS = [("who sees the dog?", "the cat"), ("whom does the dog like?", "the mouse"), ("a  cat?", "yes")] * 4
SIZES: dict[str, dict[str, Any]] = {
    "transformer": {"layers": 1, "width": 16, "heads": 2, "window": 80},
    "lstm": {"embedding": 8, "hidden": 16, "layers": 1},
}
LEARNING: dict[str, dict[str, Any]] = {  # by heart
    "transformer": {"dropout": 0.0},
    "lstm": {f"{part}_dropout": 0.0 for part in ("input", "hidden", "output", "embedding", "weight")}
    | {"alpha": 0.0, "beta": 0.0, "clip": 1.0, "warmup": 0.02},
}
QUICK: dict[str, Any] = {"batch": 64, "steps": 4, "precision": "float32"}
TOKENIZERS = {"char": "char", "bpe": cr.TokenizerChoice("bpe", vocab_size=300), "word": "word"}


def base(folder: Path, kind: str = "transformer", tokenizer: Any = "char", **others: Any) -> Path:
    lines = [*LINES, *(replied(TEMPLATE, *pair) for pair in PAIRS)]  # so that no character is unknown
    cr.train(kind, lines, tokenizer=tokenizer, **{**SIZES[kind], **QUICK, **others}).save(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return base(tmp_path_factory.mktemp("tuning") / "base")


def data_of(lm: cr.LanguageModel, pairs: Any, place: Path) -> tuple[TrainingData, ReplyExamples]:
    parts = {"train": cr.Pairs.of(pairs)}
    _, encoded, sources = encode_pairs(parts, lm.tokenizer, place, template=TEMPLATE)
    data = TrainingData(lm.tokenizer, encoded["train"], None, lm.context, sources=sources)
    assert isinstance(data.sources, Sources)
    return data, ReplyExamples.of(data, data.train, data.sources.train)


# -- the loss ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@pytest.mark.parametrize("context", ["line", "stream"])
def test_only_replies_count(tokenizer: str, context: str, tmp_path: Path) -> None:
    """The perplexity of a training is that of the replies, each scored after its own prompt by the contract."""
    place = base(tmp_path / "base", tokenizer=TOKENIZERS[tokenizer], context=context)
    slow: dict[str, Any] = {**QUICK, "steps": 1, "learning_rate": 1e-9, "optimiser": "adamw", "average": "none"}
    tuned = cr.train("transformer", PAIRS, valid=PAIRS, pretrained=str(place), **slow)
    before = cr.load(place)
    assert tuned.context == context and tuned.tokenizer.to_json() == before.tokenizer.to_json()
    nats = tokens = 0.0
    for prompt, reply in PAIRS:
        prompt_ids = before.tokenizer.encode(prompted(TEMPLATE, prompt)).astype(np.int64)
        whole = before.tokenizer.encode(replied(TEMPLATE, prompt, reply)).astype(np.int64)
        assert (whole[: len(prompt_ids)] == prompt_ids).all()
        ids = np.asarray([*whole[len(prompt_ids) :], before.tokenizer.eos])
        state = before.extend(before.start(1), prompt_ids[None])
        nats -= float(cr.to_numpy(before.score(ids[None], state)).sum())
        tokens += len(ids)
    assert tuned.metrics["validation_tokens"] == tokens
    # a validation leaves <s> its share of the probability, which is about 1 / V here
    assert tuned.metrics["validation_nats"] == pytest.approx(nats / tokens, abs=1.2 / before.tokenizer.vocab_size)
    measured = evaluate_replies(before, PAIRS)
    assert (measured.tokens, measured.pairs) == (tokens, len(PAIRS))
    assert measured.nats == pytest.approx(nats / tokens, abs=1e-4)


def test_targets_over_prompts_are_not_predicted(folder: Path, tmp_path: Path) -> None:
    from chainrule.training.engines.torch_engine import TorchEngine

    lm: Any = cr.load(folder)
    _, examples = data_of(lm, PAIRS, tmp_path)
    settings = cr.load(folder).settings
    engine = TorchEngine(lm.network, settings, "cpu")
    feed = examples.feed(engine, settings, 0)
    seen = []
    for number in range(feed.layout.count(None)):
        for rows in feed.layout.epoch(None)[number].parts:
            inputs_BT, targets_BT = feed.gatherer.batch(rows)
            assert rows.targets == int((targets_BT != cr.PAD).sum())
            for inputs, targets in zip(np.asarray(inputs_BT), np.asarray(targets_BT), strict=True):
                first = int((targets != cr.PAD).argmax())
                read = lm.tokenizer.decode(inputs[1 : first + 1].tolist())
                seen.append((read, lm.tokenizer.decode(targets[targets != cr.PAD].tolist())))
    assert sorted(seen) == sorted((prompted(TEMPLATE, a), f" {b}\n") for a, b in PAIRS)
    assert feed.layout.tokens == examples.tokens < feed.layout.read == len(examples.targets.ids)


def test_a_token_that_the_reply_changes_belongs_to_the_reply(tmp_path: Path) -> None:
    """Without a space after the template, the last word of a prompt and the first of a reply could be one token."""
    lm = cr.train("ngram", ["ab abc", "a abd"] * 9, order=2, tokenizer=cr.TokenizerChoice("bpe", vocab_size=280))
    data, examples = data_of(lm, PAIRS, tmp_path)
    whole = lm.tokenizer.encode("abc").astype(np.uint32)
    lines = [np.asarray([*ids, lm.tokenizer.eos]) for ids in (whole, [9999])]
    sides = [Sequences(ids, np.asarray([0]), np.asarray([len(ids)])) for ids in lines]
    changed = ReplyExamples(*sides, examples.next_token)
    assert changed.skips.tolist() == [0] and changed.tokens == len(whole) + 1
    assert data.context == "line"


# -- what is kept, and learned ----------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["torch", "tape"])
@pytest.mark.parametrize("kind", SIZES)
def test_a_tuned_model_begins_with_the_weights_and_learns_to_reply(kind: str, engine: str, tmp_path: Path) -> None:
    place = base(tmp_path / "base", kind, tokenizer="word", engine=engine)
    first = cr.load(place)
    slow: dict[str, Any] = {**QUICK, "steps": 1, "learning_rate": 1e-9, "optimiser": "adamw", "engine": engine}
    same = cr.train(kind, PAIRS, valid=PAIRS, pretrained=str(place), weight_decay=0.0, **slow)
    for name, array in first.tensors().items():
        np.testing.assert_allclose(same.tensors()[name], array, atol=1e-6)
    assert {name: getattr(same.settings, name) for name in SIZES[kind]} == SIZES[kind]
    longer = {**LEARNING[kind], "batch": 64, "steps": 100, "engine": engine}
    tuned = cr.train(kind, PAIRS, valid=PAIRS, pretrained=str(place), template="Q: {prompt} A:", **longer)
    tuned.save(tmp_path / "tuned")
    loaded = cr.load(tmp_path / "tuned")
    assert loaded.settings.template == "Q: {prompt} A:"
    measured = cr.evaluate(loaded, cr.Pairs.of(PAIRS))
    assert measured.exact == 1.0 and measured.perplexity < 1.5
    assert [one.continuation for one in reply_many(loaded, ["who sees the dog?"], cr.Greedy())] == ["the cat"]
    assert set(check_laws(loaded)) <= {"read_ahead", "search_steps", "write", "write_drafted"} | set(
        check_laws(first)
    )
    # the next tuning takes the template over
    again = cr.train(kind, PAIRS, pretrained=str(tmp_path / "tuned"), **slow)
    assert again.settings.template == "Q: {prompt} A:"


def test_a_tuning_that_was_stopped_goes_on_exactly(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(json.dumps({"prompt": a, "reply": b}) + "\n" for a, b in PAIRS))
    pairs = cr.Pairs.open(file, fields=("prompt", "reply"))
    how: dict[str, Any] = {**QUICK, "steps": 12, "dropout": 0.2, "pretrained": str(folder)}
    whole = cr.train("transformer", pairs, run=tmp_path / "whole", **how)
    with interrupted(5):
        cr.train("transformer", pairs, run=tmp_path / "parts", **how)
    resumed = cr.resume(tmp_path / "parts")
    assert all((array == resumed.tensors()[name]).all() for name, array in whole.tensors().items())
    assert resumed.settings == whole.settings and resumed.settings.dropout == 0.2


def test_pairs_that_are_too_long_are_left_out(folder: Path) -> None:
    progress = Listening()
    longer = [*PAIRS, ("why? " * 40, "so")]
    cr.train("transformer", longer, pretrained=str(folder), progress=progress, **QUICK)
    assert any("left out" in note and "1 pairs" in note for note in progress.notes)
    with pytest.raises(CorpusError, match=r"every pair is longer than the 80 tokens .* reads at once$"):
        cr.train("transformer", longer[-1:] * 3, valid=PAIRS, pretrained=str(folder), **QUICK)


# -- the command line -------------------------------------------------------------------------------------


def _run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[Any, str, str]:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return ended.value.code, *capsys.readouterr()


def ran(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    code, out, err = _run(capsys, *words)
    assert code == 0, err
    return out


def failed(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    code, _, err = _run(capsys, *words)
    assert code == 2
    return err


def test_commands(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = tmp_path / "pairs.jsonl", tmp_path / "tuned"
    file.write_text("".join(json.dumps({"prompt": a, "reply": b}) + "\n" for a, b in PAIRS))
    sets = [
        f"--set={name}={value}"
        for name, value in {**QUICK, "pretrained": folder, "steps": 120, "dropout": 0}.items()
    ]
    said = ran(capsys, "train", "transformer", file, "--held-out", file, *sets, "--out", out)
    assert "trained on 12 pairs" in said and "perplexity of replies" in said
    prompt = ["--prompt", "who sees the dog?", "--strategy", "greedy"]
    assert ran(capsys, "generate", out, "--chat", *prompt) == "the cat\n"
    (found,) = json.loads(ran(capsys, "generate", out, "--chat", *prompt, "--json"))
    assert (found["prompt"], found["text"], found["finished"]) == ("who sees the dog?", "the cat", True)
    figures = json.loads(ran(capsys, "evaluate", out, file, "--json"))
    assert figures["exact"] == 1.0 and figures["pairs"] == 12
    assert "exact match" in ran(capsys, "evaluate", out, file)
    text = tmp_path / "text.txt"
    text.write_text("\n".join(LINES))
    assert "exact" not in json.loads(ran(capsys, "evaluate", out, text, "--json"))
    assert "was not tuned to reply" in failed(capsys, "generate", folder, "--chat", *prompt)


def test_what_does_not_fit_is_refused_in_one_line(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, text = tmp_path / "pairs.jsonl", tmp_path / "text.txt"
    file.write_text("".join(json.dumps({"prompt": a, "reply": b}) + "\n" for a, b in PAIRS))
    text.write_text("\n".join(LINES))
    lacking = tmp_path / "lacking.jsonl"
    # as many prompts as replies, of other records
    lacking.write_text(
        '{"prompt": "a", "reply": "b"}\n{"prompt": "c"}\n{"prompt": "d", "reply": "e"}\n{"reply": "f"}\n'
    )

    def refused(*words: object, kind: str = "transformer", start: object = folder) -> str:
        out = ["--out", tmp_path / "out", "--set=steps=1", f"--set=pretrained={start}"]
        said = failed(capsys, "train", kind, *words, *out)
        assert len(said.strip().splitlines()) == 1
        return said

    assert 'there is no field "answer"; there are: prompt, reply' in refused(
        file, "--field", "prompt", "--field", "answer"
    )
    assert "lacking.jsonl: record 2 has no 'reply'" in refused(lacking)
    assert "should be a model of the kind lstm, not transformer" in refused(file, kind="lstm")
    assert "has a tokenizer of its own, char: leave out the tokenizer" in refused(file, "--tokenizer", "byte")
    assert "width=32 is not that of pretrained=" in refused(file, "--set=width=32")
    assert "template should be one line with {prompt}" in refused(file, "--set=template=Hello")
    assert "no such model folder" in refused(file, start=tmp_path / "nothing")
    assert "pairs are two files" in refused(text)
    assert "leave out the context" in refused(file, "--context", "stream")


def test_functions_refuse_the_same(folder: Path) -> None:
    with pytest.raises(SettingsError, match="template is for a model that is tuned"):
        cr.train("transformer", LINES, template="Q: {prompt} A:", steps=1)
    with pytest.raises(SettingsError, match="two ways to begin"):
        cr.train("transformer", PAIRS, pretrained=str(folder), vectors="vectors.txt")
    with pytest.raises(SettingsError, match="no sources: leave out the tokenizer of sources"):
        cr.train("transformer", PAIRS, pretrained=str(folder), source_tokenizer="char", **QUICK)
    with pytest.raises(CorpusError, match="expected pairs"):
        cr.train("transformer", "some text", pretrained=str(folder), **QUICK)
    cr.train("transformer", PAIRS, tokenizer=str(folder), pretrained=str(folder), **{**QUICK, "steps": 1})
    with pytest.raises(ModelError, match="does not predict text"):
        evaluate_replies(cr.train("tagger", ["a/X b/Y"] * 4, steps=1), PAIRS)  # type: ignore[arg-type]
