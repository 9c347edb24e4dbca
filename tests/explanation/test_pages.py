"""The pages on networks are reproduced by their own commands: each prints the figures that stand below it."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"```sh\n(.*?)```\n(?:\n```text\n(.*?)```)?", re.DOTALL)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]\d+)?")
END = "---- end of a block ----"


def run_page(page: str, folder: Path) -> list[tuple[str, str]]:
    """Run the commands of a page in one shell; return what stands below each block, and what it printed."""
    script = [f'set -e; chainrule() {{ "{sys.executable}" -m chainrule "$@"; }}']
    found = BLOCK.findall(page)
    for commands, _ in found:
        script += [commands, f"echo; echo '{END}'"]
    # one thread: sums have one order on every machine
    environment = {**os.environ, "COLUMNS": "120", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = str(ROOT / "src")
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)], cwd=folder, env=environment, check=True, capture_output=True, text=True
    )
    printed = done.stdout.split(f"\n{END}\n")
    return [(expected, out) for (_, expected), out in zip(found, printed, strict=False) if expected]


def without_trainings(printed: str) -> str:
    """What a block printed, without the lines of its trainings, which name seconds."""
    lines = (line for line in printed.splitlines() if not re.match(r"\S+: trained on ", line))
    return "\n".join(lines).strip()


def alike(expected: str, got: str) -> bool:
    """Whether two figures agree: powers of ten to a factor of ten, perplexities to a tenth, others to 0.15."""
    a, b = float(expected), float(got)
    if "e" in expected or "e" in got:
        return a == b or (a * b > 0 and abs(math.log10(a / b)) <= 1)
    return abs(a - b) <= max(0.15, 0.1 * abs(a))


def differences(expected: str, got: str) -> list[str]:
    """Name the lines that are not alike; blocks, rules and the tokens of a ranking may differ."""
    pairs = list(zip(expected.strip().splitlines(), got.strip().splitlines(), strict=True))
    found = []
    for one, other in pairs:
        if re.match(r"[─ ]*$", one) or "most depends" in one or re.match(r"(layer|blocks)", one):
            continue
        figures = [NUMBER.findall(re.sub(r"[▁▂▃▄▅▆▇█·]+", "", line)) for line in (one, other)]
        words = [NUMBER.sub("#", re.sub(r"[▁▂▃▄▅▆▇█·─]+|\s+", " ", line)).split() for line in (one, other)]
        if words[0] != words[1] or not all(map(alike, *figures)):
            found.append(f"{one}\n{other}")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["diagnostics.md", "probes.md"])
def test_the_commands_of_a_page_print_its_figures(name: str, tmp_path: Path) -> None:
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    ran = run_page(page, tmp_path)
    assert len(ran) >= 4
    for expected, printed in ran:
        assert not differences(expected, without_trainings(printed))


def test_figures_that_differ_are_found() -> None:
    line = "h, layer 0   ▁▂▃█   1.9e-21   1.1e+00   1.7e-21"
    assert not differences(line, "h, layer 0   ▂▂▂█   4.9e-21   1.3e+00   3.7e-21")
    assert differences(line, line.replace("e-21", "e-15"))
    assert differences(line, line.replace("h,", "c,"))
    assert differences("lstm  0.98  0.97", "lstm  0.98  0.61")
