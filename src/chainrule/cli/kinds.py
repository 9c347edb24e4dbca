"""`chainrule kinds`: what can be trained, and what each kind can be told."""

from __future__ import annotations

from typing import Any

import click

from chainrule.cli.common import console, json_option, print_json


@click.command()
@json_option
def kinds(as_json: bool) -> None:
    """List the kinds of model and their settings.

    Settings go to `chainrule train KIND ... --set NAME=VALUE`.
    """
    from rich.table import Table

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
    for entry in known:
        table = Table(title=f"{entry['name']}: {entry['summary']}", title_justify="left")
        for heading in ("setting", "value", "default", ""):
            table.add_column(heading)
        for item in entry["settings"]:
            table.add_row(item["name"], item["type"], str(item["default"]), item["help"])
        console().print(table)
