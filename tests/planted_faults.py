"""Plant thirty faults, one after the other, and show that the fast run catches each.

`python tests/planted_faults.py [NUMBER ...]` changes one line of a copy of the sources at a time, and runs the fast
tests that are named beside it. A fault that no test catches is listed at the end, and the exit code is 1.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]

FAULTS = [  # file, what stands there, what is planted, tests
    ("decode/top.py", "return before_BN < share * (1 - 1e-9)", "return before_BN < share * 0.8", "tests/decode"),
    (
        "decode/strategies.py",
        "_best(log_probs_BV)) / self.value",
        "_best(log_probs_BV)) * self.value",
        "tests/decode",
    ),
    ("decode/beam.py", "** float(self.beam.length_power)", "** 1.0", "tests/decode tests/contract"),
    ("decode/speculative.py", "* q_KV[k, x] >= p_TV[k, x]", "* q_KV[k, x] >= 2 * p_TV[k, x]", "tests/decode"),
    ("decode/healing.py", "_NEGLIGIBLE = -18.0", "_NEGLIGIBLE = -0.1", "tests/decode"),
    ("ngram/estimate/smooth.py", "y * n[r + 1] / n[r]", "y * n[r] / n[r + 1]", "tests/ngram"),
    ("ngram/estimate/smooth.py", "seen.count - discount, 0.0", "seen.count - 0.9 * discount, 0.0", "tests/ngram"),
    (
        "ngram/ngram_model.py",
        "words_BT[:, ids_BT.shape[1] :]",
        "words_BT[:, : words_BN.shape[1]]",
        "tests/contract tests/ngram",
    ),
    (
        "networks/recurrent/cells.py",
        "(1 - z_BH) * n_BH + z_BH * h_BH",
        "z_BH * n_BH + (1 - z_BH) * h_BH",
        "tests/networks",
    ),
    ("networks/transformer/attention.py", "/ math.sqrt(q_BHTK.shape[-1])", "/ q_BHTK.shape[-1]", "tests/networks"),
    (
        "networks/transformer/positions.py",
        "torch.cat([-sin_TI, sin_TI]",
        "torch.cat([sin_TI, sin_TI]",
        "tests/networks",
    ),
    (
        "inference/state.py",
        "lengths_B = self.lengths_B - drop_B",
        "lengths_B = self.lengths_B - by",
        "tests/contract",
    ),
    ("autodiff/tape/modules.py", "dx *= 1 - np.square(t)", "dx *= 1 + np.square(t)", "tests/autodiff"),
    ("training/optimisers.py", "1 / min(self.count, horizon)", "1 / self.count", "tests/training"),
    (
        "training/schedule.py",
        "rising = round(warmup * total)",
        "rising = round(0.5 * warmup * total)",
        "tests/training src/chainrule/training",
    ),
    ("masked/masking.py", "MASKED, RANDOM = 0.8, 0.1", "MASKED, RANDOM = 0.6, 0.3", "tests/masked"),
    (
        "mixtures/caches.py",
        "(n * share + 1 / (self.vocab_size - 1)) / (n + 1)",
        "(n * share + 1 / self.vocab_size) / (n + 1)",
        "tests/mixtures tests/contract",
    ),
    (
        "mixtures/mixture.py",
        "term = column + self._here(",
        "term = column + 0.5 * self._here(",
        "tests/mixtures tests/contract",
    ),
    (
        "folder/integrity.py",
        'if sha256(path) != entry.get("sha256"):',
        "if False:",
        "tests/test_folder.py tests/reliability",
    ),
    ("serve/guard.py", "not in self.rules.hosts:\n", "in ():\n", "tests/serve"),
    ("evaluation/measure.py", "bits=mean / math.log(2)", "bits=mean * math.log(2)", "tests/evaluation"),
    (
        "comparison/results.py",
        "sign = -1 if cost.more_is_better else 1",
        "sign = 1",
        "tests/comparison tests/report",
    ),
    (
        "system/disk/atomic.py",
        "                temporary.replace(path)",
        "                shutil.copy(temporary, path)",
        "tests/reliability tests/test_folder.py",
    ),
    ("interop/llama2c.py", ".transpose(1, 2).reshape(weight.shape)", ".reshape(weight.shape)", "tests/interop"),
    (
        "seq2seq/quality.py",
        "return cls(bleu.score, chrf.score,",
        "return cls(chrf.score, bleu.score,",
        "tests/seq2seq",
    ),
    ("text/split.py", "salt=(seed % 2**128)", "salt=(0 * seed)", "tests/text"),
    ("tokens/words/splitting.py", 'character == "_" or ', "", "tests/tokens"),
    (
        "contract/confusion.py",
        "return self.correct / self.count",
        "return (self.count - self.correct) / (self.count + 1)",
        "tests/tagging",
    ),
    (
        "tasks/nbest/errors.py",
        "Levenshtein.distance(text.split(), reference)",
        "abs(len(text.split()) - len(reference))",
        "tests/tasks",
    ),
    ("report/surprise.py", "np.where(same_line, sums, -np.inf)", "sums", "tests/report"),
]


def is_caught(copy: Path, file: str, old: str, new: str, tests: str) -> bool:
    """Return True if a test fails when `new` stands in the place of `old`."""
    path = copy / "src" / "chainrule" / file
    source = path.read_text(encoding="utf-8")
    assert source.count(old) >= 1, f"{file} has no {old!r}: adapt the list of faults"
    path.write_text(source.replace(old, new), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "2", *tests.split()]
    try:
        done = subprocess.run(
            command, cwd=copy, env={**os.environ, "PYTHONPATH": str(copy / "src")}, capture_output=True, check=False
        )
    finally:
        path.write_text(source, encoding="utf-8")
    return done.returncode != 0


def main() -> None:
    """Plant every fault, or those of the numbers that are given."""
    numbers = [int(word) for word in sys.argv[1:]] or range(1, len(FAULTS) + 1)
    missed = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "chainrule"
        # with the times of the files, so that compiled kernels are found
        shutil.copytree(
            ROOT, copy, ignore=shutil.ignore_patterns(".git", ".venv", "build"), copy_function=shutil.copy2
        )
        for number in numbers:
            caught = is_caught(copy, *FAULTS[number - 1])
            print(f"{number:2d} {'caught' if caught else 'MISSED'}  {FAULTS[number - 1][0]}", flush=True)
            missed += [] if caught else [number]
    if missed:
        sys.exit(f"no test of the fast run caught {missed}")


if __name__ == "__main__":
    main()
