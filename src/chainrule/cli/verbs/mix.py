"""`chainrule mix`: several models, and caches, in one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from chainrule.cli.options.dynamic import chosen_dynamic, dynamic_options
from chainrule.cli.options.models import device_option
from chainrule.cli.options.runs import json_option, overwrite_option
from chainrule.cli.options.texts import corpus_options, held_out_option, open_corpora
from chainrule.cli.output.lines import console, print_json, say
from chainrule.cli.output.tables import results_table, show_table
from chainrule.cli.output.words import number

if TYPE_CHECKING:
    from chainrule.mixtures.mixture import Mixture
    from chainrule.ngram.model import NgramModel
    from chainrule.system.progress import Progress
    from chainrule.text.corpus import Corpus

_MANY_UNKNOWN = 0.01  # of the held-out tokens, that is worth a sentence
_NOT_MERGED = ("log_linear", "by", "of", "cache", "continuous_cache", "theta", "dynamic_rate")


@click.command()
@click.argument("folders", nargs=-1, required=True, metavar="DIR...", type=click.Path())
@click.option("--out", required=True, type=click.Path(), metavar="DIR", help="The model folder to write.")
@overwrite_option("a model folder")
@held_out_option("Text to tune the weights on.")
@click.option(
    "--weight",
    "weights",
    type=float,
    multiple=True,
    metavar="W",
    help="How much each model counts, in their order, and then each cache; of two, the first is enough.",
)
@click.option("--log-linear", is_flag=True, help="Multiply powers of the probabilities instead of adding shares.")
@click.option(
    "--by",
    type=click.Choice(["length", "match", "entropy"]),
    help="Weights that depend on the context: on its length, on how much of it an n-gram model knows, or on the "
    "entropy of what a model predicts. [default: constant]",
)
@click.option(
    "--of", type=int, metavar="N", help="The model whose matches or entropy count, from 1. [default: the first fit]"
)
@click.option("--cache", type=int, metavar="N", help="Add a unigram cache of the last N tokens.")
@click.option(
    "--continuous-cache",
    type=int,
    metavar="N",
    help="Add a cache of the last N tokens by how like their contexts are to the present one, for a network.",
)
@click.option("--theta", type=float, help="How much that cache prefers like contexts. [default: tuned]")
@click.option("--merge", is_flag=True, help="Merge two n-gram models into one n-gram model, as fast as either.")
@dynamic_options
@device_option
@corpus_options
@json_option
def mix(
    folders: tuple[str, ...],
    out: str,
    overwrite: bool,
    held_out: tuple[str, ...],
    weights: tuple[float, ...],
    merge: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Mix the models in DIR... into one, whatever their kinds.

    They must have one vocabulary (train them with the same --tokenizer). The mixture's probability of a token is
    the weighted mean of theirs, with the weights under which held-out text is most likely, or those that are given.
    The result is a model like any other; its models are in its folder.

    With --merge, two n-gram models become one n-gram model that has the n-grams of both; their vocabularies may
    differ.

    With --dynamic, the weights are those for networks that learn while they score: evaluate with the same.

    \b
    chainrule mix ngram lstm --held-out valid.txt --out both
    chainrule mix lstm ngram --continuous-cache 2000 --by entropy --held-out valid.txt --out all
    chainrule mix ngram --cache 1000 --held-out valid.txt --out cached
    chainrule mix general medical --merge --held-out notes.txt --out merged
    """
    from chainrule.cli.output.progress import terminal_progress
    from chainrule.folder import check_destination

    if (not held_out) == (not weights):
        raise click.UsageError("choose one of --held-out and --weight")
    if merge:
        for name in _NOT_MERGED:
            if options[name] not in (None, False):
                option = "dynamic" if name == "dynamic_rate" else name.replace("_", "-")
                raise click.UsageError(f"--{option} is for mixtures, and not for models that --merge makes one")
        if len(folders) != 2:
            raise click.UsageError(f"--merge takes two models, not {len(folders)}")
    elif len(folders) == 1 and not (options["cache"] or options["continuous_cache"]):
        raise click.UsageError("one model is no mixture: name others, or add a --cache or --continuous-cache")
    check_destination(out, overwrite=overwrite)
    progress = terminal_progress()
    (text,) = open_corpora(options, held_out or None)
    lm: Mixture | NgramModel
    if merge:
        lm = _merged(folders, text, weights, progress)
        report = _report_merged
    else:
        lm = _mixed(folders, text, weights, progress, options)
        report = _report
    if text is not None:
        text.note_losses(progress)
    lm.save(out, overwrite=overwrite)
    report(lm, folders, out, as_json)


def _mixed(
    folders: tuple[str, ...],
    text: Corpus | None,
    weights: tuple[float, ...],
    progress: Progress,
    options: dict[str, Any],
) -> Mixture:
    from chainrule.contract.kinds import load
    from chainrule.mixtures.mix import mix as mix_models

    models = [load(folder, device=options["device"], tasks=["language"]) for folder in folders]
    columns = len(models) + bool(options["cache"]) + bool(options["continuous_cache"])
    if weights and len(weights) == columns - 1 and columns == 2:
        if not 0 < weights[0] < 1:
            raise click.UsageError(f"the weight should lie between 0 and 1, not at {weights[0]:g}")
        weights = (weights[0], 1 - weights[0])
    return mix_models(
        models,
        text,
        weights=weights or None,
        form="log-linear" if options["log_linear"] else "linear",
        by=options["by"] or "none",
        of=options["of"],
        cache=options["cache"] or 0,
        continuous_cache=options["continuous_cache"] or 0,
        theta=options["theta"],
        dynamic=chosen_dynamic(options),
        progress=progress,
    )


def _report(lm: Any, folders: tuple[str, ...], out: str, as_json: bool) -> None:
    """Print the weight and the held-out perplexity of each model and cache, and those of the mixture."""
    from chainrule.folder import megabytes

    figures = lm.metrics
    if as_json:
        more = {"theta": lm.settings.theta, "vocab_size": lm.tokenizer.vocab_size, "megabytes": megabytes(out)}
        print_json({"folder": out, "folders": list(folders), **figures, **more})
        return
    names = [*folders, *figures["names"][len(folders) :]]
    form = lm.settings.form
    weight = "exponent" if form == "log-linear" else "weight" if lm.settings.by == "none" else "mean weight"
    is_tuned = "held_out_perplexity" in figures
    headings = ("model", weight, *(["held-out perplexity"] if is_tuned else []))
    table = results_table(*headings)
    for place, name in enumerate(names):
        share = figures["weights"][place]
        shown = number(share) if form == "log-linear" else f"{share:.1%}"
        table.add_row(name, shown, *([number(figures["held_out_perplexities"][place], 4)] if is_tuned else []))
    if is_tuned:
        table.add_row(out, "", number(figures["held_out_perplexity"], 4))
    screen = console()
    show_table(screen, table)
    gain = ""
    if is_tuned:
        best = min(figures["held_out_perplexities"][: len(folders)])
        change = figures["held_out_perplexity"] / best - 1
        gain = f"; {change:+.1%} beside the best of the models, on {figures['held_out_tokens']:,} tokens held out"
    say(screen, f"{out}: vocabulary {lm.tokenizer.vocab_size:,}, {number(megabytes(out))} MB{gain}")
    if figures.get("held_out_oov", 0) >= _MANY_UNKNOWN:
        say(
            screen,
            f"{figures['held_out_oov']:.1%} of the tokens held out are <unk>: part of the gain may be that <unk> "
            "becomes likelier, whatever word it stands for",
        )


# -- n-gram models merged ---------------------------------------------------------------------------------


def _merged(
    folders: tuple[str, ...], text: Corpus | None, weights: tuple[float, ...], progress: Progress
) -> NgramModel:
    from chainrule.contract.kinds import load
    from chainrule.ngram.mix import interpolate

    if len(weights) > 1:
        raise click.UsageError("--merge takes one --weight, that of the first model")
    one, other = (load(folder, tasks=["language"]) for folder in folders)
    return interpolate(one, other, text, weight=weights[0] if weights else None, progress=progress)


def _report_merged(lm: Any, folders: tuple[str, ...], out: str, as_json: bool) -> None:
    from chainrule.folder import megabytes

    weights, size, ngrams = lm.metrics["weights"], lm.tokenizer.vocab_size, lm.metrics["ngrams"]
    if as_json:
        figures = {"weights": weights, "vocab_size": size, "ngrams": ngrams}
        print_json({"folder": out, **figures, "megabytes": megabytes(out)})
        return
    shares = ", ".join(f"{weight:.1%} {source}" for weight, source in zip(weights, folders, strict=True))
    counts = f"vocabulary {size:,}, {sum(ngrams):,} n-grams, {number(megabytes(out))} MB"
    say(console(), f"{out}: {shares}; {counts}")
