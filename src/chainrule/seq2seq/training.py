"""The kind seq2seq: an encoder-decoder, trained on pairs by the same loop as any network."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from chainrule.contract.kinds import LadderEntry, TrainingData
from chainrule.errors import SettingsError
from chainrule.folder import read_folder
from chainrule.networks.seq2seq.config import OF_A_START, Seq2SeqSettings
from chainrule.seq2seq.denoising import denoising_texts
from chainrule.settings import parse
from chainrule.training.examples import PairExamples, Texts, pairs_of
from chainrule.training.kinds import TaskKind

_NETWORKS = "chainrule.networks.seq2seq"


class Seq2SeqKind(TaskKind):
    """Trains and loads encoder-decoders."""

    backend_class = "chainrule.seq2seq.backend:Seq2SeqBackend"

    def check(self, settings: Any, device: str) -> None:
        super().check(settings, device)
        begun(settings)

    def train(self, settings: Any, data: TrainingData) -> Any:
        """Train an encoder-decoder, perhaps one that begins with the weights and sizes of another."""
        if (data.sources is None) is (settings.pretrain == "none"):
            raise SettingsError(
                "seq2seq learns from pairs, sources and targets; with pretrain=spans or infilling from one text"
            )
        return super().train(begun(settings), data)

    def texts(self, settings: Any, data: TrainingData) -> Texts:
        """Pairs no side of which is longer than what the network reads at once; or text, for pretraining."""
        if settings.pretrain != "none":
            return denoising_texts(data, settings.pretrain)
        target, source = settings.longest_sides
        train, valid = pairs_of(data)
        assert isinstance(train, PairExamples)
        fitting = train.fitting(target, source, data.progress)
        return Texts(fitting, valid.fitting(target, source) if isinstance(valid, PairExamples) else None)

    def sample(self, lm: Any, data: TrainingData) -> str:
        """The translation of the first source that is held out; in pretraining, what a text becomes."""
        from chainrule.seq2seq.translate import translate_ids

        side = data if data.sources is None else data.sources
        held_out = side.valid or side.train
        first = held_out.ids[: int((held_out.ids == side.tokenizer.eos).argmax()) + 1]
        return translate_ids(lm, [first])[0][0].text


def begun(settings: Seq2SeqSettings) -> Seq2SeqSettings:
    """The settings with the sizes and the design of the model folder that training starts from, if any."""
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
KIND = Seq2SeqKind("seq2seq", Seq2SeqSettings, {}).registered(
    "an encoder-decoder: writes a target, such as a translation, for a source",
    ladder=_LADDER,
    task="translation",
    tokenizer="bpe",
    measure="chainrule.seq2seq.evaluate:measure",
)
