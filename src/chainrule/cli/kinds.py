"""`chainrule kinds`: the kinds of model that can be trained, and the settings of each."""

from __future__ import annotations

from typing import Any

import click

from chainrule.cli.common import console, json_option, print_json, say


@click.command()
@click.argument("kind", required=False)
@json_option
def kinds(kind: str | None, as_json: bool) -> None:
    """List the kinds of model, or the settings of KIND.

    Settings go to `chainrule train KIND ... --set NAME=VALUE`.
    """
    from chainrule.errors import MissingExtraError, PluginError
    from chainrule.kinds import find_kind, kind_names
    from chainrule.settings import describe

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
        for item in entry["settings"] if kind else ():
            say(screen, f"  {item['name']}={_shown(item['default'])}  ({item['type']}) {item['help']}")
    if not kind:
        say(screen, "\nchainrule kinds KIND lists the settings of a kind")


def _shown(default: Any) -> str:
    """A default as it would be written after --set NAME=."""
    return str(default).lower() if default is None or isinstance(default, bool) else str(default)
