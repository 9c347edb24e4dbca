"""Run the commands of the tutorials and write what they print: `python docs/update_tutorials.py [NAME...]`.

A block `console` has commands, each after "$ ", and what they print; `--check` compares it, all but measured times
and sizes. A block `sh` is followed by a block `text` whose figures depend on the machine, as those of networks do:
it is written, but not compared. The commands of a page run one after the other, in one new folder, which has a copy
of examples/.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PAGES = Path(__file__).parent / "tutorials"
EXAMPLES = PAGES.parents[1] / "examples"
BLOCKS = re.compile(r"```console\n(.*?)```|```sh\n(.*?)```\n(?:\n```text\n(.*?)```)?", re.DOTALL)
COMMAND = re.compile(r"^\$ (.*(?:\n>.*)*)\n", re.MULTILINE)
CONTINUED = re.compile(r"\n> ?")
MINUTES = re.compile(r"--minutes [\d.]+")
TIMES = re.compile(r"\d[\d.,]*( ?(?:m?s|seconds|tokens/s|MB|kB)\b)")


def run(command: str, folder: Path) -> str:
    """Return what a command prints; an error ends the program, as it ends a reader's patience."""
    environment = {
        **os.environ,
        "COLUMNS": "100",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        # `pip install` writes into this folder only, and takes what is installed already
        "PYTHONPATH": f"{folder / 'installed'}:{os.environ.get('PYTHONPATH', '')}".rstrip(":"),
        "PIP_TARGET": str(folder / "installed"),
        "PIP_NO_DEPS": "1",
        "PIP_NO_BUILD_ISOLATION": "0",
        "PIP_QUIET": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    done = subprocess.run(
        ["bash", "-ec", command],
        check=False,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        sys.exit(f"failed: {command}\n{done.stdout}")
    return "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())


def updated(page: str, folder: Path, quick: bool) -> str:
    """Return a page with the output of its commands; `quick` gives networks a second, and keeps their output."""

    def replaced(block: re.Match[str]) -> str:
        dialogue, script, printed = block.groups()
        if dialogue is not None:
            typed = (found[1] for found in COMMAND.finditer(dialogue))
            shown = [f"$ {one}\n" + run(CONTINUED.sub("\n", one), folder) for one in typed]
            return f"```console\n{''.join(shown)}```"
        output = run(MINUTES.sub("--minutes 0.02", script) if quick else script, folder)
        return block[0] if quick or printed is None else f"```sh\n{script}```\n\n```text\n{output}```"

    return BLOCKS.sub(replaced, page)


def comparable(page: str) -> list[str]:
    """Return the lines of a page without times and sizes, and without the spaces that align them."""
    return [" ".join(TIMES.sub(r"#\1", line).split()) for line in page.splitlines()]


def main() -> None:
    """Update the pages, or with --check exit with 1 if one is out of date."""
    check = "--check" in sys.argv
    names = [name for name in sys.argv[1:] if name != "--check"]
    for path in sorted(PAGES.glob("*.md")) if not names else (PAGES / f"{name}.md" for name in names):
        old = path.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(
                EXAMPLES, Path(folder, "examples"), ignore=shutil.ignore_patterns("build", "*.egg-info")
            )
            new = updated(old, Path(folder), quick=check)
        if not check:
            path.write_text(new, encoding="utf-8")
        elif comparable(new) != comparable(old):
            changed = [f"- {a}\n+ {b}" for a, b in zip(comparable(old), comparable(new), strict=False) if a != b]
            sys.exit(
                f"{path.name} is out of date; run `python docs/update_tutorials.py`\n" + "\n".join(changed[:5])
            )


if __name__ == "__main__":
    main()
