"""The figures of `chainrule evaluate`, printed for each task: a row for each model, and what explains them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from chainrule.cli.output import cut, show
from chainrule.system.display import Part, ResultTable

if TYPE_CHECKING:
    from rich.console import Console

    from chainrule.classification.evaluate import ClassificationMeasured
    from chainrule.contract.confusion import Confusion
    from chainrule.evaluation.measure import Measured
    from chainrule.evaluation.pseudo import PseudoMeasured
    from chainrule.seq2seq.evaluate import TranslationMeasured
    from chainrule.tagging.evaluate import TaggingMeasured

T = TypeVar("T")
Results: TypeAlias = Sequence[tuple[str, T]]
"""What was measured of the models of some folders."""

_FIGURES = 60  # the width of the table of language models without their names
_WIDE = 70
_WIDEST_CONFUSION = 24  # the most tags or labels of a table of confusions


def show_language(screen: Console, results: Results[Measured]) -> None:
    """Print a row for each model; a narrow table leaves out nats and bits, the logarithms of the perplexity."""
    from chainrule.evaluation.measure import caveats, missing_ends

    figures = [m.figures() for _, m in results]
    headings = [name for name in figures[0] if screen.width >= _WIDE or name not in ("nats", "bits")]
    room = max(screen.width - (_FIGURES if "nats" in headings else _FIGURES - 16), 8)
    names = [cut(folder, room, keep="end") if screen.is_terminal else folder for folder, _ in results]
    rows = [[name, *(one[heading] for heading in headings)] for name, one in zip(names, figures, strict=True)]
    parts: list[Part] = [ResultTable(["model", *headings], rows)]
    for folder, m in results:
        if m.impossible:
            share = m.impossible / m.tokens
            parts.append(f"{folder}: {share:.1%} of the tokens have probability 0, so the perplexity is infinite")
    known = [(name, m.hits) for name, (_, m) in zip(names, results, strict=True) if m.hits is not None]
    if hits := [[name, *(f"{share:.1%}" for share in shares)] for name, shares in known]:
        parts += ["", "n-gram hits: the share of tokens by the length of the longest n-gram that the model knows"]
        parts.append(ResultTable(["model", *map(str, range(1, max(map(len, hits))))], hits))
    measured = [m for _, m in results]
    show(screen, [*parts, *caveats(measured), *missing_ends(measured)])


def show_figures(screen: Console, results: Results[Any], *more: Part) -> None:
    """Print a row for each model, with its figures by their headings, and what else is said of them."""
    rows = [[folder, *m.figures().values()] for folder, m in results]
    show(screen, [ResultTable(["model", *results[0][1].figures()], rows), *more])


def show_masked(screen: Console, results: Results[PseudoMeasured]) -> None:
    """Print the pseudo-log-likelihoods of masked models."""
    show_figures(screen, results, *results[0][1].remarks())


# -- models that translate --------------------------------------------------------------------------------


def show_translations(screen: Console, results: Results[TranslationMeasured]) -> None:
    """Print how good translations are, also by the length of the source."""
    first = results[0][1]
    lengths = [["pairs", *(f"{one.pairs:,}" for one in first.lengths)]]
    lengths += [[folder, *(f"{one.bleu:.1f}" for one in m.lengths)] for folder, m in results]
    headings = ["BLEU by words of the source", *(one.name for one in first.lengths)]
    parts: list[Part] = [first.size, ResultTable(headings, lengths)]
    for name, signature in first.signatures.items():
        parts.append(f"{'BLEU' if name == 'bleu' else 'chrF'}: sacrebleu {signature}")
    for folder, m in results:
        if m.cut:
            parts.append(f"{folder}: {m.cut:,} sources are longer than the model takes, and were cut")
    show_figures(screen, results, *parts)


def plot_translations(results: Results[TranslationMeasured]) -> str:
    """Draw BLEU against the length of the source."""
    from chainrule.seq2seq.pictures import length_plot

    return length_plot([(folder, found.lengths) for folder, found in results])


# -- taggers ----------------------------------------------------------------------------------------------


def show_taggers(screen: Console, results: Results[TaggingMeasured]) -> None:
    """Print how good taggers are; of a single one also each tag, and which tags are confused."""
    rows = []
    for folder, m in results:
        counts = f"{m.count:,}", f"{m.unknown:,}"
        right_of_known = m.baseline_correct - m.baseline_unknown_correct
        known = f"{right_of_known / max(1, m.count - m.unknown):.2%}"
        unknown = [f"{share:.2%}" if m.unknown else "-" for share in (m.unknown_accuracy, m.baseline_unknown)]
        rows.append([folder, f"{m.accuracy:.2%}", f"{m.known_accuracy:.2%}", unknown[0], *counts])
        rows.append(["  most frequent tag", f"{m.baseline:.2%}", known, unknown[1], *counts])
    table = ResultTable(["model", "accuracy", "known words", "unknown words", "words", "unknown"], rows)
    show(screen, [table, *(_names(results[0][1], ["tag", "words"]) if len(results) == 1 else ())])


def _names(m: Confusion, headings: Sequence[str]) -> Iterator[Part]:
    """Yield the figures of each tag or label, and which are confused: right ones are rows, given ones columns.

    If there are many names, only the pairs that are confused most often are shown.
    """
    every = sorted(m.by_name, key=lambda one: -one.count)
    rows = [
        [one.name, f"{one.count:,}", *(f"{share:.2%}" for share in (one.precision, one.recall, one.f1))]
        for one in every
    ]
    yield ""
    yield ResultTable([*headings, "precision", "recall", "F1"], rows)
    if not (pairs := m.confused()):
        return
    yield ""
    if len(every) <= _WIDEST_CONFUSION:
        names = [one.name for one in every]
        places = [m.names.index(name) for name in names]
        counts = m.confusion_KK[places][:, places].tolist()
        cells = [
            [name, *(f"{number:,}" if number else "·" for number in row)]
            for name, row in zip(names, counts, strict=True)
        ]
        yield ResultTable(["right \\ given", *names], cells)
        yield ""
    listed = ", ".join(f"{right} as {given} {times:,}" for right, given, times in pairs)
    yield f"confused most often: {listed}"


# -- classifiers ------------------------------------------------------------------------------------------


def show_classifiers(screen: Console, results: Results[ClassificationMeasured]) -> None:
    """Print how good classifiers are; of a single one also each label, and which labels are confused."""
    rows = []
    for folder, m in results:
        halves = [
            f" ± {(ends[1] - ends[0]) / 2:.2%}" if (ends := m.intervals.get(name)) else ""
            for name in ("accuracy", "macro_f1")
        ]
        shown = f"{m.accuracy:.2%}{halves[0]}", f"{m.macro_f1:.2%}{halves[1]}", f"{m.calibration_error:.2%}"
        rows.append([folder, *shown, f"{m.confidence:.2%}", f"{m.nats:.3g}", f"{m.count:,}"])
    headings = ["model", "accuracy", "macro F1", "calibration error", "confidence", "nats", "texts"]
    baseline = f"the most frequent label of these texts: {results[0][1].baseline:.2%}"
    names = _names(results[0][1], ["label", "texts"]) if len(results) == 1 else ()
    show(screen, [ResultTable(headings, rows), baseline, *names])
