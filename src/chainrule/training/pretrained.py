"""The encoder of a masked model, from which networks of other tasks begin: taggers, classifiers."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

from chainrule.contract.kinds import find_kind, load_content
from chainrule.errors import SettingsError
from chainrule.folder import ModelFolder, read_folder

PRETRAINED = "pretrained"
"""The name of the part of a model folder that is the masked model whose encoder it began from."""


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


def load_pretrained(settings: Any) -> Any:
    """Return the masked model that the settings name, if any."""
    return None if settings.pretrained is None else load_content(read_folder(settings.pretrained))


def with_encoder(folder: ModelFolder, settings: Any, prefix: str, what: str) -> tuple[ModelFolder, Any, Any]:
    """Return a folder with the weights of its pretrained encoder under `prefix`, the masked model, and the encoder.

    Without a pretrained encoder, the folder is returned as it is.
    """
    if settings.pretrained is None:
        return folder, None, None
    model = load_content(folder.part(PRETRAINED))
    encoder = encoder_of(model, str(folder.path), what)
    weights = {f"{prefix}{name}": weight.numpy() for name, weight in encoder.state_dict().items()}
    return dataclasses.replace(folder, tensors={**folder.tensors, **weights}), model, encoder


def with_all_parameters(model: Any) -> Any:
    """Return a model whose metrics count its pretrained encoder too, which is a part of the folder by itself."""
    parameters = sum(weight.numel() for weight in model.network.parameters())
    model.metrics = {**model.metrics, "parameters": parameters}
    return model


def with_dropout(model: Any, name: str, what: str, share: float) -> Any:
    """Return a copy of a masked model's encoder that leaves out features in training: it reads few texts often."""
    if model is None:
        return None
    encoder = encoder_of(model, name, what)
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
