"""Games with a language model: Shannon's guessing game, twenty questions, and a quiz of real and generated text.

A game asks by `ask(question)`, which returns the answer, or None when there are no more answers; it says what
happens by `tell(line)`. So a terminal, a pipe or a test can play.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import count
from typing import Any, TypeAlias

import numpy as np

from chainrule.arrays import to_numpy
from chainrule.contract.lm import LanguageModel
from chainrule.decode.generate import generate_many
from chainrule.decode.strategies import Sample
from chainrule.decode.suggest import suggest
from chainrule.errors import CorpusError, ModelError
from chainrule.evaluation.metrics import entropy, yes_no_questions
from chainrule.tasks.pairs import wilson

Ask: TypeAlias = Callable[[str], str | None]
Tell: TypeAlias = Callable[[str], None]

GIVEN_WORDS = 2
"""The words of a line that are shown before the first guess, or that both texts of a quiz begin with."""
FEWEST_WORDS = 6
"""The words that a line of a game has at least."""
MOST_WORDS = 20
_TRIES = 8  # texts that a model writes for a round of a quiz, of which a long one is taken
_SPACE = "_"  # how a space is shown, and may be typed


# -- Shannon's game ---------------------------------------------------------------------------------------


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
        return {
            **asdict(self),
            "given_up": self.given_up,
            "bounds": [*self.bounds],
            "model_bounds": [*self.model_bounds],
        }


def guessing_game(
    lm: LanguageModel, lines: Sequence[str], ask: Ask, tell: Tell, *, rounds: int = 20, seed: int = 0
) -> Guessing | None:
    """Play Shannon's game: guess the next letters, or words, of lines drawn at random; None if nothing is guessed.

    The unit is the model's token. An empty answer gives up. The first words of each line are shown.
    """
    unit = _unit(lm)
    found = Guessing(unit, [], [], 0.0, lm.tokenizer.vocab_size - len(_special(lm)))
    guesses, ranks, nats = found.guesses, found.model_guesses, 0.0
    for line in drawn_lines(lines, seed):
        ids, given = _ids(lm, line)
        log_probs = _ranked(lm, ids)
        tell(f"\n{_shown(lm, ids[:given])}")
        for place in range(given, len(ids)):
            if len(guesses) == rounds:
                break
            made, symbol = _guess(lm, ids[place], unit, ask, tell)
            if made is None:
                return _played(found, nats) if guesses else None
            guesses.append(made)
            log_probs_V = log_probs[place]
            ranks.append(int((log_probs_V > log_probs_V[ids[place]]).sum()) + 1)
            nats -= float(log_probs_V[ids[place]])
            said = "given up" if made < 0 else f"right, guess {made}"
            tell(f"{said}: {symbol}; the model's guess {ranks[-1]}\n{_shown(lm, ids[: place + 1])}")
        if len(guesses) == rounds:
            break
    return _played(found, nats)


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


def _played(found: Guessing, nats: float) -> Guessing:
    return replace(found, model_bits=nats / math.log(2) / len(found.guesses))


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


def _ranked(lm: LanguageModel, ids: Sequence[int]) -> list[np.ndarray]:
    """Return ln p of every symbol before each token of a line, normalised without special tokens."""
    state, found, special = lm.start(1), [], sorted(_special(lm))
    for one in ids:
        log_probs_V = to_numpy(lm.next_log_probs(state))[0].astype(np.float64)
        log_probs_V[special] = -math.inf
        found.append(log_probs_V - np.logaddexp.reduce(log_probs_V))
        state = lm.extend(state, np.asarray([[one]]))
    return found


def _shown(lm: LanguageModel, ids: Sequence[int]) -> str:
    return f"{lm.tokenizer.decode(ids)}…"


def drawn_lines(lines: Sequence[str], seed: int) -> Iterator[str]:
    """Yield the lines of enough words in random order, cut after `MOST_WORDS`."""
    long = [" ".join(words[:MOST_WORDS]) for line in lines if len(words := line.split()) >= FEWEST_WORDS]
    if not long:
        raise CorpusError(f"a game needs lines of {FEWEST_WORDS} words or more, and the text has none")
    for place in np.random.default_rng(seed % 2**64).permutation(len(long)).tolist():
        yield long[place]


# -- twenty questions -------------------------------------------------------------------------------------


Tree: TypeAlias = "str | tuple[Tree, Tree]"
"""What is thought of, or a question: whether it is in the first tree; if not, it is in the second."""


def question_tree(probabilities: Mapping[str, float]) -> Tree:
    """Return the yes-no questions that need the fewest answers in the mean: Huffman's tree.

    >>> question_tree({"fish": 0.5, "pizza": 0.3, "soup": 0.2})
    ('fish', ('soup', 'pizza'))
    """
    number = count()
    heap: list[tuple[float, int, Tree]] = [(p, next(number), name) for name, p in probabilities.items()]
    heapq.heapify(heap)
    while len(heap) > 1:
        (p, _, first), (q, _, second) = heapq.heappop(heap), heapq.heappop(heap)
        heapq.heappush(heap, (p + q, next(number), (first, second)))
    return heap[0][2]


def leaves(tree: Tree, depth: int = 0) -> Iterator[tuple[str, int]]:
    """Yield what can be thought of, each with the number of questions that find it."""
    if isinstance(tree, str):
        yield tree, depth
    else:
        for branch in tree:
            yield from leaves(branch, depth + 1)


@dataclass(frozen=True)
class Questions:
    """The result of twenty questions: what was thought of, and how many questions it took."""

    word: str
    questions: int
    expected: float
    """The mean number of questions over the words, by their probabilities."""
    entropy: float
    """The entropy of the words, in bits: no way to ask needs fewer questions in the mean."""

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain values."""
        return asdict(self)


def twenty_questions(lm: LanguageModel, prompt: str, ask: Ask, tell: Tell, *, words: int = 8) -> Questions | None:
    """Find the next word that the player thinks of, one of the model's most likely, by yes-no questions."""
    likely = suggest(lm, f"{prompt.rstrip()} ", words)
    total = sum(one.probability for one in likely)
    p = {one.word: one.probability / total for one in likely}
    if len(p) < 2:
        raise ModelError("after this prompt the model knows fewer than two words: give another --prompt")
    tell(f"{prompt} … think of one of these words:")
    for word, share in p.items():
        tell(f"  {word}  {share:.3f}")
    tree, asked = question_tree(p), 0
    while not isinstance(tree, str):
        yes = [word for word, _ in leaves(tree[0])]
        answer = ask(f"is it {' or '.join(map(repr, yes))}? (y/n) ")
        if answer is None:
            return None
        if answer.strip().lower()[:1] not in ("y", "n"):
            tell("answer y or n")
            continue
        asked, tree = asked + 1, tree[0] if answer.strip().lower().startswith("y") else tree[1]
    tell(f"it is {tree}")
    shares = [*p.values()]
    return Questions(tree, asked, yes_no_questions(shares), float(entropy(shares)))


# -- the quiz ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Quizzed:
    """The result of a quiz: for each model, how often the real text was told from its own."""

    rounds: dict[str, int] = field(default_factory=dict)
    right: dict[str, int] = field(default_factory=dict)

    @property
    def total(self) -> tuple[int, int]:
        """The right answers and the rounds of all models together."""
        return sum(self.right.values()), sum(self.rounds.values())

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain values, with Wilson's 95 % intervals."""
        every = {name: (self.right[name], rounds) for name, rounds in self.rounds.items()}
        return {
            name: {"right": right, "rounds": rounds, "interval": [*wilson(right / rounds, rounds)]}
            for name, (right, rounds) in {**every, "all": self.total}.items()
        }


def real_or_written(
    models: Mapping[str, LanguageModel],
    lines: Sequence[str],
    ask: Ask,
    tell: Tell,
    *,
    rounds: int = 10,
    seed: int = 0,
) -> Quizzed | None:
    """Show two texts that begin alike, one of `lines` and one by a model, and ask which is real.

    The model, and which text comes first, are drawn at random; what was right is said at the end. None if nothing
    was answered.
    """
    random = np.random.default_rng([seed % 2**64, 1])
    answers: list[tuple[str, str, str]] = []  # the model, the letter of the real text, the answer
    names, drawn = [*models], drawn_lines(lines, seed)
    for number, line in zip(range(1, rounds + 1), drawn, strict=False):
        name = names[int(random.integers(len(names)))]
        real, written = _alike(models[name], line, int(random.integers(2**31)))
        right = "ab"[int(random.integers(2))]
        tell(f"\n{number}. Which is real?")
        for letter in "ab":
            tell(f"  {letter}: {real if letter == right else written}")
        while (answer := ask("a or b? ")) is not None and answer.strip().lower() not in ("a", "b"):
            tell("answer a or b")
        if answer is None:
            break
        answers.append((name, right, answer.strip().lower()))
    if not answers:
        return None
    tell("\n" + ", ".join(f"{number}: {right}" for number, (_, right, _) in enumerate(answers, start=1)))
    asked = Counter(name for name, _, _ in answers)
    found = Counter(name for name, right, answer in answers if right == answer)
    return Quizzed(dict(asked), {name: found[name] for name in asked})


def _alike(lm: LanguageModel, line: str, seed: int) -> tuple[str, str]:
    """Return a line, and a text of the model with the same first words; both have the same number of words."""
    ids = lm.tokenizer.encode(line).tolist()
    # as the model would write it: lower-case letters alone would give its texts away
    words = (line if lm.tokenizer.unk in ids else lm.tokenizer.decode(ids)).split()
    prompt = " ".join(words[:GIVEN_WORDS])
    tokens = 3 * len(line) // 2 if lm.tokenizer.splitting is None else MOST_WORDS
    tried = generate_many(lm, [prompt], Sample(), n=_TRIES, max_tokens=tokens, seed=seed, heal=False)
    every = [one.text.split() for one in tried]
    # the first that is as long as the line, or the longest: short ones would give the model away
    written = next((one for one in every if len(one) >= len(words)), max(every, key=len))
    length = min(len(words), len(written))
    return " ".join(words[:length]), " ".join(written[:length])
