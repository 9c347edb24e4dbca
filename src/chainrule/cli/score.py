"""`chainrule score`: ln p of each line, or each token, of a text."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from chainrule.cli.common import (
    device_option,
    encoding_option,
    json_option,
    model_argument,
    note_slow_precision,
    precision_option,
)


@click.command()
@model_argument
@click.argument("text", metavar="[TEXT|-]", default="-", type=click.Path())
@click.option("--per-token", is_flag=True, help="A line per token instead of per line of text.")
@device_option
@precision_option
@encoding_option
@json_option
def score(
    folder: str, text: str, per_token: bool, device: str, dtype: str, encoding_errors: Any, as_json: bool
) -> None:
    """Score each line of TEXT with the model in DIR.

    Prints, separated by tabs: ln p, the number of tokens (the line's end is one), the perplexity, and the line.
    With --per-token: ln p and the token, with an empty line after each line of text.
    With --json: an object per line.
    """
    from chainrule.cli.progress import terminal_progress
    from chainrule.evaluation.surprisal import score_lines
    from chainrule.folder import to_json
    from chainrule.kinds import load
    from chainrule.text.corpus import Corpus

    lm = load(folder, device=device, dtype=dtype)
    note_slow_precision(dtype, lm)
    if text == "-" and sys.stdin.isatty():
        click.echo("reading standard input; Ctrl-D ends it", err=True)
    corpus = Corpus.open(text, encoding_errors=encoding_errors)
    for line in score_lines(lm, corpus):
        tokens = zip(line.ids, line.log_probs, strict=True)
        if as_json:
            record: dict[str, Any] = {
                "text": line.text,
                "log_prob": line.log_prob,
                "tokens": len(line.ids),
                "perplexity": line.perplexity,
            }
            if per_token:
                record["per_token"] = [{"token": lm.tokenizer.token(i), "id": i, "log_prob": p} for i, p in tokens]
            click.echo(to_json(record))
        elif per_token:
            for token, log_prob in tokens:
                click.echo(f"{log_prob:.6f}\t{_shown(lm.tokenizer.token(token))}")
            click.echo()
        else:
            click.echo(f"{line.log_prob:.6f}\t{len(line.ids)}\t{line.perplexity:.4f}\t{line.text}")
    corpus.note_losses(terminal_progress())


def _shown(token: str) -> str:
    """A token as printed on one line: escaped if it has characters that cannot be printed."""
    return token if token.isprintable() else json.dumps(token, ensure_ascii=False)[1:-1]
