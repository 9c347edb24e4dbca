"""`chainrule kinds`: the kinds of model that can be trained, and the settings of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from chainrule.cli import options as opt
from chainrule.cli.output import console, print_json, say
from chainrule.errors import MissingExtraError, PluginError

if TYPE_CHECKING:
    from rich.console import Console


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
    _print_settings(screen, shown)
    if any(item["default"] == CHOSEN for item in shown):
        say(screen, f"\n{CHOSEN}: by the text, the machine and the time, when training begins")
    if len(shown) < len(settings):
        say(screen, f"\nchainrule kinds {kind} --all lists {len(settings) - len(shown)} more settings")


def _print_settings(screen: Console, settings: list[dict[str, Any]]) -> None:
    """Print settings by their groups, in the order in which the first of each group is defined."""
    for group in dict.fromkeys(item["group"] for item in settings):
        if group:
            screen.print(f"\n{group}", style="bold")
        for item in settings:
            if item["group"] == group:
                choices = item["type"].replace("|", " | ")  # a line may end between two
                line = f"{item['name']}={_shown(item['default'])}  ({choices}) {item['help']}"
                say(screen, line, indent=2)


def _shown(default: Any) -> str:
    """Write a default as it would be written after --set NAME=."""
    return str(default).lower() if default is None or isinstance(default, bool) else str(default)
