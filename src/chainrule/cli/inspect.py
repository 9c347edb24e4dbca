"""`chainrule inspect`: what is in a model folder."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from chainrule.cli.common import (
    console,
    json_option,
    model_argument,
    note_unknown_prompt,
    number,
    print_json,
    results_table,
    show_table,
)

if TYPE_CHECKING:
    from chainrule.lm import LanguageModel


@click.command()
@model_argument
@click.option("--prompt", help="Show the most likely next tokens after this text.")
@click.option("--top", type=click.IntRange(1), default=10, show_default=True, metavar="N", help="How many of them.")
@json_option
def inspect(folder: str, prompt: str | None, top: int, as_json: bool) -> None:
    """Show what is in the model folder DIR, and verify every checksum."""
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
        note_unknown_prompt(lm, prompt)
        described["next"] = _next(lm, prompt, top)
    if as_json:
        print_json(described)
    else:
        _print(f"{folder}: {found}", described)


def _next(lm: LanguageModel, prompt: str, top: int) -> list[dict[str, Any]]:
    import numpy as np

    from chainrule.arrays import pad, to_numpy
    from chainrule.decode.generate import prompt_ids

    state = lm.extend(lm.start(1), pad([prompt_ids(lm, prompt)]))
    log_probs = to_numpy(lm.next_log_probs(state))[0]
    order = np.argsort(-log_probs, kind="stable")[:top]
    return [
        {
            "token": lm.tokenizer.token(int(i)),
            "special": lm.tokenizer.special(int(i)) is not None,
            "id": int(i),
            "probability": math.exp(log_probs[i]),
        }
        for i in order
        if log_probs[i] > -math.inf
    ]


def _print(title: str, described: dict[str, Any]) -> None:
    from rich import box
    from rich.table import Table

    screen = console()
    table = Table(box=box.SIMPLE, show_header=False, title=title, title_justify="left")
    table.add_column(no_wrap=True)
    table.add_column(overflow="ellipsis")
    for key, value in described.items():
        if key in ("arrays", "next"):
            continue
        if isinstance(value, dict):
            for name, entry in value.items():
                table.add_row(f"{key}: {name}", number(entry, 5) if isinstance(entry, float) else str(entry))
        else:
            table.add_row(key.replace("_", " "), number(value) if isinstance(value, float) else str(value))
    for name, array in described["arrays"].items():
        table.add_row(f"array: {name}", f"{' x '.join(f'{n:,}' for n in array['shape'])} {array['dtype']}")
    show_table(screen, table)
    if "next" in described:
        likely = results_table("next token", "probability")
        for entry in described["next"]:
            # a special token is no text: the letters <unk> may be a token too
            token = entry["token"] if entry["special"] else repr(entry["token"])
            likely.add_row(token, number(entry["probability"], 4))
        show_table(screen, likely)
