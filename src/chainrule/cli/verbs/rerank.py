"""`chainrule rerank`: n-best lists ordered anew by a language model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from chainrule.cli.options.models import device_option, model_argument, precision_option
from chainrule.cli.options.runs import json_option, overwrite_option, seed_option
from chainrule.cli.output.lines import console, echo, print_json, say
from chainrule.cli.output.tables import results_table, show_table

if TYPE_CHECKING:
    from chainrule.contract.lm import LanguageModel
    from chainrule.tasks.nbest.errors import WordErrorRates
    from chainrule.tasks.nbest.rerank import Learner, Reranked


@click.command(short_help="Order lists of hypotheses anew with the model in DIR.")
@model_argument
@click.argument("file", metavar="NBEST.json", type=click.Path())
@click.option("--hypotheses", default="input", show_default=True, metavar="NAME", help="Field: the list of texts.")
@click.option("--reference", default="output", show_default=True, metavar="NAME", help="Field: the right text.")
@click.option(
    "--score",
    "scores",
    multiple=True,
    metavar="NAME",
    help="Field: a score for each text, greater is better; repeatable. [default: am_score]",
)
@click.option("--id-field", default="id", show_default=True, metavar="NAME", help="Field: what names the list.")
@click.option(
    "--tune",
    "share",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.5,
    show_default=True,
    metavar="SHARE",
    help="The share of the lists, drawn at random, that weights are tuned on; the rest tests them.",
)
@click.option(
    "--weights",
    metavar="NAME=W,...",
    help="These weights instead, of the scores and of lm, words and unknown; references are then not needed.",
)
@click.option("--best", is_flag=True, help="Only the best text of each list, a JSON object a line.")
@click.option(
    "--train",
    "kind",
    metavar="KIND",
    help="Make the model DIR first: train it on the references of the lists that weights are tuned on.",
)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting of KIND; repeatable.")
@overwrite_option("a model folder")
@seed_option
@device_option
@precision_option
@json_option
def rerank(
    folder: str, file: str, kind: str | None, device: str, dtype: str, as_json: bool, **options: Any
) -> None:
    """Order the lists of hypotheses in NBEST.json anew with the model in DIR.

    A list is a JSON object, on a line or as an item of a JSON list: hypotheses of speech recognition or
    translation, the best first, scores of each, and the reference. The new score of a hypothesis is a weighted sum
    of those scores, ln p by the model (lm), its number of words (words), and how many of them the model does not
    know (unknown).

    The weights are those with the fewest word errors on a part of the lists. Of the others: the word error rate of
    the first hypotheses, of those chosen, and of the best there are, with 95 % confidence intervals (bootstrap).

    --train KIND is for lists of which there is no other text: a model of words is trained on the references of the
    tuning part. While weights are tuned, no list is scored by a model that has read its reference.

    \b
    chainrule rerank model nbest.json
    chainrule rerank model nbest.json --train ngram --set order=3
    chainrule rerank model new.json --weights am_score=1,lm=0.02,words=0.2 --best
    """
    from chainrule.contract.kinds import load
    from chainrule.folder import to_json
    from chainrule.tasks.nbest.lists import read_lists
    from chainrule.tasks.nbest.rerank import rerank as rerank_lists

    weights = None if options["weights"] is None else _weights(options["weights"])
    if kind is not None and weights is not None:
        raise click.UsageError("--train needs weights that are tuned: leave out --weights")
    if options["settings"] and kind is None:
        raise click.UsageError("--set is for --train KIND")
    lm: LanguageModel | Learner
    if kind is None:
        lm = load(folder, device=device, dtype=dtype, tasks=["language"])
    else:
        lm = _learner(kind, folder, device, **options)
    lists = read_lists(
        file,
        hypotheses=options["hypotheses"],
        reference=options["reference"],
        scores=options["scores"] or ("am_score",),
        id_field=options["id_field"],
        needs_references=weights is None,
    )
    result = rerank_lists(lm, lists, weights=weights, share=options["share"], seed=options["seed"])
    if kind is not None:
        result.model.save(folder, overwrite=options["overwrite"])
    if options["best"]:
        for one, text, totals in zip(result.lists, result.best, result.totals, strict=True):
            echo(to_json({"id": one.id, "text": text, "place": int(totals.argmax()), "scores": totals.tolist()}))
    elif as_json:
        print_json({"folder": folder, "file": file, **result.to_json()})
    else:
        _show(result)


def _learner(
    kind: str, folder: str, device: str, *, settings: Any, overwrite: bool, seed: int, **_: Any
) -> Learner:
    from chainrule.contract.kinds import find_kind
    from chainrule.errors import FolderError, SettingsError
    from chainrule.runs.train import train_kind
    from chainrule.settings import parse, split_words
    from chainrule.text.corpus import Corpus

    the_kind = find_kind(kind)
    if the_kind.task != "language":
        raise SettingsError(f"the kind {kind} is for another task: --train takes one of a language model")
    if Path(folder).exists() and not overwrite:
        raise FolderError(f"{folder} exists; choose another folder, or --overwrite it")
    chosen: Any = parse(the_kind.settings, split_words(settings))

    def learn(references: list[str]) -> LanguageModel:
        corpus = Corpus.from_texts(references)
        return train_kind(the_kind, chosen, corpus, tokenizer="word", seed=seed, device=device)

    return learn


def _weights(given: str) -> dict[str, float]:
    weights = {}
    for word in given.split(","):
        name, equals, value = word.partition("=")
        try:
            weights[name.strip()] = float(value)
        except ValueError:
            equals = ""
        if not equals:
            raise click.UsageError(f"--weights should be such as am_score=1,lm=0.5, found {word!r}")
    return weights


def _show(result: Reranked) -> None:
    screen = console()
    table = results_table(
        "lists", "utterances", "words", "first", "chosen", "oracle", "fewer errors", "95 % interval"
    )
    for name, rates in (("tuned on", result.tuned), ("tested on", result.tested)):
        if rates is not None:
            table.add_row(name, *_columns(rates))
    if result.tested is not None:
        show_table(screen, table)
        screen.print()
    weights = ", ".join(f"{name}={weight:.4g}" for name, weight in result.weights.items())
    say(screen, f"weights: {weights}")
    if result.tested is None:
        say(screen, "without references there are no word error rates; --best prints the texts that were chosen")


def _columns(rates: WordErrorRates) -> list[str]:
    figures = [f"{one.value:.2%}" for one in (rates.before, rates.after, rates.oracle, rates.reduction)]
    return [
        f"{rates.lists:,}",
        f"{rates.words:,}",
        *figures,
        f"{rates.reduction.low:.1%} - {rates.reduction.high:.1%}",
    ]
