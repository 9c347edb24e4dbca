"""The kind `mixture`: how its folder is read. Its models are in folders inside its folder."""

from __future__ import annotations

from typing import Any, NoReturn, cast

import numpy as np

from chainrule.contract.kinds import Kind, load_content
from chainrule.contract.lm import LanguageModel
from chainrule.errors import DamagedFileError, ModelError, SettingsError
from chainrule.folder import ModelFolder
from chainrule.mixtures.mixture import KIND_NAME, Mixture
from chainrule.mixtures.settings import MixtureSettings
from chainrule.settings import parse

_SUM = 1e-6  # how far from 1 the weights of a linear mixture may add up


def load_mixture(folder: ModelFolder) -> Mixture:
    """Load the mixture of a folder, and its models."""
    from chainrule.mixtures.mix import check_models

    settings = parse(MixtureSettings, folder.config)
    models = [cast(LanguageModel, load_content(folder.part(str(n + 1)))) for n in range(settings.models)]
    try:
        check_models(models, settings)
    except (ModelError, SettingsError) as error:
        raise DamagedFileError(f"{folder.path}: {error}") from error
    weights_GK, knots = folder.tensor("weights"), folder.tensor("knots")
    columns = settings.models + len(settings.caches(models[0].tokenizer.vocab_size, models[0].tokenizer.bos))
    is_sound = (
        weights_GK.dtype == knots.dtype == np.float64
        and knots.ndim == 1
        and len(knots) >= 1
        and weights_GK.shape == (len(knots), columns)
        and (len(knots) == 1 or settings.by != "none")
        and np.isfinite(knots).all()
        and (np.diff(knots) > 0).all()
        and np.isfinite(weights_GK).all()
        and (weights_GK >= 0).all()
        and (settings.form != "linear" or np.allclose(weights_GK.sum(axis=1), 1, atol=_SUM))
    )
    if not is_sound:
        raise DamagedFileError(f"{folder.path}: the arrays are not the weights of {columns} models and caches")
    return Mixture(models, settings, np.array(weights_GK), np.array(knots))


def _refuse(*_: Any) -> NoReturn:
    raise SettingsError(
        "a mixture is made of trained models, not of a text: train them, and then chainrule mix DIR1 DIR2 "
        "--held-out FILE --out DIR (in Python, chainrule.mix)"
    )


KIND = Kind(
    name=KIND_NAME,
    summary="models of any kind over one vocabulary, and caches, mixed (made by chainrule mix)",
    settings=MixtureSettings,
    train=_refuse,
    load=load_mixture,
    check=_refuse,
)
