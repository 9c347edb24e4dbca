"""`chainrule kinds`: what can be trained, and what each kind can be told."""

from __future__ import annotations

from typing import Any

import click

from chainrule.cli.common import console, json_option, print_json, say


@click.command()
@json_option
def kinds(as_json: bool) -> None:
    """List the kinds of model and their settings.

    Settings go to `chainrule train KIND ... --set NAME=VALUE`.
    """
    from chainrule.errors import MissingExtraError
    from chainrule.kinds import find_kind, kind_names
    from chainrule.settings import describe

    known: list[dict[str, Any]] = []
    for name in kind_names():
        try:
            kind = find_kind(name)
            known.append({"name": name, "summary": kind.summary, "settings": describe(kind.settings)})
        except MissingExtraError as error:
            known.append({"name": name, "summary": str(error), "settings": []})
    if as_json:
        print_json(known)
        return
    screen = console()
    for entry in known:
        screen.print(f"{entry['name']}: {entry['summary']}", style="bold")
        for item in entry["settings"]:
            say(screen, f"  {item['name']}={item['default']}  ({item['type']}) {item['help']}")
