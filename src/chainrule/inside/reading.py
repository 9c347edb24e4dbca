"""The text that a model reads before the token that is looked at, and that token, as ids."""

from __future__ import annotations

from chainrule.errors import DiagnosisError
from chainrule.lm import LanguageModel
from chainrule.system.progress import Progress


def text_ids(lm: LanguageModel, text: str, progress: Progress) -> list[int]:
    """The ids of a text; of its last line only, if the model knows single lines."""
    text = text.replace("\r\n", "\n")
    if lm.context == "line" and "\n" in text[:-1]:
        text = text[text.rindex("\n", 0, -1) + 1 :]
        progress.note("the model knows single lines: only the last one is read")
    ids: list[int] = lm.tokenizer.encode(text).tolist()
    return ids


def ids_and_target(
    lm: LanguageModel, text: str, next_word: str | None, progress: Progress
) -> tuple[list[int], int]:
    """The ids that the model reads, and the id that it is to predict: the last of the text, or `next_word`."""
    ids = text_ids(lm, text, progress)
    if next_word is not None:
        ids.append(_next(lm, next_word))
    if not ids:
        raise DiagnosisError("the text has no token to predict: give some words, or the next word")
    note_unknown(lm, ids, progress)
    return ids[:-1], ids[-1]


def note_unknown(lm: LanguageModel, ids: list[int], progress: Progress) -> None:
    """Note how many of the tokens are unknown to the model, if some are."""
    unknown = ids.count(lm.tokenizer.unk) if lm.tokenizer.unk is not None else 0
    if unknown:
        progress.note(f"{unknown:,} of {len(ids):,} tokens are unknown to the model")


def word(lm: LanguageModel, token: int) -> str:
    """The text of a token for people: in quotes if it is empty, unprintable or has spaces at its ends."""
    text = lm.tokenizer.token(token)
    return text if text.isprintable() and text.strip() == text != "" else repr(text)


def _next(lm: LanguageModel, text: str) -> int:
    """The id of a word that is a single token; </s>, as it is called in tables, is the end of a line."""
    if text == lm.tokenizer.token(lm.tokenizer.eos):
        return lm.tokenizer.eos
    found: list[int] = lm.tokenizer.encode(text).tolist()
    if len(found) != 1:
        pieces = ", ".join(word(lm, one) for one in found) or "nothing"
        raise DiagnosisError(
            f"the next word should be one token; {text!r} is {len(found)}: {pieces}. "
            "Give one of those; in subwords the space before a word is part of it"
        )
    return found[0]
