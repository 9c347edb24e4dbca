"""The kind masked: a Transformer encoder, trained on text by hiding tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chainrule.designs.masked import MaskedSettings
from chainrule.errors import MissingExtraError
from chainrule.kinds import Kind, TrainingData
from chainrule.masked.masking import masked_texts
from chainrule.system.devices import has_torch
from chainrule.system.plugins import import_object
from chainrule.training.backends import Backend
from chainrule.training.examples import Texts
from chainrule.training.kinds import NetworkKind

_SAMPLED = 30  # the most tokens of a line that is shown while a network is trained
_EVERY = 6  # of its tokens is hidden


class MaskedKind(NetworkKind):
    """Trains and loads masked models."""

    def backend(self, settings: Any) -> Backend:
        if not has_torch():
            raise MissingExtraError("torch", "neural", f"the kind {self.name!r}")
        backend: Callable[[str], Backend] = import_object("chainrule.masked.backend:MaskedBackend")
        return backend(self.name)

    def texts(self, settings: Any, data: TrainingData) -> Texts:
        return masked_texts(data, settings.share)

    def train(self, settings: Any, data: TrainingData) -> Any:
        """Train a masked model; the tokens it has seen are those that it read, not those that it predicted."""
        model = super().train(settings, data)
        predicted, rate = (model.metrics[name] for name in ("tokens_seen", "tokens_per_second_in_training"))
        examples = self.texts(settings, data).train
        share = examples.tokens / len(data.train.ids)
        model.metrics = {
            **model.metrics,
            "tokens_seen": round(predicted / share),
            "tokens_predicted": predicted,
            "tokens_per_second_in_training": round(rate / share, 1),
        }
        return model

    def sample(self, lm: Any, data: TrainingData) -> str:
        """The first line that is held out, with some of its tokens hidden and filled in."""
        from chainrule.masked.filling import best_tokens

        ids = (data.valid or data.train).ids[:_SAMPLED].astype("int64")
        line = ids[: max(1, int((ids == data.tokenizer.eos).argmax()) or len(ids))]
        filled = line.copy()
        filled[_EVERY // 2 :: _EVERY] = lm.mask
        filled[filled == lm.mask] = best_tokens(lm, filled)
        return data.tokenizer.decode(filled.tolist())


def _kind() -> Kind:
    kind = MaskedKind("masked", MaskedSettings, {"torch": "chainrule.neural.networks.transformer.masked:"})
    return Kind(
        name=kind.name,
        summary="a Transformer encoder that fills gaps: every token looks at those on both sides",
        settings=MaskedSettings,
        train=kind.train,
        load=kind.load,
        tunes_on_held_out=lambda settings: True,
        check=kind.check,
        keeps_run=True,
        requires_torch=True,
        task="masked",
        tokenizer="bpe",
    )


KIND = _kind()
