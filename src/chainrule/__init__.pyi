"""The public names: this list is the only one. A name is imported when it is first used."""

from . import (
    classification,
    decode,
    evaluation,
    explanation,
    masked,
    mixtures,
    ngram,
    report,
    seq2seq,
    tagging,
    tasks,
    training,
)
from ._version import __version__
from .arrays import PAD, to_numpy
from .classification.contract import classify
from .comparison.compare import compare
from .contract.kinds import load
from .contract.lm import LanguageModel, State
from .course.lesson import lesson
from .decode.generate import generate, generate_many, stream
from .decode.strategies import (
    Beam,
    FrequencyPenalty,
    Greedy,
    MinP,
    PresencePenalty,
    RepetitionPenalty,
    Sample,
    Temperature,
    TopK,
    TopP,
)
from .decode.suggest import suggest
from .errors import ChainruleError
from .evaluation.measure import evaluate
from .evaluation.metrics import branching_factor, cross_entropy, entropy, kl, perplexity
from .evaluation.surprisal import score
from .explanation.diagnosis import diagnose
from .explanation.explanation import explain
from .masked.filling import fill
from .mixtures.mix import mix
from .ngram.arpa.arpa_model import load_arpa, save_arpa
from .ngram.table_model import Table
from .runs.prepare import TokenizerChoice
from .runs.train import resume, train
from .seq2seq.translate import translate
from .tagging.tag import tag
from .text.corpus import Corpus
from .text.pairs import Pairs
from .tokens.base import Tokenizer
from .tokens.registry import load_tokenizer, train_tokenizer

__all__ = [
    "PAD",
    "Beam",
    "ChainruleError",
    "Corpus",
    "FrequencyPenalty",
    "Greedy",
    "LanguageModel",
    "MinP",
    "Pairs",
    "PresencePenalty",
    "RepetitionPenalty",
    "Sample",
    "State",
    "Table",
    "Temperature",
    "Tokenizer",
    "TokenizerChoice",
    "TopK",
    "TopP",
    "__version__",
    "branching_factor",
    "classification",
    "classify",
    "compare",
    "cross_entropy",
    "decode",
    "diagnose",
    "entropy",
    "evaluate",
    "evaluation",
    "explain",
    "explanation",
    "fill",
    "generate",
    "generate_many",
    "kl",
    "lesson",
    "load",
    "load_arpa",
    "load_tokenizer",
    "masked",
    "mix",
    "mixtures",
    "ngram",
    "perplexity",
    "report",
    "resume",
    "save_arpa",
    "score",
    "seq2seq",
    "stream",
    "suggest",
    "tag",
    "tagging",
    "tasks",
    "to_numpy",
    "train",
    "train_tokenizer",
    "training",
    "translate",
]
