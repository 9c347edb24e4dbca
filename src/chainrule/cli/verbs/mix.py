"""`chainrule mix`: several models, and caches, in one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

import chainrule as cr
from chainrule.cli import options as opt
from chainrule.cli.options.texts import corpus_options, open_corpora
from chainrule.cli.output import emit, number, terminal_progress
from chainrule.system.display import Part, ResultTable

if TYPE_CHECKING:
    from chainrule.system.progress import Progress

_MANY_UNKNOWN = 0.01  # the share of held-out tokens above which a sentence names it
_NOT_MERGED = ("log_linear", "by", "of", "cache", "continuous_cache", "theta", "dynamic_rate")


@click.command()
@opt.models
@opt.options("""
    --out DIR required                   The model folder to write.
    --overwrite                          Replace a model folder that exists.
    --held-out FILE... formerly --valid  Text to tune the weights on.
    --weight W... : float as weights
        How much each model counts, in their order, and then each cache; of two, the first is enough.
    --log-linear                         Multiply powers of the probabilities instead of adding shares.
    --by [length|match|entropy]
        Weights that depend on the context: on its length, on how much of it an n-gram model knows, or on the
        entropy of what a model predicts. [default: constant]
    --of N : int                         The model whose matches or entropy count, from 1. [default: the first fit]
    --cache N : int                      Add a unigram cache of the last N tokens.
    --continuous-cache N : int
        Add a cache of the last N tokens by how like their contexts are to the present one, for a network.
    --theta FLOAT : float                How much that cache prefers like contexts. [default: tuned]
    --merge                              Merge two n-gram models into one n-gram model, as fast as either.
""")
@opt.group(opt.dynamic_options, opt.device, corpus_options, opt.json)
def mix(folders: tuple[str, ...], out: str, merge: bool, as_json: bool, **options: Any) -> None:
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
    from chainrule.folder import check_destination

    held_out, weights, overwrite = (options[name] for name in ("held_out", "weights", "overwrite"))
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
    if merge:
        if len(weights) > 1:
            raise click.UsageError("--merge takes one --weight, that of the first model")
        one, other = (cr.load(folder, tasks=["language"]) for folder in folders)
        first = weights[0] if weights else None
        lm: cr.LanguageModel = cr.ngram.interpolate(one, other, text, weight=first, progress=progress)
    else:
        lm = _mixed(folders, text, progress, options)
    if text is not None:
        text.note_losses(progress)
    lm.save(out, overwrite=overwrite)
    (_report_merged if merge else _report)(lm, folders, out, as_json)


def _mixed(
    folders: tuple[str, ...], text: cr.Corpus | None, progress: Progress, options: dict[str, Any]
) -> cr.LanguageModel:
    models = [cr.load(folder, device=options["device"], tasks=["language"]) for folder in folders]
    weights = options["weights"]
    columns = len(models) + bool(options["cache"]) + bool(options["continuous_cache"])
    if weights and len(weights) == columns - 1 and columns == 2:
        if not 0 < weights[0] < 1:
            raise click.UsageError(f"the weight should lie between 0 and 1, not at {weights[0]:g}")
        weights = (weights[0], 1 - weights[0])
    names = ("by", "of", "cache", "continuous_cache", "theta")
    how: Any = {name: options[name] for name in names if options[name] is not None}
    how["form"] = "log-linear" if options["log_linear"] else "linear"
    return cr.mix(
        models, text, weights=weights or None, dynamic=opt.chosen_dynamic(options), progress=progress, **how
    )


def _report(lm: Any, folders: tuple[str, ...], out: str, as_json: bool) -> None:
    """Print the weight and the held-out perplexity of each model and cache, and those of the mixture."""
    from chainrule.folder import megabytes

    figures = lm.metrics
    more = {"theta": lm.settings.theta, "vocab_size": lm.tokenizer.vocab_size, "megabytes": megabytes(out)}
    found = {"folder": out, "folders": list(folders), **figures, **more}
    names = [*folders, *figures["names"][len(folders) :]]
    form = lm.settings.form
    weight = "exponent" if form == "log-linear" else "weight" if lm.settings.by == "none" else "mean weight"
    shares = [number(share) if form == "log-linear" else f"{share:.1%}" for share in figures["weights"]]
    rows = [[name, share] for name, share in zip(names, shares, strict=True)]
    said = f"{out}: vocabulary {lm.tokenizer.vocab_size:,}, {number(more['megabytes'])} MB"
    headings = ["model", weight]
    if is_tuned := "held_out_perplexity" in figures:
        headings.append("held-out perplexity")
        for row, perplexity in zip(rows, figures["held_out_perplexities"], strict=True):
            row.append(number(perplexity, 4))
        rows.append([out, "", number(figures["held_out_perplexity"], 4)])
        best = min(figures["held_out_perplexities"][: len(folders)])
        change = figures["cross_validated_perplexity"] / best - 1
        said += (
            f"; its perplexity is {abs(change):.1%} {'lower' if change < 0 else 'higher'} than that of the best "
            f"model ({figures['held_out_tokens']:,} tokens held out; each half is scored with weights tuned on the "
            "other)"
        )
    parts: list[Part] = [ResultTable(headings, rows), said]
    if is_tuned and max(figures["weights"]) == 1 and sum(figures["weights"]) == 1:
        parts.append("no mixture was better on text that its weights were not tuned on: it is the best model alone")
    if "dynamic" in figures:
        parts.append("these are figures of networks that learn while they score: evaluate with the same options")
    if figures.get("held_out_oov", 0) >= _MANY_UNKNOWN:
        parts.append(
            f"{figures['held_out_oov']:.1%} of the tokens held out are <unk>: part of the gain may be that <unk> "
            "becomes more likely, whatever word it stands for"
        )
    emit(as_json, found, *parts)


def _report_merged(lm: Any, folders: tuple[str, ...], out: str, as_json: bool) -> None:
    from chainrule.folder import megabytes

    weights, size, ngrams = lm.metrics["weights"], lm.tokenizer.vocab_size, lm.metrics["ngrams"]
    figures = {"folder": out, "weights": weights, "vocab_size": size, "ngrams": ngrams, "megabytes": megabytes(out)}
    shares = ", ".join(f"{weight:.1%} {source}" for weight, source in zip(weights, folders, strict=True))
    counts = f"vocabulary {size:,}, {sum(ngrams):,} n-grams, {number(figures['megabytes'])} MB"
    emit(as_json, figures, f"{out}: {shares}; {counts}")
