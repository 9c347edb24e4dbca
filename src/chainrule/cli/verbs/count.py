"""`chainrule count`: how many parameters models have, untrained; `kinds`: the kinds, and their settings."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from chainrule.cli import options as opt
from chainrule.cli.options.declaring import names_from
from chainrule.cli.output import console, emit, print_json, say
from chainrule.errors import MissingExtraError, PluginError
from chainrule.system.display import ResultTable

if TYPE_CHECKING:
    from chainrule.contract.counting import ParameterCount


@click.command(short_help="Count the parameters of models without training them.")
@click.argument(
    "kinds",
    nargs=-1,
    required=True,
    metavar="KIND...",
    shell_complete=names_from("chainrule.contract.kinds:kind_names"),
)
@opt.options("""
    --vocab-size V : 2.. = 10000    Tokens of the vocabulary.
    --label-count N : 1.. = 10      Labels of a classifier, tags of a tagger.
    --set KEY=VALUE... as settings  A setting, of the kinds that have it; repeatable.
    --orders FROM-TO                Count for each of these orders, such as 2-6, of the kinds that have one.
    --lengths FROM-TO
        Instead: operations and time of a training step on a text of FROM, 2 FROM, ... TO tokens.
""")
@opt.json
def count(kinds: tuple[str, ...], orders: str | None, lengths: str | None, as_json: bool, **options: Any) -> None:
    """Count the parameters of a model of each KIND, without training it.

    One KIND is shown weight by weight, with the formula of each number; several are shown side by side. Of an ngram
    it is the number of probabilities in a table of all contexts, of which training stores those that it sees. The
    table of some networks has a few rows more than tokens, which make its products fast.

    With --lengths: what a training step computes, by the length of the text. The operations are those of matrix
    products; products in a row wait for each other, and the others can be computed side by side. The time is that
    of one core.

    \b
    chainrule count feedforward --set order=3 --set embedding=300 --set hidden=500
    chainrule count ngram feedforward lstm --orders 2-6
    chainrule count lstm transformer --vocab-size 100 --lengths 64-1024
    """
    from chainrule.contract.counting import count_parameters
    from chainrule.settings import split_words

    vocab_size, given = options["vocab_size"], split_words(options["settings"])
    if lengths is not None:
        if orders is not None:
            raise click.UsageError("--lengths and --orders exclude each other: give one of them")
        _count_by_length(kinds, vocab_size, given, _range(lengths, "--lengths", "64-1024"), as_json=as_json)
        return
    every: list[list[ParameterCount]] = []
    places: Sequence[int | None] = [None] if orders is None else _range(orders, "--orders", "2-6")
    for order in places:
        every.append([])
        for kind in kinds:
            more = {"order": order} if order is not None and "order" in _names_of(kind) else {}
            values = _settings_of(kind, given, kinds) | more
            every[-1].append(count_parameters(kind, vocab_size, values, labels=options["label_count"]))
    numbers = [{**dataclasses.asdict(one), "parameters": one.parameters} for counted in every for one in counted]
    if orders is not None:
        rows = [
            [str(order), *(f"{one.parameters:,}" for one in counted)]
            for order, counted in zip(places, every, strict=True)
        ]
        table = ResultTable(["order", *kinds], rows)
    elif len(kinds) == 1:
        table = _weights(every[0][0])
    else:
        rows = [[one.kind, f"{one.parameters:,}", one.formula] for one in every[0]]
        table = ResultTable(["kind", "parameters", "formula"], rows, left=[2])
    said = []
    for one in every[0]:
        sizes = {name: value for name, value in one.sizes.items() if name != "order" or orders is None}
        said.append(f"{one.kind}: |V|={vocab_size} {' '.join(f'{name}={value}' for name, value in sizes.items())}")
    emit(as_json, numbers, table, *said)


def _settings_of(kind: str, given: dict[str, str], kinds: tuple[str, ...]) -> dict[str, Any]:
    """Return the given settings that the kind has, and those that no kind has: it will refuse these."""
    everywhere = set().union(*map(_names_of, kinds))
    return {key: text for key, text in given.items() if key in _names_of(kind) or key not in everywhere}


def _names_of(kind: str) -> set[str]:
    from chainrule.contract.kinds import find_kind

    return {field.name for field in dataclasses.fields(find_kind(kind, usable=False).settings)}


def _range(text: str, option: str, example: str) -> range:
    first, dash, last = text.partition("-")
    if not first.isdigit() or not (last.isdigit() or not dash) or not 0 < int(first) <= int(last or first):
        raise click.UsageError(f"{option} takes a range such as {example}, not {text!r}")
    return range(int(first), int(last or first) + 1)


def _count_by_length(
    kinds: tuple[str, ...], vocab_size: int, given: dict[str, str], limits: range, *, as_json: bool
) -> None:
    from chainrule.contract.kinds import find_kind
    from chainrule.explanation.growth import exponent, growth
    from chainrule.settings import closed, parse

    lengths = [limits[0]]
    while lengths[-1] * 2 <= limits[-1]:
        lengths.append(lengths[-1] * 2)
    if len(lengths) < 2:
        raise click.UsageError("--lengths doubles the length at least once: give a range such as 64-1024")
    found = {}
    for name in kinds:
        kind = find_kind(name, usable=False)
        whole: Any = closed(parse(kind.settings, _settings_of(name, given, kinds)))
        found[name] = growth(kind, whole, vocab_size, lengths)
    values = {name: [dataclasses.asdict(one) for one in rows] for name, rows in found.items()}
    headings = ["kind", "length", "operations", "products in a row", "milliseconds"]
    rows = [
        [name, f"{one.length:,}", f"{one.flops:,}", f"{one.in_a_row:,}", f"{1000 * one.seconds:.2f}"]
        for name, grown in found.items()
        for one in grown
    ]
    said = []
    for name, grown in found.items():
        flops, in_a_row, seconds = (exponent(grown, figure) for figure in ("flops", "in_a_row", "seconds"))
        said.append(
            f"{name}, from {lengths[-2]:,} to {lengths[-1]:,} tokens: operations grow as length^{flops:.2f}, "
            f"products in a row as length^{in_a_row:.2f}, time as length^{seconds:.2f}"
        )
    emit(as_json, values, ResultTable(headings, rows), *said)


def _weights(one: ParameterCount) -> ResultTable:
    """Return a row for each weight; those that every block has alike share one."""
    alike: dict[tuple[Any, ...], list[Any]] = {}
    for weight in one.weights:
        alike.setdefault((re.sub(r"\.\d+\.", ".*.", weight.name), weight.shape, weight.formula), []).append(weight)
    rows = []
    for (name, shape, formula), weights in alike.items():
        times = len(weights)
        places = [number for weight in weights for number in re.findall(r"\.(\d+)\.", weight.name)]
        shown = name.replace("*", f"{places[0]}-{places[-1]}") if times > 1 else weights[0].name
        size = " x ".join(f"{n:,}" for n in shape)
        whole = f"({formula})" if times > 1 and " + " in re.sub(r"\(.*?\)", "", formula) else formula
        rows.append([shown, size, f"{times * weights[0].number:,}", f"{times} · {whole}" if times > 1 else formula])
    rows.append(["all", "", f"{one.parameters:,}", ""])
    return ResultTable(["weight", "shape", "parameters", "formula"], rows, left=[3], strong=[len(rows) - 1])


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
