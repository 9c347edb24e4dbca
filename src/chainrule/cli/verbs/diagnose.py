"""`chainrule diagnose`: what goes on inside a network that reads a text."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

import click

import chainrule as cr
from chainrule.cli import options as opt
from chainrule.cli.output import console, count, echo_json, number, print_table, say, terminal_progress

if TYPE_CHECKING:
    import numpy as np
    from rich.console import Console

_BLOCKS = "▁▂▃▄▅▆▇█"
_NOTHING = "·"
_FIGURES = 56  # the width of a table without its line of blocks


@click.command()
@opt.model
@opt.read_prompt
@opt.option("--token N", "Predict the N-th token of the text instead, and end there.", type=int)
@opt.option("--longest N", "Of a longer text only the last N tokens are read.", type=click.IntRange(1), default=200)
@opt.option("--out FILE", "Write all figures to FILE, a JSON object per line.")
@opt.overwrite("a FILE")
@opt.json
def diagnose(
    folder: str, prompt: str, token: int | None, longest: int, out: str | None, overwrite: bool, as_json: bool
) -> None:
    """Look into the network in DIR while it reads a text.

    The loss of predicting the last token is differentiated with respect to the embedding of every token before it
    and, in a recurrent network, to the state of every layer at every step: a gradient that vanishes on the way back
    teaches nothing. For an LSTM and a GRU the gates are shown, for a Transformer what each head attends to.

    Steps count from 0, which is <s> (in a stream, </s>). With --json: what --out writes.
    """
    from chainrule.autodiff.tape_model import load_on_tape

    if out is not None:
        opt.check_new_file(out, "--out", overwrite)
    found = cr.diagnose(load_on_tape(folder), prompt, token=token, longest=longest, progress=terminal_progress())
    if out is not None:
        found.save(out)
    if as_json:
        for record in found.records():
            echo_json(record)
        return
    screen = console()
    tokens, likely = count(len(found.tokens), "token"), number(math.exp(-found.nats))
    say(screen, f"{tokens}, then {found.target!r}: {number(found.nats)} nats, p = {likely}\n")
    _print_gradients(screen, found)
    if found.gates:
        _print_gates(screen, found)
    if found.attention_LHTT is not None:
        _print_attention(screen, found)


def _print_gradients(screen: Console, found: cr.explanation.Diagnosis) -> None:
    norms = {"embedding": found.embedding_gradient_T}
    for name, norms_LT in found.state_gradients.items():
        norms |= {f"{name}, layer {layer}": norms_T for layer, norms_T in enumerate(norms_LT)}
    seen = [norm for norms_T in norms.values() for norm in norms_T if 0 < norm < math.inf] or [1.0]
    least, most = min(seen), max(seen)
    rows = []
    for name, norms_T in norms.items():
        levels = [_log_level(norm, least, most) for norm in norms_T]
        first, last = float(norms_T[0]), float(norms_T[-1])
        ratio = f"{first / last:.1e}" if last else ""
        rows.append([name, heat_line(levels, screen.width - _FIGURES), f"{first:.1e}", f"{last:.1e}", ratio])
    print_table(screen, ["gradient by", "step by step", "first", "last", "first / last"], rows)
    say(screen, f"blocks, by logarithms: ▁ {least:.1e} to █ {most:.1e}; {_NOTHING} no gradient at all")
    say(screen, f"most depends on {_largest(found, found.embedding_gradient_T)}\n")


def _print_gates(screen: Console, found: cr.explanation.Diagnosis) -> None:
    rows = []
    for layer in range(len(next(iter(found.gates.values())))):
        for name, layers in found.gates.items():
            means_T = layers[layer].mean(axis=1)
            # gates lie between 0 and 1, a candidate between -1 and 1
            levels = ((means_T + 1) / 2 if name == "candidate" else means_T).tolist()
            figures = (f"{value:.3f}" for value in (means_T.min(), means_T.mean(), means_T.max()))
            rows.append([f"{name}, layer {layer}", heat_line(levels, screen.width - _FIGURES), *figures])
    print_table(screen, ["mean of units", "step by step", "least", "mean", "most"], rows)
    say(screen, "blocks: ▁ 0 to █ 1; of candidates ▁ -1 to █ 1\n")


def _print_attention(screen: Console, found: cr.explanation.Diagnosis) -> None:
    from chainrule.cli.output import results_table, show_table

    assert found.attention_LHTT is not None
    table = results_table(f"attention of {found.tokens[-1]!r}", "step by step")
    table.columns[0].no_wrap = True
    table.add_column("most to", overflow="ellipsis")
    for layer, weights_HTT in enumerate(found.attention_LHTT):
        for head, weights_TT in enumerate(weights_HTT):
            weights_T = weights_TT[-1]
            line = heat_line((weights_T / weights_T.max()).tolist(), screen.width * 2 // 5)
            table.add_row(f"layer {layer}, head {head}", line, _largest(found, weights_T))
    show_table(screen, table)
    say(screen, "blocks: ▁ 0 to █ the largest weight of the row")


def heat_line(levels: list[float | None], width: int) -> str:
    """Draw levels from 0 to 1 as blocks, None as a dot; where there are too few columns, neighbours share one.

    >>> heat_line([0.0, 0.5, 1.0, None], 10)
    '▁▅█·'
    """
    columns = max(min(len(levels), width), 1)
    edges = [i * len(levels) // columns for i in range(columns + 1)]
    line = ""
    for first, last in pairwise(edges):
        here = [level for level in levels[first:last] if level is not None]
        mean = sum(here) / len(here) if here else None
        line += _NOTHING if mean is None else _BLOCKS[min(int(mean * len(_BLOCKS)), len(_BLOCKS) - 1)]
    return line


def _log_level(norm: float, least: float, most: float) -> float | None:
    """Return the level of a norm between the least (0) and the most (1), by logarithms; None if it is 0."""
    if not norm > 0:
        return None
    low, high = math.log(least), math.log(most)
    return (math.log(min(norm, most)) - low) / (high - low) if high > low else 1.0


def _largest(found: cr.explanation.Diagnosis, values_T: np.ndarray) -> str:
    """Name the three tokens with the largest values, with their steps and values."""
    best = sorted(range(len(values_T)), key=lambda step: -values_T[step])[:3]
    return ", ".join(f"{found.tokens[step]!r} at {step} ({number(float(values_T[step]))})" for step in best)
