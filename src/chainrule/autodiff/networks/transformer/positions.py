"""Positional encodings: attention alone sees a set of tokens, not a sequence.

Learned and sinusoidal positions are vectors added to the embedding, rotary ones rotate queries and keys, ALiBi
lowers the scores of distant keys. All tables are rounded to float32, as those of the torch network, so that both
compute the same function.

Axes: T positions, D features, K features of a head, I pairs of features, H heads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from chainrule.autodiff import Array
from chainrule.networks.transformer.config import TransformerConfig


def sinusoidal_table(steps: int, width: int) -> Array:
    """The sinusoidal positions, [T, D]: features 2i and 2i+1 are sine and cosine of one wavelength."""
    angles_TI = np.arange(steps)[:, None] / 10000 ** (np.arange(0, width, 2) / width)
    table_TD = np.empty((steps, width), np.float32)
    # PE(t, 2i) = sin(t / 10000^(2i/D)),  PE(t, 2i+1) = cos(t / 10000^(2i/D))
    table_TD[:, 0::2] = np.sin(angles_TI)
    table_TD[:, 1::2] = np.cos(angles_TI[:, : width // 2])
    return table_TD


def rotary_tables(steps: int, head_size: int, base: float) -> tuple[Array, Array]:
    """cos and sin of the angles tθ_i by which `Rotate` rotates the pair i at position t, each [T, I]."""
    # θ_i = base^(-2i/K)
    angles_TI = np.arange(steps)[:, None] * base ** (-np.arange(0, head_size, 2) / head_size)
    return np.cos(angles_TI).astype(np.float32), np.sin(angles_TI).astype(np.float32)


def alibi_slopes(heads: int) -> Array:
    """The slopes m_h = 2^(-8h/n) for h = 1..n, [H].

    If n is no power of two, the slopes are those of the power below, then every other one of the power above.
    """
    power = 2 ** int(math.log2(heads))
    slopes = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    between = [2 ** (-8 * h / (2 * power)) for h in range(1, 2 * power + 1, 2)]
    return np.array(slopes + between[: heads - power], np.float32)


def alibi_bias(heads: int, steps: int) -> Array:
    """The bias of the scores, [H, T, T]: head h subtracts m_h d from the score of a key at distance d."""
    distance_TT = np.arange(steps)[:, None] - np.arange(steps)
    bias_HTT: Array = -alibi_slopes(heads).astype(np.float64)[:, None, None] * distance_TT
    return bias_HTT


@dataclass(frozen=True)
class Places:
    """What the attention of every layer has to know of the positions 0 to T-1."""

    rotation: tuple[Array, Array] | None = None
    """cos and sin for `Rotate`, where positions are rotary."""
    bias_HTT: Array | None = None
    """The bias of the scores, with ALiBi."""


def find_places(config: TransformerConfig, steps: int) -> Places:
    """The positions of a text of so many tokens."""
    if config.positions == "rotary":
        return Places(rotation=rotary_tables(steps, config.head_size, config.rotary_base))
    if config.positions == "alibi":
        return Places(bias_HTT=alibi_bias(config.heads, steps))
    return Places()
