"""Decoding: from next-token distributions to text, for any model that keeps the contract.

In reading order:

    strategies.py  how the next token is chosen: small values that compose
    sample.py      sampling from any state, many rows at once
    drafts.py      guesses at the next tokens: by another model, or copied from the text itself
    speculative.py sampling in which a model checks such guesses, several tokens at a time
    beam.py        beam search from any state
    tree.py        the tree of a beam search, step by step, and its picture
    healing.py     prompts that stop inside a token
    generate.py    `generate`, `stream`: a prompt in, text out
    replies.py     replies to prompts, by a model that was tuned to give them
    suggest.py     `suggest`: the words that complete a text or follow it
    randomness.py  random numbers that depend on the seed and the prompt, not on the batch
    top.py         the k largest values of each row
"""

from __future__ import annotations

from chainrule.decode.drafts import Draft
from chainrule.decode.generate import Generation
from chainrule.decode.replies import reply_many
from chainrule.decode.strategies import FrequencyPenalty, PresencePenalty, RepetitionPenalty, Strategy
from chainrule.decode.suggest import Suggestion

__all__ = [
    "Draft",
    "FrequencyPenalty",
    "Generation",
    "PresencePenalty",
    "RepetitionPenalty",
    "Strategy",
    "Suggestion",
    "reply_many",
]
