"""Our tokenizers as tokenizer.json and tokenizer_config.json, which `AutoTokenizer` of transformers reads.

The ids are the same for every text: a line end is </s>, and the letters "<s>" are letters, since
`split_special_tokens` keeps texts from becoming special tokens. One difference is left: pieces of more than 256
characters, which we cut, are not cut there.

Special tokens are left out where a reader asks for text alone. Every text begins with <s>. A line ends in </s>, and
that is special for a model of lines. A text that flows across lines keeps its line ends, and has no end: the token
that would end it is the <s> of the next one, which is never written.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from chainrule.contract.lm import Context
from chainrule.errors import TokenizerError
from chainrule.interop.vocabularies.definitions import (
    Definition,
    added_token,
    byte_level,
    byte_level_bpe,
    configuration,
    definition_of,
    replace,
    split,
    steps,
    surrounded_by,
)
from chainrule.tokens.base import Tokenizer
from chainrule.tokens.char import ByteTokenizer, CharTokenizer
from chainrule.tokens.published import PublishedTokenizer
from chainrule.tokens.subwords.library import INSIDE, byte_characters, character_bytes
from chainrule.tokens.subwords.tokenizer import SubwordTokenizer
from chainrule.tokens.words.tokenizer import WordTokenizer

START, LINE_END = "<s>", "\n"
_SPACED = "{} "  # a name with a space in it, which no word has


class Special(NamedTuple):
    """The tokens that other programs ask for, by their ids."""

    start: int
    """The token before a text."""
    end: int | None
    """The token that ends a text; None: a published model without one."""
    pad: int


def special_tokens(tokenizer: Tokenizer, context: Context) -> Special:
    """Return the special tokens of a model of this context."""
    if isinstance(tokenizer, PublishedTokenizer):
        end = tokenizer.eos if context == "line" else tokenizer.stop
        return Special(tokenizer.start, end, tokenizer.start if tokenizer.stop is None else tokenizer.stop)
    return Special(tokenizer.bos, tokenizer.eos if context == "line" else tokenizer.bos, tokenizer.bos)


def published_files(tokenizer: Tokenizer, context: Context, longest: int) -> tuple[Definition, dict[str, Any]]:
    """tokenizer.json, and tokenizer_config.json for a model that reads at most `longest` tokens."""
    definition, start_name, _ = definition_and_names(tokenizer)
    special = special_tokens(tokenizer, context)
    if isinstance(tokenizer, PublishedTokenizer):
        names = [None if token is None else token_name(tokenizer, token) for token in special]
    elif context == "line":
        start_name, end_name = _with_special_line_end(definition, tokenizer, start_name)
        names = [start_name, end_name, start_name]
    else:
        names = [start_name] * len(special)
    definition["post_processor"] = surrounded_by((special.start, str(names[0])))
    named = dict(zip(("bos_token", "eos_token", "pad_token"), names, strict=True))
    return definition, configuration(longest, splits=True, **named)


def rows_of(tokenizer: Tokenizer) -> int:
    """Return how many tokens a published table has: <s> of a published tokenizer is ours alone."""
    return tokenizer.size if isinstance(tokenizer, PublishedTokenizer) else tokenizer.vocab_size


def never_written(tokenizer: Tokenizer) -> list[int]:
    """Return the tokens that no text has, and that generation leaves out: <s> and <unk>."""
    return [i for i in (tokenizer.bos, tokenizer.unk) if i is not None and i < rows_of(tokenizer)]


def token_name(tokenizer: Tokenizer, token: int) -> str:
    """Return the name of a token in a published vocabulary."""
    assert isinstance(tokenizer, PublishedTokenizer)
    name = tokenizer.reference.id_to_token(token)
    if name is None:
        raise TokenizerError(f"the token {token} has no name in the vocabulary")
    return str(name)


def definition_and_names(tokenizer: Tokenizer) -> tuple[Definition, str, dict[str, Any]]:
    """tokenizer.json, the name of <s> in it, and the names of special tokens."""
    if isinstance(tokenizer, PublishedTokenizer):
        first, last = (
            None if token is None else tokenizer.reference.id_to_token(token)
            for token in (tokenizer.start, tokenizer.stop)
        )
        names = {"bos_token": first, "eos_token": last, "pad_token": last or first}
        return tokenizer.to_json()["tokenizers"], "", names
    if isinstance(tokenizer, SubwordTokenizer):
        found, start = _of_subwords(tokenizer), START
    elif isinstance(tokenizer, ByteTokenizer):
        start, whole = START, byte_level(use_regex=False)
        found = byte_level_bpe(character_bytes(), [], (tokenizer.bos, START), words=whole)
    elif isinstance(tokenizer, CharTokenizer):
        found, start = _of_characters(tokenizer), START
    elif isinstance(tokenizer, WordTokenizer) and tokenizer.splitting == "whitespace":
        found, start = _of_words(tokenizer), _SPACED.format(START)
    else:
        raise TokenizerError(f"{tokenizer.name} tokens cannot be written as tokenizer.json")
    return found, start, {"bos_token": start, "pad_token": start}


def _with_special_line_end(definition: Definition, tokenizer: Tokenizer, start_name: str) -> tuple[str, str]:
    """Let the vocabulary spell a line end, and return the names of <s> and </s>.

    A special token is not searched for in texts, so that of a line end has to be found by the vocabulary. One of
    subwords has a piece for the byte LF, which no text has: the token of a line end takes its name, and the piece
    gets another that is decoded in the same way.
    """
    if not isinstance(tokenizer, (SubwordTokenizer, ByteTokenizer)):
        return start_name, LINE_END
    end_name = byte_characters()[ord(LINE_END)]
    if isinstance(tokenizer, ByteTokenizer):
        return start_name, end_name
    start_name = _SPACED.format(START)
    vocabulary = definition["model"]["vocab"]
    if isinstance(vocabulary, list):  # of Unigram: pieces and scores in the order of their ids
        worst = min(score for _, score in vocabulary)
        vocabulary[:] = [[LINE_END if name == end_name else name, score] for name, score in vocabulary]
        vocabulary += [[start_name, worst], [end_name, worst]]
    else:
        vocabulary |= {LINE_END: vocabulary.pop(end_name), start_name: tokenizer.bos, end_name: tokenizer.eos}
    definition["added_tokens"] = [added_token(tokenizer.bos, start_name, special=True)]
    lines = split(LINE_END, "Isolated")
    definition["pre_tokenizer"] = steps("pretokenizers", lines, definition["pre_tokenizer"])
    return start_name, end_name


def _of_subwords(tokenizer: SubwordTokenizer) -> Definition:
    definition: Definition = tokenizer.to_json()["tokenizers"]
    definition["added_tokens"] = [
        added_token(tokenizer.bos, START, special=True),
        added_token(tokenizer.eos, LINE_END, special=False),
    ]
    inside = [replace({"String": INSIDE}, "")] if tokenizer.algorithm == "wordpiece" else []
    definition["decoder"] = steps("decoders", *inside, byte_level()) if inside else byte_level()
    return definition


def _of_characters(tokenizer: CharTokenizer) -> Definition:
    return definition_of(
        _word_level("<unk>", START, tokenizer.characters),
        pre_tokenizer=split(r"(?m:.)", "Isolated"),
        decoder={"type": "Fuse"},
        added=[added_token(tokenizer.bos, START, special=True)],
    )


def _word_level(unknown: str, start: str, words: Iterable[str]) -> dict[str, Any]:
    """Return a model of words, or of characters, after the names of <unk>, <s> and </s>."""
    vocabulary = {word: number for number, word in enumerate([unknown, start, LINE_END, *words])}
    return {"type": "WordLevel", "vocab": vocabulary, "unk_token": unknown}


def _of_words(tokenizer: WordTokenizer) -> Definition:
    start, unknown = _SPACED.format(START), _SPACED.format("<unk>")
    spaces = split(r"[ \t\r\x0b\x0c]+", "Removed")
    # each word brings a space, which is none at the beginning of a line
    decoder = steps(
        "decoders",
        replace({"String": unknown}, "<unk>"),
        replace({"Regex": "^(?=[^\n])"}, " "),
        {"type": "Fuse"},
        replace({"String": "\n "}, "\n"),
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    )
    return definition_of(
        _word_level(unknown, start, tokenizer.words),
        pre_tokenizer=steps("pretokenizers", split("\n", "Isolated"), spaces),
        decoder=decoder,
        added=[added_token(tokenizer.bos, start, special=True)],
    )
