"""The text that a model reads before the token that is explained, and that token, as ids."""

from __future__ import annotations

import ast

import numpy as np

from chainrule.arrays import to_numpy
from chainrule.contract.lm import LanguageModel
from chainrule.errors import DiagnosisError
from chainrule.system.progress import Progress
from chainrule.tokens.base import Tokenizer


def text_ids(lm: LanguageModel, text: str, progress: Progress) -> list[int]:
    """Return the ids of a text; only of its last line, if the model reads single lines."""
    text = text.replace("\r\n", "\n")
    if lm.context == "line" and "\n" in text[:-1]:
        text = text[text.rindex("\n", 0, -1) + 1 :]
        progress.note("the model knows single lines: only the last one is read")
    ids: list[int] = lm.tokenizer.encode(text).tolist()
    return ids


def ids_and_target(
    lm: LanguageModel,
    text: str,
    progress: Progress,
    *,
    next_word: str | None = None,
    after: bool = False,
    token: int | None = None,
    longest: int | None = None,
) -> tuple[list[int], int]:
    """Return the ids that the model reads, at most `longest` with the target, and the id that it should predict.

    The target is `next_word` after the text, or the most likely token `after` it; else the `token`-th of the text,
    which counts from 1, or its last one.
    """
    ids = text_ids(lm, text, progress)
    if next_word is not None:
        ids.append(_next_token(lm.tokenizer, text, next_word))
    elif after:
        state = lm.extend(lm.start(1), np.asarray([ids], dtype=np.int64).reshape(1, -1))
        ids.append(int(np.argmax(to_numpy(lm.next_log_probs(state))[0])))
    if not ids:
        raise DiagnosisError("the text has no token to predict: give some words")
    if token is not None and not 1 <= token <= len(ids):
        raise DiagnosisError(f"the text has tokens 1 to {len(ids)}; there is none with the number {token}")
    ids = ids[:token]
    if longest is not None and len(ids) > longest:
        progress.note(f"of {len(ids):,} tokens the last {longest:,} are read, as if the text began there")
        ids = ids[-longest:]
    unknown = ids.count(lm.tokenizer.unk) if lm.tokenizer.unk is not None else 0
    if unknown:
        progress.note(f"{unknown:,} of {len(ids):,} tokens are unknown to the model")
    return ids[:-1], ids[-1]


def word(tokenizer: Tokenizer, token: int) -> str:
    """Return the text of a token for people: in quotes if it is empty, unprintable or has spaces at its ends."""
    text = tokenizer.token(token)
    return text if text.isprintable() and text.strip() == text != "" else repr(text)


def token_of(shown: str) -> str:
    """Return the token that `word` shows in this way: without the quotes that stand for what cannot be seen."""
    if not (len(shown) > 1 and shown[0] == shown[-1] and shown[0] in "'\""):
        return shown
    try:
        text = str(ast.literal_eval(shown))
    except (ValueError, SyntaxError):
        return shown
    return shown if text.isprintable() and text.strip() == text != "" else text


def words(tokenizer: Tokenizer, ids: list[int] | tuple[int, ...]) -> tuple[str, ...]:
    """Return the texts of some tokens for people."""
    return tuple(word(tokenizer, token) for token in ids)


def _next_token(tokenizer: Tokenizer, text: str, following: str) -> int:
    """Return the id of a word after a text: where spaces belong to tokens, with the space that stands before it."""
    is_spaced = tokenizer.splitting is None and text[-1:].strip() and following != tokenizer.token(tokenizer.eos)
    return one_token(
        tokenizer, f" {following}" if is_spaced and len(tokenizer.encode(f" {following}")) == 1 else following
    )


def one_token(tokenizer: Tokenizer, text: str, name: str = "next word") -> int:
    """Return the id of a word that is a single token; </s>, as it is called in tables, is the end of a line."""
    if text == tokenizer.token(tokenizer.eos):
        return tokenizer.eos
    found: list[int] = tokenizer.encode(text).tolist()
    if len(found) != 1:
        pieces = ", ".join(words(tokenizer, found)) or "nothing"
        raise DiagnosisError(
            f"the {name} should be one token; {text!r} is {len(found)}: {pieces}. "
            "Give one of those; in subwords the space before a word is part of it"
        )
    return found[0]
