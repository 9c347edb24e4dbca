"""Tokens as text: pieces that stream, stop sequences, and ln p of each token as clients expect it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from chainrule.contract.lm import LanguageModel
from chainrule.decode.generate import Growing
from chainrule.decode.healing import Respellings
from chainrule.serve.batching.requests import Generated, Started
from chainrule.tokens.base import Tokenizer

LOWEST = -9999.0
"""Sent to clients for ln 0: JSON has no infinity."""


class StreamedText:
    """A text that is being generated, piece by piece, until it ends by itself or at a stop sequence."""

    def __init__(self, lm: LanguageModel, prompt: str, started: Started, stops: Sequence[str]) -> None:
        self._growing = Growing(lm, prompt, Respellings(started.read, started.rest), started.ids)
        self._stops, self._held = tuple(stops), ""
        self.text = ""
        """The text so far."""
        self.finish: str | None = None
        """Why it ended; None while it goes on."""
        self.tokens = 0
        self.log_prob = 0.0

    def add(self, new: Generated) -> str:
        """Add tokens, and return the text to send now; the start of a possible stop sequence is held back."""
        if self.finish is not None:
            return ""
        self.tokens += len(new.ids)
        self.log_prob += sum(new.log_probs)
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


def token_texts(tokenizer: Tokenizer, before: Sequence[int], ids: Sequence[int]) -> list[str]:
    """Return the text that each token adds to those before it."""
    every = [*before, *ids]
    start = len(before)
    return [
        tokenizer.continuation(every[max(0, place - 16) : place], [every[place]])
        for place in range(start, len(every))
    ]


def bounded(log_prob: float) -> float:
    """Return ln p as a number that JSON has."""
    return log_prob if math.isfinite(log_prob) else LOWEST


class TokenList:
    """Tokens with ln p and alternatives, in the shape of /v1/completions."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.tokens: list[str] = []
        self.log_probs: list[float] = []
        self.tops: list[dict[str, float]] | None = None
        self.offsets: list[int] = []

    def add(
        self,
        before: Sequence[int],
        ids: Sequence[int],
        log_probs: Iterable[float],
        tops: Sequence[Sequence[tuple[int, float]]] | None,
        offset: int,
    ) -> int:
        """Add tokens that follow others and start at a place of the text; return the place after them."""
        texts = token_texts(self._tokenizer, before, ids)
        self.tokens += texts
        self.log_probs += map(bounded, log_probs)
        for text in texts:
            self.offsets.append(offset)
            offset += len(text)
        if tops is not None:
            self.tops = self.tops or []
            every = [*before, *ids]
            for place, some in enumerate(tops):
                nearby = every[max(0, len(before) + place - 16) : len(before) + place]
                self.tops.append(self._named(nearby, some))
        return offset

    def _named(self, nearby: Sequence[int], tops: Iterable[tuple[int, float]]) -> dict[str, float]:
        """Return alternatives by their text; tokens that add the same text go by their names."""
        named: dict[str, float] = {}
        for token, log_prob in tops:
            text = self._tokenizer.continuation(nearby, [token])
            if not text or text in named or "\ufffd" in text:
                text = self._tokenizer.token(token)
            named.setdefault(text, bounded(log_prob))
        return named

    def to_json(self) -> dict[str, Any]:
        """Return the fields that clients know."""
        return {
            "tokens": self.tokens,
            "token_logprobs": self.log_probs,
            "top_logprobs": self.tops,
            "text_offset": self.offsets,
        }
