"""Masked models: Transformer encoders that predict hidden tokens from those on both sides.

In reading order:

    contract.py   what a masked model is
    masking.py    the objective: which tokens are hidden, and how
    encoder_model.py  an encoder network as a masked model
    training.py   the kind: how one is built, trained and loaded
    filling.py    a text with gaps in, the best fillings out
    pseudo.py     pseudo-log-likelihoods: each token of a sentence hidden in turn
"""

from __future__ import annotations

from chainrule.masked.filling import Filled

__all__ = ["Filled"]
