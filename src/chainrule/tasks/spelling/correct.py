"""Correction of lines: a beam search over the words that may have been meant, scored by a language model.

Each typed word is kept, or corrected to a word of the vocabulary within two edits:

    keep a word          ln keep + λ ln p(typed | context)
    correct it to w      ln (1 - keep) + ln p(typed | w) + λ ln p(w | context)

A correction in a line of several words is made only if it is more likely than all other readings together (`SURE`):
of two words that fit as well, neither is taken.

An unknown word may be right: a name, or a word that the vocabulary lacks. `new` is the share of such words. Half of
them are forms that the vocabulary makes likely (forms.py), to which a word may be corrected too; of the others, p
comes from an n-gram model of letters, trained on the vocabulary: new words are spelled like known ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from typing import Any

import numpy as np

from chainrule.contract.lm import LanguageModel, score_choices
from chainrule.errors import SettingsError, TokenizerError
from chainrule.evaluation.surprisal import score
from chainrule.runs.train import train
from chainrule.system.display import PlainResult
from chainrule.tasks.spelling.channel import Channel
from chainrule.tasks.spelling.forms import likely_forms
from chainrule.tasks.spelling.words import MOST_EDITS, Lexicon, TypedWord, core_of, in_case_of, replaced, words_of
from chainrule.text.corpus import Corpus

KEEP = 0.98
"""The prior probability that a typed word is right, if the vocabulary lacks it."""
KEEP_ALONE = 0.05
"""The same for a word that is the only one of its line."""
NEW = 0.001
"""The share of right words that the vocabulary lacks."""
SURE = 0.5
"""A word of several is corrected if the correction is more likely than this."""
LM_WEIGHT = 0.85
"""The power of the language model's probabilities."""
LM_WEIGHT_ALONE = 0.6
"""The same for a word that is the only one of its line: words that are asked about are rarer than words of text."""

_KNOWN_ERRORS = 0.3  # a word of the vocabulary is so much less often an error than another word
_OTHER_CASE = 2.3  # nats: a lower-case letter is typed where the vocabulary has the word only with a capital
_IMPOSSIBLE = -100.0  # the least ln p, so that one word of probability 0 does not rule out the line
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
    """The probability of this correction among the readings of the line that the search has kept."""


@dataclass(frozen=True)
class Correction(PlainResult):
    """A line, the corrected line, and the edits between them."""

    original: str
    corrected: str
    edits: tuple[Edit, ...]


@dataclass(frozen=True)
class _Choices:
    """The words that a typed word may stand for, itself first."""

    words: tuple[str, ...]
    ids: np.ndarray
    scores: np.ndarray
    """ln p(typed | word), with the prior probability that a word is kept or corrected."""
    weights: np.ndarray
    """The weight of the language model's ln p, 0 for a word that the model does not know."""


def correct(lm: LanguageModel, texts: str | Iterable[str], **options: Any) -> list[Correction]:
    """Correct texts of one line each; the options are those of `Corrector`.

    >>> import chainrule as cr
    >>> lm = cr.train("ngram", ["the cat sat on the mat"] * 5, order=2, tokenizer="word")
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
        keep: float | None = None,
        new: float = NEW,
        lm_weight: float | None = None,
        beams: int = 6,
        choices: int = 16,
    ) -> None:
        """`keep` is the prior that a typed word is right, `new` the share of right words that the vocabulary lacks.

        `lm_weight` is the power of the language model's probabilities. Without `keep` and `lm_weight` they are
        `KEEP` and `LM_WEIGHT`, and `KEEP_ALONE` and `LM_WEIGHT_ALONE` for a word that is the only one of its line.
        A search keeps `beams` readings of a line and tries at most `choices` corrections of a word.
        """
        self.lm = LanguageModel.expect(lm)
        if self.lm.tokenizer.splitting is None or self.lm.tokenizer.unk is None:
            raise TokenizerError(
                f"to correct spelling takes a model of words, and the tokens of this one are {lm.tokenizer.name}: "
                "train one with --tokenizer word:unicode"
            )
        for name, value in (("keep", keep), ("new", new)):
            if value is not None and not 0 <= value < 1:
                raise SettingsError(f"{name} should be at least 0 and below 1, not {value}")
        for name, number in (("beams", beams), ("choices", choices)):
            if number < 1:
                raise SettingsError(f"{name} should be at least 1, not {number}")
        self.channel = channel or Channel.default()
        self.new, self.beams, self.choices = new, beams, choices
        self.keep, self.keep_alone = (KEEP, KEEP_ALONE) if keep is None else (keep, keep)
        self.lm_weight, self.lm_weight_alone = (
            (LM_WEIGHT, LM_WEIGHT_ALONE) if lm_weight is None else (lm_weight, lm_weight)
        )
        self._choices: dict[tuple[str, bool], _Choices] = {}
        self._spelled: dict[str, float] = {}
        self._ids = {word: i for i, word in enumerate(self.lm.tokenizer.words, start=3)}
        forms: dict[str, list[tuple[str, int]]] = {}  # the forms of a word that differ in case, most frequent first
        for word, i in self._ids.items():
            core = word if len(word) == 1 and word.isalpha() else core_of(word)
            if core:
                forms.setdefault(core.lower(), []).append((core, i))
        self._vocabulary, self._forms = list(forms), list(forms.values())
        self._number_of = {lower: number for number, lower in enumerate(forms)}
        likely = likely_forms([word for word in self._vocabulary if word.isalpha()])
        self._likely, shares = list(likely), np.asarray(list(likely.values()))
        self._share = dict(zip(self._likely, (shares / max(shares.sum(), 1.0)).tolist(), strict=True))
        self._lexicon = Lexicon([*self._vocabulary, *self._likely])
        # the n-th word has a share of about 1/n; likely words are rarer than the rarest
        ranks = [some[0][1] for some in self._forms]
        self._ranks_N = np.log([*ranks, *(max(ranks, default=1) / shares)])

    # -- lines --------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Train the model of spellings now rather than at the first unknown word, so that every line is as fast."""
        list(self.correct(["a" + "".join(sorted("unlikely"))]))

    def correct(self, lines: Iterable[str], *, at_once: int = _LINES_AT_ONCE) -> Iterator[Correction]:
        """Yield the correction of each line, in order; `at_once` lines are searched together."""
        every = iter(lines)
        while some := list(islice(every, at_once)):
            yield from self._corrected(some)

    def _corrected(self, lines: Sequence[str]) -> Iterator[Correction]:
        words = [self.words_of(line) for line in lines]
        found = iter(self.choices_of(list(chain(*words))))
        choices = [list(islice(found, len(some))) for some in words]
        sure = SURE if self.keep else 0.0  # of a word that is known to be wrong, or alone, any correction is taken
        for line, typed, given, (taken, probabilities) in zip(
            lines, words, choices, self._search(choices), strict=True
        ):
            edits = tuple(
                Edit(word.core_start, word.core_end, word.core, of.words[choice], probability)
                for word, of, choice, probability in zip(typed, given, taken, probabilities, strict=True)
                if of.words[choice] != word.core and choice and probability > (0.0 if word.is_alone else sure)
            )
            corrected = replaced(line, ((edit.start, edit.end, edit.corrected) for edit in edits))
            yield Correction(line, corrected, edits)

    def _search(self, lines: Sequence[Sequence[_Choices]]) -> list[tuple[list[int], list[float]]]:
        """Return the choice for each word of each line, and its probability, by beam search."""
        # the readings of each line: a score, and its choices as a chain (choice, chain before it)
        readings: list[list[tuple[float, Any]]] = [[(0.0, ())] for _ in lines]
        active = [number for number, words in enumerate(lines) if words]
        state, position = self.lm.start(len(active)) if active else None, 0
        while state is not None:
            of_rows = [(number, *reading) for number in active for reading in readings[number]]
            options = [lines[number][position] for number, *_ in of_rows]
            sizes = [len(some.words) for some in options]
            rows_R, choices_R = np.repeat(np.arange(len(of_rows)), sizes), np.concatenate([*map(np.arange, sizes)])
            ids_R = np.concatenate([some.ids for some in options])
            weights_R = np.concatenate([some.weights for some in options])
            log_probs_R = np.maximum(score_choices(self.lm, state, rows_R, ids_R), _IMPOSSIBLE)
            totals_R = np.asarray([total for _, total, _ in of_rows])[rows_R]
            totals_R += np.concatenate([some.scores for some in options]) + weights_R * log_probs_R
            # the best of each line, line after line
            lines_R = np.asarray([number for number, *_ in of_rows])[rows_R]
            rank_R = np.arange(len(lines_R)) - np.searchsorted(lines_R, lines_R)
            best = np.lexsort([-totals_R, lines_R])[rank_R < self.beams]
            for number in active:
                readings[number] = []
            for place in best.tolist():
                number, _, before = of_rows[rows_R[place]]
                readings[number].append((float(totals_R[place]), (int(choices_R[place]), before)))
            position += 1
            active = [number for number in active if position < len(lines[number])]
            going_on = best[np.isin(lines_R[best], active)]
            state = self.lm.extend(state.select(rows_R[going_on]), ids_R[going_on][:, None]) if active else None
        return [_taken(some) for some in readings]

    # -- words --------------------------------------------------------------------------------------------

    def words_of(self, line: str) -> list[TypedWord]:
        """Return the words of a line, split as by the model's tokenizer."""
        assert self.lm.tokenizer.splitting is not None
        return words_of(line, self.lm.tokenizer.splitting)

    def lacks(self, text: str) -> int:
        """Count the words of a text that the vocabulary lacks, whatever their case."""
        return sum(bool(word.core) and word.core.lower() not in self._number_of for word in self.words_of(text))

    def choices_of(self, words: Sequence[TypedWord]) -> list[_Choices]:
        """Return the choices for each typed word; those of new words are found together, which is faster."""
        if len(self._choices) >= _REMEMBERED:
            self._choices.clear()
        keys = [(word.text, word.is_alone) for word in words]
        new = {key: word for key, word in zip(keys, words, strict=True) if key not in self._choices}
        self._spell(new.values())
        self._choices |= {key: self._find_choices(word) for key, word in new.items()}
        return [self._choices[key] for key in keys]

    def _find_choices(self, word: TypedWord) -> _Choices:
        unknown = self.lm.tokenizer.unk
        if not word.core:
            itself = np.asarray([self._ids.get(word.text, unknown)])
            return _Choices((word.core,), itself, np.zeros(1), np.full(1, self.lm_weight))
        lower = word.core.lower()
        known = self._number_of.get(lower)
        near = self._lexicon.near(lower, MOST_EDITS if known is None else 1)
        near = near[near.distances > 0]
        costs = self._lexicon.costs(lower, near, self.channel)
        keep, lm_weight = (self.keep_alone, self.lm_weight_alone) if word.is_alone else (self.keep, self.lm_weight)
        # if keep is 0, all words are known to be wrong
        wrong = (1 - keep) * (_KNOWN_ERRORS if known is not None and keep else 1)
        words, ids, scores, by_model = [word.core], [unknown], [_log(1 - wrong)], [known is not None]
        if known is None:
            scores[0] += lm_weight * self._log_new(lower, self._spelled[word.core])
        else:
            ids[0] = self._form(word, known)[1]
        # the candidates to try, by costs and frequency
        order = np.argsort(costs + self._ranks_N[near.numbers], kind="stable")
        for place in order[: self.choices].tolist():
            number, score = int(near.numbers[place]), _log(wrong) - float(costs[place])
            is_likely = number >= len(self._vocabulary)
            if is_likely:
                likely = self._likely[number - len(self._vocabulary)]
                form, i, other_case = in_case_of(likely, word.core), unknown, 0.0
                score += lm_weight * self._log_new(likely)
            else:
                form, i, other_case = self._form(word, number)
            words.append(form)
            ids.append(i)
            scores.append(score - other_case)
            by_model.append(not is_likely)
        return _Choices(tuple(words), np.asarray(ids), np.asarray(scores), lm_weight * np.asarray(by_model))

    def _log_new(self, word: str, spelling: float = -math.inf) -> float:
        """Return ln p of a word that the vocabulary lacks: half of such words are likely forms."""
        return _log(self.new * (self._share.get(word, 0.0) + math.exp(spelling)) / 2)

    def _form(self, word: TypedWord, number: int) -> tuple[str, int, float]:
        """Return a word of the vocabulary in the case of the typed one, its id, and the cost of an unknown case."""
        forms = self._forms[number]
        form, first = forms[0]
        cased = in_case_of(form, word.core)
        before, after = word.around
        for written in (before + cased + after, cased):
            if (i := self._ids.get(written)) is not None:
                return cased, i, 0.0
        for core, i in forms:
            if core == cased:
                return cased, i, 0.0
        return cased, first, _OTHER_CASE if word.core.islower() else 0.0

    @cached_property
    def _spelling(self) -> LanguageModel | None:
        """An n-gram model of the letters of the vocabulary's words; None if there are too few words."""
        words = [form for forms in self._forms for form, _ in forms]
        if len(words) < _FEWEST_SPELLINGS:
            return None
        return train("ngram", Corpus.from_text("\n".join(words)), tokenizer="char", order=_SPELLING_ORDER)

    def _spell(self, words: Iterable[TypedWord]) -> None:
        """Find ln p of the spellings of unknown words together; without a model all letters are equally likely."""
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

    def nearest(self, words: Iterable[str]) -> dict[str, str]:
        """Return the correction of each word by a baseline without channel and context.

        A known word stays; an unknown one becomes the most frequent of the nearest words of the vocabulary.
        """
        nearest = {word: word for word in words}
        for word in nearest:
            if word and word.lower() not in self._number_of:
                near = self._lexicon.near(word.lower())
                near = near[near.numbers < len(self._vocabulary)]
                if len(near.numbers):
                    order = np.lexsort([self._ranks_N[near.numbers], near.distances])
                    nearest[word] = in_case_of(self._forms[int(near.numbers[order[0]])][0][0], word)
        return nearest


def _taken(readings: Sequence[tuple[float, Any]]) -> tuple[list[int], list[float]]:
    """Return the choices of the best reading, and the probability of each among all readings that were kept."""
    paths = []
    for _, before in readings:
        path: list[int] = []
        while before:
            choice, before = before
            path.append(choice)
        paths.append(path[::-1])
    best = readings[0][0]
    weights = np.asarray([math.exp(total - best) for total, _ in readings])
    weights /= weights.sum()
    agree = np.asarray(paths) == np.asarray(paths[0])
    return paths[0], (weights @ agree).tolist() if paths[0] else []


def _log(p: float) -> float:
    return math.log(p) if p > 0 else -1e9
