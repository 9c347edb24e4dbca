"""`chainrule evaluate`: how good models are on a text."""

from __future__ import annotations

from typing import Any

import click

from chainrule.cli.common import console, encoding_option, json_option, number, print_json


@click.command()
@click.argument("folders", nargs=-1, required=True, metavar="DIR...")
@click.argument("text", metavar="TEXT")
@encoding_option
@json_option
def evaluate(folders: tuple[str, ...], text: str, encoding_errors: Any, as_json: bool) -> None:
    """Measure the models in DIR... on TEXT.

    Perplexity and cross-entropy (in nats and bits) are per token, so they compare models of the same tokenizer;
    bits per byte compare any. TEXT is a file, a pattern in quotes, or - for standard input.

    With --json: one object, or a list for several folders, with perplexity, nats, bits, bits_per_byte, tokens, oov.
    A model that gives some token probability 0 has infinite perplexity; JSON has 1e999 then.
    """
    from rich.table import Table

    from chainrule.cli.progress import terminal_progress
    from chainrule.evaluation.measure import evaluate as evaluate_model
    from chainrule.kinds import load
    from chainrule.text.corpus import Corpus

    corpus = Corpus.open(text, encoding_errors=encoding_errors)
    progress = terminal_progress()
    results = [(folder, evaluate_model(load(folder), corpus, progress=progress)) for folder in folders]
    if as_json:
        objects = [{"folder": folder, **measured.to_json()} for folder, measured in results]
        print_json(objects[0] if len(objects) == 1 else objects)
        return
    table = Table()
    table.add_column("model")
    for heading in ("perplexity", "nats", "bits", "bits/byte", "tokens", "OOV", "tokens/s"):
        table.add_column(heading, justify="right")
    for folder, m in results:
        figures = (m.perplexity, m.nats, m.bits, m.bits_per_byte)
        table.add_row(
            folder,
            *(number(f, 4) for f in figures),
            f"{m.tokens:,}",
            f"{m.oov:.2%}",
            f"{m.tokens_per_second:,.0f}",
        )
    out = console()
    out.print(table)
    for folder, m in results:
        if m.impossible:
            out.print(
                f"{folder}: {m.impossible:,} tokens ({m.impossible / m.tokens:.1%}) have probability 0, so the "
                "perplexity is infinite; a smoothed model rules nothing out",
                soft_wrap=True,
            )
