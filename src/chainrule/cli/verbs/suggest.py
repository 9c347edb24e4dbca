"""`chainrule suggest`: the words that come next; `predict`: suggestions as one types, what they save, and games."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from itertools import islice
from typing import Any

import click

import chainrule as cr
from chainrule.cli import options as opt
from chainrule.cli.options.texts import corpus_options, lines_of_corpus, open_corpus, standard_input
from chainrule.cli.output import (
    WAITING,
    console,
    echo,
    echo_json,
    emit,
    intrinsic,
    measured_objects,
    number,
    show,
    terminal_progress,
)
from chainrule.errors import DecodingError
from chainrule.system.display import ResultTable


@click.command()
@opt.model
@opt.options("""
    --prompt TEXT                The text so far; without it, a text on each line of standard input.
    -k N : 1.. = 5 as count      How many words.
    --min-probability P : [0,1]  Leave out words of a smaller probability.
""")
@opt.group(opt.compute, opt.json)
def suggest(
    folder: str, prompt: str | None, count: int, min_probability: float | None, as_json: bool, **options: Any
) -> None:
    """Suggest how a text goes on, with the model in DIR.

    A suggestion completes the word that is being written, or is the next word; it ends before white space. Its
    probability is that of the word, given the text. With --json: an object per text.
    """
    lm = opt.load_model(folder, options, "language", writes=True)
    for text in standard_input() if prompt is None else [prompt]:
        found = cr.suggest(lm, text, count, at_least=min_probability or 0.0, once=prompt is not None)
        if as_json:
            echo_suggestions(text, found)
        else:
            show(console(), [suggestions_table(found, text if prompt is None else "")])


def echo_suggestions(text: str, found: Sequence[cr.decode.Suggestion]) -> None:
    """Print the suggestions for a text as one line of JSON."""
    echo_json({"text": text, "suggestions": [asdict(one) for one in found]})


def suggestions_table(found: Sequence[cr.decode.Suggestion], title: str = "") -> ResultTable:
    """Return a table of suggestions."""
    rows = [[one.word, repr(one.completion), number(one.probability, 4)] for one in found]
    return ResultTable(["word", "appends", "probability"], rows, title)


_COLUMNS = (
    "saved: 1 - keys / characters, a line end being one; taken: keys that took a suggestion; without context: "
    "saved if each word is suggested as if it began a line; at most: saved if the right word is always suggested"
)
"""What the columns of `predict --evaluate` mean."""


@click.command(short_help="Suggest words as you type, or play a game with models.")
@opt.models
@opt.options("""
    -k N : 1..9 = 3 as count         How many words are suggested at a time.
    --evaluate FILE                  Measure the keystrokes saved in typing FILE.
    --lines N : 1..                  With --evaluate: only the first N lines.
    --game [shannon|questions|quiz]  Play: guess what comes next, be asked, or tell real text apart.
    --text FILE                      With --game shannon or quiz: where the lines are from.
    --prompt TEXT                    With --game questions: the text whose next word you think of.
    --rounds N : 1..                 With --game: letters or words to guess [20], questions of the quiz [10].
""")
@opt.group(corpus_options, opt.compute, opt.seed, opt.json)
def predict(
    folders: tuple[str, ...], count: int, evaluate: str | None, lines: int | None, as_json: bool, **options: Any
) -> None:
    """Suggest words as you type, with the model in DIR; or play a game with it.

    On a terminal: Tab takes the suggestion that is marked, a digit the one of that number (Ctrl-V types it), arrows
    up and down move the mark, Enter ends the line and prints it, Ctrl-D or Ctrl-C ends. Elsewhere: the suggestions
    for each line of standard input, separated by tabs.

    With --evaluate: how many keystrokes the suggestions of each model save, 1 - keys / characters, to someone who
    types FILE and takes every suggestion that is right (docs/tasks.md). The columns:

    \b
    bits/byte        the bits per byte of the text under the model
    saved            the share of keystrokes saved
    keys             the keys pressed
    characters       the characters of the text; a line end is one
    taken            how many keys took a suggestion
    without context  saved if each word is suggested as if it began a line
    at most          saved if the right word is always suggested

    \b
    --game shannon: guess the letters of a line (a model of characters) or its words (a model of words), one after
    the other, as often as you need; an empty answer gives up, _ is a space. The numbers of guesses bound the
    entropy (Shannon 1951); the model guesses too.
    --game questions: think of the next word after --prompt; the model asks yes-no questions, as few as it can.
    --game quiz: of two texts that begin alike, which is real, and which did a model in DIR... write?
    Answers are read from standard input, so that a game works in a pipe too.

    \b
    chainrule predict model
    chainrule predict model other --evaluate test.txt --lines 200
    chainrule predict letters --game shannon --text test.txt
    chainrule predict 5-gram lstm --game quiz --text test.txt
    """
    if options["game"] is not None:
        if evaluate is not None or lines is not None:
            raise click.UsageError("--game and --evaluate do not go together")
        _play(options["game"], folders, count, options, as_json)
    elif any(options[name] is not None for name in ("text", "prompt", "rounds")):
        raise click.UsageError("--text, --prompt and --rounds go with --game")
    elif evaluate is not None:
        _evaluate(folders, evaluate, count, lines, options, as_json)
    elif len(folders) > 1:
        raise click.UsageError("one model at a time suggests words; several are for --evaluate FILE")
    elif lines is not None or options["fields"] or options["files"]:
        raise click.UsageError("--lines, --field and --files go with --evaluate FILE")
    else:
        _suggest(opt.load_model(folders[0], options, "language"), count, as_json)


def _suggest(lm: cr.LanguageModel, count: int, as_json: bool) -> None:
    """Suggest words to someone who types, or for each line of standard input."""
    from chainrule.tasks.prediction import Remembered

    lm = Remembered(lm)
    if sys.stdin.isatty() and sys.stderr.isatty() and not as_json:
        _type(lm, count)
        return
    for text in standard_input():
        found = cr.suggest(lm, text, count)
        if as_json:
            echo_suggestions(text, found)
        else:
            echo("\t".join(one.word for one in found))


def _play(game: str, folders: tuple[str, ...], count: int, options: dict[str, Any], as_json: bool) -> None:
    """Play a game, and print its result."""
    from chainrule.tasks import games

    needs, other = ("prompt", "text") if game == "questions" else ("text", "prompt")
    if options[needs] is None or options[other] is not None:
        raise click.UsageError(f"--game {game} takes --{needs}, and no --{other}")
    if len(folders) > 1 and game != "quiz":
        raise click.UsageError(f"--game {game} is played with one model; several are for --game quiz")
    if game == "questions" and options["rounds"] is not None:
        raise click.UsageError("--game questions has no rounds: leave out --rounds")
    models = {folder: opt.load_model(folder, options, "language") for folder in folders}
    answers = iter(sys.stdin)

    def tell(line: str) -> None:
        echo(line, err=as_json)

    def ask(question: str) -> str | None:
        echo(question, nl=False, err=as_json)
        sys.stdout.flush()
        line = next(answers, None)
        if not sys.stdin.isatty():
            tell("" if line is None else line.rstrip("\r\n"))
        return None if line is None else line.rstrip("\r\n")

    lm = models[folders[0]]
    how: Any = {name: options[name] for name in ("rounds", "seed") if options[name] is not None}
    if game == "questions":
        found: Any = games.twenty_questions(lm, options["prompt"], ask, tell, words=max(count, 8))
    else:
        lines = [*lines_of_corpus(open_corpus(options, options["text"]))]
        if game == "shannon":
            found = games.guessing_game(lm, lines, ask, tell, **how)
        else:
            found = games.real_or_written(models, lines, ask, tell, **how)
    if found is None:
        raise DecodingError("there was no answer, so that there is no result")
    emit(as_json, found.to_json(), "", *found.parts())


def _type(lm: cr.LanguageModel, count: int) -> None:
    """Let someone type lines on the terminal, and print them on standard output."""
    from chainrule.cli.output.typing import typed_lines
    from chainrule.contract.lm import prepare

    prepare(lm)
    WAITING.end()
    echo("Tab or 1-9 takes a word, arrows choose, Enter ends the line, Ctrl-D quits", err=True)
    keys = characters = 0
    for line in typed_lines(lambda text: [(one.word, one.completion) for one in cr.suggest(lm, text, count)]):
        text = line.buffer.text.rstrip(" ")
        echo(text)
        keys, characters = keys + line.keys, characters + len(text) + 1
    if characters:
        echo(f"{keys:,} keys for {characters:,} characters: {1 - keys / characters:.1%} saved", err=True)


def _evaluate(
    folders: tuple[str, ...], file: str, count: int, lines: int | None, options: dict[str, Any], as_json: bool
) -> None:
    """Print the keystrokes that each model saves, and the bits per byte of the text beside them."""
    from chainrule.evaluation.measure import LOWER_BOUND

    corpus, results, rows = open_corpus(options, file), [], []
    how: Any = {"most_lines": lines, "progress": terminal_progress()}
    for folder in folders:
        lm = opt.load_model(folder, options, "language")
        found = cr.tasks.keystrokes(lm, corpus, count, **how)
        results.append((folder, found))
        if not as_json:
            bits = intrinsic(lm, [*islice(lines_of_corpus(corpus), lines)])
            counts = f"{found.keys:,}", f"{found.characters:,}", f"{found.taken:,}"
            rows.append(
                [folder, bits, f"{found.saved:.1%}", *counts, f"{found.baseline:.1%}", f"{found.limit:.1%}"]
            )
    headings = ["model", "bits/byte", "saved", "keys", "characters", "taken", "without context", "at most"]
    remarks = [_COLUMNS, LOWER_BOUND] if any("*" in bits for _, bits, *_ in rows) else [_COLUMNS]
    emit(as_json, measured_objects(results), ResultTable(headings, rows), *remarks)
