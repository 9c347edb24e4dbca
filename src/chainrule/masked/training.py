"""The kind masked: a Transformer encoder, trained on text by hiding tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chainrule.contract.data import TrainingData
from chainrule.contract.lm import Context
from chainrule.contract.tasks import Task
from chainrule.folder import TEXT
from chainrule.masked.masking import MaskedExamples, Masking
from chainrule.networks.transformer.settings import MaskedSettings
from chainrule.tokens.base import Tokenizer
from chainrule.training.engines.base import Fill
from chainrule.training.examples import Texts
from chainrule.training.kinds import NetworkKind, with_tokens_read
from chainrule.training.objectives import NextToken

_SAMPLED = 30  # the most tokens of a line that is shown while a network is trained
_EVERY = 6  # of its tokens is hidden


class MaskedKind(NetworkKind):
    """Trains and loads masked models."""

    def model(self, settings: Any, tokenizers: Mapping[str, Tokenizer], context: Context, fill: Fill) -> Any:
        from chainrule.masked.encoder_model import EncoderModel
        from chainrule.networks.transformer.masked import MaskedTransformer

        network = fill(MaskedTransformer, settings, tokenizers[TEXT].vocab_size)
        return EncoderModel(network, tokenizers[TEXT], context, kind=self.name, settings=settings)

    def untrained(self, settings: Any, vocab_size: int, labels: int) -> Any:
        from chainrule.networks.transformer.masked import MaskedTransformer

        return MaskedTransformer(settings, vocab_size)

    def texts(self, settings: Any, data: TrainingData) -> Texts:
        before = NextToken.of(data.tokenizer, data.context)
        return MaskedExamples.of(data, Masking(before, data.tokenizer.vocab_size, data.seed, settings.share))

    def train(self, settings: Any, data: TrainingData) -> Any:
        """Train a masked model; its metrics count the tokens that it read, and apart those that it predicted."""
        model = super().train(settings, data)
        model.metrics = with_tokens_read(model.metrics, self.texts(settings, data).train, data)
        return model

    def sample(self, lm: Any, data: TrainingData) -> str:
        """Return the first held-out line, with some of its tokens hidden and filled in."""
        ids = (data.valid or data.train).ids[:_SAMPLED].astype("int64")
        line = ids[: max(1, int((ids == data.tokenizer.eos).argmax()) or len(ids))]
        filled = line.copy()
        filled[_EVERY // 2 :: _EVERY] = lm.mask
        filled[filled == lm.mask] = lm.predict(filled[None]).argmax(axis=-1)
        return data.tokenizer.decode(filled.tolist())


MASKED = Task(
    "masked",
    does="fills gaps in a text",
    verb="fill",
    evaluate="chainrule.evaluation.pseudo:evaluate_masked",
    show="chainrule.cli.output.measured:show_masked",
    perplexity_of=" of hidden tokens",
)
KIND = MaskedKind("masked", MaskedSettings, {}).registered(
    "a Transformer encoder that fills gaps: every token looks at those on both sides",
    task=MASKED.name,
    tokenizer="bpe",
)
