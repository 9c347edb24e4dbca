"""The kind seq2seq: an encoder-decoder, trained on pairs by the same loop as any network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from chainrule.contract.data import Sources, TrainingData
from chainrule.contract.kinds import LadderEntry
from chainrule.contract.lm import Context
from chainrule.contract.tasks import Task
from chainrule.errors import SettingsError
from chainrule.folder import TEXT, read_folder
from chainrule.networks.seq2seq.config import OF_A_START, Seq2SeqSettings
from chainrule.seq2seq.contract import SOURCE
from chainrule.seq2seq.denoising import DamagedExamples, Infilling, Spans
from chainrule.seq2seq.resplitting import ResplitPairs
from chainrule.settings import parse
from chainrule.tokens.base import Tokenizer
from chainrule.training.engines.base import Fill
from chainrule.training.examples import PairExamples, Texts
from chainrule.training.kinds import NetworkKind


class Seq2SeqKind(NetworkKind):
    """Trains and loads encoder-decoders."""

    def check(self, settings: Any, device: str) -> None:
        super().check(settings, device)
        _with_pretrained_sizes(settings)

    def model(self, settings: Any, tokenizers: Mapping[str, Tokenizer], context: Context, fill: Fill) -> Any:
        from chainrule.seq2seq.encoder_decoder_model import EncoderDecoderModel, make_network

        tokenizer, source = tokenizers[TEXT], tokenizers.get(SOURCE, tokenizers[TEXT])
        shares, sizes = settings.shared and source is tokenizer, (tokenizer.vocab_size, tokenizer.bos)
        network = fill(make_network, settings, *sizes, source.vocab_size, shares=shares)
        return EncoderDecoderModel(network, tokenizer, source, kind=self.name, settings=settings)

    def untrained(self, settings: Any, vocab_size: int, labels: int) -> Any:
        from chainrule.seq2seq.encoder_decoder_model import make_network

        return make_network(settings, vocab_size, 0, vocab_size, shares=settings.shared)

    def maker(self, settings: Any, data: TrainingData) -> Callable[[Fill], Any]:
        tokenizers = {TEXT: data.tokenizer}
        if isinstance(data.sources, Sources):
            tokenizers[SOURCE] = data.sources.tokenizer
        make = partial(self.model, settings, tokenizers, data.context)
        if settings.pretrained is None:
            return make
        from chainrule.seq2seq.encoder_decoder_model import copy_pretrained

        folder = read_folder(settings.pretrained)
        return lambda fill: copy_pretrained(folder, make(fill))

    def train(self, settings: Any, data: TrainingData) -> Any:
        """Train an encoder-decoder, perhaps one that begins with the weights and sizes of another."""
        if (data.sources is None) is (settings.pretrain == "none"):
            raise SettingsError(
                "seq2seq learns from pairs, sources and targets; with pretrain=spans or infilling from one text"
            )
        return super().train(_with_pretrained_sizes(settings), data)

    def texts(self, settings: Any, data: TrainingData) -> Texts:
        """Return the pairs that the network can read at once; or text, to pretrain on."""
        if settings.pretrain != "none":
            if data.context == "stream":
                raise SettingsError(f"pretrain={settings.pretrain} reads lines: leave out --context stream")
            repair = Spans if settings.pretrain == "spans" else Infilling
            return DamagedExamples.of(data, repair.of(data.tokenizer, data.seed))
        texts = PairExamples.texts(data, *settings.longest_sides)
        if not settings.split_dropout:
            return texts
        assert isinstance(texts.train, PairExamples) and isinstance(data.sources, Sources)
        tokenizers, share = (data.tokenizer, data.sources.tokenizer), settings.split_dropout
        return texts._replace(train=ResplitPairs.from_pairs(texts.train, tokenizers, share, data.seed))

    def sample(self, lm: Any, data: TrainingData) -> str:
        """Return the translation of the first held-out source; in pretraining, of the first held-out line."""
        from chainrule.seq2seq.translate import translate_ids

        side = data.sources if isinstance(data.sources, Sources) else data
        held_out = side.valid or side.train
        first = held_out.ids[: int((held_out.ids == side.tokenizer.eos).argmax()) + 1]
        return translate_ids(lm, [first])[0][0].text


def _with_pretrained_sizes(settings: Seq2SeqSettings) -> Seq2SeqSettings:
    """Return the settings with the sizes and the design of the model folder that training starts from, if any."""
    if settings.pretrained is None:
        return settings
    content = read_folder(settings.pretrained, verify=False)
    if content.kind != "seq2seq":
        raise SettingsError(
            f"pretrained={settings.pretrained} should be a model of the kind seq2seq, not {content.kind}"
        )
    earlier = parse(Seq2SeqSettings, content.config)
    return replace(settings, **{name: getattr(earlier, name) for name in OF_A_START})


_LADDER = (
    LadderEntry("lstm, no attention", {"cell": "lstm", "attention": "none", "minutes": 1.0}, quick=True),
    LadderEntry("gru, additive", {"cell": "gru", "attention": "additive", "minutes": 1.0}),
    LadderEntry("lstm, dot", {"cell": "lstm", "attention": "dot", "minutes": 1.0}),
    LadderEntry("lstm, general", {"cell": "lstm", "attention": "general", "minutes": 1.0}, quick=True),
    LadderEntry("transformer", {"cell": "transformer", "minutes": 1.0}, quick=True),
)
TRANSLATION = Task(
    "translation",
    does="writes a target for a source",
    verb="translate",
    evaluate="chainrule.seq2seq.evaluate:evaluate_pairs",
    show="chainrule.cli.output.measured:show_translations",
    options=("strategy",),
    plot="chainrule.cli.output.measured:plot_translations",
    examples="chainrule.text.pairs:as_pairs",
    encode="chainrule.runs.prepare:encode_pairs",
    has_sources=True,
    example="pair",
    unit="target token",
)
KIND = Seq2SeqKind("seq2seq", Seq2SeqSettings, {}).registered(
    "an encoder-decoder: writes a target, such as a translation, for a source",
    ladder=_LADDER,
    task=TRANSLATION.name,
    tokenizer="bpe",
    measure="chainrule.seq2seq.evaluate:measure",
)
