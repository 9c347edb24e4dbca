"""Loading a model of n-grams of any length from its folder."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from chainrule.errors import DamagedFileError
from chainrule.folder import ModelFolder
from chainrule.ngram.infinite.any_length_model import ARRAYS, LENGTHS, AnyLengthModel, AnyLengthSettings, Smoothing
from chainrule.ngram.infinite.suffixes import Suffixes, index_dtype
from chainrule.settings import parse
from chainrule.tokens.base import Tokenizer
from chainrule.tokens.registry import parse_tokenizer


def load_anygram(folder: ModelFolder) -> AnyLengthModel:
    """Load the model of a folder; its arrays are checked, because a file can hold anything."""
    tokenizer = parse_tokenizer(folder.tokenizer, str(folder.path))
    arrays = [folder.tensor(name) for name in ARRAYS]
    smoothing = Smoothing(folder.tensor("discount"), folder.tensor("strength"))
    if not (_fit(arrays, tokenizer) and _is_sound(Suffixes(tokenizer.vocab_size, *arrays)) and _smooths(smoothing)):
        raise DamagedFileError(f"{folder.path}: the arrays are not those of a model of n-grams of any length")
    # folders of versions in which this was a smoothing hold settings of other n-gram models too
    settings = parse(
        AnyLengthSettings,
        {key: folder.config[key] for key in ("extra_words", "vocabulary") if key in folder.config},
    )
    suffixes = Suffixes(tokenizer.vocab_size, *arrays)
    return AnyLengthModel(suffixes, smoothing, tokenizer, folder.context or "line", settings=settings)


def _fit(arrays: list[NDArray[Any]], tokenizer: Tokenizer) -> bool:
    """Return True if the arrays have the right types and sizes, and the followers are tokens but <s>."""
    follower, places, shared, fresh = arrays
    return bool(
        all(array.ndim == 1 and 0 < array.size == follower.size for array in arrays)
        and follower.dtype == tokenizer.id_dtype
        and places.dtype == index_dtype(len(places))
        and shared.dtype == fresh.dtype == np.uint8
        and follower.max() < tokenizer.vocab_size
        and (follower != tokenizer.bos).all()
    )


def _is_sound(suffixes: Suffixes) -> bool:
    """Return True if `places` are the ranks by follower, block by block, and `fresh` is `shared` by rank.

    Then every range that a walk can reach lies within the arrays.
    """
    places, blocks = suffixes.places, np.diff(suffixes.starts)
    begins = suffixes.starts[:-1][blocks > 0]
    is_begin = np.zeros(len(places), dtype=bool)
    is_begin[begins] = True
    return bool(
        places.min() >= 0
        and places.max() < len(places)
        and (is_begin[1:] | (places[1:] > places[:-1])).all()
        and (suffixes.follower[places] == np.repeat(np.arange(len(blocks)), blocks)).all()
        and (suffixes.fresh[places] == suffixes.shared).all()
        and ((suffixes.shared == 0) == is_begin).all()
    )


def _smooths(smoothing: Smoothing) -> bool:
    """Return True if d and θ have the right types and shapes, and values that give probabilities."""
    d, theta = smoothing.discount, smoothing.strength
    return bool(
        d.dtype == theta.dtype == np.float64
        and d.shape == theta.shape == (len(LENGTHS) + 1,)
        and ((d >= 0) & (d < 1)).all()
        and ((theta > 0) & (theta < np.inf)).all()
    )
