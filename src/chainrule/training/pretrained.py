"""The encoder of a masked model, from which networks of other tasks begin: taggers, classifiers."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

from chainrule.contract.kinds import find_kind
from chainrule.errors import SettingsError


def encoder_of(model: Any, name: str, what: str) -> Any:
    """Return the encoder of a masked model; any other model is refused, as `what` could not begin from it."""
    from chainrule.networks.transformer.stack import Encoder

    encoder = getattr(getattr(model, "network", None), "encoder", None)
    if find_kind(model.kind).task != "masked" or not isinstance(encoder, Encoder):
        raise SettingsError(
            f"pretrained={name}: {what} begins from a masked model, and this is one of the kind {model.kind!r}: "
            "chainrule train masked makes one"
        )
    return encoder


def with_dropout(encoder: Any, share: float) -> Any:
    """Return a copy of the encoder that leaves out features in training: it reads few texts many times."""
    config = dataclasses.replace(encoder.config, dropout=share, attention_dropout=share)
    copied = type(encoder)(config, len(encoder.embedding))
    copied.load_state_dict(encoder.state_dict())
    return copied


def tuned(pretrained: Any, encoder: Any) -> Any:
    """Return a copy of a masked model with the weights of an encoder that was trained further."""
    model = copy.copy(pretrained)
    model.network = copy.deepcopy(pretrained.network)
    model.network.encoder.load_state_dict(encoder.state_dict())
    return model
