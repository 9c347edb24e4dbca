"""`chainrule rerank`: n-best lists ordered anew by a language model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import chainrule as cr
from chainrule.cli import options as opt
from chainrule.cli.output import console, echo_json, intrinsic, measured_objects, print_json, show
from chainrule.errors import FolderError, SettingsError
from chainrule.system.display import Part, ResultTable

if TYPE_CHECKING:
    from chainrule.tasks.nbest.errors import WordErrorRates
    from chainrule.tasks.nbest.rerank import Learner, Reranked


@click.command(short_help="Order lists of hypotheses anew with the model in DIR.")
@opt.models_and_file
@opt.options("""
    --hypotheses NAME = input       Field: the list of texts.
    --reference NAME = output       Field: the right text.
    --score NAME... as scores
        Field: a score for each text, greater is better; repeatable. [default: am_score; without it, the order]
    --id-field NAME = id            Field: what names the list.
    --tune SHARE : (0,1) = 0.5 as share
        The share of the lists, drawn at random, that weights are tuned on; the rest tests them.
    --weights NAME=W,...
        These weights instead, of the scores and of lm, lists, words and unknown; references are then not needed.
    --best                          Only the best text of each list, a JSON object a line.
    --train KIND as kind
        Make the model DIR first: train it on the references of the lists that weights are tuned on.
    --set KEY=VALUE... as settings  A setting of KIND; repeatable.
    --overwrite                     Replace a model folder that exists.
""")
@opt.group(opt.seed, opt.compute, opt.json)
def rerank(folders_and_file: tuple[str, ...], kind: str | None, as_json: bool, **options: Any) -> None:
    """Order the lists of hypotheses in FILE, such as NBEST.json, anew with the models in DIR...

    A list is a JSON object, on a line or as an item of a JSON list: hypotheses of speech recognition or
    translation, the best first, scores of each (or none: then their order counts, as rank), and the reference. The
    new score of a hypothesis is a weighted sum of those scores, ln p by the model (lm), ln p by the words of the
    other lists (lists), its number of words (words), and how many of them the model does not know (unknown).

    The weights are those with the fewest word errors on a part of the lists; if they gain nothing on lists of that
    part that they were not tuned on, the scores stay as they are. Of the others: the word error rate of
    the first hypotheses, of those chosen, and of the best there are, with 95 % confidence intervals (bootstrap).

    Of several models: a row for each, with the bits per byte of the references beside the word error rate.

    --train KIND is for lists of which there is no other text: a model of words is trained on the references of the
    tuning part. While weights are tuned, no list is scored by a model that has read its reference.

    \b
    chainrule rerank model nbest.json
    chainrule rerank bigram trigram lstm nbest.json
    chainrule rerank model nbest.json --train ngram --set order=3
    chainrule rerank model new.json --weights am_score=1,lm=0.02,words=0.2 --best
    """
    from chainrule.tasks.nbest.lists import read_lists

    weights = None if options["weights"] is None else _weights(options["weights"])
    if kind is not None and weights is not None:
        raise click.UsageError("--train needs weights that are tuned: leave out --weights")
    if options["settings"] and kind is None:
        raise click.UsageError("--set is for --train KIND")
    folders, file = opt.split_file(folders_and_file)
    if len(folders) > 1 and (kind is not None or options["best"]):
        raise click.UsageError("--train and --best are for one model")
    fields = {name: options[name] for name in ("hypotheses", "reference", "id_field")}
    given = read_lists(file, scores=options["scores"] or None, needs_references=weights is None, **fields)
    lists = list(given)  # each model reads them
    how: Any = {"weights": weights, "share": options["share"], "seed": options["seed"]}
    results = []
    for folder in folders:
        lm = opt.load_model(folder, options, "language") if kind is None else _learner(kind, folder, options)
        results.append((folder, cr.tasks.rerank(lm, lists, **how)))
    (folder, result), *others = results
    if kind is not None:
        result.model.save(folder, overwrite=options["overwrite"])
    if options["best"]:
        for one, text, totals in zip(result.lists, result.best, result.totals, strict=True):
            echo_json({"id": one.id, "text": text, "place": int(totals.argmax()), "scores": totals.tolist()})
    elif as_json:
        print_json(measured_objects(results, file=file))
    else:
        show(console(), _of_several(results) if others else _of_one(result))


def _learner(kind: str, folder: str, options: dict[str, Any]) -> Learner:
    """Return a function that trains a model of the kind on references."""
    from chainrule.contract.kinds import find_kind
    from chainrule.contract.tasks import LANGUAGE
    from chainrule.runs.train import train_kind
    from chainrule.settings import parse, split_words

    the_kind = find_kind(kind)
    if the_kind.task != LANGUAGE.name:
        raise SettingsError(f"the kind {kind} is for another task: --train takes one of a language model")
    if Path(folder).exists() and not options["overwrite"]:
        raise FolderError(f"{folder} exists; choose another folder, or --overwrite it")
    chosen: Any = parse(the_kind.settings, split_words(options["settings"]))

    def learn(references: list[str]) -> cr.LanguageModel:
        corpus = cr.Corpus.from_texts(references)
        how: Any = {"seed": options["seed"], "device": options["device"]}
        return train_kind(the_kind, chosen, corpus, tokenizer="word", **how)

    return learn


def _weights(given: str) -> dict[str, float]:
    weights = {}
    for word in given.split(","):
        name, _, value = word.partition("=")
        try:
            weights[name.strip()] = float(value)
        except ValueError:
            raise click.UsageError(f"--weights should be such as am_score=1,lm=0.5, found {word!r}") from None
    return weights


def _of_several(results: Sequence[tuple[str, Reranked]]) -> Iterator[Part]:
    """Yield a row for each model: how well it predicts the references, and how well it chooses."""
    rows = []
    for folder, one in results:
        references = [utterance.reference for utterance in one.lists if utterance.reference]
        bits, weight = intrinsic(one.model, references), f"{one.weights['lm']:.4g}"
        rows.append([folder, bits, weight, *([] if one.tested is None else _rates(one.tested))])
    yield ResultTable(["model", "bits/byte", "weight", "first", "chosen", "oracle", "fewer errors"], rows)
    yield "bits/byte: of the references; word error rates of the lists that weights were not tuned on"
    yield from _doubts(results)


def _of_one(result: Reranked) -> Iterator[Part]:
    if result.tested is not None:
        rows = []
        for name, rates in (("tuned on", result.tuned), ("tested on", result.tested)):
            if rates is not None:
                interval = f"{rates.reduction.low:.1%} - {rates.reduction.high:.1%}"
                rows.append([name, f"{rates.lists:,}", f"{rates.words:,}", *_rates(rates), interval])
        headings = "lists", "utterances", "words", "first", "chosen", "oracle", "fewer errors", "95 % interval"
        yield ResultTable(headings, rows)
        yield ""
    yield f"weights: {', '.join(f'{name}={weight:.4g}' for name, weight in result.weights.items())}"
    yield from _doubts([("the model", result)])
    if result.tested is None:
        yield "without references there are no word error rates; --best prints the texts that were chosen"


def _rates(rates: WordErrorRates) -> list[str]:
    return [f"{one.value:.2%}" for one in (rates.before, rates.after, rates.oracle, rates.reduction)]


def _doubts(results: Sequence[tuple[str, Reranked]]) -> Iterator[str]:
    """Say so if a model does not help, or has a negative weight: what it finds likely then counts as worse."""
    for folder, one in results:
        if one.helps is False:
            yield f"{folder}: it does not help here: no weights removed errors of lists that they were not tuned on"
        if one.weights.get("lm", 0) < 0:
            yield f"{folder}: its weight is negative: it does not know this language better than the scores do"
