"""`chainrule kinds`: the kinds of model that can be trained, and the settings of each."""

from __future__ import annotations

from typing import Any

import click

from chainrule.cli import options as opt
from chainrule.cli.output import console, print_json, say
from chainrule.errors import MissingExtraError, PluginError


@click.command()
@click.argument("kind", required=False)
@opt.options("--all as show_all  List every setting of KIND, not only the common ones.")
@opt.json
def kinds(kind: str | None, show_all: bool, as_json: bool) -> None:
    """List the kinds of model, or the common settings of KIND.

    Settings go to `chainrule train KIND ... --set NAME=VALUE`. With --json: all settings, with "common" for each.
    """
    from chainrule.contract.kinds import find_kind, kind_names
    from chainrule.settings import CHOSEN, describe

    known: list[dict[str, Any]] = []
    for name in [kind] if kind else kind_names():
        try:
            found = find_kind(name)
            known.append({"name": name, "summary": found.summary, "settings": describe(found.settings)})
        except (MissingExtraError, PluginError) as error:
            known.append({"name": name, "summary": str(error), "settings": []})
    if as_json:
        print_json(known)
        return
    screen = console()
    for entry in known:
        say(screen, f"{entry['name']}: {entry['summary']}")
    if kind is None:
        say(screen, "\nchainrule kinds KIND lists the settings of a kind")
        return
    settings = known[0]["settings"]
    shown = [item for item in settings if show_all or item.get("common", True)]
    for group in dict.fromkeys(item["group"] for item in shown):  # in the order of the first setting of each
        if group:
            screen.print(f"\n{group}", style="bold")
        for item in (item for item in shown if item["group"] == group):
            default, choices = item["default"], item["type"].replace("|", " | ")  # a line may end between two
            # as it would be written after --set NAME=
            value = str(default).lower() if default is None or isinstance(default, bool) else default
            say(screen, f"{item['name']}={value}  ({choices}) {item['help']}", indent=2)
    if any(item["default"] == CHOSEN for item in shown):
        say(screen, f"\n{CHOSEN}: by the text, the machine and the time, when training begins")
    if len(shown) < len(settings):
        say(screen, f"\nchainrule kinds {kind} --all lists {len(settings) - len(shown)} more settings")
