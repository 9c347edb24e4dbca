"""Replies to prompts, by a model that was tuned to give them, or by any other that continues text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from chainrule.contract.lm import LanguageModel
from chainrule.decode.generate import Generation, generate_many
from chainrule.decode.strategies import Beam, Strategy
from chainrule.errors import ModelError
from chainrule.text.templates import TEMPLATE, conversation

_AT_ONCE = 64  # prompts in a batch


def template_of(lm: LanguageModel) -> str | None:
    """Return the template of prompts that a model was tuned with; None if it was not tuned to reply."""
    template: str | None = getattr(getattr(lm, "settings", None), "template", None)
    return template


def expect_template(lm: LanguageModel) -> str:
    """Return the template of a model; an error if it was not tuned to reply."""
    if (template := template_of(lm)) is None:
        raise ModelError(
            "this model continues text, and was not tuned to reply: chainrule train "
            f"{lm.kind} pairs.jsonl --set pretrained=DIR tunes it"
        )
    return template


def reply_ends(lm: LanguageModel) -> tuple[str, ...]:
    """Return the texts at which a reply ends, beside the end of a line that a model of lines writes itself."""
    return ("\n",) if lm.context == "stream" else ()


def as_reply(lm: LanguageModel, written: str) -> str:
    """Return the reply in what a model wrote after a prompt: all, or its first line if context flows across lines.

    >>> import chainrule as cr
    >>> as_reply(cr.train("ngram", ["a b"], order=2, context="stream", tokenizer="word"), " me. \\nUser: who?")
    'me.'
    """
    for end in reply_ends(lm):
        written = written.partition(end)[0]
    return written.strip()


def reply_many(
    lm: LanguageModel,
    prompts: Sequence[str | Iterable[tuple[str, str]]],
    strategy: Strategy | Beam | None = None,
    **how: Any,
) -> list[Generation]:
    """Return replies to each prompt, a text or the messages of a conversation; `continuation` is the reply.

    A prompt is put into the template of the model, or into the usual one if it has none. Other arguments are those
    of `generate_many`: n, max_tokens, seed, and so on.
    """
    template = template_of(lm) or TEMPLATE
    asked = [conversation(template, [("user", one)] if isinstance(one, str) else one) for one in prompts]
    found: list[Generation] = []
    # without healing, since a template ends where a token does
    for first in range(0, len(asked), _AT_ONCE):
        found += generate_many(lm, asked[first : first + _AT_ONCE], strategy, **{**how, "heal": False})
    return [replace(one, continuation=as_reply(lm, one.continuation)) for one in found]
