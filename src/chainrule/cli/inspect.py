"""`chainrule inspect`: what is in a model folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from chainrule.cli.common import (
    console,
    heal_option,
    json_option,
    model_argument,
    note_unknown_prompt,
    number,
    print_json,
    results_table,
    show_table,
)
from chainrule.cli.suggest import as_record, suggestions_table

if TYPE_CHECKING:
    from chainrule.lm import LanguageModel


@click.command()
@model_argument
@click.option("--prompt", help="Show the most likely next words and tokens after this text.")
@heal_option
@click.option("--top", type=click.IntRange(1), default=10, show_default=True, metavar="N", help="How many of them.")
@json_option
def inspect(folder: str, prompt: str | None, heal: bool, top: int, as_json: bool) -> None:
    """Show what is in the model folder DIR, and verify every checksum."""
    from chainrule.decode.suggest import suggest
    from chainrule.folder import megabytes, read_folder
    from chainrule.kinds import load

    content = read_folder(folder, verify=True)
    found = "every checksum is right"
    if not content.is_signed:
        found += ", but the manifest of this earlier version has none of its own"
    lm = load(folder, verify=False)
    described: dict[str, Any] = {
        "kind": content.kind,
        "config": dict(content.config),
        "context": content.context,
        "tokenizer": lm.tokenizer.name,
        "vocab_size": lm.tokenizer.vocab_size,
        "normalised": lm.normalised,
        "megabytes": megabytes(folder),
        "arrays": {name: {"shape": list(a.shape), "dtype": str(a.dtype)} for name, a in content.tensors.items()},
        "metrics": dict(content.metrics),
        "provenance": dict(content.provenance),
    }
    if prompt is not None:
        note_unknown_prompt(lm, prompt, heal)
        described["suggestions"] = suggest(lm, prompt, top) if heal else []
        described["next"] = _next(lm, prompt, top, heal)
    if as_json:
        if prompt is not None:
            described["suggestions"] = [as_record(suggestion) for suggestion in described["suggestions"]]
        print_json(described)
    else:
        _print(f"{folder}: {found}", described)


def _next(lm: LanguageModel, prompt: str, top: int, heal: bool) -> list[dict[str, Any]]:
    from chainrule.decode.suggest import next_tokens

    return [
        {
            "token": lm.tokenizer.token(found.id),
            "adds": found.adds,
            "special": lm.tokenizer.special(found.id) is not None,
            "id": found.id,
            "probability": found.probability,
        }
        for found in next_tokens(lm, prompt, top, heal=heal)
    ]


def _print(title: str, described: dict[str, Any]) -> None:
    from rich import box
    from rich.table import Table

    from chainrule.folder import brief

    screen = console()
    table = Table(box=box.SIMPLE, show_header=False, title=title, title_justify="left")
    table.add_column(no_wrap=True)
    table.add_column(overflow="ellipsis")
    for key, value in described.items():
        if key in ("arrays", "suggestions", "next"):
            continue
        if isinstance(value, dict):
            for name, entry in value.items():
                table.add_row(f"{key}: {name}", number(entry, 5) if isinstance(entry, float) else brief(entry))
        else:
            table.add_row(key.replace("_", " "), number(value) if isinstance(value, float) else str(value))
    for name, array in described["arrays"].items():
        table.add_row(f"array: {name}", f"{' x '.join(f'{n:,}' for n in array['shape'])} {array['dtype']}")
    show_table(screen, table)
    if described.get("suggestions"):
        show_table(screen, suggestions_table(described["suggestions"]))
        screen.print()
    if "next" in described:
        likely = results_table("next token", "appends", "probability")
        for entry in described["next"]:
            # a special token is no text: the letters <unk> may be a token too
            token = entry["token"] if entry["special"] else repr(entry["token"])
            likely.add_row(token, "" if entry["special"] else repr(entry["adds"]), number(entry["probability"], 4))
        show_table(screen, likely)
