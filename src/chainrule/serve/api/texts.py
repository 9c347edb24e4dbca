"""Texts that are being generated: pieces that stream, stop sequences, and ln p of each token for clients."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any, TypeAlias

from chainrule.contract.lm import LanguageModel
from chainrule.decode.generate import Growing
from chainrule.decode.healing import Respellings
from chainrule.errors import DecodingError
from chainrule.serve.api.schemas import Prompt
from chainrule.serve.batching.requests import Generated, Started
from chainrule.tokens.base import Tokenizer

LOWEST = -9999.0
"""Sent to clients for ln 0: JSON has no infinity."""
Tops: TypeAlias = Sequence[tuple[int, float]]
"""The most likely tokens at a place, and ln p of each."""
NEARBY = 16
"""Tokens before another one that may change the text that it adds."""


def check_prompt(lm: LanguageModel, prompt: Prompt) -> None:
    """Refuse tokens that a model does not have."""
    size = lm.tokenizer.vocab_size
    if isinstance(prompt, tuple) and max(prompt) >= size:
        raise DecodingError(f"the prompt has a token that the model does not have: tokens are below {size}")


def prompt_text(lm: LanguageModel, prompt: Prompt) -> str:
    """Return a prompt as text."""
    return prompt if isinstance(prompt, str) else lm.tokenizer.decode(prompt)


def prompt_tokens(lm: LanguageModel, prompt: Prompt) -> list[int]:
    """Return a prompt as tokens, all of its lines."""
    return lm.tokenizer.encode(prompt).tolist() if isinstance(prompt, str) else list(prompt)


def bounded(log_prob: float) -> float:
    """Return ln p as a number that JSON has."""
    return log_prob if math.isfinite(log_prob) else LOWEST


class TokenList:
    """The tokens of a text that were not sent yet, with ln p and, if `has_tops`, alternatives."""

    def __init__(self, tokenizer: Tokenizer, *, has_tops: bool) -> None:
        self._tokenizer, self._has_tops = tokenizer, has_tops
        self._entries: list[tuple[str, float, dict[str, float], int]] = []
        """The text, ln p, alternatives and place in the text of each token."""
        self.read: Sequence[int] = []
        """The tokens before the next one."""
        self.offset = 0
        """Where the next token starts in the text."""

    def add(self, ids: Sequence[int], log_probs: Sequence[float], tops: Sequence[Tops] | None) -> Iterator[None]:
        """Add tokens, one each time; `tops` are the alternatives of each."""
        for token, log_prob, some in zip(ids, log_probs, tops or [()] * len(ids), strict=True):
            nearby = self.read[-NEARBY:]
            text = self._tokenizer.continuation(nearby, [token])
            self._entries.append((text, bounded(log_prob), self._named(nearby, some), self.offset))
            self.offset += len(text)
            self.read = [*nearby, token]
            yield

    def copy(self) -> TokenList:
        """Return a list with the same tokens, which others are added to."""
        other = copy(self)
        other._entries = [*self._entries]
        return other

    def _named(self, nearby: Sequence[int], tops: Tops) -> dict[str, float]:
        """Return alternatives by their text; tokens that add the same text go by their names."""
        named: dict[str, float] = {}
        for token, log_prob in tops:
            text = self._tokenizer.continuation(nearby, [token])
            if not text or text in named or "\ufffd" in text:
                text = self._tokenizer.token(token)
            named.setdefault(text, bounded(log_prob))
        return named

    def take(self) -> dict[str, Any]:
        """Return the tokens in the shape of /v1/completions; the list is empty after that."""
        names = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
        found: dict[str, Any] = {name: [entry[i] for entry in self._entries] for i, name in enumerate(names)}
        self._entries = []
        return found if self._has_tops else found | {"top_logprobs": None}


class Choice:
    """One text that continues a prompt, as far as it is generated: it ends by itself or at a stop sequence."""

    def __init__(
        self, lm: LanguageModel, index: int, prompt: Prompt, stops: Sequence[str], alternatives: int | None
    ) -> None:
        self.lm, self.index, self.prompt, self._stops = lm, index, prompt, stops
        self._growing: Growing | None = None  # until the prompt is read
        self._held = ""
        self.text = ""
        """The text so far."""
        self.finish: str | None = None
        """Why it ended; None while it goes on."""
        self.prompt_tokens = 0
        self.new_tokens = 0
        self._log_prob = 0.0
        self.tokens = None if alternatives is None else TokenList(lm.tokenizer, has_tops=alternatives > 0)
        """ln p of its tokens, where they are asked for."""

    @property
    def mean_log_prob(self) -> float:
        """The mean ln p of its tokens."""
        return self._log_prob / max(1, self.new_tokens)

    def work_of(self, new: Generated) -> int:
        """Return about how long it takes to add tokens, compared to a character that is read."""
        return 0 if self.tokens is None else 10 * len(new.ids) * (1 + len(new.tops[0] if new.tops else ()))

    def start(self, started: Started) -> None:
        """Note that the prompt was read."""
        prompt = prompt_text(self.lm, self.prompt)
        self._growing = Growing(self.lm, prompt, Respellings(started.read, started.rest), started.ids)
        self.prompt_tokens = started.tokens
        if self.tokens is not None:
            self.tokens.read, self.tokens.offset = [*started.read, *started.ids], len(prompt)

    def add(self, new: Generated) -> str:
        """Add tokens, and return the text to send now; the start of a possible stop sequence is held back."""
        assert self._growing is not None
        if self.tokens is not None:
            for _ in self.tokens.add(new.ids, new.log_probs, new.tops):
                pass
        self.new_tokens += len(new.ids)
        self._log_prob += sum(new.log_probs)
        self._growing.waiting += new.ids
        text = self._held + self._growing.shown()
        if new.finish:
            text += self._growing.rest()
        cut = min((place for stop in self._stops if (place := text.find(stop)) >= 0), default=None)
        if cut is not None:
            piece, self.finish = text[:cut], "stop"
        elif new.finish:
            piece, self.finish = text, new.finish
        else:
            held = max((_overlap(text, stop) for stop in self._stops), default=0)
            piece, self._held = text[: len(text) - held], text[len(text) - held :]
        self.text += piece
        return piece


def _overlap(text: str, stop: str) -> int:
    """Return how many characters at the end of a text may be the start of a stop sequence."""
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:size])), 0)
