"""The settings of an n-gram model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from chainrule.errors import SettingsError
from chainrule.ngram.workspace import parse_size
from chainrule.settings import Groups, setting

Smoothing = Literal[
    "modified-kneser-ney",
    "kneser-ney",
    "absolute-discounting",
    "witten-bell",
    "katz",
    "jelinek-mercer",
    "add-k",
    "laplace",
    "mle",
    "stupid-backoff",
    "infinite",
    "imported",
    "imported-scores",
    "mixed",
]

_GOES_WITH = {
    "k": "add-k",
    "good_turing": "katz",
    "buckets": "jelinek-mercer",
    "lambdas": "jelinek-mercer",
    "alpha": "stupid-backoff",
}
_NAMES = {1: "unigram", 2: "bigram", 3: "trigram"}
_MADE_OTHERWISE = {
    "imported": "a model that was read from an ARPA file (chainrule convert)",
    "imported-scores": "a model that was read from an ARPA file whose backoffs give probabilities above one",
    "mixed": "one that was mixed from two (chainrule mix)",
}
SCORES = ("stupid-backoff", "imported-scores")
"""Smoothing that gives scores, and no probabilities."""
_NOT_INFINITE = ("prune", "entropy", "bits", "index", "memory", "counts")


@dataclass(frozen=True)
class NgramSettings:
    """The settings of an n-gram model; --set on the command line."""

    GROUPS: ClassVar[Groups] = {
        "size": ("order", "prune", "entropy", "bits", "index"),
        "smoothing": ("smoothing", "k", "good_turing", "buckets", "lambdas", "alpha"),
        "hardware": ("memory",),
        "data": ("extra_words", "counts"),
    }

    order: int = setting(5, "tokens in the longest n-gram; the context is one less")
    smoothing: Smoothing = setting(  # noqa: RUF009 (a field, as the others are; the type's name hides it)
        "modified-kneser-ney",
        "how unseen n-grams get probability (mle gives them none)",
        unlisted=("infinite", *_MADE_OTHERWISE),
    )
    k: float = setting(0.01, "what add-k adds to every count (laplace is k=1)")
    good_turing: int = setting(15, "katz: counts up to this are discounted by Good-Turing, higher ones are trusted")
    buckets: int = setting(1, "jelinek-mercer: weights by how often a context was seen, in this number of buckets")
    lambdas: str = setting(
        "",
        "jelinek-mercer: the weights of the longest n-grams down to single tokens, e.g. 0.6,0.3,0.1, instead of "
        "tuned ones; what they leave of 1 is shared by all tokens",
    )
    alpha: float = setting(0.4, "stupid-backoff: the factor for each step to a shorter context")
    prune: str = setting("", "leave out rare n-grams, e.g. 0,0,1: those of 3 and more tokens seen once")
    entropy: float = setting(
        0.0, "leave out n-grams whose loss raises perplexity by less than this share, e.g. 1e-8"
    )
    bits: int = setting(0, "bits for each probability, e.g. 8 (backoffs then take 24); 0 keeps full precision")
    index: Literal["", "hash"] = setting(
        "", "hash: a hash table beside the n-grams; scores faster, takes twice the space"
    )
    memory: str = setting(
        "",
        "most memory to take, e.g. 4GB; the rest goes to disk (half of the machine's if empty); "
        "at least 25 MB more than the process has before it counts",
    )
    counts: bool = setting(False, "keep how often each n-gram occurred, for chainrule inspect --counts")
    extra_words: str = setting("", "a file of words, one per line, to add to the vocabulary", formerly="vocabulary")

    def __post_init__(self) -> None:
        if self.order > 1000:
            raise SettingsError(f"order should be at most 1000, not {self.order} (the kind anygram has no bound)")
        for name, is_valid, expected in (
            ("order", self.order >= 1, "at least 1"),
            ("k", 0 < self.k <= 1e6, "above 0 and at most a million"),
            ("good_turing", 1 <= self.good_turing <= 100, "from 1 to 100"),
            ("buckets", 1 <= self.buckets <= 64, "from 1 to 64"),
            ("alpha", 0 < self.alpha <= 1, "above 0 and at most 1"),
            ("entropy", 0 <= self.entropy < 1, "at least 0 and below 1"),
            ("bits", self.bits == 0 or 2 <= self.bits <= 16, "from 2 to 16, or 0 for full precision"),
        ):
            if not is_valid:
                raise SettingsError(f"{name} should be {expected}, not {getattr(self, name)}")
        parse_thresholds(self.prune, self.order)
        if self.memory:
            parse_size(self.memory)
        for name, smoothing in _GOES_WITH.items():
            if getattr(self, name) != getattr(type(self), name) and self.smoothing != smoothing:
                raise SettingsError(f"{name} goes with smoothing={smoothing}, not with smoothing={self.smoothing}")
        if self.lambdas and self.buckets > 1:
            raise SettingsError("lambdas are the same for every context: leave out buckets")
        parse_lambdas(self.lambdas, self.order)
        if self.entropy and self.smoothing in SCORES:
            raise SettingsError("entropy goes with probabilities; stupid-backoff gives scores")
        if self.counts and (self.prune or self.entropy):
            raise SettingsError(
                "counts=true keeps the count of every n-gram: it does not go with prune and entropy"
            )
        if self.smoothing == "infinite":
            for name in _NOT_INFINITE:
                if getattr(self, name) != getattr(type(self), name):
                    raise SettingsError(f"{name} does not go with smoothing=infinite")

    def check_trainable(self) -> None:
        """Refuse a smoothing that only marks models as imported or mixed."""
        if self.smoothing in _MADE_OTHERWISE:
            raise SettingsError(
                f"smoothing={self.smoothing} marks {_MADE_OTHERWISE[self.smoothing]}: it cannot be trained"
            )

    @property
    def name(self) -> str:
        """The model in words, such as `trigram, kneser-ney`."""
        return f"{length_name(self.order)}, {self.smoothing}"

    @property
    def is_normalised(self) -> bool:
        """True if the model returns probabilities, and not scores that do not sum to one."""
        # with mle, nothing is left for unseen words that could make up for rounding
        is_rounded = self.smoothing == "mle" and self.bits > 0
        return not is_rounded and self.smoothing not in SCORES

    @property
    def keeps_suffixes(self) -> bool:
        """True if the model has all n-grams of a text, and so each of them also without its first word."""
        return not (self.prune or self.entropy) and self.smoothing not in ("imported", "imported-scores", "mixed")

    @property
    def log_alpha(self) -> float:
        """The logarithm of stupid backoff's factor for each shorter context; 0 for other smoothing methods."""
        return math.log(self.alpha) if self.smoothing == "stupid-backoff" else 0.0

    @property
    def is_token_frequency(self) -> bool:
        """True if the model is the relative frequency of each token in the training text."""
        return self.order == 1 and self.smoothing == "mle"

    @property
    def tunes_on_held_out(self) -> bool:
        """True if training needs validation text."""
        return self.smoothing == "infinite" or (self.smoothing == "jelinek-mercer" and not self.lambdas)


SMOOTHINGS: tuple[str, ...] = tuple(name for name in get_args(Smoothing) if name not in _MADE_OTHERWISE)
"""The smoothing methods that can be trained."""


def length_name(n: int) -> str:
    """Return the name of n-grams of n tokens: unigram, bigram, trigram, 4-gram, ..."""
    return _NAMES.get(n, f"{n}-gram")


def parse_lambdas(text: str, order: int) -> list[float]:
    """Return the weights of n-grams of `order`, ..., 2, 1 tokens, parsed from text; none for no text.

    >>> parse_lambdas("0.6,0.3,0.1", 3)
    [0.6, 0.3, 0.1]
    """
    try:
        weights = [float(part) for part in text.split(",")] if text else []
    except ValueError:
        weights = [-1.0]
    if text and (len(weights) != order or not all(weight >= 0 for weight in weights) or sum(weights) > 1 + 1e-9):
        example = ",".join(f"{2 * (order - i) / (order * (order + 1)):.2g}" for i in range(order))
        raise SettingsError(
            f"lambdas should be {order} weights for order={order}, the longest n-grams first, of a sum of at most "
            f"1, such as {example}, not {text!r}"
        )
    return weights


def parse_thresholds(text: str, order: int) -> list[int]:
    """Return the pruning threshold of each length up to `order`, parsed from text; the last one given is repeated.

    `0,0,1` keeps all words and bigrams, and longer n-grams that occurred more than once.
    """
    try:
        thresholds = [int(part) for part in text.split(",")] if text else [0]
    except ValueError:
        thresholds = [-1]
    thresholds = (thresholds + [thresholds[-1]] * order)[:order] if len(thresholds) <= order else [-1]
    if min(thresholds) < 0 or thresholds != sorted(thresholds):
        raise SettingsError(f"prune should be at most {order} counts that do not fall, such as 0,0,1, not {text!r}")
    if thresholds[0] != 0:
        raise SettingsError("prune should start with 0: words are never pruned (bound the vocabulary instead)")
    return thresholds
