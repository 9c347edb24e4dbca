"""N-best lists: hypotheses for one utterance, each with scores, and the reference if it is known."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from chainrule.errors import CorpusError, SettingsError
from chainrule.tasks.objects import field, read_objects, text_field


@dataclass(frozen=True)
class NbestList:
    """The hypotheses for one utterance, the recogniser's best first."""

    hypotheses: tuple[str, ...]
    scores: Mapping[str, tuple[float, ...]]
    """The scores of the recogniser by name, one for every hypothesis each; without any, the order counts."""
    reference: str | None = None
    id: int | str = ""


USUAL_SCORE = "am_score"
RANK = "rank"
"""The score of hypotheses that have none: minus their place in the list, 0 for the first."""

GivenLists: TypeAlias = str | Path | Iterable[NbestList]
"""N-best lists as callers give them: a file, or lists in memory."""


def read_lists(
    path: str | Path,
    *,
    hypotheses: str = "input",
    reference: str = "output",
    scores: Sequence[str] | None = None,
    id_field: str = "id",
    needs_references: bool = True,
) -> Iterator[NbestList]:
    """Yield the lists of a file of JSON objects; an error names the file, the line and the field.

    `scores` are the names of fields; by default it is "am_score", which then all lists have, or none.
    """
    number, chosen = None, scores is not None
    for number, (place, record) in enumerate(read_objects(path)):
        if scores is None:
            scores = (USUAL_SCORE,) if record.get(USUAL_SCORE) is not None else ()
        if not (scores or chosen) and record.get(USUAL_SCORE) is not None:
            raise CorpusError(
                f'{place}: there is a field "{USUAL_SCORE}", which the first list does not have: '
                "all lists should have it, or none"
            )
        texts = _list_of(record, hypotheses, place, str, "texts", "--hypotheses")
        if not texts:
            raise CorpusError(f'{place}: the field "{hypotheses}" is an empty list: there should be a hypothesis')
        given = {name: _list_of(record, name, place, (int, float), "numbers", "--score") for name in scores}
        for name, numbers in given.items():
            if len(numbers) != len(texts):
                raise CorpusError(
                    f'{place}: the field "{name}" has {len(numbers)} numbers, and "{hypotheses}" {len(texts)} texts'
                )
            if not all(map(math.isfinite, numbers)):
                raise CorpusError(f'{place}: the field "{name}" has a number that is not finite')
        known = needs_references or reference in record
        yield NbestList(
            tuple(texts),
            {name: tuple(map(float, numbers)) for name, numbers in given.items()},
            text_field(record, reference, place, "--reference") if known else None,
            record.get(id_field, number),
        )
    if number is None:
        raise CorpusError(f"{path}: there are no n-best lists")


def with_ranks(one: NbestList) -> NbestList:
    """Return the list with a score for each hypothesis, at least its rank."""
    return one if one.scores else replace(one, scores={RANK: tuple(-float(i) for i in range(len(one.hypotheses)))})


def _list_of(record: dict[str, Any], name: str, place: str, kind: Any, what: str, option: str) -> list[Any]:
    values = field(record, name, place, option)
    if not isinstance(values, list):
        raise CorpusError(
            f'{place}: the field "{name}" should hold a list of {what}, not {json.dumps(values)[:40]}'
        )
    for value in values:
        if not isinstance(value, kind) or isinstance(value, bool):
            raise CorpusError(f'{place}: the field "{name}" should hold {what}, not {json.dumps(value)[:40]}')
    return values


def tuning_and_test(count: int, share: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Draw the numbers of the lists to tune weights on, and return them and the others, both ascending."""
    if not 0 < share < 1 or not 0 < round(count * share) < count:
        raise SettingsError(f"a share of {share} of {count} lists to tune on leaves one part empty: choose another")
    order = np.random.default_rng(seed % 2**64).permutation(count)
    size = round(count * share)
    return np.sort(order[:size]), np.sort(order[size:])
