"""Positional encodings: attention alone sees a set of tokens, not a sequence.

Learned and sinusoidal positions are vectors added to the embedding, rotary ones rotate queries and keys, ALiBi
lowers the scores of distant keys. Tables have a row for each position t of the window.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import torch
from torch import Tensor, nn

from chainrule.networks.initial_weights import is_without_numbers
from chainrule.networks.transformer.config import TransformerConfig

Rotation: TypeAlias = tuple[Tensor, Tensor] | None
"""cos and sin for `rotate`; None if positions are not rotary."""


def sinusoidal_table(window: int, width: int) -> Tensor:
    """Return the sinusoidal positions, [T, D]: features 2i and 2i+1 are sine and cosine of one wavelength."""
    if is_without_numbers():
        return torch.empty(window, width)
    t_T1 = torch.arange(window, dtype=torch.float64)[:, None]
    even_I = torch.arange(0, width, 2, dtype=torch.float64)
    angles_TI = t_T1 / 10000 ** (even_I / width)
    table_TD = torch.empty(window, width)
    # PE(t, 2i) = sin(t / 10000^(2i/D)),  PE(t, 2i+1) = cos(t / 10000^(2i/D))
    table_TD[:, 0::2] = angles_TI.sin()
    table_TD[:, 1::2] = angles_TI[:, : width // 2].cos()
    return table_TD


def rotary_tables(window: int, head_size: int, base: float) -> tuple[Tensor, Tensor]:
    """Return cos and sin of the angles of `rotate`, each [T, K]; sin has the sign of the first half reversed."""
    if is_without_numbers():
        return torch.empty(window, head_size), torch.empty(window, head_size)
    even_I = torch.arange(0, head_size, 2, dtype=torch.float64)
    # θ_i = base^(-2i/K)
    angles_TI = torch.arange(window, dtype=torch.float64)[:, None] * base ** (-even_I / head_size)
    cos_TI, sin_TI = angles_TI.cos().float(), angles_TI.sin().float()
    return torch.cat([cos_TI, cos_TI], dim=1), torch.cat([-sin_TI, sin_TI], dim=1)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate each pair (x_i, x_{i+K/2}) by the angle tθ_i, so that q·k depends on the distance of their positions.

    x'_i       = x_i cos tθ_i       - x_{i+K/2} sin tθ_i
    x'_{i+K/2} = x_{i+K/2} cos tθ_i + x_i sin tθ_i
    """
    # cast to the precision of x, or the result would have that of the tables
    cos, sin = cos.to(x.dtype), sin.to(x.dtype)
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, dims=-1), sin)


def alibi_slopes(heads: int) -> Tensor:
    """Return the slopes m_h = 2^(-8h/n) for h = 1..n, [H].

    Head h subtracts m_h d from the score of a key at distance d. If n is no power of two, the slopes are those of
    the power below, then every other one of the power above.
    """
    power = 2 ** int(math.log2(heads))
    slopes = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    between = [2 ** (-8 * h / (2 * power)) for h in range(1, 2 * power + 1, 2)]
    return torch.tensor(slopes + between[: heads - power])


def alibi_bias(slopes_H: Tensor, distance: Tensor) -> Tensor:
    """Return the bias added to the scores, [..., H, T, S].

    distance[..., t, s] is the number of places from key s to query t. Keys after the query are masked by -∞.
    """
    bias = -slopes_H[:, None, None] * distance.unsqueeze(-3)
    return bias.masked_fill((distance < 0).unsqueeze(-3), -math.inf)


class Positions(nn.Module):
    """The positional encoding of a design: its tables. `places` are positions, a slice or an array of them."""

    added_TD: Tensor | None
    cos_TK: Tensor | None
    sin_TK: Tensor | None
    slopes_H: Tensor | None

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.added_TD = None
        cos_TK = sin_TK = slopes_H = None
        if config.positions == "learned":
            self.added_TD = nn.Parameter(torch.empty(config.window, config.width))
            nn.init.normal_(self.added_TD, std=config.initial_std)
        elif config.positions == "sinusoidal":
            del self.added_TD
            self.register_buffer("added_TD", sinusoidal_table(config.window, config.width), persistent=False)
        elif config.positions == "rotary":
            cos_TK, sin_TK = rotary_tables(config.window, config.head_size, config.rotary_base)
        elif config.positions == "alibi":
            slopes_H = alibi_slopes(config.heads)
        self.register_buffer("cos_TK", cos_TK, persistent=False)
        self.register_buffer("sin_TK", sin_TK, persistent=False)
        self.register_buffer("slopes_H", slopes_H, persistent=False)

    def rotation(self, places: slice | Tensor) -> Rotation:
        """Return cos and sin for `rotate` of queries and keys [..., T, H, K]; None if positions are not rotary."""
        if self.cos_TK is None or self.sin_TK is None:
            return None
        return self.cos_TK[places].unsqueeze(-2), self.sin_TK[places].unsqueeze(-2)

    def mask_of_tokens(self, is_token_BS: Tensor) -> Tensor:
        """Return the mask of an encoder, whose queries see every key that is a token, before and after them.

        Booleans, [B, 1, 1, S]; with ALiBi, the bias that is added to the scores, [B, H, S, S].
        """
        is_seen_B11S = is_token_BS[:, None, None]
        if self.slopes_H is None:
            return is_seen_B11S
        places_S = torch.arange(is_token_BS.shape[1], device=is_token_BS.device)
        bias_HSS = alibi_bias(self.slopes_H, (places_S[:, None] - places_S).abs())
        return bias_HSS.masked_fill(~is_seen_B11S, -math.inf)

    def mask(self, places_T: Tensor, span: int) -> Tensor:
        """Return the causal mask of queries at these positions over the first `span` keys.

        Booleans, [..., 1, T, S]; with ALiBi, the bias that is added to the scores, [..., H, T, S].
        """
        distance_TS = places_T[..., None] - torch.arange(span, device=places_T.device)
        if self.slopes_H is None:
            return (distance_TS >= 0).unsqueeze(-3)
        return alibi_bias(self.slopes_H, distance_TS)
