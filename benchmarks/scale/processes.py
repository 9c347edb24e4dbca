"""Two processes on two cores against one process on one core: tokens per second of the same training.

Each process has one thread. Two separate trainings at once, each on its own core, show the upper limit: it is less
than twice the rate of one where the cores share memory. On a machine that others use, --cpu compares the CPU time
of a step instead, which shows the extra work of two processes but not their waiting.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.harness import new_parser, show

WANTED = 1.6
"""The ratio that two processes should reach."""
_SKIPPED = 2  # records of the first seconds, in which memory is allocated


def main(arguments: list[str]) -> None:
    """Train a Transformer in each way, in turns, and print the ratios."""
    parser = new_parser("scale processes", __doc__)
    parser.add_argument("corpus", nargs="?", default="builtin:python")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--width", type=int, default=192)
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--optimiser", default="adamw")
    parser.add_argument("--parallel", choices=["ddp", "fsdp"], default="ddp")
    parser.add_argument("--cpu", action="store_true", help="compare CPU time, for a machine that is not idle")
    options = parser.parse_args(arguments)
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        raise SystemExit("two processes need two cores")
    if options.cpu:
        _compare_cpu_time(options, cores)
    else:
        _compare_rates(options, cores)


def _compare_rates(options: argparse.Namespace, cores: list[int]) -> None:
    """Print the tokens per second of each way of training."""
    rates: dict[str, list[float]] = {"one process": [], "two processes": [], "two trainings at once": []}
    with tempfile.TemporaryDirectory() as place:
        for number in range(options.rounds):
            folders = [Path(place, f"{number}-{which}") for which in range(4)]
            rates["one process"].append(*_rates([_started(options, folders[0], cores[:1])], folders[:1]))
            rates["two processes"].append(*_rates([_started(options, folders[1], cores)], folders[1:2]))
            both = [_started(options, folder, [core]) for folder, core in zip(folders[2:], cores, strict=True)]
            rates["two trainings at once"].append(sum(_rates(both, folders[2:])))
    one = rates["one process"]
    rows = []
    for name, found in rates.items():
        ratios = [rate / alone for rate, alone in zip(found, one, strict=True)]
        figures = f"{statistics.median(found):,.0f}", f"{min(found):,.0f}", f"{max(found):,.0f}"
        rows.append([name, *figures, f"{statistics.median(ratios):.2f}x"])
    show(_title(options), ["training", "tokens/s", "slowest", "fastest", f"to one (wanted {WANTED}x)"], rows)


def _title(options: argparse.Namespace) -> str:
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return f"a Transformer of width {options.width}, {options.optimiser}, {options.parallel}; load {load}"


def _compare_cpu_time(options: argparse.Namespace, cores: list[int]) -> None:
    """Print the CPU time of a step of one process and of two: the difference of a long and a short training."""
    steps, rows, alone = (options.steps // 4, options.steps), [], 0.0
    with tempfile.TemporaryDirectory() as place:
        for name, some in (("one process", cores[:1]), ("two processes", cores)):
            seconds = []
            for count in steps:
                options.steps = count
                training = _started(options, Path(place, f"{len(some)}-{count}"), some)
                _, status, usage = os.wait4(training.pid, 0)
                if status:
                    raise SystemExit(f"{name}: the training of {count} steps failed")
                seconds.append(usage.ru_utime + usage.ru_stime)
            step = (seconds[1] - seconds[0]) / (steps[1] - steps[0])
            alone = alone or step
            rows.append([name, f"{step:.3f}", f"{2 * alone / step if len(some) > 1 else 1:.2f}x"])
    show(_title(options), ["training", "CPU seconds of a step, all processes", "at best, to one"], rows)


def _started(options: argparse.Namespace, folder: Path, cores: list[int]) -> subprocess.Popen[bytes]:
    """Start a training with one process on each of these cores."""
    given = {name: getattr(options, name) for name in ("steps", "batch", "width", "optimiser", "parallel")}
    fixed = {"layers": 4, "window": 128, "heads": 4, "precision": "float32", "dropout": 0}
    settings = {**given, **fixed, "validate_every": options.steps}
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    train = [
        "-m",
        "chainrule",
        "train",
        "transformer",
        "--tokenizer",
        "word",
        options.corpus,
        "--context",
        "stream",
        *words,
    ]
    out = ["--tokenizer", "bpe", "--vocab-size", "2000", "--out", str(folder)]
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={len(cores)}"]
    command = [sys.executable, *(launch if len(cores) > 1 else []), *train, *out]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    return subprocess.Popen(
        ["taskset", "-c", ",".join(map(str, cores)), *command],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL if options.cpu else subprocess.PIPE,
    )


def _rates(trainings: list[subprocess.Popen[bytes]], folders: list[Path]) -> list[float]:
    """Wait for trainings to end; return the tokens per second of each, without its first seconds."""
    found = []
    for training, folder in zip(trainings, folders, strict=True):
        _, said = training.communicate()
        if training.returncode:
            raise SystemExit(said.decode()[-2000:])
        lines = (json.loads(line) for line in Path(f"{folder}.run", "metrics.jsonl").read_text().splitlines())
        steps = [line for line in lines if line["what"] == "steps"][_SKIPPED:]
        found.append((steps[-1]["tokens"] - steps[0]["tokens"]) / (steps[-1]["seconds"] - steps[0]["seconds"]))
    return found
