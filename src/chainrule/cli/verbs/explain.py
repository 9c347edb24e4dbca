"""`chainrule explain`: how a model predicts one token: by its contexts, or module by module."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import click

import chainrule as cr
from chainrule.cli import options as opt
from chainrule.cli.output import console, number, print_json, print_table, say, terminal_progress

if TYPE_CHECKING:
    from rich.console import Console

    from chainrule.explanation.mixtures import MixtureExplanation
    from chainrule.explanation.networks import NetworkExplanation
    from chainrule.explanation.ngrams import NgramExplanation
    from chainrule.explanation.pictures.graph import GraphNode

_MOST = 8  # tokens of a context that are printed


@click.command()
@opt.model
@opt.read_prompt
@opt.option("--next WORD", "Predict WORD after the text instead.", name="next_word")
@opt.option(
    "--last N",
    "For a recurrent network or a bag of words show the last N tokens; the tokens before them are data.",
    type=click.IntRange(1, 50),
    default=3,
)
@opt.option("--svg FILE", "Draw the graph, for a document.")
@opt.overwrite("a FILE")
@opt.json
def explain(
    folder: str, prompt: str, next_word: str | None, last: int, svg: str | None, overwrite: bool, as_json: bool
) -> None:
    """Show how the model in DIR predicts a token.

    For an n-gram model: the contexts that were seen, the weight of each step to a shorter one, and the product of
    weights and stored probability; then the equation of the smoothing method with its numbers (with more of the
    counts where the model was trained with --set counts=true); for an any-gram, the mixture of all contexts. For a
    mixture of models: the weight of each, and what each of them says.

    For a network: the loss L = -ln p(token | text before it) is recorded on a tape, module by module, and
    differentiated. Each line is a module with its equation, the shape of its value, and the size of the gradient
    that flows back to it.

    For every built-in kind that predicts text, whichever engine trained the model. A Transformer is computed for
    all tokens at once: each of its matrices has a row for each token in the window.
    """
    from chainrule.autodiff.tape_model import load_on_tape
    from chainrule.explanation.networks import NetworkExplanation
    from chainrule.system.disk import replaced_file

    if svg is not None:
        opt.check_new_file(svg, "--svg", overwrite)
    lm = load_on_tape(folder)
    found = cr.explain(lm, prompt, next_word=next_word, last=last, progress=terminal_progress())
    if svg is not None:
        if not isinstance(found, NetworkExplanation):
            raise click.UsageError("--svg draws the graph of a network; an n-gram model has none")
        with replaced_file(Path(svg)) as file:
            file.write(found.svg().encode())
    if as_json:
        print_json(found.record())
    else:
        _print(found, svg)


def _print(found: cr.explanation.Explanation, svg: str | None) -> None:
    from chainrule.explanation.mixtures import MixtureExplanation
    from chainrule.explanation.networks import NetworkExplanation
    from chainrule.explanation.ngrams import NgramExplanation

    screen = console()
    if isinstance(found, NgramExplanation):
        _print_contexts(screen, found)
    elif isinstance(found, MixtureExplanation):
        _print_parts(screen, found)
    elif isinstance(found, NetworkExplanation):
        _print_network(screen, found)
    likely = ", ".join(f"{token} {number(chance)}" for token, chance in found.likely)
    say(screen, f"most likely: {likely}")
    if svg is not None:
        say(screen, f"the picture is in {svg}")


def _print_network(screen: Console, found: NetworkExplanation) -> None:
    before = len(found.tokens) - found.shown
    if before and found.kind != "feedforward":
        some = "the first token is" if before == 1 else f"the first {before:,} tokens are"
        state = f"state after {'it' if before == 1 else 'them'}"
        what = "sum of their vectors" if found.kind == "bagofwords" else state
        say(screen, f"{some} read without the tape: the {what} is data")
    say(screen, f"{found.title} = {_bits(found)}, p = {number(math.exp(-found.nats))}\n")
    _print_modules(screen, found)
    _print_parameters(screen, found)


def _print_contexts(screen: Console, found: NgramExplanation) -> None:
    """Print the contexts of an n-gram model, the longest first, and the product or sum of what they give."""
    from chainrule.explanation.ngrams import BackoffLine

    say(screen, f"{found.title}, {number(found.nats)} nats = {_bits(found)}\n")
    if isinstance(found.lines[0], BackoffLine):
        _print_backoff(screen, found)
    else:
        _print_mixture(screen, found)
    screen.print()
    say(screen, found.equation)
    if found.formula:
        say(screen, found.formula)
        for one in found.sums:
            say(screen, one, indent=2)
    if not found.is_probability:
        say(screen, "S is a score: the scores of all tokens do not sum to one, so that it is no probability")


def _print_parts(screen: Console, found: MixtureExplanation) -> None:
    """Print the weight and probability of each model of a mixture, and their sum or product."""
    say(screen, f"{found.title}, {number(found.nats)} nats = {_bits(found)}\n")
    is_linear = found.weighed.form == "linear"
    headings = "model", "weight" if is_linear else "exponent", "p", "adds to p" if is_linear else "factor"
    rows = (
        [part.name, f"{part.weight:.4g}", f"{part.probability:.4g}", f"{share:.4g}"]
        for part, share in zip(found.weighed.parts, found.shares, strict=True)
    )
    print_table(screen, headings, rows)
    screen.print()
    say(screen, found.equation)
    if found.weighed.value is not None:
        say(screen, f"the weights depend on the {found.weighed.by} of the context: {number(found.weighed.value)}")


def _print_backoff(screen: Console, found: NgramExplanation) -> None:
    from chainrule.explanation import ngrams

    rows = []
    for line in found.lines:
        assert isinstance(line, ngrams.BackoffLine)
        weight, stored = ("" if value is None else f"{value:.4g}" for value in (line.weight, line.stored))
        seen = "yes" if line.seen else "no"
        rows.append([_context(line.context), seen, weight, stored, f"{line.probability:.4g}"])
    letter = found.letter
    headings = "context", "in the model", "backoff weight", f"stored {letter}", f"{letter} after it"
    print_table(screen, headings, rows)


def _print_mixture(screen: Console, found: NgramExplanation) -> None:
    from chainrule.explanation import ngrams

    rows = []
    for line in found.lines:
        assert isinstance(line, ngrams.MixtureLine)
        counts = ("" if count is None else f"{count:,}" for count in (line.count, line.total))
        weight = "" if line.weight is None else f"{line.weight:.4g}"
        figures = f"{line.own:.4g}", weight, f"{line.share:.4g}", f"{line.probability:.4g}"
        name = "every word alike" if line.context is None else _context(line.context)
        rows.append([name, *counts, *figures])
    headings = "context", "N(· h w)", "N(· h ·)", "own part", "weight of shorter", "adds to p", "p after it"
    print_table(screen, headings, rows)


def _context(tokens: tuple[str, ...]) -> str:
    """Write a context: (none) for an empty one, the end and the length of a long one."""
    if len(tokens) > _MOST:
        return f"… {' '.join(tokens[-_MOST:])} ({len(tokens):,} tokens)"
    return " ".join(tokens) or "(none)"


def _bits(found: cr.explanation.Explanation) -> str:
    return f"{found.nats / math.log(2):.4g} bits"


def _print_modules(screen: Console, found: NetworkExplanation) -> None:
    """Print the modules in the order of the forward pass; gradients flow from bottom to top."""
    step, styles = None, {}
    rows: list[list[str]] = []
    modules = found.graph.of_kind("module")
    for node in modules:
        if node.step != step and modules[-1].step:
            step = node.step
            styles[len(rows)] = "bold"
            rows.append([f"step {step + 1}: {found.tokens[step - found.shown]}"])
        gradient = "" if node.gradient is None else f"{node.gradient:.2e}"
        rows.append([node.name, node.equation, _shape(node), gradient])
    print_table(screen, ["module", "equation", "shape", "||dL/dz||"], rows, left=[1], styles=styles)
    screen.print()


def _print_parameters(screen: Console, found: NetworkExplanation) -> None:
    rows = []
    for node, uses in zip(found.graph.nodes, found.graph.uses, strict=True):
        if node.kind == "parameter":
            times = "once" if len(uses) == 1 else f"{len(uses)} times"
            rows.append([node.symbol, _shape(node), times, f"{node.gradient or 0:.2e}"])
    print_table(screen, ["parameter", "shape", "used", "||dL/dW||"], rows)
    screen.print()


def _shape(node: GraphNode) -> str:
    return "×".join(map(str, node.shape)) or "number"
