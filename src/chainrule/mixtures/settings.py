"""The settings of a mixture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from chainrule.errors import SettingsError
from chainrule.mixtures.caches import Cache
from chainrule.settings import Groups, setting

Form: TypeAlias = Literal["linear", "log-linear"]


@dataclass(frozen=True)
class MixtureSettings:
    """The settings of a mixture, which `chainrule mix` makes."""

    GROUPS: ClassVar[Groups] = {
        "design": ("models", "form", "by", "of"),
        "caches": ("cache", "continuous_cache", "continuous_cache_of", "theta"),
    }

    models: int = setting(2, "how many models it has")
    form: Literal["linear", "log-linear"] = setting(
        "linear", "whether probabilities are added, or multiplied (log-linear)"
    )
    by: Literal["none", "length", "match", "entropy"] = setting(
        "none",
        "what the weights depend on: nothing, the length of the context, the longest context that an n-gram model "
        "knows, or the entropy of a model",
    )
    of: int = setting(1, "the number of the model whose contexts or entropies count")
    cache: int = setting(0, "tokens in a unigram cache; 0: none")
    continuous_cache: int = setting(0, "tokens in a continuous cache; 0: none")
    continuous_cache_of: int = setting(1, "the number of the network whose features are its keys")
    theta: float = setting(0.0, "how much the continuous cache prefers like contexts")

    def __post_init__(self) -> None:
        if self.models < 1:
            raise SettingsError(f"a mixture has one or more models, not {self.models}")
        for name in ("of", "continuous_cache_of"):
            if not 1 <= getattr(self, name) <= self.models:
                raise SettingsError(f"{name} should be the number of a model, from 1 to {self.models}")
        if min(self.cache, self.continuous_cache) < 0:
            raise SettingsError("a cache should have 0 tokens (none) or more")
        if self.form == "log-linear" and (self.cache or self.continuous_cache or self.by != "none"):
            raise SettingsError(
                "a log-linear mixture has constant weights and no caches; it can be mixed with a cache afterwards"
            )

    def caches(self, vocab_size: int, bos: int) -> list[Cache]:
        """Return the caches in the order of their weights, which follow those of the models."""
        found = [Cache(self.cache, vocab_size, bos)] if self.cache else []
        if self.continuous_cache:
            found.append(Cache(self.continuous_cache, vocab_size, bos, self.continuous_cache_of - 1, self.theta))
        return found
