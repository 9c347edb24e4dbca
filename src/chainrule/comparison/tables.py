"""The tables of a comparison: a row for each model, and the learning curves; for a terminal and for a notebook."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from chainrule.comparison.learning_curve import fraction, on_part
from chainrule.comparison.results import Comparison, Result
from chainrule.evaluation.measure import Measured, caveats
from chainrule.system.display import Part, ResultTable, cell, number

CHEAP = "°"
"""Marks the cost of a model to which no other is better without costing more."""
_REPEATED = 0.02
"""A share of repeated lines in the test text that a reader should know of."""
_SAMPLE = 160  # characters


def comparison_parts(comparison: Comparison) -> list[Part]:
    """Return what a comparison found: its text, the table of its models with notes, curves, failures."""
    train, test = comparison.parts["train"], comparison.parts["test"]
    context = ", context across lines" if comparison.context == "stream" else ""
    head = f"{comparison.tokenizer}, vocabulary {comparison.vocab_size:,}{context}; trained on "
    if comparison.is_of_text:
        unseen = (
            "held-out text" if any(one.has_seen_test for one in comparison.results) else "text no model has seen"
        )
        size = f"{test['tokens']:,} tokens ({test['bytes']:,} bytes) of {unseen}"
        head += f"{train['tokens']:,} tokens, measured on {size}"
    else:
        head += f"{train['lines']:,} examples, measured on {test['lines']:,} that no model has seen"
    parts: list[Part] = [head, models_table(comparison), *_notes(comparison)]
    if any(one.steps is not None for one in comparison.results) and comparison.is_of_text:
        parts += ["", training_table(comparison), *seeds_in_words(comparison)]
    if test.get("repeated", 0) > _REPEATED * test["bytes"]:
        share = test["repeated"] / test["bytes"]
        parts.append(
            f"{share:.0%} of the test text are lines that the training text has too, or nearly so: they are easy"
        )
    if comparison.curve:
        parts += ["", curve_table(comparison)]
    return parts + [f"{on_part(one.name, one.share)} failed: {one.error}" for one in comparison.failures]


def models_table(comparison: Comparison) -> ResultTable:
    """Return a row for each model with its figures and costs."""
    results = comparison.results
    if comparison.is_of_text:
        names, figures = ["bits/byte", "±", "perplexity"], [*map(_language_figures, results)]
    else:
        values: list[Mapping[str, float]] = [result.figures for result in results]
        names = list(dict.fromkeys(name for one in values for name in one))
        figures = [[number(one[name], 4) if name in one else "" for name in names] for one in values]
    best = [result is comparison.best for result in results]
    rows = [
        [f"{result.name} (best)" if is_best else result.name, *shown, *_costs(comparison, result)]
        for result, shown, is_best in zip(results, figures, best, strict=True)
    ]
    strong = [place for place, is_best in enumerate(best) if is_best]
    return ResultTable(["model", *names, "tokens/s", "train s", "MB"], rows, strong=strong)


def _language_figures(result: Result) -> list[str]:
    assert isinstance(result.test, Measured)
    half = "" if result.interval is None else f"{(result.interval[1] - result.interval[0]) / 2:.3f}"
    shown = result.test.figures()
    return [shown["bits/byte"], half, shown["perplexity"]]


def _costs(comparison: Comparison, result: Result) -> list[str]:
    """Return the costs of a model, each with a mark if no better model is as cheap."""
    costs = {
        "tokens_per_second": f"{result.test.tokens_per_second:,.0f}",
        "training_seconds": number(result.training_seconds, 2) if math.isfinite(result.training_seconds) else "",
        "megabytes": number(result.megabytes, 3),
    }
    return [text + (CHEAP if result.name in comparison.frontier(cost) else " ") for cost, text in costs.items()]


def training_table(comparison: Comparison) -> ResultTable:
    """Return what the training of each model read and computed."""
    rows = [
        [
            *map(cell, (one.name, one.steps, one.tokens_seen)),
            "" if one.epochs is None else number(one.epochs, 3),
            "" if one.training_flops is None else f"{one.training_flops:.1e}",
            cell(one.parameters),
        ]
        for one in comparison.results
        if one.tokens_seen is not None
    ]
    return ResultTable(["training", "steps", "tokens", "epochs", "FLOPs", "parameters"], rows)


def seeds_in_words(comparison: Comparison) -> list[str]:
    """Say from how many seeds networks were trained, and how much their losses differ."""
    several = [one for one in comparison.results if len(one.seeds) > 1]
    if not several:
        return ["each network was trained once: --seeds 3 shows how much its figures depend on chance"]
    spread = ", ".join(f"{one.name} {min(one.seeds):.4g} to {max(one.seeds):.4g}" for one in several)
    return [
        f"networks were trained from {len(several[0].seeds)} seeds, bits/byte are means: {spread}",
        "folders, samples and bits by kind of word are those of the first seed",
    ]


def _notes(comparison: Comparison) -> list[str]:
    """Explain the marks of the table."""
    measured = [one.test for one in comparison.results if isinstance(one.test, Measured)]
    where = "" if comparison.machine is None else f"; speeds on {comparison.machine}"
    notes = [f"{CHEAP} no other model is both better and cheaper in this respect{where}"]
    impossible = [test.impossible / test.tokens for test in measured if test.impossible]
    if impossible:
        shares = f"from {min(impossible):.1%} to {max(impossible):.1%} of them"
        notes.append(f"∞: some tokens had probability 0, {shares}")
    notes += caveats(replace(test, trained_on=None) for test in measured)
    notes += [
        f"{one.name} was trained on about {one.test.trained_on:.0%} of the test text's long lines, "
        "so its figures do not compare"
        for one in comparison.results
        if one.has_seen_test and isinstance(one.test, Measured)
    ]
    if own := [f"{one.name} {one.tokens}" for one in comparison.results if one.tokens is not None]:
        notes.append(f"tokens of their own, so that perplexity does not compare: {', '.join(own)}")
    every = dict.fromkeys(getattr(one.test, "note", "") for one in comparison.results)
    return notes + [note for note in every if note]


def curve_table(comparison: Comparison) -> ResultTable:
    """Return the learning curves: a row for each model, a column for each part of the training text."""
    shares = sorted({one.share for one in comparison.curve})
    rows = []
    for name, found in comparison.curves.items():
        half, whole = found.get(0.5, math.inf), found.get(1.0, math.inf)
        gained = f"{whole - half:+.3f}" if max(half, whole) < math.inf else ""
        rows.append([name, *(number(found[share], 4) if share in found else "" for share in shares), gained])
    headings = ["model", *map(fraction, shares), "twice the text"]
    return ResultTable(headings, rows, title="Bits/byte by the share of the training text")


def samples_table(comparison: Comparison) -> ResultTable:
    """Return the beginning of what each model wrote, on one line each."""
    rows = [[result.name, sample(result)] for result in comparison.results]
    heading = "sample (top-p 0.9)" if comparison.is_of_text else "example"
    return ResultTable(["model", heading], rows, left=[1])


def sample(result: Result) -> str:
    """Return the beginning of what a model wrote, on one line."""
    text = " / ".join(" ".join(line.split()) for line in result.sample.splitlines())
    return text[:_SAMPLE] or "(empty lines)"
