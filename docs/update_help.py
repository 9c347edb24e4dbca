"""Put each verb's `--help` into its page under docs/cli/; `make docs` runs this, a test checks for drift."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import click

from chainrule.cli.main import cli, verbs
from chainrule.cli.options.declaring import BriefCommand

PAGES = Path(__file__).parent / "cli"
BEGIN, END = "<!-- help: written by docs/update_help.py -->", "<!-- end of help -->"

OVERVIEW = """# Verbs

`chainrule VERB --help` prints the options of a verb; where it leaves out the rare ones, `--help-all` prints all of
them. The pages here have all of them. `chainrule completion` lets your shell complete verbs and options.

"""


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


def overview() -> str:
    """Return the page that lists the verbs."""
    rows = (f"| [{verb.name}]({verb.name}.md) | {verb.get_short_help_str(limit=200)} |\n" for verb in verbs())
    return f"{OVERVIEW}| verb | what it does |\n| --- | --- |\n{''.join(rows)}"


def main() -> None:
    """Write the pages, or with --check exit with 1 if one is out of date."""
    stale = []
    for name, write in [("README", lambda _: overview()), *((verb.name, partial(page, verb)) for verb in verbs())]:
        path = PAGES / f"{name}.md"
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        new = write(old)
        if new != old:
            stale.append(path.name)
            if "--check" not in sys.argv:
                path.write_text(new, encoding="utf-8")
    if stale and "--check" in sys.argv:
        sys.exit(f"out of date: {', '.join(stale)}; run `make docs`")


if __name__ == "__main__":
    main()
