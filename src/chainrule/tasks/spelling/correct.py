"""Correction of lines: a beam search over the words that may have been meant, scored by a language model.

For each word that was typed there is the choice to keep it, or to take a word of the vocabulary within two edits:

    keep a known word        ln keep + ln p(typed | context)
    keep an unknown word     ln keep + ln new + ln p(spelling)
    correct it to w          ln (1 - keep) + ln p(typed | w) + ln p(w | context)

An unknown word may be right: a name, a word the vocabulary lacks. `new` is the share of such words, and p(spelling)
is that of an n-gram model of letters, trained on the words of the vocabulary: new words are spelled as those are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np

from chainrule.contract.lm import LanguageModel, score_choices
from chainrule.errors import SettingsError, TokenizerError
from chainrule.evaluation.surprisal import score
from chainrule.runs.train import train
from chainrule.tasks.spelling.candidates import MOST_EDITS, Neighbours
from chainrule.tasks.spelling.channel import Channel, encoded
from chainrule.tasks.spelling.words import TypedWord, core_of, in_case_of, words_of
from chainrule.text.corpus import Corpus

KEEP = 0.99
"""How likely a word that is typed is right, before it is read."""
NEW = 0.002
"""The share of right words that the vocabulary lacks."""

_OTHER_CASE = 2.3  # nats: a small letter is typed where the vocabulary knows the word with a capital alone
_IMPOSSIBLE = -100.0  # ln p at least, so that one word that a model rules out does not rule out the line
_REMEMBERED = 1 << 17  # typed words whose choices are kept
_LINES_AT_ONCE = 64
_SPELLING_ORDER = 5
_FEWEST_SPELLINGS = 50  # words to learn spelling from


@dataclass(frozen=True)
class Edit:
    """A word that was corrected: text[start:end] of the original."""

    start: int
    end: int
    typed: str
    corrected: str
    probability: float
    """Of this correction, among those of the line that the search has kept."""


@dataclass(frozen=True)
class Correction:
    """A line and what was corrected in it."""

    original: str
    corrected: str
    edits: tuple[Edit, ...]

    def to_json(self) -> dict[str, Any]:
        """The line as JSON."""
        return {"original": self.original, "corrected": self.corrected, "edits": [asdict(e) for e in self.edits]}


@dataclass(frozen=True)
class _Choices:
    """What a typed word may mean, the typed word itself first."""

    words: tuple[str, ...]
    ids: np.ndarray
    scores: np.ndarray
    """ln p(typed | word), with what is known before reading."""
    by_model: np.ndarray
    """1 where the language model's ln p is added, 0 for a word that it does not know."""


def correct(lm: LanguageModel, texts: str | Iterable[str], **options: Any) -> list[Correction]:
    """The corrections of texts, each one line; the options are those of `Corrector`.

    >>> import chainrule as cr
    >>> lm = cr.train("ngram", ["the cat sat on the mat"] * 5, order=2)
    >>> cr.tasks.correct(lm, "the cta sat on teh mat")[0].corrected
    'the cat sat on the mat'
    """
    return list(Corrector(lm, **options).correct([texts] if isinstance(texts, str) else texts))


class Corrector:
    """Corrects lines with a language model of words, which also gives the vocabulary."""

    def __init__(
        self,
        lm: LanguageModel,
        *,
        channel: Channel | None = None,
        keep: float = KEEP,
        new: float = NEW,
        lm_weight: float = 1.0,
        beams: int = 6,
        choices: int = 16,
    ) -> None:
        """`keep` is how likely a typed word is right, `new` the share of right words that the vocabulary lacks.

        `lm_weight` is the power of the language model's probabilities. A search keeps `beams` readings of a line,
        and for each word at most so many `choices`.
        """
        self.lm = LanguageModel.expect(lm)
        if self.lm.tokenizer.splitting is None or self.lm.tokenizer.unk is None:
            raise TokenizerError(
                f"to correct spelling takes a model of words, and the tokens of this one are {lm.tokenizer.name}: "
                "train one with --tokenizer word:unicode"
            )
        for name, value in (("keep", keep), ("new", new)):
            if not 0 <= value < 1:
                raise SettingsError(f"{name} should be at least 0 and below 1, not {value}")
        for name, number in (("beams", beams), ("choices", choices)):
            if number < 1:
                raise SettingsError(f"{name} should be at least 1, not {number}")
        self.channel = channel or Channel.default()
        self.keep, self.new, self.lm_weight, self.beams, self.choices = keep, new, lm_weight, beams, choices
        self._remembered: dict[str, _Choices] = {}
        self._spelled: dict[str, float] = {}
        self._ids = {word: i for i, word in enumerate(self.lm.tokenizer.words, start=3)}
        forms: dict[str, list[tuple[str, int]]] = {}  # the forms of a word that differ in case, most frequent first
        for word, i in self._ids.items():
            core = word if len(word) == 1 and word.isalpha() else core_of(word)
            if core:
                forms.setdefault(core.lower(), []).append((core, i))
        self._forms = list(forms.values())
        self._number_of = {lower: number for number, lower in enumerate(forms)}
        self._neighbours = Neighbours(list(forms))

    # -- lines --------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Make now what is made when the first unknown word is met, so that no later line takes longer."""
        list(self.correct(["a" + "".join(sorted("unlikely"))]))

    def correct(self, lines: Iterable[str], *, at_once: int = _LINES_AT_ONCE) -> Iterator[Correction]:
        """The correction of each line, in order; so many are searched `at_once`."""
        every = iter(lines)
        while some := list(islice(every, at_once)):
            yield from self._corrected(some)

    def _corrected(self, lines: Sequence[str]) -> Iterator[Correction]:
        words = [self.words_of(line) for line in lines]
        self._spell(word for some in words for word in some)
        choices = [[self.choices_of(word) for word in some] for some in words]
        for line, typed, given, (taken, probabilities) in zip(
            lines, words, choices, self._search(choices), strict=True
        ):
            edits = tuple(
                _edit(word, of.words[choice], probability)
                for word, of, choice, probability in zip(typed, given, taken, probabilities, strict=True)
                if of.words[choice] != word.core and choice
            )
            pieces, done = [], 0
            for edit in edits:
                pieces += [line[done : edit.start], edit.corrected]
                done = edit.end
            yield Correction(line, "".join([*pieces, line[done:]]), edits)

    def _search(self, lines: Sequence[Sequence[_Choices]]) -> list[tuple[list[int], list[float]]]:
        """For each line which choice is taken for each word, and the probability of that, by beam search."""
        # of each line its readings: a score, and a chain (choice, chain before it)
        readings: list[list[tuple[float, Any]]] = [[(0.0, ())] for _ in lines]
        active = [number for number, words in enumerate(lines) if words]
        state = self.lm.start(len(active)) if active else None
        position = 0
        while active:
            assert state is not None
            of_rows = [(number, reading) for number in active for reading in readings[number]]
            options = [lines[number][position] for number, _ in of_rows]
            sizes = np.asarray([len(some.words) for some in options])
            rows_R = np.repeat(np.arange(len(of_rows)), sizes)
            ids_R = np.concatenate([some.ids for some in options])
            by_model_R = np.concatenate([some.by_model for some in options])
            log_probs_R = np.maximum(score_choices(self.lm, state, rows_R, ids_R), _IMPOSSIBLE)
            before_R = np.repeat([reading[0] for _, reading in of_rows], sizes)
            totals_R = before_R + np.concatenate([some.scores for some in options])
            totals_R += self.lm_weight * by_model_R * log_probs_R
            ends = np.cumsum(sizes)
            kept: list[np.ndarray] = []
            row = 0
            for number in active:
                first = int(ends[row - 1]) if row else 0
                last_row = row + len(readings[number])
                totals = totals_R[first : ends[last_row - 1]]
                best = first + np.argsort(-totals, kind="stable")[: self.beams]
                chosen = []
                for place in best.tolist():
                    parent = int(rows_R[place])
                    choice = place - (int(ends[parent - 1]) if parent else 0)
                    chosen.append((float(totals_R[place]), (choice, of_rows[parent][1][1])))
                readings[number] = chosen
                row = last_row
                if position + 1 < len(lines[number]):
                    kept.append(best)
            position += 1
            active = [number for number in active if position < len(lines[number])]
            if active:
                places = np.concatenate(kept)
                state = self.lm.extend(state.select(rows_R[places]), ids_R[places][:, None])
        return [_taken(some) for some in readings]

    # -- words --------------------------------------------------------------------------------------------

    def words_of(self, line: str) -> list[TypedWord]:
        """The words of a line, as the model's tokenizer splits it."""
        assert self.lm.tokenizer.splitting is not None
        return words_of(line, self.lm.tokenizer.splitting)

    def lacks(self, text: str) -> int:
        """How many words of a text the vocabulary lacks, in any case."""
        return sum(bool(word.core) and word.core.lower() not in self._number_of for word in self.words_of(text))

    def choices_of(self, word: TypedWord) -> _Choices:
        """What a typed word may mean."""
        if (found := self._remembered.get(word.text)) is None:
            if len(self._remembered) >= _REMEMBERED:
                self._remembered.clear()
            self._spell([word])
            found = self._remembered[word.text] = self._find_choices(word)
        return found

    def _find_choices(self, word: TypedWord) -> _Choices:
        unknown = self.lm.tokenizer.unk
        if not word.core:
            return _Choices((word.core,), np.asarray([self._ids.get(word.text, unknown)]), np.zeros(1), np.ones(1))
        lower = word.core.lower()
        known = self._number_of.get(lower)
        numbers, distances = self._neighbours.near(lower, MOST_EDITS if known is None else 1)
        numbers, distances = numbers[distances > 0], distances[distances > 0]
        costs = self._costs(lower, numbers)
        words, ids, scores = [word.core], [unknown], [_log(self.keep)]
        if known is None:
            scores[0] += _log(self.new) + self._spelled[word.core]
        else:
            ids[0] = self._form(word, known)[1]
        for place in self._likeliest(numbers, costs):
            form, i, other_case = self._form(word, int(numbers[place]))
            words.append(form)
            ids.append(i)
            scores.append(_log(1 - self.keep) - float(costs[place]) - other_case)
        by_model = np.ones(len(words))
        by_model[0] = known is not None
        return _Choices(tuple(words), np.asarray(ids), np.asarray(scores), by_model)

    def _costs(self, typed: str, numbers: np.ndarray) -> np.ndarray:
        """-ln p(typed | word) of words of the vocabulary."""
        if not len(numbers):
            return np.empty(0)
        codes = [encoded(self._neighbours.words[number]) for number in numbers.tolist()]
        lengths = np.asarray([len(some) for some in codes])
        words_NL = np.zeros((len(codes), int(lengths.max())), dtype=np.int64)
        for row, some in enumerate(codes):
            words_NL[row, : len(some)] = some
        return self.channel.costs(encoded(typed), words_NL, lengths, MOST_EDITS)

    def _likeliest(self, numbers: np.ndarray, costs: np.ndarray) -> list[int]:
        """The places of the candidates to try: ids go by frequency, and the n-th word has about a share of 1/n."""
        ranks = np.asarray([self._forms[number][0][1] for number in numbers.tolist()])
        order: list[int] = np.argsort(costs + np.log(ranks), kind="stable").tolist()
        return order[: self.choices]

    def _form(self, word: TypedWord, number: int) -> tuple[str, int, float]:
        """A word of the vocabulary in the case of the typed one, its id, and the cost of an unknown case."""
        forms = self._forms[number]
        form, first = forms[0]
        cased = in_case_of(form, word.core)
        before, after = word.around
        for written in (before + cased + after, cased):
            if (i := self._ids.get(written)) is not None:
                return cased, i, 0.0
        same = [i for core, i in forms if core == cased]
        if same:
            return cased, same[0], 0.0
        return cased, first, _OTHER_CASE if word.core.islower() else 0.0

    @cached_property
    def _spelling(self) -> LanguageModel | None:
        """An n-gram model of the letters of the vocabulary's words, each read once; None if they are too few."""
        words = [form for forms in self._forms for form, _ in forms]
        if len(words) < _FEWEST_SPELLINGS:
            return None
        return train("ngram", Corpus.from_text("\n".join(words)), tokenizer="char", order=_SPELLING_ORDER)

    def _spell(self, words: Iterable[TypedWord]) -> None:
        """Find ln p of the spellings of unknown words, all at once; without a model letters are equally likely."""
        if len(self._spelled) >= _REMEMBERED:
            self._spelled.clear()
        unknown = (word.core for word in words if word.core and word.core.lower() not in self._number_of)
        new = [core for core in dict.fromkeys(unknown) if core not in self._spelled]
        if not new:
            return
        if self._spelling is None:
            self._spelled |= {word: -(len(word) + 1) * math.log(27) for word in new}
        else:
            log_probs = np.maximum(score(self._spelling, new).log_prob, _IMPOSSIBLE)
            self._spelled |= dict(zip(new, log_probs.tolist(), strict=True))

    # -- the baseline -------------------------------------------------------------------------------------

    def nearest(self, typed: str) -> str:
        """The baseline without channel and context: a known word stays, else the most frequent of the nearest."""
        lower = typed.lower()
        if lower in self._number_of:
            return typed
        numbers, distances = self._neighbours.near(lower)
        if not len(numbers):
            return typed
        ranks = np.asarray([self._forms[number][0][1] for number in numbers.tolist()])
        best = int(numbers[np.lexsort([ranks, distances])[0]])
        return in_case_of(self._forms[best][0][0], typed)


def _edit(word: TypedWord, corrected: str, probability: float) -> Edit:
    return Edit(word.core_start, word.core_start + len(word.core), word.core, corrected, probability)


def _taken(readings: Sequence[tuple[float, Any]]) -> tuple[list[int], list[float]]:
    """The choices of the best reading, and how probable each of them is among all readings that are left."""
    chains = []
    for _, chain in readings:
        choices: list[int] = []
        while chain:
            choice, chain = chain
            choices.append(choice)
        chains.append(choices[::-1])
    best = readings[0][0]
    weights = np.asarray([math.exp(total - best) for total, _ in readings])
    weights /= weights.sum()
    agree = np.asarray(chains) == np.asarray(chains[0])
    return chains[0], (weights @ agree).tolist() if chains[0] else []


def _log(p: float) -> float:
    return math.log(p) if p > 0 else -1e9
