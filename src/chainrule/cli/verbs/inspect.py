"""`chainrule inspect`: what is in a model folder."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import click

import chainrule as cr
from chainrule.cli import options as opt
from chainrule.cli.output import console, draw, number, print_json, show, show_table, terminal_progress
from chainrule.cli.verbs.suggest import suggestions_table
from chainrule.errors import ModelError
from chainrule.system.display import Part, ResultTable, cell


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
    from chainrule.explanation.neighbours import neighbours
    from chainrule.explanation.weights import weights_picture
    from chainrule.folder import megabytes

    top, counts, as_json = options["top"], options["counts"], options["as_json"]
    near, heat, svg = options["near"], options["heat"], options["svg"]
    if heat is not None or svg is not None:
        if heat is None or svg is None:
            raise click.UsageError("--heat NAME says which array to draw, and --svg FILE where")
        drawn = draw(svg, lambda: weights_picture(cr.load(folder), heat, options["heat_rows"]))
        show(console(), drawn)
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
        token, found_near = neighbours(lm, near, top)
        described["near"] = {"token": token.token, "tokens": [one._asdict() for one in found_near]}
    if options["first_batch"] is not None:
        batch = cr.training.shown_batch(lm, cr.Corpus.open(options["first_batch"]))
        described["batch"] = {**asdict(batch), "padding": batch.padding}
    if as_json:
        if "suggestions" in described:
            described["suggestions"] = [asdict(one) for one in described["suggestions"]]
        print_json(described)
        return
    show(console(), _parts(described, top))
    if not any(name in described for name in _SHOWN_INSTEAD):
        _show_folder(f"{folder}: {found}", described)


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
    cells = []
    for row in some[:first]:
        counts = [cell(row.count), cell(row.total)] if has_counts else []
        cells.append([" ".join(row.context), row.token, *counts, number(row.probability, 4)])
    headings = ["context", "next", *(["count", "sum"] if has_counts else []), "p"]
    more = [f"the first {first:,} rows; --first N shows more, --json all"] if len(some) > first else []
    show(console(), [ResultTable(headings, cells, left=[1]), *more])


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


def _show_folder(title: str, described: dict[str, Any]) -> None:
    """Print all that is known of a folder."""
    from rich import box
    from rich.table import Table

    from chainrule.folder import brief

    table = Table(box=box.SIMPLE, show_header=False, title=title, title_justify="left")
    table.add_column(no_wrap=True)
    table.add_column(overflow="ellipsis")
    for key, value in described.items():
        if key in ("arrays", "suggestions", "bigrams"):
            continue
        if isinstance(value, dict):
            for name, entry in value.items():
                table.add_row(f"{key}: {name}", number(entry, 5) if isinstance(entry, float) else brief(entry))
        else:
            table.add_row(key.replace("_", " "), number(value) if isinstance(value, float) else str(value))
    for name, array in described["arrays"].items():
        table.add_row(f"array: {name}", f"{' x '.join(f'{n:,}' for n in array['shape'])} {array['dtype']}")
    show_table(console(), table)


def _parts(described: dict[str, Any], top: int) -> Iterator[Part]:
    """Yield the predictions after the prompt, then the neighbours and the batch that were asked for."""
    if described.get("suggestions"):
        yield suggestions_table(described["suggestions"])
        yield ""
    if "next" in described:
        rows = []
        for entry in described["next"]:
            # a special token is no text: the letters <unk> may be a token too
            token = entry["token"] if entry["special"] else repr(entry["token"])
            appends = "" if entry["special"] else repr(entry["adds"])
            rows.append([token, appends, number(entry["probability"], 4)])
        yield ResultTable(["next token", "appends", "probability"], rows)
    if "ngrams" in described:
        yield from _ngram_parts(described["ngrams"])
    bigrams = described.get("bigrams", {})
    for name, title in {"counts": "counts: c(row column)", "probabilities": "p(column | row)"}.items():
        if bigrams.get(name) is not None:
            yield title
            rows = [[word, *map(cell, row)] for word, row in zip(bigrams["rows"], bigrams[name], strict=True)]
            yield ResultTable(["", *bigrams["columns"]], rows)
    if {"next", "ngrams"} & described.keys():
        yield ""
    if "near" in described:
        rows = [[repr(one["token"]), f"{one['similarity']:.3f}"] for one in described["near"]["tokens"]]
        yield ResultTable([f"near {described['near']['token']!r}", "cosine"], rows)
    if "batch" in described:
        yield from _batch_parts(described["batch"], top)


_COLUMNS = 12  # tokens of a row that are shown


def _batch_parts(batch: dict[str, Any], top: int) -> Iterator[Part]:
    """Yield the first rows of a batch: inputs, and under them the targets; a dot is padding."""
    rows, width = len(batch["inputs"]), len(batch["inputs"][0])
    yield f"the first of {batch['steps']:,} steps: {rows:,} rows of {width:,}, {batch['padding']:.1%} padding"
    lines = []
    for place, both in enumerate(zip(batch["inputs"][:top], batch["targets"][:top], strict=True), start=1):
        for name, tokens in zip(("input", "target"), both, strict=True):
            shown = ["·" if token is None else token for token in tokens[:_COLUMNS]]
            lines.append([f"{place} {name}", *shown, *(["…"] if len(tokens) > _COLUMNS else [])])
    numbers = map(str, range(1, min(width, _COLUMNS) + 1))
    headings = ["row", *numbers, *(["…"] if width > _COLUMNS else [])]
    yield ResultTable(headings, lines, left=range(1, len(headings)))
    if rows > top:
        yield f"--top {rows} shows all rows"


def _ngram_parts(ngrams: dict[str, Any]) -> Iterator[Part]:
    tokens, rows = ngrams["context"], ngrams["rows"]
    between = "" if any(token.startswith(" ") for token in tokens) else " "  # spaces may be in tokens
    after = f"after {between.join(tokens)!r}" if tokens else "by themselves"
    if not rows:
        yield f"no n-gram of the model goes on {after}"
        return
    # not as the table's title, which a narrow table would break
    first = f", the first {len(rows)}" if len(rows) < ngrams["all"] else ""
    yield f"tokens {after}: {ngrams['all']:,}{first}"
    yield ResultTable([name.replace("_", " ") for name in rows[0]], [[*map(cell, row.values())] for row in rows])
