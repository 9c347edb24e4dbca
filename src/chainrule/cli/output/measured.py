"""The figures of `chainrule evaluate`, printed for each task: a row for each model, and what explains them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from chainrule.cli.output import bits_per_byte, cut, figure, number, print_table, say, say_caveats

if TYPE_CHECKING:
    from rich.console import Console

    from chainrule.evaluation.measure import Measured
    from chainrule.evaluation.pseudo import PseudoMeasured
    from chainrule.seq2seq.evaluate import TranslationMeasured
    from chainrule.tagging.evaluate import TaggingMeasured

T = TypeVar("T")
Results: TypeAlias = Sequence[tuple[str, T]]
"""What was measured of the models of some folders."""

PSEUDO = (
    "PLL: the mean of ln p of each token given those on both sides, in nats. It is no probability of the text, and "
    "exp(-PLL), the pseudo-perplexity, is no perplexity: it does not compare with that of a language model"
)

_FIGURES = 60  # the width of the table of language models without their names
_WIDE = 70
_WIDEST_CONFUSION = 24  # tags; a table of more is not read


def show_language(screen: Console, results: Results[Measured]) -> None:
    """Print a row for each model; a narrow table leaves out nats and bits, the logarithms of the perplexity."""
    figures: dict[str, Callable[[Measured], str]] = {
        "perplexity": lambda m: figure(m, m.perplexity),
        "nats": lambda m: figure(m, m.nats),
        "bits": lambda m: figure(m, m.bits),
        "bits/byte": bits_per_byte,
        "tokens": lambda m: f"{m.tokens:,}",
        "OOV": lambda m: f"{m.oov:.2%}",
    }
    if screen.width < _WIDE:
        del figures["nats"], figures["bits"]
    room = max(screen.width - (_FIGURES if "nats" in figures else _FIGURES - 16), 8)
    names = [cut(folder, room, keep="end") if screen.is_terminal else folder for folder, _ in results]
    rows = [[name, *(show(m) for show in figures.values())] for name, (_, m) in zip(names, results, strict=True)]
    print_table(screen, ["model", *figures], rows)
    for folder, m in results:
        if m.impossible:
            share = m.impossible / m.tokens
            say(screen, f"{folder}: {share:.1%} of the tokens have probability 0, so the perplexity is infinite")
    every = [m for _, m in results]
    say_caveats(screen, normalised=all(m.normalised for m in every), lossless=all(m.lossless for m in every))


def show_masked(screen: Console, results: Results[PseudoMeasured]) -> None:
    """Print the pseudo-log-likelihoods of masked models."""
    rows = (
        [folder, number(m.pll_per_token, 4), number(m.pseudo_perplexity, 4), f"{m.tokens:,}", f"{m.oov:.2%}"]
        for folder, m in results
    )
    print_table(screen, ["model", "PLL", "pseudo-perplexity", "tokens", "OOV"], rows)
    say(screen, PSEUDO)


# -- models that translate --------------------------------------------------------------------------------


def show_translations(screen: Console, results: Results[TranslationMeasured]) -> None:
    """Print how good translations are, also by the length of the source."""
    rows = (
        [folder, f"{m.bleu:.1f}", f"{m.chrf:.1f}", number(m.perplexity, 4), number(m.sentences_per_second)]
        for folder, m in results
    )
    print_table(screen, ["model", "BLEU", "chrF", "perplexity", "sentences/s"], rows)
    first = results[0][1]
    counts = f"{first.pairs:,} pairs, {first.tokens:,} tokens of targets"
    say(screen, f"{counts}; copying the sources has BLEU {first.copied_bleu:.1f}")
    lengths = [["pairs", *(f"{one.pairs:,}" for one in first.lengths)]]
    lengths += [[folder, *(f"{one.bleu:.1f}" for one in m.lengths)] for folder, m in results]
    print_table(screen, ["BLEU by words of the source", *(one.name for one in first.lengths)], lengths)
    for name, signature in first.signatures.items():
        say(screen, f"{'BLEU' if name == 'bleu' else 'chrF'}: sacrebleu {signature}")
    for folder, m in results:
        if m.cut:
            say(screen, f"{folder}: {m.cut:,} sources are longer than the model takes, and were cut")


def plot_translations(results: Results[TranslationMeasured]) -> str:
    """Draw BLEU against the length of the source."""
    from chainrule.seq2seq.pictures import length_plot

    return length_plot([(folder, found.lengths) for folder, found in results])


# -- taggers ----------------------------------------------------------------------------------------------


def show_taggers(screen: Console, results: Results[TaggingMeasured]) -> None:
    """Print how good taggers are; of a single one also each tag, and which tags are confused."""
    rows = []
    for folder, m in results:
        counts = f"{m.words:,}", f"{m.unknown:,}"
        right_of_known = m.baseline_correct - m.baseline_unknown_correct
        known = f"{right_of_known / max(1, m.words - m.unknown):.2%}"
        unknown = [f"{share:.2%}" if m.unknown else "-" for share in (m.unknown_accuracy, m.baseline_unknown)]
        rows.append([folder, f"{m.accuracy:.2%}", f"{m.known_accuracy:.2%}", unknown[0], *counts])
        rows.append(["  most frequent tag", f"{m.baseline:.2%}", known, unknown[1], *counts])
    print_table(screen, ["model", "accuracy", "known words", "unknown words", "words", "unknown"], rows)
    if len(results) == 1:
        _print_tags(screen, results[0][1])


def _print_tags(screen: Console, measured: TaggingMeasured) -> None:
    """Print the figures of each tag, and which are confused: right tags are rows, and given ones columns."""
    tags = sorted(measured.by_tag, key=lambda one: -one.words)
    rows = [
        [one.tag, f"{one.words:,}", f"{one.precision:.2%}", f"{one.recall:.2%}", f"{one.f1:.2%}"] for one in tags
    ]
    screen.print()
    print_table(screen, ["tag", "words", "precision", "recall", "F1"], rows)
    if not (pairs := measured.confused()):
        return
    screen.print()
    if len(tags) <= _WIDEST_CONFUSION:
        have = [one.tag for one in tags]
        places = [measured.tags.index(name) for name in have]
        counts = measured.confusion_KK[places][:, places].tolist()
        rows = [
            [name, *(f"{number:,}" if number else "·" for number in row)]
            for name, row in zip(have, counts, strict=True)
        ]
        print_table(screen, ["right \\ given", *have], rows)
        screen.print()
    listed = ", ".join(f"{right} as {given} {times:,}" for right, given, times in pairs)
    say(screen, f"confused most often: {listed}")
