"""`Table`: a language model that is a table of probabilities, such as a lecture shows.

A row of the table has a context, which is the words before, and the probability of each next word. What a row
leaves of 1 is the probability of <unk>: all words together that the row does not list. A text is predicted by the
row of the longest context in which it ends so far. The context "" has the row for all that have none of their own.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, Literal, NoReturn

import numpy as np

from chainrule.arrays import PAD, Array, check_ids, to_numpy
from chainrule.contract.capabilities import Capabilities, ContextRow, Costs
from chainrule.contract.kinds import Kind
from chainrule.contract.lm import LanguageModel, State, check_rows, expect_state
from chainrule.errors import DamagedFileError, ForeignFileError, ModelError, SettingsError, TokenizerError
from chainrule.folder import ModelFolder
from chainrule.ngram.ngram_model import last_words
from chainrule.ngram.tables import ids_of
from chainrule.settings import parse, setting
from chainrule.tokens.words.tokenizer import WordTokenizer

KIND_NAME = "table"
_ROUNDING = 1e-9
_SPECIAL = ("<s>", "</s>", "<unk>")

Rows = Mapping[str, Mapping[str, float | str]]
"""The probabilities of the next words by their context; a probability may be written as a fraction, "4/11"."""


@dataclass(frozen=True)
class TableSettings:
    """A table of probabilities."""

    GROUP: ClassVar[str] = "design"

    unseen: Literal["error", "uniform"] = setting(
        "error", "after a context that has no row: an error, or every token is as likely as any other"
    )


@dataclass(frozen=True)
class TableState(State):
    """The last N words, where N is the length of the longest context; PAD before the start."""

    words_BN: np.ndarray

    def __len__(self) -> int:
        return len(self.words_BN)

    def select(self, rows: Array) -> TableState:
        return TableState(self.words_BN[to_numpy(rows)])

    def join(self, other: TableState) -> TableState:
        return TableState(np.concatenate([self.words_BN, other.words_BN]))

    def keys(self) -> list[Hashable] | None:
        return [tuple(row) for row in self.words_BN.tolist()]


class Table(LanguageModel):
    """A language model from a table of probabilities: a row for each context, with p of each next word.

    >>> lm = Table({"for all the": {"fish": 0.7, "memories": 0.1}}, unseen="uniform")
    >>> state = lm.extend(lm.start(1), lm.tokenizer.encode("thanks for all the")[None])
    >>> {lm.tokenizer.token(i): float(p.round(3)) for i, p in enumerate(np.exp(lm.next_log_probs(state)[0])) if p}
    {'<unk>': 0.2, 'fish': 0.7, 'memories': 0.1}
    """

    kind, context = KIND_NAME, "line"

    def __init__(self, rows: Rows, *, unseen: Literal["error", "uniform"] = "error") -> None:
        settings = parse(TableSettings, {"unseen": unseen})
        if not rows or not all(isinstance(row, Mapping) and row for row in rows.values()):
            raise SettingsError('expected a row for each context, {"i love": {"cats": 0.5, "dogs": 0.5}, ...}')
        given = [word for context, row in rows.items() for word in (*context.split(), *row)]
        words = [word.encode() for word in dict.fromkeys(given) if word not in _SPECIAL]
        tokenizer = WordTokenizer(words)
        contexts = [tuple(_context(tokenizer, context)) for context in rows]
        if len(set(contexts)) < len(contexts):
            raise SettingsError("two rows of the table have the same context")
        longest = max(map(len, contexts))
        contexts_RN = np.full((len(contexts), longest), PAD, dtype=np.int64)
        for ids, place in zip(contexts, contexts_RN, strict=True):
            place[longest - len(ids) :] = ids
        p_RV = np.stack([_probabilities(tokenizer, context, row) for context, row in rows.items()])
        self._set(contexts_RN, p_RV, tokenizer, settings)
        self.metrics = {
            "contexts": len(rows),
            "left for <unk>": {
                context: round(float(p), 9)
                for context, p in zip(rows, p_RV[:, tokenizer.unk], strict=True)
                if p > 0
            },
        }

    def _set(
        self, contexts_RN: np.ndarray, p_RV: np.ndarray, tokenizer: WordTokenizer, settings: TableSettings
    ) -> None:
        self.contexts_RN, self.p_RV, self.tokenizer, self.settings = contexts_RN, p_RV, tokenizer, settings
        self._row_of = {tuple(row[row != PAD].tolist()): number for number, row in enumerate(contexts_RN)}
        with np.errstate(divide="ignore"):
            self._log_prob_RV = np.log(p_RV)
        self._uniform_V = np.full(tokenizer.vocab_size, -np.log(tokenizer.vocab_size - 1))
        self._uniform_V[tokenizer.bos] = -np.inf

    @classmethod
    def from_folder(cls, folder: ModelFolder) -> Table:
        """Return the table of a model folder, once its arrays are found sound."""
        tokenizer = folder.parsed_tokenizer()
        contexts_RN, p_RV = folder.tensor("contexts"), folder.tensor("probabilities")
        size = tokenizer.vocab_size
        is_sound = (
            contexts_RN.ndim == 2
            and contexts_RN.dtype == np.int64
            and p_RV.shape == (len(contexts_RN), size)
            and bool(((contexts_RN >= PAD) & (contexts_RN < size)).all())
            and bool((p_RV >= 0).all())
            and np.allclose(p_RV.sum(axis=1), 1)
        )
        if not is_sound or not isinstance(tokenizer, WordTokenizer):
            raise DamagedFileError(f"{folder.path}: the arrays are not a table of probabilities of {size} tokens")
        lm = cls.__new__(cls)
        lm._set(np.array(contexts_RN), np.array(p_RV), tokenizer, parse(TableSettings, folder.config))
        return lm

    # -- the contract -------------------------------------------------------------------------------------

    def start(self, batch_size: int) -> TableState:
        words_BN = np.full((batch_size, self.contexts_RN.shape[1]), PAD, dtype=np.int64)
        words_BN[:, -1:] = self.tokenizer.bos
        return TableState(words_BN)

    def extend(self, state: State, ids_BT: Array) -> TableState:
        state = expect_state(state, TableState)
        check_rows(state, ids_BT)
        return TableState(last_words(state.words_BN, self._ids(ids_BT)))

    def next_log_probs(self, state: State) -> np.ndarray:
        return np.stack([self._after(words) for words in expect_state(state, TableState).words_BN.tolist()])

    def score(self, ids_BT: Array, state: State | None = None) -> np.ndarray:
        ids_BT = self._ids(ids_BT)
        if state is not None:
            check_rows(state, ids_BT)
        history_BN = expect_state(state or self.start(len(ids_BT)), TableState).words_BN
        text_BT = np.concatenate([history_BN, ids_BT], axis=1)
        scores_BT, longest = np.zeros(ids_BT.shape), history_BN.shape[1]
        for b, t in np.argwhere(ids_BT != PAD).tolist():
            scores_BT[b, t] = self._after(text_BT[b, t : t + longest].tolist())[ids_BT[b, t]]
        return scores_BT

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(frozenset({"context_rows"}), Costs(bulk=1e-5, token=1e-5, distribution=1e-5))

    def context_rows(self) -> Iterator[ContextRow]:
        """Yield the table, without what is impossible."""
        spelled = self.tokenizer.token
        for context, p_V in zip(self.contexts_RN, self.p_RV, strict=True):
            before = tuple(spelled(word) for word in context.tolist() if word != PAD)
            for word in sorted(np.flatnonzero(p_V).tolist(), key=lambda word: -p_V[word]):
                yield ContextRow(before, spelled(word), None, None, float(p_V[word]))

    def _after(self, words: Sequence[int]) -> np.ndarray:
        """Return ln p of every token after the words: the row of the longest context in which they end."""
        for first in range(len(words) + 1):
            if (row := self._row_of.get(tuple(words[first:]))) is not None:
                return np.asarray(self._log_prob_RV[row])
        # in a batch, a text that has ended is asked on until the longest one ends
        if self.settings.unseen == "error" and words[-1] != self.tokenizer.eos:
            shown = " ".join(self.tokenizer.token(word) for word in words if word != PAD)
            raise ModelError(
                f"the table has no row for the context {shown!r}: add one, or a row for the context '' (all "
                'others), or choose unseen="uniform"'
            )
        return self._uniform_V

    def _ids(self, ids_BT: Array) -> np.ndarray:
        ids = to_numpy(ids_BT).astype(np.int64)
        check_ids(ids, self.tokenizer.vocab_size)
        return ids

    # -- as any model -------------------------------------------------------------------------------------

    def tensors(self) -> dict[str, np.ndarray]:
        return {"contexts": self.contexts_RN, "probabilities": self.p_RV}

    def on(self, device: str, dtype: str = "float32") -> Table:
        if device != "cpu":
            raise SettingsError(f"a table is looked up on the CPU: leave out the device {device}")
        return self


def read_table(path: Path) -> Table:
    """Read a table from a JSON file: an object of rows by their contexts, and perhaps the setting "unseen"."""
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ForeignFileError(f"{path}: not JSON ({error})") from None
    try:
        if not isinstance(given, dict):
            raise SettingsError('expected an object of rows, {"i love": {"cats": 0.5, "dogs": 0.5}, ...}')
        # a row is an object, so that a context may have the name of a setting
        settings = {name: value for name, value in given.items() if not isinstance(value, dict)}
        chosen = parse(TableSettings, settings)
        return Table({name: row for name, row in given.items() if name not in settings}, unseen=chosen.unseen)
    except (SettingsError, TokenizerError) as error:
        raise ForeignFileError(f"{path}: {error}") from None


def _context(tokenizer: WordTokenizer, context: str) -> list[int]:
    """Return the ids of a context; several <s> at its start are one, as the state after it is the same."""
    ids = ids_of(tokenizer, context.split())
    starts = [i for i, word in enumerate(ids) if word == tokenizer.bos]
    if starts != list(range(len(starts))):
        raise SettingsError(f"the context {context!r} has <s> inside; a text has it only at its start")
    return ids[max(len(starts) - 1, 0) :]


def _probabilities(tokenizer: WordTokenizer, context: str, row: Mapping[str, float | str]) -> np.ndarray:
    """Return p of every token in a row; <unk> gets what the listed words leave of 1."""
    p_V = np.zeros(tokenizer.vocab_size)
    for word, given in row.items():
        try:
            p = float(Fraction(given))
        except (TypeError, ValueError, ZeroDivisionError, OverflowError):
            p = -1.0
        if not 0 <= p <= 1:
            raise SettingsError(f"p({word} | {context}) should be a number from 0 to 1, not {given!r}")
        if word == "<s>":
            raise SettingsError(f"p(<s> | {context}): <s> is never predicted; </s> is the end of a text")
        p_V[ids_of(tokenizer, [word])[0]] = p
    left = round(1 - float(p_V.sum()), 12)  # 0.01, and not 0.010000000000000009
    if left < -_ROUNDING:
        raise SettingsError(f"the probabilities after {context!r} sum to {p_V.sum():.6g}, which is more than 1")
    p_V[tokenizer.unk] += left if left > _ROUNDING else 0.0
    return np.asarray(p_V / p_V.sum())


def _refuse(*_: Any) -> NoReturn:
    raise SettingsError(
        "a table is written and not trained: name a JSON file of rows where a verb takes a model, such as "
        '{"i love": {"cats": 0.5, "dogs": 0.5}} (in Python, chainrule.Table)'
    )


KIND = Kind(
    name=KIND_NAME,
    summary="a table of probabilities that you write (a .json file is a model)",
    settings=TableSettings,
    train=_refuse,
    load=Table.from_folder,
    check=_refuse,
)
