"""Models of odd texts and settings: a right answer or one clear line, and bounded memory."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import chainrule as cr
from chainrule.ngram.store import bitstream, kernels

YES_NO = "yes\nno\n"
ORDINARY = "".join(f"the {word} sat on the {other}\n" for word in "abcdefgh" for other in "ijklmnop")
EMPTY_LEVELS = [
    (YES_NO, {"order": 5, "entropy": 1e-3}),
    (YES_NO, {"order": 4, "prune": "0,1,2", "bits": 8, "smoothing": "witten-bell"}),
    (YES_NO, {"order": 4, "prune": "0,5", "bits": 8, "index": "hash"}),
    (ORDINARY, {"entropy": 0.5, "bits": 8}),
    (ORDINARY, {"entropy": 0.5, "index": "hash"}),
    (ORDINARY, {"entropy": 0.9, "order": 3, "bits": 2}),
    (ORDINARY, {"prune": "0,1000", "bits": 4}),
]


@pytest.mark.parametrize(("text", "settings"), EMPTY_LEVELS, ids=range(len(EMPTY_LEVELS)))
@pytest.mark.parametrize("context", ["line", "stream"])
def test_a_length_without_ngrams_is_no_error(
    text: str, settings: dict[str, Any], context: Any, tmp_path: Any
) -> None:
    lm = cr.train("ngram", cr.Corpus.from_text(text), context=context, **settings, tokenizer="word")
    probabilities = np.exp(lm.next_log_probs(lm.start(1)))
    assert probabilities.sum() == pytest.approx(1, abs=1e-4)
    lm.save(tmp_path / "m")
    assert cr.load(tmp_path / "m").perplexity("yes\nthe a") == lm.perplexity("yes\nthe a")


@pytest.mark.parametrize("order", [4, 5, 7])
def test_jelinek_mercer_is_tuned_on_the_text_itself(order: int) -> None:
    text = cr.Corpus.from_text(YES_NO)
    lm = cr.train("ngram", text, valid=text, order=order, smoothing="jelinek-mercer", tokenizer="word")
    assert lm.perplexity("yes") < 10


@pytest.mark.parametrize(
    "strategy",
    [
        cr.Temperature(0.7),
        cr.TopP(0.9),
        cr.TopK(3),
        cr.MinP(0.1),
        cr.Greedy(),
        cr.Temperature(0.5) | cr.TopP(0.8),
        cr.Beam(2),
    ],
    ids=str,
)
def test_where_only_unk_can_follow_nothing_is_written(strategy: Any) -> None:
    """After `a` only unknown words were seen: -∞ minus -∞ is NaN, which drew <unk>."""
    text = cr.Corpus.from_text("a x1\na x2\na x3\nb b\nb b\n")
    lm = cr.train("ngram", text, tokenizer=cr.TokenizerChoice("word", min_count=2), order=2, smoothing="mle")
    (found,) = cr.generate_many(lm, ["a"], strategy)
    assert (found.text, found.finished) == ("a", True)


MEMORY = """
import resource, sys, chainrule as cr
small = cr.Corpus.from_text("a few words of a text\\n" * 50)
lm = cr.train("lstm", small, steps=1, hidden=256, embedding=64, layers=1)
text = "a few words of a text\\n" * 6_000
lm.perplexity(text[:2200])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
lm.perplexity(text)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def test_the_perplexity_of_many_lines_takes_little_memory() -> None:
    """In megabytes beyond those of a short text; it was more than a thousand for 15,000 lines."""
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True, timeout=300)
    assert int(done.stdout) < 150


def test_an_exception_while_packing_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise MemoryError("no room to pack")

    monkeypatch.setattr(bitstream, "_NUMBERS_AT_ONCE", 8)
    monkeypatch.setattr(bitstream, "worth_a_kernel", lambda *_: True)
    monkeypatch.setattr(kernels, "pack_bits", fail)
    with pytest.raises(MemoryError, match="no room"):
        bitstream.pack(np.arange(64, dtype=np.uint32), 7)


@pytest.mark.slow
def test_a_compiled_run_on_lines_is_resumed_bit_for_bit(tmp_path: Any) -> None:
    """More shapes than torch compiles made it depend on where a run began, and threads on chance."""
    text = cr.Corpus.from_text("".join(f"{'word ' * (i % 23)}{i % 7}\n" for i in range(3000)))
    size = {"layers": 1, "width": 32, "heads": 2, "window": 64, "batch": 512}
    options: dict[str, Any] = {
        **size,
        "compile": "yes",
        "schedule": "constant",
        "warmup": 0,
        "validate_every": 1000,
    }
    whole = cr.train("transformer", text, tokenizer="char", run=tmp_path / "whole", steps=30, **options)
    cr.train("transformer", text, tokenizer="char", run=tmp_path / "stopped", steps=11, **options)
    resumed = cr.train(
        "transformer", text, tokenizer="char", run=tmp_path / "stopped", steps=30, resume=True, **options
    )
    for name, array in whole.tensors().items():
        np.testing.assert_array_equal(resumed.tensors()[name], array)
