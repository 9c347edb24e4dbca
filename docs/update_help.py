"""Put each verb's `--help` into its page under docs/cli/; `make docs` runs this, a test checks for drift."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from chainrule.cli.main import VERBS, cli
from chainrule.cli.options.declaring import BriefCommand

PAGES = Path(__file__).parent / "cli"
BEGIN, END = "<!-- help: written by docs/update_help.py -->", "<!-- end of help -->"


def help_of(verb: click.Command) -> str:
    """Return what `chainrule VERB --help`, or --help-all, prints on a terminal of 100 columns."""
    parent = click.Context(cli, info_name="chainrule")
    context = click.Context(verb, info_name=verb.name, parent=parent, terminal_width=100)
    return verb.full_help(context) if isinstance(verb, BriefCommand) else verb.get_help(context)


def page(verb: click.Command, text: str) -> str:
    """The page with its help brought up to date; what people wrote around it stays."""
    block = f"{BEGIN}\n```text\n{help_of(verb)}\n```\n{END}"
    if BEGIN not in text:
        return f"# chainrule {verb.name}\n\n{block}\n"
    before, _, rest = text.partition(BEGIN)
    return before + block + rest.partition(END)[2]


def main() -> None:
    """Write the pages, or with --check exit with 1 if one is out of date."""
    stale = []
    for verb in VERBS:
        path = PAGES / f"{verb.name}.md"
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        new = page(verb, old)
        if new != old:
            stale.append(path.name)
            if "--check" not in sys.argv:
                path.write_text(new, encoding="utf-8")
    if stale and "--check" in sys.argv:
        sys.exit(f"out of date: {', '.join(stale)}; run `make docs`")


if __name__ == "__main__":
    main()
