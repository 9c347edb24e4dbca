"""The kind tagger: a network that tags words, trained on tagged sentences by the same loop as any network."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from chainrule.contract.data import TrainingData
from chainrule.contract.kinds import LadderEntry
from chainrule.contract.tasks import Task
from chainrule.errors import DamagedFileError
from chainrule.folder import TENSORS, ModelFolder, read_folder
from chainrule.networks.tagging.config import TaggerSettings
from chainrule.settings import parse
from chainrule.tagging.contract import FREQUENT, TAGS
from chainrule.tagging.examples import TaggedExamples, TaggingData, WordDropout
from chainrule.tagging.reading import SubwordReader, WordReader
from chainrule.tokens.base import Tokenizer
from chainrule.training.engines.base import Fill
from chainrule.training.examples import Texts
from chainrule.training.kinds import NetworkKind
from chainrule.training.pretrained import load_pretrained, with_all_parameters, with_dropout, with_encoder

_WHAT = "a tagger"


class TaggerKind(NetworkKind):
    """Trains and loads taggers."""

    def maker(self, settings: Any, data: TrainingData) -> Callable[[Fill], Any]:
        assert isinstance(data, TaggingData)
        pretrained = load_pretrained(settings)
        encoder = with_dropout(pretrained, settings.pretrained, _WHAT, settings.encoder_dropout)
        frequent_V = data.most_frequent(WordReader(data.tokenizer, spells=False))
        return partial(self._tagger, settings, data.tokenizer, data.tag_tokenizer, frequent_V, pretrained, encoder)

    def load(self, folder: ModelFolder) -> Any:
        from chainrule.networks.tagging.tagger import ENCODER

        settings: Any = parse(self.settings, folder.config)
        words, tags = folder.parsed_tokenizer(), folder.parsed_tokenizer(TAGS)
        frequent_V = np.array(folder.tensor(FREQUENT))
        folder, *begun = with_encoder(folder, settings, ENCODER, _WHAT)
        model = self.engine(settings).load(partial(self._tagger, settings, words, tags, frequent_V, *begun), folder)
        if (
            frequent_V.shape != (words.vocab_size,)
            or not 0 <= frequent_V.min() <= frequent_V.max() < tags.vocab_size
        ):
            raise DamagedFileError(f"{folder.path}/{TENSORS}: {FREQUENT} is not a tag for each word")
        return model

    def _tagger(
        self,
        settings: Any,
        words: Tokenizer,
        tags: Tokenizer,
        frequent_V: np.ndarray,
        pretrained: Any,
        encoder: Any,
        fill: Fill,
    ) -> Any:
        from chainrule.networks.tagging.tagger import TaggerNetwork
        from chainrule.tagging.neural_tagger import NeuralTagger

        def network() -> TaggerNetwork:
            return TaggerNetwork(settings, words.vocab_size, len(tags.words), copy.deepcopy(encoder))

        return NeuralTagger(
            fill(network), words, tags, frequent_V, kind=self.name, settings=settings, pretrained=pretrained
        )

    def untrained(self, settings: Any, vocab_size: int, labels: int) -> Any:
        from chainrule.networks.tagging.tagger import TaggerNetwork

        return TaggerNetwork(settings, vocab_size, labels)

    def train(self, settings: Any, data: TrainingData) -> Any:
        """Train a network on tagged sentences, which are numbered once."""
        return with_all_parameters(super().train(settings, TaggingData(**vars(data))))

    def texts(self, settings: Any, data: TrainingData) -> Texts:
        """Return the sentences; one that is too long to be read at once is read in pieces."""
        assert isinstance(data, TaggingData)
        subwords = None
        if settings.pretrained is not None:
            folder = read_folder(settings.pretrained)
            subwords = SubwordReader.of(folder.parsed_tokenizer(), folder.context)
        reader = WordReader(data.tokenizer, settings.characters != "none", subwords)
        distinct, dropout = reader.read(data.distinct_words), None
        if settings.word_dropout:
            assert data.tokenizer.unk is not None
            counts_N = np.bincount(data.texts[0][0], minlength=len(data.distinct_words))
            dropout = WordDropout.of(settings.word_dropout, counts_N, data.tokenizer.unk, data.seed)
        longest = settings.longest
        train, *valid = [TaggedExamples(tags, words, distinct, longest, dropout) for words, tags in data.texts]
        return Texts(train, valid[0] if valid else None)

    def sample(self, lm: Any, data: TrainingData) -> str:
        """Return the first held-out sentence with the tags that the network gives it."""
        assert isinstance(data, TaggingData)
        (tagged,) = lm.tag([next(iter(data.parts[-1])).words])
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
TAGGING = Task(
    "tagging",
    does="tags words",
    verb="tag",
    evaluate="chainrule.tagging.evaluate:evaluate_tagger",
    show="chainrule.cli.output.measured:show_taggers",
    examples="chainrule.text.tagged:as_tagged",
    encode="chainrule.runs.prepare:encode_annotated",
    example="sentence",
    unit="word",
    perplexity_of=" of tags",
)
KIND = TaggerKind("tagger", TaggerSettings, {}).registered(
    "gives each word of a sentence its tag, such as its part of speech",
    ladder=_LADDER,
    task=TAGGING.name,
    tokenizer="word",
    measure="chainrule.tagging.evaluate:measure",
)
