"""`chainrule scale`: a law fitted to a grid of Transformers; `sweep`: a table of several values of settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from chainrule.cli import options as opt
from chainrule.cli.options import texts
from chainrule.cli.options.declaring import names_from
from chainrule.cli.output import console, draw, emit, print_json, say, show, terminal_progress
from chainrule.errors import ChainruleError, SettingsError
from chainrule.system.display import ResultTable


@click.command(short_help="Fit a scaling law to a grid of Transformers.")
@texts.corpus_argument_or_none
@opt.options("""
    --out DIR            A new folder for the results.
    --overwrite          Replace a grid, or FILE, that exists.
    --models             Train nothing: a table of published large models, with 6 N D and Chinchilla's rule.
    --svg FILE : new     With --models: draw them, their sizes over the years and their tokens against their sizes.
    --sizes LxW,...
        The sizes of the networks: layers and features of a token. [default: as many, from 1x16 on, as fit into the
        time]
    --shares S,... = 1/8,1/4,1/2,1
        The parts of the text, of as much of it as fits into the time.
    --minutes M : (0,∞)  The time of the whole grid. [default: 6]
    --budget UNIT=N... as budgets
        Operations for which to find the best size, flops=1e18; repeatable. [default: those of the largest network,
        and 10 times as many]
""")
@texts.tokenizer_options(None)
@texts.context_option("stream")
@opt.device
@opt.seed
@texts.corpus_options
@opt.json
def scale(
    corpus: tuple[str, ...], out: str | None, sizes: str | None, shares: str, as_json: bool, **options: Any
) -> None:
    """Train Transformers of several sizes on parts of CORPUS, and fit a scaling law to their losses.

    The law is L(N, D) = E + A/N^a + B/D^b, for N parameters and D tokens. Each network reads each token of its part
    once. The law is tested: fitted to the smaller networks, it predicts the larger ones. N-gram models of the same
    parts are measured beside it. DIR/scale.json has every figure and DIR/scale.html draws them; the same command
    goes on with a grid that was stopped, and trains no network twice.

    \b
    chainrule scale corpus.txt --minutes 10 --out law
    chainrule scale corpus.txt --sizes 4x128,6x256,8x512 --device cuda --minutes 30 --budget flops=1e19 --out law
    chainrule scale --models --svg models.svg
    """
    if options["models"]:
        if corpus or out:
            raise click.UsageError("--models trains nothing: leave out CORPUS and --out")
        _large_models(options["svg"], as_json)
        return
    if options["svg"]:
        raise click.UsageError("--svg goes with --models; a grid is drawn in DIR/scale")
    if not corpus:
        raise click.UsageError("Missing argument 'CORPUS...'; or --models, for a table of large models")
    if out is None:
        raise click.UsageError("Missing option '--out'.")
    from chainrule.comparison.scaling.grid import MINUTES
    from chainrule.comparison.scaling.grid import scale as fit
    from chainrule.report.scaling import equation, in_words, write_scaling

    found = fit(
        texts.open_corpus(options, *corpus),
        out,
        sizes=None if sizes is None else sizes.split(","),
        shares=shares.split(","),
        minutes=options["minutes"] or MINUTES,
        tokenizer=texts.given_tokenizer(options),
        progress=terminal_progress(),
        budgets=[_flops(budget) for budget in options["budgets"]],
        **{name: options[name] for name in ("context", "device", "seed", "overwrite")},
    )
    if as_json:
        print_json(found.to_json())
        return
    law, rows = found.law, []
    assert law is not None
    for cell in (*found.cells, *found.ngrams):
        is_network = cell in found.cells
        fitted = f"{float(law.loss(float(cell.parameters), float(cell.tokens))):.4f}" if is_network else ""
        figures = f"{cell.nats:.4f}", fitted, f"{cell.bits_per_byte:.3f}", f"{cell.seconds:.1f}"
        rows.append([cell.size, f"{cell.parameters:,}" if is_network else "", f"{cell.tokens:,}", *figures])
    headings = ["size", "parameters", "tokens", "nats", "by the law", "bits/byte", "seconds"]
    said = f"\n{equation(law)}; typical error {law.error:.2%}"
    show(console(), [ResultTable(headings, rows), said, *in_words(found)])
    try:
        page = write_scaling(found, Path(out))
    except ChainruleError as error:  # such as a missing library: the figures are there all the same
        say(console(), f"There is no picture: {error}")
    else:
        say(console(), f"The page: {page}; its charts: {Path(out) / 'scale'}")


def _large_models(svg: str | None, as_json: bool) -> None:
    """Print the published large models, and draw them."""
    from chainrule.comparison.scaling.large_models import LARGE_MODELS, TOKENS_PER_PARAMETER
    from chainrule.report.scaling import draw_large_models

    rows = []
    for one in LARGE_MODELS:
        size = _short(one.parameters) + ("" if one.is_published else "?")
        known = "" if one.flops is None else f"{one.flops:.1e}"
        ratio = "" if one.tokens_per_parameter is None else f"{one.tokens_per_parameter:.1f}"
        figures = _short(one.tokens), ratio, known, _short(one.enough_tokens), _short(one.best_parameters)
        rows.append([one.name, one.creators, str(one.year), size, *figures])
    headings = ["model", "creators", "year", "N", "D", "D/N", "6 N D", "20 N", "N for the same 6 N D"]
    drawn = draw(svg, draw_large_models)
    emit(
        as_json,
        [one.to_json() for one in LARGE_MODELS],
        ResultTable(headings, rows, left=[1]),
        "N: parameters; D: tokens of training text; 6 N D: operations, about; ?: not published, but reported",
        f"Chinchilla's rule: {TOKENS_PER_PARAMETER:g} tokens for each parameter. 20 N: the tokens it asks for; "
        "the last column: the size that it gives for the same operations",
        *drawn,
    )


def _short(amount: float | None) -> str:
    """Write a large amount with its unit; an unknown amount is an empty text."""
    if amount is None:
        return ""
    unit, name = (1e12, "T") if amount >= 1e12 else (1e9, "B")
    return f"{amount / unit:.3g} {name}"


def _flops(budget: str) -> float:
    """Return the floating-point operations of a budget; a plain number is a number of operations."""
    from chainrule.comparison.budget import EqualBudget

    found = EqualBudget.parse(budget if "=" in budget else f"flops={budget}")
    if found.unit != "flops":
        raise click.UsageError(f"a scaling law finds the best size for flops=N, not for {budget}")
    return found.amount


@click.command(short_help="Train a kind with several values of its settings, in one table.")
@click.argument("kind", shell_complete=names_from("chainrule.contract.kinds:kind_names"))
@texts.corpus_argument
@opt.options(
    """
    --vary KEY=VALUE,... required
        The values of a setting, or of vocab_size or min_count; given several times, every combination is trained.
    --set KEY=VALUE... as settings       A setting that all models have; repeatable.
    --held-out FILE... formerly --valid  Text to measure on; repeatable. [default: 10 % of CORPUS]
    """,
    vary={"multiple": True},
)
@texts.tokenizer_options("word")
@texts.context_option()
@opt.seed
@opt.device
@texts.corpus_options
@opt.json
def sweep(kind: str, corpus: tuple[str, ...], vary: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Train KIND on CORPUS with several values of its settings, and measure each model on held-out text.

    The table has a row for each combination; the models are not kept. It shows how perplexity depends on k, on the
    order of n-grams or on the size of the vocabulary.

    \b
    chainrule sweep ngram corpus.txt --set smoothing=add-k --vary order=1,2,3 --vary k=0.01,0.1,1
    chainrule sweep ngram corpus.txt --set smoothing=laplace --set order=2 --vary vocab_size=100,1000,5000
    """
    from chainrule.comparison.sweep import sweep, sweep_parts
    from chainrule.contract.kinds import find_kind
    from chainrule.contract.tasks import LANGUAGE
    from chainrule.settings import split_words

    the_kind = find_kind(kind)
    if wrong := [word for word in vary if "=" not in word]:
        raise click.UsageError(f"--vary takes KEY=VALUE,VALUE,..., not {wrong[0]!r}")
    if the_kind.task != LANGUAGE.name:
        raise SettingsError(f"a sweep measures perplexity: take a kind that predicts text, not {kind}")
    text, held_out = texts.open_corpora(options, corpus, options["held_out"] or None)
    assert text is not None
    found = sweep(
        the_kind,
        text,
        # vocab-size, too, as the option is written
        {name.replace("-", "_"): values.split(",") for name, values in split_words(vary).items()},
        split_words(options["settings"]),
        held_out=held_out,
        tokenizer=texts.tokenizer_choice(options, "word"),
        context=options["context"],
        seed=options["seed"],
        device=options["device"],
        progress=terminal_progress(),
    )
    emit(as_json, [one.to_json() for one in found], *sweep_parts(found), style="bold green")
