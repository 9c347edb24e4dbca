"""`chainrule count`: how many parameters models have, without training them."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

import click

from chainrule.cli import options as opt
from chainrule.cli.options.declaring import names_from
from chainrule.cli.output import console, print_json, print_table, say

if TYPE_CHECKING:
    from rich.console import Console

    from chainrule.contract.counting import ParameterCount


@click.command(short_help="Count the parameters of models without training them.")
@click.argument(
    "kinds",
    nargs=-1,
    required=True,
    metavar="KIND...",
    shell_complete=names_from("chainrule.contract.kinds:kind_names"),
)
@opt.option("--vocab-size V", "Tokens of the vocabulary.", type=click.IntRange(2), default=10_000)
@opt.option("--set KEY=VALUE...", "A setting, of the kinds that have it; repeatable.", name="settings")
@opt.option("--orders FROM-TO", "Count for each of these orders, such as 2-6, of the kinds that have one.")
@opt.json
def count(
    kinds: tuple[str, ...], vocab_size: int, settings: tuple[str, ...], orders: str | None, as_json: bool
) -> None:
    """Count the parameters of a model of each KIND, without training it.

    One KIND is shown weight by weight, with the formula of each number; several are shown side by side. Of an ngram
    it is the number of probabilities in a table of all contexts, of which training stores those that it sees.

    \b
    chainrule count feedforward --set order=3 --set embedding=300 --set hidden=500
    chainrule count ngram feedforward lstm --orders 2-6
    """
    from chainrule.settings import split_words

    given = split_words(settings)
    every = [
        [_counted(kind, vocab_size, given, order, kinds) for kind in kinds]
        for order in (_orders(orders) if orders is not None else [None])
    ]
    if as_json:
        print_json(
            [{**dataclasses.asdict(one), "parameters": one.parameters} for counted in every for one in counted]
        )
        return
    screen = console()
    if orders is not None:
        rows = [
            [str(order), *(f"{one.parameters:,}" for one in counted)]
            for order, counted in zip(_orders(orders), every, strict=True)
        ]
        print_table(screen, ["order", *kinds], rows)
    elif len(kinds) == 1:
        _print_weights(screen, every[0][0])
    else:
        table = [[one.kind, f"{one.parameters:,}", one.formula] for one in every[0]]
        print_table(screen, ["kind", "parameters", "formula"], table, left=[2])
    for one in every[0]:
        values = " ".join(
            f"{name}={value}" for name, value in one.sizes.items() if name != "order" or orders is None
        )
        say(screen, f"{one.kind}: |V|={vocab_size} {values}")


def _counted(
    kind: str, vocab_size: int, given: dict[str, str], order: int | None, kinds: tuple[str, ...]
) -> ParameterCount:
    """Count the parameters of a kind, with those of the settings that it has; one that no kind has is refused."""
    from chainrule.contract.counting import count_parameters
    from chainrule.contract.kinds import find_kind

    known = {
        name: {field.name for field in dataclasses.fields(find_kind(name, usable=False).settings)} for name in kinds
    }
    everywhere = set().union(*known.values())
    values: dict[str, Any] = {
        key: text for key, text in given.items() if key in known[kind] or key not in everywhere
    }
    if order is not None and "order" in known[kind]:
        values["order"] = order
    return count_parameters(kind, vocab_size, values)


def _orders(text: str) -> list[int]:
    first, dash, last = text.partition("-")
    if not first.isdigit() or not (last.isdigit() or not dash) or int(first) > int(last or first):
        raise click.UsageError(f"--orders takes a range such as 2-6, not {text!r}")
    return list(range(int(first), int(last or first) + 1))


def _print_weights(screen: Console, one: ParameterCount) -> None:
    """Print a row for each weight; those that every block has alike share one."""
    alike: dict[tuple[Any, ...], list[Any]] = {}
    for weight in one.weights:
        alike.setdefault((re.sub(r"\.\d+\.", ".*.", weight.name), weight.shape, weight.formula), []).append(weight)
    rows = []
    for (name, shape, formula), weights in alike.items():
        times = len(weights)
        places = [number for weight in weights for number in re.findall(r"\.(\d+)\.", weight.name)]
        shown = name.replace("*", f"{places[0]}-{places[-1]}") if times > 1 else weights[0].name
        size = f"{' x '.join(f'{n:,}' for n in shape)}"
        whole = f"({formula})" if times > 1 and " + " in re.sub(r"\(.*?\)", "", formula) else formula
        rows.append([shown, size, f"{times * weights[0].number:,}", f"{times} · {whole}" if times > 1 else formula])
    total = ["all", "", f"{one.parameters:,}", ""]
    print_table(
        screen, ["weight", "shape", "parameters", "formula"], [*rows, total], left=[3], styles={len(rows): "bold"}
    )
