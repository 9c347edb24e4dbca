"""The generative classifier: a language model for each label, and Bayes' rule.

    ln p(label | text) = ln p(text | label) + ln p(label) - ln Σ_k p(text | k) p(k)

All models share one tokenizer, so that they give probabilities to the same tokens. With unigrams this is naive
Bayes; with no language model at all (kind=none), every text gets the most frequent label.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from chainrule.classification.contract import LABELS, Classifier, sources_of
from chainrule.contract.data import TrainingData
from chainrule.contract.kinds import Kind, LadderEntry, find_kind, load_content
from chainrule.contract.lm import LanguageModel
from chainrule.contract.model import Model
from chainrule.errors import DamagedFileError, SettingsError
from chainrule.evaluation.surprisal import score
from chainrule.folder import ModelFolder
from chainrule.settings import parse, setting, split_words
from chainrule.system.disk import scratch_folder
from chainrule.system.progress import SILENT
from chainrule.text.corpus import Corpus
from chainrule.text.labelled import Labelled
from chainrule.tokens.base import Tokenizer
from chainrule.tokens.ids import Encoded, encode_corpus
from chainrule.tokens.words.tokenizer import WordTokenizer

NONE = "none"
"""The kind of a classifier without language models."""
_PRIOR = "log_prior"


@dataclass(frozen=True)
class BayesSettings:
    """A generative classifier."""

    GROUP: ClassVar[str] = "design"

    kind: str = setting("ngram", "the kind of the language model of each label; none: only p(label)")
    lm_settings: str = setting("", "the settings of each language model, such as 'order=3 smoothing=witten-bell'")
    prior: Literal["frequency", "uniform"] = setting(
        "frequency", "p(label): its share of the training texts, or the same for all"
    )

    def of_models(self) -> tuple[Kind, Any]:
        """Return the kind of the language models, and their settings."""
        kind = find_kind(self.kind)
        if kind.task != "language":
            raise SettingsError(f"kind={self.kind}: p(text | label) takes a kind that predicts text, such as ngram")
        return kind, parse(kind.settings, split_words(self.lm_settings.split()))


class BayesClassifier(Classifier):
    """A language model for each label, and how frequent each label is."""

    def __init__(
        self,
        models: Sequence[LanguageModel],
        log_prior_K: np.ndarray,
        tokenizer: Tokenizer,
        labels: Tokenizer,
        settings: BayesSettings,
    ) -> None:
        """`models` has a model for each label, or none at all."""
        self.models, self.log_prior_K = list(models), log_prior_K
        self.tokenizer, self.label_tokenizer = tokenizer, labels
        self.kind, self.settings = KIND_NAME, settings

    def log_probs_of_lines(self, lines: Sequence[str]) -> np.ndarray:
        joint_NK = np.tile(self.log_prior_K, (len(lines), 1))
        for label, lm in enumerate(self.models):
            joint_NK[:, label] += score(lm, lines).log_prob
        return posterior(joint_NK, self.log_prior_K)

    # -- as any model -------------------------------------------------------------------------------------

    def tensors(self) -> dict[str, np.ndarray]:
        return {_PRIOR: self.log_prior_K}

    def parts(self) -> Mapping[str, Model]:
        return {str(number): lm for number, lm in enumerate(self.models, 1)}

    def on(self, device: str, dtype: str = "float32") -> BayesClassifier:
        models = [lm.on(device, dtype) for lm in self.models]
        moved = BayesClassifier(models, self.log_prior_K, self.tokenizer, self.label_tokenizer, self.settings)
        return moved.described_as(self)

    @property
    def device(self) -> str:
        return self.models[0].device if self.models else "cpu"

    @property
    def dtype(self) -> str:
        return self.models[0].dtype if self.models else "float64"


def posterior(joint_NK: np.ndarray, log_prior_K: np.ndarray) -> np.ndarray:
    """Return ln p(label | text) from ln p(text, label); a text that no model thinks possible keeps the prior.

    >>> np.exp(posterior(np.log([[0.1, 0.3], [0.2, 0.2]]), np.log([0.5, 0.5]))).round(2).tolist()
    [[0.25, 0.75], [0.5, 0.5]]
    """
    is_possible_N1 = joint_NK.max(axis=1, keepdims=True) > -np.inf
    joint_NK = np.where(is_possible_N1, joint_NK, log_prior_K)
    log_probs_NK: np.ndarray = joint_NK - np.logaddexp.reduce(joint_NK, axis=1, keepdims=True)
    return log_probs_NK


# -- the kind -------------------------------------------------------------------------------------------------


def _train(settings: BayesSettings, data: TrainingData) -> Any:
    """Train a language model on the texts of each label."""
    sources = sources_of(data)
    labels, models = sources.train.labels, list[LanguageModel]()
    counts_K = np.asarray([sum(one.label == label for one in sources.train) for label in labels], np.float64)
    if settings.prior == "uniform":
        counts_K[:] = 1
    if settings.kind != NONE:
        kind, of_models = settings.of_models()
        with data.progress.task("labels", len(labels), "labels") as task:
            for label in labels:
                models.append(_model_of(kind, of_models, label, data))
                task.advance(1)
    tokenizer = WordTokenizer([label.encode() for label in labels])
    return BayesClassifier(models, np.log(counts_K / counts_K.sum()), data.tokenizer, tokenizer, settings)


def _model_of(kind: Kind, settings: Any, label: str, data: TrainingData) -> LanguageModel:
    """Return the language model of the texts of one label."""
    sources = sources_of(data)
    with scratch_folder() as folder:

        def encoded(part: Labelled | None, name: str) -> Encoded | None:
            texts = [] if part is None else [one.text for one in part if one.label == label]
            corpus = Corpus.from_texts(texts)
            return encode_corpus(corpus, data.tokenizer, folder / name) if texts else None

        train, valid = encoded(sources.train, "train.ids"), encoded(sources.valid, "valid.ids")
        assert train is not None
        alone = replace(data, train=train, valid=valid, sources=None, progress=SILENT, run=None, resume=False)
        lm = kind.train(settings, alone)
        lm.provenance = alone.provenance()
        return lm


def _load(folder: ModelFolder) -> BayesClassifier:
    settings = parse(BayesSettings, folder.config)
    tokenizer, labels = folder.parsed_tokenizer(), folder.parsed_tokenizer(LABELS)
    log_prior_K = np.array(folder.tensor(_PRIOR), np.float64)
    if log_prior_K.shape != (len(labels.words),) or not np.isclose(np.exp(log_prior_K).sum(), 1):
        raise DamagedFileError(f"{folder.path}: {_PRIOR} is not a distribution over {len(labels.words)} labels")
    numbers = range(0 if settings.kind == NONE else len(labels.words))
    models = [LanguageModel.expect(load_content(folder.part(str(number + 1)))) for number in numbers]
    return BayesClassifier(models, log_prior_K, tokenizer, labels, settings)


def _check(settings: BayesSettings, device: str) -> None:
    if settings.kind != NONE:
        kind, of_models = settings.of_models()
        kind.check(of_models, device)


def _tunes_on_held_out(settings: BayesSettings) -> bool:
    if settings.kind == NONE:
        return False
    kind, of_models = settings.of_models()
    return kind.tunes_on_held_out(of_models)


KIND_NAME = "bayes"
KIND = Kind(
    name=KIND_NAME,
    summary="classifies a text by Bayes' rule: a language model for each label",
    settings=BayesSettings,
    train=_train,
    load=_load,
    ladder=(
        LadderEntry("majority", {"kind": NONE}, quick=True),
        LadderEntry("naive Bayes", {"lm_settings": "order=1"}, quick=True),
        LadderEntry("5-gram Bayes", {"lm_settings": "order=5"}, quick=True),
    ),
    tunes_on_held_out=_tunes_on_held_out,
    check=_check,
    task="classification",
    tokenizer="bpe",
    measure="chainrule.classification.evaluate:measure",
)
