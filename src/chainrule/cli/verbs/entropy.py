"""`chainrule entropy`: the information theory of a distribution, and of a model against it."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import click

from chainrule.cli import options as opt
from chainrule.cli.output import emit, number
from chainrule.errors import SettingsError
from chainrule.system.display import ResultTable


@click.command(short_help="Show the entropy of probabilities, and KL divergences.")
@click.argument("p", nargs=-1, required=True, metavar="P...")
@opt.options("""
    --against Q,...  Probabilities of a model for the same outcomes: its cross-entropy, and the KL divergence.
    --counts         P... and Q,... are counts: divide them by their sum.
""")
@opt.json
def entropy(p: tuple[str, ...], against: str | None, counts: bool, as_json: bool) -> None:
    """Show the entropy of the probabilities P..., in bits and nats.

    The perplexity is the effective number of choices: as uncertain as one among this many equally likely ones. The
    expected number of yes/no questions is that of the best way to ask them, which is Huffman's code: never fewer
    than the entropy in bits. P is a number or a fraction; PxN stands for N outcomes of probability P each.

    \b
    chainrule entropy 0.5 0.3 0.2
    chainrule entropy 0.5 0.3 0.2 --against 0.4,0.4,0.2
    chainrule entropy 1/4 1/4 1/4 1/120000x30000
    chainrule entropy 5 3 2 --counts
    """
    from chainrule.evaluation import metrics

    true = _distribution(p, counts)
    measures = [
        ("bits", metrics.entropy(true), "H(p) = -Σ p log2 p"),
        ("nats", metrics.entropy(true, metrics.NATS), "H(p) = -Σ p ln p"),
        ("perplexity", metrics.branching_factor(true), "the effective number of choices, 2^bits"),
        (
            "questions",
            metrics.yes_no_questions(true),
            "yes/no questions to find the outcome, on average, if they are well chosen",
        ),
    ]
    if against is not None:
        model = _distribution(against.replace(",", " ").split(), counts)
        crossed, in_nats = (metrics.cross_entropy(true, model, unit) for unit in (metrics.BITS, metrics.NATS))
        perplexity, costs = metrics.perplexity_of(crossed, metrics.BITS), "what the model q costs in addition"
        measures += [
            ("cross_entropy_bits", crossed, "H(p, q) = -Σ p log2 q = H(p) + KL"),
            ("cross_entropy_nats", in_nats, "H(p, q) in nats"),
            ("kl_bits", metrics.kl(true, model), f"KL(p || q) = H(p, q) - H(p): {costs}"),
            ("kl_nats", metrics.kl(true, model, metrics.NATS), "KL(p || q) in nats"),
            ("model_perplexity", perplexity, "the perplexity of q on outcomes of p, 2^H(p, q)"),
        ]
    found = {"outcomes": len(true)} | {name: value for name, value, _ in measures}
    rows = [[name.replace("_", " "), number(value, 4), said] for name, value, said in measures]
    emit(as_json, found, ResultTable(["measure", "value", "what it is"], rows, left=[2]))


def _distribution(given: Any, are_counts: bool) -> list[float]:
    """Read probabilities, or counts, which are divided by their sum."""
    values: list[Fraction] = []
    for word in given:
        value, _, times = word.lower().partition("x")
        try:
            values += [Fraction(value)] * int(times or 1)
        except (ValueError, ZeroDivisionError):
            raise SettingsError(
                f"expected a probability such as 0.25 or 1/4, or 1/4x2 for two of them, not {word!r}"
            ) from None
    total = sum(values)
    if are_counts and (min(values, default=0) < 0 or total == 0):
        raise SettingsError(f"counts should be at least 0, and not all 0: found {' '.join(given)}")
    if not are_counts and abs(float(total) - 1) > 1e-6:
        raise SettingsError(
            f"the probabilities sum to {float(total):.6g}, not to 1; --counts divides counts by their sum"
        )
    return [float(value / total) for value in values]
