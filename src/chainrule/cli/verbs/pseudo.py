"""What `chainrule score` and `chainrule evaluate` print of masked models: pseudo-log-likelihoods."""

from __future__ import annotations

import csv
import heapq
import io
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from chainrule.cli.output.lines import console, echo, print_json, say
from chainrule.cli.output.tables import results_table, show_table
from chainrule.cli.output.words import number

if TYPE_CHECKING:
    from chainrule.evaluation.pseudo import PseudoMeasured, PseudoScored
    from chainrule.masked.contract import MaskedModel
    from chainrule.text.corpus import Corpus

WHAT_IT_IS = (
    "PLL: the mean of ln p of each token given those on both sides, in nats. It is no probability of the text, and "
    "exp(-PLL), the pseudo-perplexity, is no perplexity: it does not compare with that of a language model"
)
_HEADINGS = ("id", "pll_per_token", "pll", "tokens", "pseudo_perplexity", "text")


def score_masked(model: MaskedModel, corpus: Corpus, options: dict[str, Any]) -> None:
    """Print the pseudo-log-likelihood of each record, or of each token, as `chainrule score` prints surprisals."""
    from chainrule.cli.output.progress import terminal_progress
    from chainrule.evaluation.pseudo import pseudo_records
    from chainrule.folder import to_json

    records: Iterable[PseudoScored] = pseudo_records(model, corpus, per_line=options["per_line"])
    if options["worst"] is not None:
        records = heapq.nsmallest(
            options["worst"], records, key=lambda r: r.pll if options["by"] == "total" else r.pll_per_token
        )
    if options["as_csv"]:
        echo(_csv_row(_HEADINGS), nl=False)
    for record in records:
        if options["as_json"]:
            echo(to_json(_described(model, record, per_token=options["per_token"])))
        elif options["per_token"]:
            for token, log_prob in zip(record.ids, record.log_probs, strict=True):
                echo(f"{log_prob:.6f}\t{model.tokenizer.token(token)}")
            echo()
        elif options["as_csv"]:
            echo(_csv_row(_columns(record)), nl=False)
        else:
            *figures, words = _columns(record)
            echo("\t".join([*figures, words.replace("\n", "\\n")]))
    if not options["as_json"]:
        terminal_progress().note(WHAT_IT_IS)


def show_masked(results: Sequence[tuple[str, PseudoMeasured]], *, as_json: bool) -> None:
    """Print what was measured of masked models."""
    if as_json:
        objects = [{"folder": folder, **measured.to_json()} for folder, measured in results]
        print_json(objects[0] if len(objects) == 1 else objects)
        return
    screen = console()
    table = results_table("model", "PLL", "pseudo-perplexity", "tokens", "OOV")
    for folder, m in results:
        figures = number(m.pll_per_token, 4), number(m.pseudo_perplexity, 4), f"{m.tokens:,}", f"{m.oov:.2%}"
        table.add_row(folder, *figures)
    show_table(screen, table)
    say(screen, WHAT_IT_IS)


def _described(model: MaskedModel, record: PseudoScored, *, per_token: bool) -> dict[str, Any]:
    described: dict[str, Any] = {
        "id": record.id,
        "text": record.text,
        "pll": record.pll,
        "pll_per_token": record.pll_per_token,
        "tokens": len(record.ids),
        "pseudo_perplexity": record.pseudo_perplexity,
    }
    if per_token:
        described["per_token"] = [
            {"token": model.tokenizer.token(token), "id": token, "log_prob": log_prob}
            for token, log_prob in zip(record.ids, record.log_probs, strict=True)
        ]
    return described


def _columns(record: PseudoScored) -> list[str]:
    figures = f"{record.pll_per_token:.4f}", f"{record.pll:.4f}", str(len(record.ids))
    return [str(record.id), *figures, f"{record.pseudo_perplexity:.4f}", record.text]


def _csv_row(columns: Sequence[str]) -> str:
    row = io.StringIO()
    csv.writer(row, lineterminator="\n").writerow(columns)
    return row.getvalue()
