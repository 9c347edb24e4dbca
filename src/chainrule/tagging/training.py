"""The kind tagger: a network that tags words, trained on tagged sentences by the same loop as any network."""

from __future__ import annotations

from typing import Any

from chainrule.contract.kinds import LadderEntry, TrainingData
from chainrule.folder import read_folder
from chainrule.networks.tagging.config import TaggerSettings
from chainrule.tagging.examples import TaggingData, tagged_examples
from chainrule.tagging.reading import SubwordReader, WordReader
from chainrule.tokens.registry import parse_tokenizer
from chainrule.training.examples import Texts
from chainrule.training.kinds import TaskKind


class TaggerKind(TaskKind):
    """Trains and loads taggers."""

    backend_class = "chainrule.tagging.backend:TaggerBackend"

    def train(self, settings: Any, data: TrainingData) -> Any:
        """Train a network on tagged sentences, which are read once for all that needs them."""
        model: Any = super().train(settings, TaggingData(**vars(data)))
        # a pretrained encoder is a part of the folder by itself, and belongs to the network all the same
        parameters = sum(weight.numel() for weight in model.network.parameters())
        model.metrics = {**model.metrics, "parameters": parameters}
        return model

    def texts(self, settings: Any, data: TrainingData) -> Texts:
        """Sentences; one longer than what the network reads at once is read in pieces."""
        assert isinstance(data, TaggingData)
        subwords = None
        if settings.pretrained is not None:
            folder = read_folder(settings.pretrained)
            tokenizer = parse_tokenizer(folder.tokenizer, settings.pretrained)
            subwords = SubwordReader.of(tokenizer, folder.context or "line")
        reader = WordReader(data.tokenizer, settings.characters != "none", subwords)
        return tagged_examples(data, reader, settings.longest, settings.word_dropout)

    def sample(self, lm: Any, data: TrainingData) -> str:
        """The first sentence that is held out, as it is tagged."""
        assert isinstance(data, TaggingData)
        words, texts = data.texts
        text = texts[-1]
        (tagged,) = lm.tag([[words[i].decode() for i in text.words[: text.ends[0]]]])
        return str(tagged)


_QUICK = ("lstm, one direction", "lstm, two directions", "lstm, deep, characters", "transformer, characters")


def _entry(name: str, **settings: Any) -> LadderEntry:
    return LadderEntry(name, {"characters": "none", "minutes": 1.0, **settings}, quick=name in _QUICK)


_LADDER = (
    _entry("words alone", layers=0),
    _entry("elman, one direction", cell="elman", bidirectional=False, layers=1),
    _entry("lstm, one direction", cell="lstm", bidirectional=False, layers=1),
    _entry("elman, two directions", cell="elman", layers=1),
    _entry("gru, two directions", cell="gru", layers=1),
    _entry("lstm, two directions", cell="lstm", layers=1),
    _entry("lstm, two directions, deep", cell="lstm", layers=2),
    _entry("lstm, deep, characters", cell="lstm", layers=2, characters="lstm"),
    _entry("transformer, characters", cell="transformer", characters="lstm"),
)
KIND = TaggerKind("tagger", TaggerSettings, {}).registered(
    "gives each word of a sentence its tag, such as its part of speech",
    ladder=_LADDER,
    task="tagging",
    tokenizer="word",
    measure="chainrule.tagging.evaluate:measure",
)
