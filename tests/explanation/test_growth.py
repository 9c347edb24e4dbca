"""Operations by length: counted on the tape, they are those of the formulas."""

from __future__ import annotations

import numpy as np
import pytest

from chainrule.autodiff import Linear, MatMul, ScaledDotProductAttention, Tanh, Tape
from chainrule.contract.kinds import find_kind
from chainrule.errors import SettingsError
from chainrule.explanation.growth import OfLength, exponent, growth
from chainrule.settings import closed, parse

V = 8  # no padding rows


def grown(name: str, lengths: list[int], **settings: object) -> list[OfLength]:
    kind = find_kind(name)
    return growth(kind, closed(parse(kind.settings, {"layers": 1, **settings})), V, lengths, repeats=1)


def test_the_operations_of_an_elman_network() -> None:
    (found,) = grown("elman", [5], embedding=3, hidden=4, tied=False)
    # W x, U h and the logits: a product and a sum for each weight, once forward and twice backward
    assert found.flops == 6 * 5 * (4 * 3 + 4 * 4 + V * 4)
    # W x, then U h at each time but the first, which does not wait for W x, then the logits
    assert found.in_a_row == 1 + 4 + 1


def test_the_operations_of_a_transformer() -> None:
    (found,) = grown("transformer", [6], width=4, heads=2, hidden=8)
    weights = 4 * 4 * 4 + 2 * 4 * 8 + V * 4  # attention, the feed-forward part, and the logits
    attention = 2 * 6 * 4  # for each token: the scores of six tokens, and the mean of their values
    assert found.flops == 6 * 6 * (weights + attention)


@pytest.mark.parametrize("name", ["feedforward", "bagofwords", "qrnn", "transformer"])
def test_these_have_as_many_products_in_a_row_for_any_length(name: str) -> None:
    sizes = {"width": 4, "heads": 2} if name == "transformer" else {"embedding": 4, "hidden": 4}
    short, long = grown(name, [4, 16], **sizes)
    assert short.in_a_row == long.in_a_row < 8


def test_exponents() -> None:
    assert exponent(grown("lstm", [4, 16], embedding=4, hidden=4), "flops") == pytest.approx(1)
    # far past the width, the scores of pairs of tokens are nearly all of it
    assert 1.9 < exponent(grown("transformer", [256, 512], width=2, heads=1, hidden=2), "flops") < 2


def test_a_kind_without_a_network_is_refused() -> None:
    with pytest.raises(SettingsError, match="networks that the tape computes, not ngram"):
        growth(kind := find_kind("ngram"), closed(parse(kind.settings, {})), V, [4, 8])


def test_flops_of_modules() -> None:
    x = np.ones((2, 3, 4))
    with Tape():
        assert Linear().apply_fwd(x, np.ones((5, 4))).flops == 2 * 2 * 3 * 4 * 5
        assert MatMul().apply_fwd(x, np.ones((2, 4, 6))).flops == 2 * 2 * 3 * 4 * 6
        # q kᵀ and P v
        assert ScaledDotProductAttention().apply_fwd(x, x, np.ones((2, 3, 7))).flops == 2 * 2 * 3 * 3 * (4 + 7)
        assert Tanh().apply_fwd(x).flops == 0
