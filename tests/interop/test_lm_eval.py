"""The adapter to lm-evaluation-harness, through the harness itself, on tasks whose data are local files."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chainrule as cr
from chainrule.errors import ChainruleError, MissingExtraError, SettingsError

from .conftest import Request

pytestmark = pytest.mark.filterwarnings("ignore")  # the harness's, and those of what it imports
lm_eval = pytest.importorskip("lm_eval")

PAIRS = [
    ("the cat sits on the mat", "the cat sit on the mat"),
    ("the dogs run in the park", "the dogs runs in the park"),
    ("a dog runs in the garden", "a dog run in the garden"),
    ("cats sit on mats", "cats sits on mats"),
]
TEXTS = [good for good, _ in PAIRS] + [
    "the cats run on the mat",
    "a cat sits in the park",
    "dogs sit in the garden",
]
PASSAGES = [
    "the cat sits on the mat",
    "dogs sit in the garden",
    "a dog runs in the mat",
    "the dogs run in the zebra",
]
TEXT = "the cats sit on the mat\n\na dog runs: in the park, «überall»\nthe dogs run in the garden"


def jsonl(path: Path, records: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return str(path)


def task(name: str, folder: Path, records: list[dict[str, Any]], **config: Any) -> dict[str, Any]:
    files = {"test": jsonl(folder / f"{name}.jsonl", records)}
    kwargs = {"data_files": files, "cache_dir": str(folder / "cache")}
    common = {"task": name, "dataset_path": "json", "dataset_kwargs": kwargs, "test_split": "test"}
    return {**common, **config}


def metrics(*names: str, **aggregation: str) -> list[dict[str, Any]]:
    return [
        {"metric": name, "aggregation": aggregation.get(name, name), "higher_is_better": True} for name in names
    ]


def tasks(folder: Path, text: str = TEXT) -> list[dict[str, Any]]:
    """A task of each kind of request, in the shape of WikiText, BLiMP, LAMBADA and question answering."""
    return [
        task(
            "rolling",
            folder,
            [{"page": text}],
            output_type="loglikelihood_rolling",
            doc_to_text="",
            doc_to_target="{{page}}",
            metric_list=metrics("bits_per_byte", "word_perplexity", word_perplexity="weighted_perplexity"),
        ),
        task(
            "pairs",
            folder,
            [{"sentence_good": good, "sentence_bad": bad} for good, bad in PAIRS],
            output_type="multiple_choice",
            doc_to_text="",
            doc_to_target=0,
            doc_to_choice="{{[sentence_good, sentence_bad]}}",
            metric_list=metrics("acc", acc="mean"),
        ),
        task(
            "last_word",
            folder,
            [{"text": text} for text in PASSAGES],
            output_type="loglikelihood",
            doc_to_text="{{text.split(' ')[:-1]|join(' ')}}",
            doc_to_target="{{' '+text.split(' ')[-1]}}",
            metric_list=metrics("perplexity", "acc", acc="mean"),
        ),
        task(
            "completion",
            folder,
            [{"question": "the cat sits on", "answer": "the mat"}, {"question": "dogs sit", "answer": "in trees"}],
            output_type="generate_until",
            doc_to_text="{{question}}",
            doc_to_target="{{answer}}",
            generation_kwargs={"until": ["\n", " mat!"], "max_gen_toks": 8},
            metric_list=metrics("exact_match", exact_match="mean"),
        ),
    ]


def run(lm: cr.LanguageModel, chosen: list[dict[str, Any]]) -> dict[str, Any]:
    from lm_eval.tasks import TaskManager

    from chainrule.interop.lm_eval import ChainruleLM

    found = lm_eval.simple_evaluate(
        ChainruleLM(lm),
        tasks=chosen,
        bootstrap_iters=0,
        log_samples=True,
        task_manager=TaskManager(include_defaults=False),
    )
    return dict(found)


@pytest.fixture(scope="module")
def lm() -> cr.LanguageModel:
    choice = cr.TokenizerChoice("bpe", vocab_size=300)
    return cr.train("ngram", TEXTS * 2, order=3, smoothing="witten-bell", tokenizer=choice)


@pytest.fixture(scope="module")
def found(lm: cr.LanguageModel, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run(lm, tasks(tmp_path_factory.mktemp("tasks")))


def test_bits_per_byte_are_ours(lm: cr.LanguageModel, found: dict[str, Any]) -> None:
    ours = cr.evaluate(lm, TEXT)
    assert found["results"]["rolling"]["bits_per_byte,none"] == pytest.approx(ours.bits_per_byte, abs=1e-9)
    per_word = math.exp(ours.nats * ours.tokens / len(TEXT.split()))
    assert found["results"]["rolling"]["word_perplexity,none"] == pytest.approx(per_word, rel=1e-3)


def sequence_log_prob(lm: cr.LanguageModel, text: str) -> float:
    return float(np.sum(cr.to_numpy(lm.score(lm.tokenizer.encode(text)[None].astype(np.int64)))))


def test_minimal_pairs(lm: cr.LanguageModel, found: dict[str, Any]) -> None:
    """The delimiter that the harness puts before a choice is not scored: nothing stands before it."""
    samples = found["samples"]["pairs"]
    assert len(samples) == len(PAIRS)
    for sample, pair in zip(samples, PAIRS, strict=True):
        theirs = [float(answer[0]) for answer in sample["filtered_resps"]]
        assert theirs == pytest.approx([sequence_log_prob(lm, sentence) for sentence in pair], abs=1e-9)
    right = [sequence_log_prob(lm, good) > sequence_log_prob(lm, bad) for good, bad in PAIRS]
    assert found["results"]["pairs"]["acc,none"] == sum(right) / len(right) > 0.5


def test_last_words(lm: cr.LanguageModel, found: dict[str, Any]) -> None:
    """ln p(word | context) = ln p(context word) - ln p(context), and the greedy continuation begins with it."""
    scored, right = [], []
    for passage in PASSAGES:
        before, _, word = passage.rpartition(" ")
        scored.append(sequence_log_prob(lm, passage) - sequence_log_prob(lm, before))
        written = cr.generate(lm, before, cr.Greedy(), max_tokens=20, heal=False)
        right.append(written.removeprefix(before).startswith(f" {word}"))
    samples = found["samples"]["last_word"]
    assert [float(sample["filtered_resps"][0][0]) for sample in samples] == pytest.approx(scored, abs=1e-9)
    assert set(right) == {True, False}
    assert found["results"]["last_word"]["acc,none"] == sum(right) / len(right)
    assert found["results"]["last_word"]["perplexity,none"] == pytest.approx(
        math.exp(-sum(scored) / len(scored)), rel=1e-6
    )


def test_generation(lm: cr.LanguageModel, found: dict[str, Any]) -> None:
    for sample in found["samples"]["completion"]:
        prompt = sample["doc"]["question"]
        ours = cr.generate(lm, prompt, cr.Greedy(), max_tokens=8).removeprefix(prompt)
        assert sample["resps"][0][0] == ours
    assert 0 <= found["results"]["completion"]["exact_match,none"] <= 1


def test_a_stream_is_one_sequence(tmp_path: Path) -> None:
    lm = cr.train("ngram", TEXTS, order=3, context="stream", tokenizer="char", smoothing="witten-bell")
    (rolling, *_) = tasks(tmp_path)
    found = run(lm, [rolling])["results"]["rolling"]["bits_per_byte,none"]
    assert found == pytest.approx(cr.evaluate(lm, TEXT).bits_per_byte, abs=1e-9)


def test_a_long_stream_is_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    from chainrule.interop import lm_eval as adapter

    lm = cr.train("ngram", TEXTS, order=3, context="stream", tokenizer="char", smoothing="witten-bell")
    requests = [Request((TEXT,)), Request(("cats",)), Request(("",))]
    ours = [lm.log_prob(request.args[0]) for request in requests]
    assert adapter.ChainruleLM(lm).loglikelihood_rolling(requests) == pytest.approx(ours, abs=1e-9)
    monkeypatch.setattr(adapter, "tokens_at_once", lambda lm: 10)
    assert adapter.ChainruleLM(lm).loglikelihood_rolling(requests) == pytest.approx(ours, abs=1e-9)


def test_a_network_beyond_its_window(tmp_path: Path) -> None:
    """A Transformer that reads 16 tokens at once predicts each token of a longer text once, as `evaluate` does."""
    pytest.importorskip("torch")
    from chainrule.interop.lm_eval import ChainruleLM

    small = {"width": 16, "layers": 1, "heads": 2, "window": 16, "steps": 2, "batch": 128}
    lm = cr.train("transformer", TEXTS * 20, tokenizer="char", context="stream", **small)
    lm.save(tmp_path / "model")
    adapter = ChainruleLM(str(tmp_path / "model"), device="cpu")
    (total,) = adapter.loglikelihood_rolling([Request((TEXT,))])
    ours = cr.evaluate(lm, TEXT)
    assert total == pytest.approx(-ours.nats * ours.tokens, rel=1e-6)
    (scored,) = adapter.loglikelihood([Request((TEXT[:39], TEXT[39:]))])
    (before,) = adapter.loglikelihood([Request(("", TEXT[:39]))])
    assert scored[0] + before[0] == pytest.approx(sequence_log_prob(lm, TEXT), rel=1e-5)


def test_white_space_at_the_end_of_a_context_is_scored(lm: cr.LanguageModel) -> None:
    """As by the harness's own models: ln p(" sits" | "the cat"), wherever a task puts the space."""
    from chainrule.interop.lm_eval import ChainruleLM

    chars = cr.train("ngram", TEXTS, order=3, tokenizer="char", smoothing="witten-bell")
    for model in (lm, chars):
        pairs = [("the cat", "  sits"), ("the cat ", " sits"), ("the cat  ", "sits")]
        one, *others = ChainruleLM(model).loglikelihood([Request(pair) for pair in pairs])
        assert others == [one, one] and one[0] < -1


def test_the_harness_finds_the_model_by_its_name(lm: cr.LanguageModel, tmp_path: Path) -> None:
    from lm_eval.api.registry import get_model

    from chainrule.interop.lm_eval import ChainruleLM

    lm.save(tmp_path / "model")
    assert get_model("chainrule") is ChainruleLM
    made = ChainruleLM.create_from_arg_string(f"path={tmp_path / 'model'},dtype=float32", {"batch_size": 4})
    assert made.rows == 4 and made.get_model_info()["chainrule_path"] == str(tmp_path / "model")
    pairs = [Request(("the cat", " sits")), Request(("dogs", " sit"))]
    assert made.loglikelihood(pairs) == ChainruleLM(lm).loglikelihood(pairs)


def test_the_harness_has_what_its_client_of_a_server_needs() -> None:
    """docs/serving.md measures a served model with it; nothing is sent until a task asks."""
    from lm_eval.models.openai_completions import LocalCompletionsAPI

    made = LocalCompletionsAPI(base_url="http://127.0.0.1:9/v1/completions", pretrained="m", tokenizer_backend=None)
    assert made.base_url == "http://127.0.0.1:9/v1/completions"


def test_answers_are_kept_as_the_harness_asks(lm: cr.LanguageModel) -> None:
    from chainrule.interop.lm_eval import ChainruleLM

    kept = []

    class Hook:
        def add_partial(self, *given: Any) -> None:
            kept.append(given)

    adapter = ChainruleLM(lm)
    adapter.set_cache_hook(Hook())
    answers = adapter.loglikelihood([Request(("the cat", " sits"))])
    assert kept == [("loglikelihood", ("the cat", " sits"), answers[0])]


def test_strategies_of_tasks() -> None:
    from chainrule.interop.lm_eval import strategy_of

    assert strategy_of({"until": ["\n"], "max_gen_toks": 3}) == cr.Greedy()
    assert strategy_of({"do_sample": False, "temperature": 0.7}) == cr.Greedy()
    assert strategy_of({"do_sample": True, "temperature": 0.0}) == cr.Greedy()
    assert strategy_of({"temperature": 0.7, "top_p": 0.9}) == cr.Temperature(0.7) | cr.TopP(0.9)
    assert strategy_of({"do_sample": True, "top_k": 5, "min_p": 0.1}) == cr.Temperature(1.0) | cr.TopK(5) | cr.MinP(
        0.1
    )
    with pytest.raises(SettingsError, match="unknown setting 'num_beams'"):
        strategy_of({"num_beams": 4})


def test_requests_of_several_settings_come_back_in_order(lm: cr.LanguageModel) -> None:
    from chainrule.interop.lm_eval import ChainruleLM

    asked = [("the cat", {"max_gen_toks": 2}), ("dogs", {"until": "sit"}), ("a dog", {"max_gen_toks": 2})]
    together = ChainruleLM(lm, batch_size=2).generate_until([Request(args) for args in asked])
    assert together == [ChainruleLM(lm).generate_until([Request(args)])[0] for args in asked]


def test_what_is_refused(tmp_path: Path) -> None:
    from chainrule.interop.lm_eval import ChainruleLM

    with pytest.raises(ChainruleError, match="no such"):
        ChainruleLM(str(tmp_path / "absent"))
    with pytest.raises(SettingsError, match="batch_size should be"):
        ChainruleLM(cr.train("ngram", TEXTS, order=2, tokenizer="word"), batch_size="many")


def test_the_harness_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval.api.model", None)
    monkeypatch.delitem(sys.modules, "chainrule.interop.lm_eval", raising=False)
    with pytest.raises(MissingExtraError, match=r"needs lm_eval.*pip install 'chainrule\[harness\]'"):
        import chainrule.interop.lm_eval  # noqa: F401


@pytest.mark.slow
def test_the_command_line(lm: cr.LanguageModel, tmp_path: Path) -> None:
    lm.save(tmp_path / "model")
    (rolling, *_) = tasks(tmp_path)
    (tmp_path / "rolling.yaml").write_text(json.dumps(rolling), encoding="utf-8")  # JSON is YAML too
    words = ["run", "--model", "chainrule", "--model_args", f"path={tmp_path / 'model'}", "--tasks", "rolling"]
    words += ["--include_path", str(tmp_path), "--output_path", str(tmp_path / "out")]
    command = [sys.executable, "-m", "chainrule.interop.lm_eval", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (results,) = (tmp_path / "out").rglob("results_*.json")
    theirs = json.loads(results.read_text(encoding="utf-8"))["results"]["rolling"]["bits_per_byte,none"]
    assert theirs == pytest.approx(cr.evaluate(lm, TEXT).bits_per_byte, abs=1e-6)
    command[command.index(f"path={tmp_path / 'model'}")] = "path=absent"
    failed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert failed.returncode == 1 and failed.stderr.splitlines()[-1].startswith("Error: absent")
