"""`chainrule inspect`: what is in a model folder."""

from __future__ import annotations

import math
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import chainrule as cr
from chainrule.cli import options as opt
from chainrule.cli.output import (
    console,
    draw,
    number,
    print_json,
    print_table,
    say,
    show,
    show_table,
    terminal_progress,
)
from chainrule.cli.verbs.suggest import print_suggestions
from chainrule.errors import ModelError
from chainrule.system.display import cell

if TYPE_CHECKING:
    from rich.console import Console


@click.command(short_help="Show what is in the model folder DIR, and verify it.")
@opt.model
@opt.options("--prompt TEXT  Show the most likely next words and tokens after this text.")
@opt.heal
@opt.options("""
    --top N : 1.. = 10    How many of them.
    --counts
        Show the n-grams that begin with the prompt, with counts if the model keeps them (train with --set
        counts=true), and tables of its words against each other.
    --table
        Show all contexts of an n-gram model or a table: context, next token, count, sum of the counts, and p;
        counts only if the model keeps them (train with --set counts=true).
    --first N : 1.. = 40  With --table: show N rows; --json has all.
    --near TOKEN          Show the tokens whose vectors in the network's table are nearest, by cosine.
    --first-batch FILE
        Show the first batch of a training on FILE: the inputs of each row, and under them the targets, which are
        the tokens that follow.
    --heat NAME           Draw rows of the array NAME as coloured cells, to --svg.
    --heat-rows LIST      With --heat: the rows, by number (0-9,12) or, of a table of tokens, by word (cat,dog).
    --svg FILE : new      Where --heat draws.
    --overwrite           Replace a FILE that exists.
""")
@opt.json
def inspect(folder: str, prompt: str | None, heal: bool, table: bool, first: int, **options: Any) -> None:
    """Show what is in the model folder DIR, and verify every checksum.

    \b
    chainrule inspect model --prompt "to be or"
    chainrule inspect lstm --near king
    chainrule inspect lstm --first-batch corpus.txt --top 4
    """
    from chainrule.contract.kinds import read_model
    from chainrule.folder import megabytes

    top, counts, as_json = options["top"], options["counts"], options["as_json"]
    near, batch = options["near"], options["first_batch"]
    if options["heat"] is not None or options["svg"] is not None:
        _draw(folder, *(options[name] for name in ("heat", "heat_rows", "svg")))
        return
    if table:
        _show_table(cr.load(folder, tasks=["language"]), first, as_json)
        return
    content = read_model(folder, verify=True)
    found = "every checksum is right" if Path(folder).is_dir() else "a file, which has no checksums"
    if not content.is_signed:
        found += ", but the manifest of this earlier version has none of its own"
    lm = cr.load(folder, verify=False, tasks=None if prompt is None and not counts else ["language"])
    tokenizer = next(iter(lm.tokenizers.values()))
    described: dict[str, Any] = {
        "kind": content.kind,
        "config": dict(content.config),
        "context": content.context,
        "tokenizer": tokenizer.name,
        "vocab_size": tokenizer.vocab_size,
        **({"normalised": lm.normalised} if isinstance(lm, cr.LanguageModel) else {}),
        "megabytes": megabytes(folder),
        "arrays": {name: {"shape": list(a.shape), "dtype": str(a.dtype)} for name, a in content.tensors.items()},
        "metrics": dict(content.metrics),
        "provenance": dict(content.provenance),
    }
    if prompt is not None:
        opt.note_unknown_prompt(lm, prompt, heal)
        if not counts:
            described["suggestions"] = cr.suggest(lm, prompt, top) if heal else []
            described["next"] = _next(lm, prompt, top, heal)
    if counts:
        described.update(_ngrams(lm, prompt or "", top))
    if near is not None:
        described["near"] = _near(lm, near, top)
    if batch is not None:
        described["batch"] = _batch(lm, batch)
    if as_json:
        if "suggestions" in described:
            described["suggestions"] = [asdict(one) for one in described["suggestions"]]
        print_json(described)
    else:
        _print(f"{folder}: {found}", described, top)


def _near(model: Any, text: str, top: int) -> dict[str, Any]:
    """Return a token and those that are nearest to it, as plain values."""
    from chainrule.explanation.neighbours import neighbours

    token, found = neighbours(model, text, top)
    return {"token": token.token, "tokens": [one._asdict() for one in found]}


def _batch(lm: cr.LanguageModel, file: str) -> dict[str, Any]:
    """Return the first batch of a training on a file, as plain values."""
    found = cr.training.shown_batch(lm, cr.Corpus.open(file))
    return {**asdict(found), "padding": found.padding}


def _show_table(lm: cr.LanguageModel, first: int, as_json: bool) -> None:
    """Print all contexts of a model, as a lecture's table does."""
    from chainrule.contract.lm import ask

    rows = ask(lm, "context_rows")
    if rows is None:
        raise ModelError(f"--table is for models that are tables of contexts, such as n-grams, not for {lm.kind}")
    if as_json:
        print_json([asdict(row) for row in rows])
        return
    some = list(islice(rows, first + 1))
    if len(some) <= first:
        some.sort(key=lambda row: (row.context, -row.probability))
    has_counts = bool(some) and some[0].count is not None
    cells = [
        [
            " ".join(row.context),
            row.token,
            *(map(cell, (row.count, row.total)) if has_counts else ()),
            number(row.probability, 4),
        ]
        for row in some[:first]
    ]
    screen, counted = console(), ["count", "sum"] if has_counts else []
    print_table(screen, ["context", "next", *counted, "p"], cells, left=[1])
    if len(some) > first:
        say(screen, f"the first {first:,} rows; --first N shows more, --json all")


def _draw(folder: str, heat: str | None, heat_rows: str | None, svg: str | None) -> None:
    """Draw rows of an array."""
    from chainrule.explanation.weights import weights_picture

    if heat is None or svg is None:
        raise click.UsageError("--heat NAME says which array to draw, and --svg FILE where")
    show(console(), draw(svg, lambda: weights_picture(cr.load(folder), heat, heat_rows)))


def _next(lm: cr.LanguageModel, prompt: str, top: int, heal: bool) -> list[dict[str, Any]]:
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


def _ngrams(lm: cr.LanguageModel, prompt: str, top: int) -> dict[str, Any]:
    """Return the n-grams that begin with a prompt, and the bigrams of its words, as plain values."""
    from chainrule.ngram.ngram_model import NgramModel
    from chainrule.ngram.tables import WITHOUT_COUNTS

    if not isinstance(lm, NgramModel):
        raise ModelError(
            f"--counts is for models of the kind ngram, not {lm.kind}; "
            "chainrule train ngram --set counts=true makes one that keeps counts"
        )
    if not lm.settings.counts:
        terminal_progress().note(WITHOUT_COUNTS)
    found = lm.ngrams(prompt)
    backoffs = [None if math.isnan(value) else value for value in found.log10_backoff[:top].tolist()]
    columns: dict[str, Any] = {"token": found.tokens[:top]}
    columns |= {} if found.counts is None else {"count": found.counts[:top].tolist()}
    columns |= {name: getattr(found, name)[:top].tolist() for name in ("probability", "log10_prob")}
    columns["log10_backoff"] = backoffs
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    described: dict[str, Any] = {"ngrams": {"context": list(found.context), "all": len(found), "rows": rows}}
    is_line = lm.context == "line"
    table = lm.bigrams(prompt or None, most=top, ends=is_line)
    # nothing follows </s>, and <s> follows nothing
    above, beside = slice(0, -1 if is_line else None), slice(1 if is_line else 0, None)
    if lm.settings.order > 1 and (len(table.words[above][beside]) > 1 or not prompt):
        described["bigrams"] = {
            "rows": table.words[above],
            "columns": table.words[beside],
            "counts": None if table.counts is None else table.counts[above, beside].tolist(),
            "probabilities": table.probabilities[above, beside].tolist(),
        }
    return described


_SHOWN_INSTEAD = ("next", "ngrams", "near", "batch")
"""The parts that are shown alone, in place of the whole folder."""


def _print(title: str, described: dict[str, Any], top: int) -> None:
    from rich import box
    from rich.table import Table

    from chainrule.folder import brief

    screen = console()
    _print_predictions(screen, described)
    if "near" in described:
        rows = [[repr(one["token"]), f"{one['similarity']:.3f}"] for one in described["near"]["tokens"]]
        print_table(screen, [f"near {described['near']['token']!r}", "cosine"], rows)
    if "batch" in described:
        _print_batch(screen, described["batch"], top)
    if any(name in described for name in _SHOWN_INSTEAD):
        return
    table = Table(box=box.SIMPLE, show_header=False, title=title, title_justify="left")
    table.add_column(no_wrap=True)
    table.add_column(overflow="ellipsis")
    for key, value in described.items():
        if key in ("arrays", "suggestions", "bigrams", *_SHOWN_INSTEAD):
            continue
        if isinstance(value, dict):
            for name, entry in value.items():
                table.add_row(f"{key}: {name}", number(entry, 5) if isinstance(entry, float) else brief(entry))
        else:
            table.add_row(key.replace("_", " "), number(value) if isinstance(value, float) else str(value))
    for name, array in described["arrays"].items():
        table.add_row(f"array: {name}", f"{' x '.join(f'{n:,}' for n in array['shape'])} {array['dtype']}")
    show_table(screen, table)


def _print_predictions(screen: Console, described: dict[str, Any]) -> None:
    """Print the predictions after the prompt; they come first, since they were asked for."""
    if described.get("suggestions"):
        print_suggestions(screen, described["suggestions"])
        screen.print()
    if "next" in described:
        rows = []
        for entry in described["next"]:
            # a special token is no text: the letters <unk> may be a token too
            token = entry["token"] if entry["special"] else repr(entry["token"])
            appends = "" if entry["special"] else repr(entry["adds"])
            rows.append([token, appends, number(entry["probability"], 4)])
        print_table(screen, ["next token", "appends", "probability"], rows)
    if "ngrams" in described:
        _print_ngrams(screen, described["ngrams"])
    bigrams = described.get("bigrams", {})
    for name, title in {"counts": "counts: c(row column)", "probabilities": "p(column | row)"}.items():
        if bigrams.get(name) is not None:
            say(screen, title)
            words = ([word, *map(cell, row)] for word, row in zip(bigrams["rows"], bigrams[name], strict=True))
            print_table(screen, ["", *bigrams["columns"]], words)
    if {"next", "ngrams"} & described.keys():
        screen.print()


_COLUMNS = 12  # tokens of a row that are shown


def _print_batch(screen: Console, batch: dict[str, Any], top: int) -> None:
    """Print the first rows of a batch: inputs, and under them the targets; a dot is padding."""
    rows, width = len(batch["inputs"]), len(batch["inputs"][0])
    say(
        screen, f"the first of {batch['steps']:,} steps: {rows:,} rows of {width:,}, {batch['padding']:.1%} padding"
    )
    lines = []
    for place, both in enumerate(zip(batch["inputs"][:top], batch["targets"][:top], strict=True), start=1):
        for name, tokens in zip(("input", "target"), both, strict=True):
            shown = ["·" if token is None else token for token in tokens[:_COLUMNS]]
            lines.append([f"{place} {name}", *shown, *(["…"] if len(tokens) > _COLUMNS else [])])
    shown_width = min(width, _COLUMNS)
    headings = ["row", *map(str, range(1, shown_width + 1)), *(["…"] if width > _COLUMNS else [])]
    print_table(screen, headings, lines, left=range(1, len(headings)))
    if rows > top:
        say(screen, f"--top {rows} shows all rows")


def _print_ngrams(screen: Console, ngrams: dict[str, Any]) -> None:
    tokens, rows = ngrams["context"], ngrams["rows"]
    context = ("" if any(token.startswith(" ") for token in tokens) else " ").join(
        tokens
    )  # spaces may be in tokens
    after = f"after {context!r}" if context else "by themselves"
    if not rows:
        say(screen, f"no n-gram of the model goes on {after}")
        return
    title = f"tokens {after}: {ngrams['all']:,}" + (f", the first {len(rows)}" if len(rows) < ngrams["all"] else "")
    say(screen, title)  # not as the table's title, which a narrow table would break
    headings = [name.replace("_", " ") for name in rows[0]]
    print_table(screen, headings, ([*map(cell, row.values())] for row in rows))
