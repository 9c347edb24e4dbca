"""The kinds of model there are, by name.

A kind says what its settings are, how it is trained and loaded, and which models it adds to the ladder that
`chainrule compare` trains. The command line, compare and the laws of `chainrule.testing` find it here and need no
change for a new one: a kind of this package is listed in `_BUILT_IN`, one of another package is declared as an
entry point in the group `chainrule.kinds`. Modules are imported only when their kind is used, so that n-gram
commands never wait for torch.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from chainrule.contract.data import TrainingData
from chainrule.contract.lm import LanguageModel
from chainrule.contract.model import Model
from chainrule.contract.tasks import LANGUAGE, REPLIES, Task, find_task
from chainrule.errors import (
    ChainruleError,
    DamagedFileError,
    FolderError,
    MissingExtraError,
    ModelError,
    PluginError,
    SettingsError,
)
from chainrule.folder import MANIFEST, ModelFolder, read_folder
from chainrule.system.devices import choose_device, has_torch
from chainrule.system.display import PlainResult
from chainrule.system.parallel import Executor
from chainrule.system.plugins import find_plugins, import_object, load_plugin
from chainrule.text.corpus import Corpus
from chainrule.tokens.ids import Encoded

PLUGINS = "chainrule.kinds"
"""The group of entry points that add kinds."""
PRECISIONS = ("float32", "bfloat16", "float64")
"""The precisions in which a network can compute."""

_BUILT_IN = {
    "ngram": "chainrule.ngram.train:KIND",
    "anygram": "chainrule.ngram.train:ANYGRAM",
    "table": "chainrule.ngram.table_model:KIND",
    "feedforward": "chainrule.training.kinds:FEEDFORWARD",
    "bagofwords": "chainrule.training.kinds:BAG_OF_WORDS",
    "elman": "chainrule.training.kinds:ELMAN",
    "lstm": "chainrule.training.kinds:LSTM",
    "gru": "chainrule.training.kinds:GRU",
    "qrnn": "chainrule.training.kinds:QRNN",
    "transformer": "chainrule.training.kinds:TRANSFORMER",
    "mixture": "chainrule.mixtures.kind:KIND",
    "seq2seq": "chainrule.seq2seq.training:KIND",
    "masked": "chainrule.masked.training:KIND",
    "tagger": "chainrule.tagging.training:KIND",
    "bayes": "chainrule.classification.bayes:KIND",
    "classifier": "chainrule.classification.training:KIND",
}
"""The module and the variable of each kind."""
_FILES = {".json": "chainrule.ngram.table_model:read_table"}
"""The function that reads a model from a file, by the ending of its name."""

_FORMER_NAMES = {"averaging": "bagofwords"}
"""The present names of kinds that were renamed. Commands, ladders and model folders may have the former ones."""
_ALSO_CALLED = {
    "rnn": "elman lstm gru",
    "gpt": "transformer",
    "gpt2": "transformer",
    "llama": "transformer",
    "bert": "masked",
    "mlp": "feedforward",
    "nnlm": "feedforward",
    "cbow": "bagofwords",
    "markov": "ngram",
    "kneser-ney": "ngram",
    "encoder-decoder": "seq2seq",
    "translator": "seq2seq",
    "pos": "tagger",
    "naivebayes": "bayes",
    "textcat": "classifier",
}
"""The kinds that other names mean."""
_noted: dict[Any, Any] = {}


@dataclass(frozen=True)
class HeldOut:
    """The text on which the models of a comparison are measured."""

    examples: Any
    """The examples as kinds of the task take them: a corpus, pairs, tagged sentences or labelled texts."""
    encoded: Encoded
    """The same as ids: of pairs, the targets; of tagged sentences, the words."""

    @property
    def lines(self) -> Corpus:
        """A line for each example: SOURCE TAB TARGET of pairs, word/TAG word/TAG, LABEL TAB TEXT."""
        lines: Corpus = getattr(self.examples, "lines", self.examples)
        return lines


@dataclass(frozen=True)
class Figures(PlainResult):
    """What was measured of a model that does something else than predict text."""

    values: Mapping[str, float]
    """The figures by name, in the order in which a table shows them."""
    loss: float
    """The figure that ranks models, the lowest first: 100 - BLEU, or the share of wrong tags."""
    tokens_per_second: float
    """How fast it does its task."""
    note: str = ""
    """How the figures came about, such as the signature of a metric."""
    sample: str = ""
    """An example of what the model does."""


@dataclass(frozen=True)
class LadderEntry:
    """One of the models that `chainrule compare` trains, from simple to complex: its name, and its settings."""

    name: str
    settings: Mapping[str, Any]
    share: float = 1.0
    """Its part of the time that is left for networks, in proportion to the shares of the others."""
    quick: bool = False
    """True if it belongs to the short ladder too."""
    standard: bool = True
    """True if it belongs to the ladder that is trained by default, in which each family is at its best."""
    tokenizer: str | None = None
    """A tokenizer of its own, by its name or the folder that it is in; None: that of the comparison."""
    vocab_size: int | str | None = None
    """The size of the vocabulary of its own tokenizer."""


Rung = LadderEntry
"""The old name, kept for plug-ins until the next version."""


@dataclass(frozen=True)
class Kind:
    """A family of models."""

    name: str
    summary: str
    settings: type
    """A frozen dataclass."""
    train: Callable[[Any, TrainingData], LanguageModel]
    load: Callable[[ModelFolder], Model]
    ladder: tuple[LadderEntry, ...] = ()
    tunes_on_held_out: Callable[[Any], bool] = field(default=lambda settings: False)
    """Returns True if training with these settings needs held-out text."""
    fewest_documents: Callable[[Any], int] = field(default=lambda settings: 2)
    """With fewer documents, none is held out: the kind tunes on the text that it learns from, or not at all."""
    takes_executor: Callable[[Any], bool] = field(default=lambda settings: False)
    """Returns True if training with these settings can use an executor, such as that of ray/."""
    check: Callable[[Any, str], None] = field(default=lambda settings, device: None)
    """Refuses, before the text is read, settings that cannot be trained on the device of that name."""
    keeps_run: bool = False
    """True if training keeps checkpoints in a run folder, from which it can be resumed."""
    requires_torch: bool = False
    """True if the kind cannot be used at all where torch is not installed."""
    task: str = LANGUAGE.name
    """The name of the task of its models; kinds of one task learn from the same examples, and share a ladder."""
    tokenizer: str = "bpe"
    """The name of the tokenizer where none is chosen."""
    shapes: Callable[[Any, int, int], Mapping[str, Sequence[int]]] | None = None
    """The shape of each of a model's arrays of parameters, by name.

    It is called with settings, the size of the vocabulary, and the number of labels of a classifier or tagger.
    """
    network: str | None = None
    """Where the class of its network on the tape is, as MODULE:NAME, if the tape computes it."""
    measure: str | None = None
    """Where the function is, as MODULE:NAME, that measures a model of another task than language in a comparison.

    It is called with the model, a `HeldOut` and a `Progress`, and returns `Figures`. Kinds of a task share it.
    """


def kind_names() -> list[str]:
    """Return the names of all kinds, plug-ins included; none is imported."""
    return [*_BUILT_IN, *(name for name in find_plugins(PLUGINS) if name not in _BUILT_IN)]


def is_kind(name: str) -> bool:
    """Return True if there is a kind of that name; plug-ins are searched, which takes time, only for others."""
    return name in _BUILT_IN or name in find_plugins(PLUGINS)


def present_name(name: str) -> str:
    """Return the present name of a kind that may have been renamed.

    >>> present_name("averaging"), present_name("lstm")
    ('bagofwords', 'lstm')
    """
    return _FORMER_NAMES.get(name, name)


def find_kind(name: str, *, usable: bool = True) -> Kind:
    """Return the kind of that name, which must be `usable` here; a former name is accepted with a note."""
    kind: Kind | None = None
    if name in _FORMER_NAMES:
        note = f"the kind {name!r} is now called {_FORMER_NAMES[name]!r}"
        warnings.warn_explicit(note, FutureWarning, "chainrule", 1, registry=_noted)  # one line, and once
        name = _FORMER_NAMES[name]
    if name in _BUILT_IN:
        kind = import_object(_BUILT_IN[name])
    elif (point := find_plugins(PLUGINS).get(name)) is not None:
        try:
            kind = load_plugin(point, Kind)
            if kind.name != name:  # a folder names the kind: it would not be found again
                raise PluginError(f"the plug-in {name!r} ({point.value}) is a kind of another name, {kind.name!r}")
        except PluginError as error:
            if isinstance(error.__cause__, ModuleNotFoundError) and error.__cause__.name == "torch":
                raise MissingExtraError("torch", "neural", f"the kind {name!r}") from None
            raise
    if kind is not None:
        if usable and kind.requires_torch and not has_torch():
            raise MissingExtraError("torch", "neural", f"the kind {name!r}")
        return kind
    known = [_ALSO_CALLED[name]] if name in _ALSO_CALLED else difflib.get_close_matches(name, kind_names(), n=1)
    hint = f"; did you mean {' or '.join(map(repr, known[0].split()))}?" if known else ""
    raise ChainruleError(f"there is no kind of model {name!r}{hint} (there are: {', '.join(kind_names())})")


def learns_as(kind: Kind, settings: Any) -> Task:
    """Return the task whose examples a kind learns from.

    A translator that is pretrained learns from text; a language model that is tuned, from prompts and replies.
    """
    if getattr(settings, "pretrain", "none") != "none":
        return LANGUAGE
    return REPLIES if getattr(settings, "is_tuned", False) else find_task(kind.task)


def task_of(kind: str) -> Task:
    """Return the task of the kind of that name; a kind that is not known passes for one of language models."""
    name = present_name(kind)
    return find_task(find_kind(name).task) if is_kind(name) else LANGUAGE


def load(
    folder: str | Path,
    *,
    verify: bool | None = None,
    device: str = "cpu",
    dtype: str = "float32",
    tasks: Collection[str] | None = None,
) -> Any:
    """Load the model of a folder on a device and in a precision; raise ModelError for other `tasks`.

    The folder decides the class: a `LanguageModel`, or another `Model`, such as a tagger. A .json file is a model
    too: a table of probabilities (`chainrule.Table`).

    >>> import tempfile, chainrule as cr
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     cr.train("ngram", "i love cats", order=2, tokenizer="word").save(f"{folder}/model")
    ...     cr.load(f"{folder}/model")
    <NgramModel of 6 word tokens, line>
    """
    if dtype not in PRECISIONS:
        raise SettingsError(f"dtype should be {' or '.join(PRECISIONS)}, not {dtype!r}")
    content = read_model(folder, verify=verify)
    device = choose_device(device) if device != "auto" or _is_for_accelerators(content) else "cpu"
    if tasks is not None:
        check_task(content, tasks)
    return load_content(content).on(device, dtype)


def read_model(path: str | Path, *, verify: bool | None = None) -> ModelFolder:
    """Read a model folder, or a file that is a model by itself, as if it were a folder."""
    path = Path(path)
    if is_model_file(path):
        model: Model = import_object(_FILES[path.suffix])(path)
        return replace(model.content(), path=path)
    return read_folder(path, verify=verify)


def is_model_file(path: str | Path) -> bool:
    """Return True if a file is a model by itself, by the ending of its name."""
    return Path(path).suffix in _FILES and Path(path).is_file()


def is_for_accelerators(kind: Kind, settings: Mapping[str, Any]) -> bool:
    """Return True if the device `auto` is an accelerator for a kind with these settings: a network in torch."""
    return kind.keeps_run and settings.get("engine") != "tape"


def _is_for_accelerators(content: ModelFolder) -> bool:
    """Return True if a model, or one of its parts, is for accelerators."""
    name = present_name(content.kind)
    own = is_kind(name) and is_for_accelerators(find_kind(name), content.config)
    return own or any(map(_is_for_accelerators, content.parts.values()))


@dataclass(frozen=True)
class Stored:
    """A model by its folder, for workers in other processes: each of them loads it once."""

    folder: Path
    device: str = "cpu"
    dtype: str = "float32"

    def model(self) -> LanguageModel:
        """Return the model; load it unless it is the one that this process loaded last."""
        return _loaded(self)


@lru_cache(maxsize=1)
def _loaded(stored: Stored) -> LanguageModel:
    return LanguageModel.expect(load(stored.folder, device=stored.device, dtype=stored.dtype))


@dataclass(frozen=True)
class Workers:
    """An executor, and the model that its workers are to use."""

    executor: Executor
    stored: Stored


def check_task(content: ModelFolder, tasks: Collection[str]) -> None:
    """Refuse a model that is for another task, and name the verb that takes it and a kind that is right here."""
    name = present_name(content.kind)
    if is_kind(name) and (task := task_of(name)).name not in tasks:
        refused = (
            f"{content.path}: a model of the kind {name} {task.does}: use chainrule {task.verb} {content.path}"
        )
        right = next((kind for kind in kind_names() if task_of(kind).name in tasks), None)
        raise ModelError(refused if right is None else f"{refused}; chainrule train {right} makes one for this")


def load_content(content: ModelFolder) -> Model:
    """Return the model of a folder that was read, or of a part of one, on the CPU."""
    content = replace(content, kind=present_name(content.kind))
    if not is_kind(content.kind):
        raise FolderError(
            f"{content.path}: its kind {content.kind!r} is not one this chainrule knows ({', '.join(kind_names())})"
        )
    try:
        model = find_kind(content.kind).load(content)
    except SettingsError as error:
        raise DamagedFileError(f"{content.path}/{MANIFEST}: {error}") from error
    model.provenance, model.metrics = content.provenance, content.metrics
    return model
