"""Shannon's game: guess the next letters or words of a line, which bounds the entropy (Shannon 1951)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import count, islice
from typing import Any

import numpy as np

from chainrule.arrays import refuse_nan, to_numpy
from chainrule.contract.lm import LanguageModel, predictions
from chainrule.errors import ModelError
from chainrule.system.display import Part, ResultTable
from chainrule.tasks.games.lines import GIVEN_WORDS, Ask, Tell, drawn_lines

_SPACE = "_"  # how a space is shown, and may be typed


def shannon_bounds(guesses: Sequence[int]) -> tuple[float, float]:
    """Return the bounds on the entropy, in bits, of someone who needs these numbers of guesses (Shannon 1951).

    With q_i, the share of the symbols that the i-th guess finds, the largest first:

        Σ i (q_i - q_{i+1}) log2 i  ≤  H  ≤  -Σ q_i log2 q_i

    >>> shannon_bounds([1, 1, 1, 1])
    (0.0, 0.0)
    >>> shannon_bounds([1, 2, 1, 2])
    (1.0, 1.0)
    """
    shares = [times / len(guesses) for _, times in Counter(guesses).most_common()]
    lower = sum(
        i * (share - after) * math.log2(i)
        for i, (share, after) in enumerate(zip(shares, [*shares[1:], 0.0], strict=True), start=1)
    )
    return lower, sum(share * math.log2(1 / share) for share in shares)


@dataclass(frozen=True)
class Guessing:
    """The result of Shannon's game: the guesses of a player, and of the model on the same symbols."""

    unit: str
    """What is guessed: a letter or a word."""
    guesses: list[int]
    """For each symbol the number of the guess that was right; negative: given up before that guess."""
    model_guesses: list[int]
    """The place of each symbol in the model's order."""
    model_bits: float
    """The bits per symbol of the model, among symbols that are no special tokens."""
    symbols: int
    """How many different symbols there are."""

    @property
    def given_up(self) -> int:
        """How many symbols were given up."""
        return sum(made < 0 for made in self.guesses)

    @property
    def bounds(self) -> tuple[float, float]:
        """The bounds on the player's entropy.

        A symbol that was given up would have taken at least the next guess; to name it takes log2 of all symbols.
        """
        lower, _ = shannon_bounds([abs(made) for made in self.guesses])
        _, upper = shannon_bounds([max(made, 0) for made in self.guesses])
        return lower, upper + self.given_up / len(self.guesses) * math.log2(self.symbols)

    @property
    def model_bounds(self) -> tuple[float, float]:
        """The bounds of the model by its guesses alone."""
        return shannon_bounds(self.model_guesses)

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain values."""
        more = {"given_up": self.given_up, "bounds": [*self.bounds], "model_bounds": [*self.model_bounds]}
        return asdict(self) | more

    def parts(self) -> list[Part]:
        """Return the guesses of the player and of the model, and the bounds that they give."""
        rows = []
        players = ("you", self.guesses, self.bounds), ("the model", self.model_guesses, self.model_bounds)
        for name, guesses, (lower, upper) in players:
            first = f"{guesses.count(1) / len(guesses):.0%}"
            rows.append([name, f"{sum(map(abs, guesses)):,}", first, f"{lower:.2f} - {upper:.2f}"])
        headings = [f"{len(self.guesses)} {self.unit}s", "guesses", "at once", "bits a symbol"]
        said = [f"by its probabilities the model has {self.model_bits:.2f} bits a {self.unit}"]
        if self.given_up:
            symbols = f"{self.unit}{'s' * (self.given_up > 1)}"
            said.append(
                f"{self.given_up} {symbols} given up: each counts log2 {self.symbols:,} bits in the upper bound"
            )
        return [ResultTable(headings, rows), *said]


def guessing_game(
    lm: LanguageModel, lines: Sequence[str], ask: Ask, tell: Tell, *, rounds: int = 20, seed: int = 0
) -> Guessing | None:
    """Play Shannon's game: guess the next letters, or words, of lines drawn at random; None if nothing is guessed.

    The unit is the model's token. An empty answer gives up. The first words of each line are shown.

    >>> import chainrule as cr
    >>> line = "the cat sat on the mat"
    >>> lm = cr.train("ngram", [line] * 3, order=2, tokenizer="word")
    >>> answers = iter(["sat", "on", "the", "dog", "mat"])
    >>> found = guessing_game(lm, [line], lambda question: next(answers, None), lambda said: None)
    >>> found.guesses
    [1, 1, 1, 2]
    """
    unit, guesses, ranks, nats = _unit(lm), list[int](), list[int](), 0.0
    for ids, place, log_probs_V in islice(_places(lm, lines, tell, seed), rounds):
        made, symbol = _guess(lm, ids[place], unit, ask, tell)
        if made is None:
            break
        guesses.append(made)
        ranks.append(int((log_probs_V > log_probs_V[ids[place]]).sum()) + 1)
        nats -= float(log_probs_V[ids[place]])
        said = "given up" if made < 0 else f"right, guess {made}"
        tell(f"{said}: {symbol}; the model's guess {ranks[-1]}\n{_shown(lm, ids[: place + 1])}")
    if not guesses:
        return None
    symbols = lm.tokenizer.vocab_size - len(_special(lm))
    return Guessing(unit, guesses, ranks, nats / math.log(2) / len(guesses), symbols)


def _places(
    lm: LanguageModel, lines: Sequence[str], tell: Tell, seed: int
) -> Iterator[tuple[list[int], int, np.ndarray]]:
    """Yield each place to guess: the ids of its line, its number, and ln p of every symbol there.

    ln p is normalised without special tokens. The first words of a line are told.
    """
    special = sorted(_special(lm))
    for line in drawn_lines(lines, seed):
        ids, given = _ids(lm, line)
        tell(f"\n{_shown(lm, ids[:given])}")
        rows = (row for part in predictions(lm, lm.start(1), np.asarray([ids])) for row in to_numpy(part)[0])
        for place, row_V in enumerate(rows):
            if place >= given:
                refuse_nan(row_V)
                log_probs_V = row_V.astype(np.float64)
                log_probs_V[special] = -math.inf
                yield ids, place, log_probs_V - np.logaddexp.reduce(log_probs_V)


def _guess(lm: LanguageModel, token: int, unit: str, ask: Ask, tell: Tell) -> tuple[int | None, str]:
    """Return how many guesses were made, negative if the symbol was given up, and the symbol; None: no answers."""
    symbol = lm.tokenizer.token(token).replace(" ", _SPACE)
    for made in count(1):
        answer = ask(f"next {unit}, guess {made}: ")
        if answer is None:
            return None, symbol
        if not answer:
            return -made, symbol
        guess = answer.replace(" ", _SPACE) if unit == "letter" else answer.strip()
        if guess.casefold() == symbol.casefold():
            return made, symbol
        tell("no")
    raise AssertionError


def _unit(lm: LanguageModel) -> str:
    if lm.tokenizer.splitting is not None:
        return "word"
    pieces = lm.tokenizer.pieces()
    if pieces is None or max(len(piece.decode(errors="ignore")) for piece in pieces) > 1:
        raise ModelError(
            f"Shannon's game goes by letters or words, and this model has {lm.tokenizer.name} tokens: "
            "train one with --tokenizer char or --tokenizer word"
        )
    return "letter"


def _special(lm: LanguageModel) -> set[int]:
    tokenizer = lm.tokenizer
    return {one for one in (tokenizer.bos, tokenizer.eos, tokenizer.unk) if one is not None}


def _ids(lm: LanguageModel, line: str) -> tuple[list[int], int]:
    """Return the ids of a line without unknown ones, and how many of them are given."""
    ids = [one for one in lm.tokenizer.encode(line).tolist() if one not in _special(lm)]
    if lm.tokenizer.splitting is not None:
        return ids, min(GIVEN_WORDS, len(ids) - 1)
    text, given = "", 0
    while given < len(ids) - 1 and len(text.split(" ")) <= GIVEN_WORDS:
        given += 1
        text = lm.tokenizer.decode(ids[:given])
    return ids, given


def _shown(lm: LanguageModel, ids: Sequence[int]) -> str:
    return f"{lm.tokenizer.decode(ids)}…"
