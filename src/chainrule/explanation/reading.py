"""The text that a model reads before the token that is looked at, and that token, as ids."""

from __future__ import annotations

from chainrule.contract.lm import LanguageModel
from chainrule.errors import DiagnosisError
from chainrule.system.progress import Progress
from chainrule.tokens.base import Tokenizer


def text_ids(lm: LanguageModel, text: str, progress: Progress) -> list[int]:
    """The ids of a text; of its last line only, if the model knows single lines."""
    text = text.replace("\r\n", "\n")
    if lm.context == "line" and "\n" in text[:-1]:
        text = text[text.rindex("\n", 0, -1) + 1 :]
        progress.note("the model knows single lines: only the last one is read")
    ids: list[int] = lm.tokenizer.encode(text).tolist()
    return ids


def ids_and_target(
    lm: LanguageModel, text: str, next_word: str | None, token: int | None, progress: Progress
) -> tuple[list[int], int]:
    """The ids that the model reads, and the id that it is to predict.

    That is `next_word` after the text, the `token`-th of the text, or its last one.
    """
    ids = text_ids(lm, text, progress)
    if next_word is not None:
        ids.append(one_token(lm.tokenizer, next_word))
    ids = up_to(ids, token)
    if not ids:
        raise DiagnosisError("the text has no token to predict: give some words, or the next word")
    note_unknown(lm, ids, progress)
    return ids[:-1], ids[-1]


def up_to(ids: list[int], token: int | None) -> list[int]:
    """The ids up to the `token`-th, which counts from 1; all of them for None."""
    if token is not None and not 1 <= token <= len(ids):
        raise DiagnosisError(f"the text has tokens 1 to {len(ids)}; there is none with the number {token}")
    return ids[:token]


def note_unknown(lm: LanguageModel, ids: list[int], progress: Progress) -> None:
    """Note how many of the tokens are unknown to the model, if some are."""
    unknown = ids.count(lm.tokenizer.unk) if lm.tokenizer.unk is not None else 0
    if unknown:
        progress.note(f"{unknown:,} of {len(ids):,} tokens are unknown to the model")


def word(lm: LanguageModel, token: int) -> str:
    """The text of a token for people: in quotes if it is empty, unprintable or has spaces at its ends."""
    return shown(lm.tokenizer, token)


def shown(tokenizer: Tokenizer, token: int) -> str:
    """The same for a token of a tokenizer."""
    text = tokenizer.token(token)
    return text if text.isprintable() and text.strip() == text != "" else repr(text)


def one_token(tokenizer: Tokenizer, text: str, name: str = "next word") -> int:
    """The id of a word that is a single token; </s>, as it is called in tables, is the end of a line."""
    if text == tokenizer.token(tokenizer.eos):
        return tokenizer.eos
    found: list[int] = tokenizer.encode(text).tolist()
    if len(found) != 1:
        pieces = ", ".join(shown(tokenizer, one) for one in found) or "nothing"
        raise DiagnosisError(
            f"the {name} should be one token; {text!r} is {len(found)}: {pieces}. "
            "Give one of those; in subwords the space before a word is part of it"
        )
    return found[0]
