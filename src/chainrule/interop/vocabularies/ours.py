"""Our tokenizers as tokenizer.json and tokenizer_config.json, which `AutoTokenizer` of transformers reads.

The ids are the same for every text: a line end is </s>, and the letters "<s>" are letters. So the token of a line
end is an ordinary one with the content LF, and `split_special_tokens` keeps texts from becoming special tokens.
One difference is left: pieces of more than 256 characters, which we cut, are not cut there.
"""

from __future__ import annotations

from typing import Any

from chainrule.contract.lm import Context, start_token
from chainrule.errors import TokenizerError
from chainrule.interop.vocabularies.definitions import (
    Definition,
    added_token,
    bpe,
    byte_level,
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
from chainrule.tokens.subwords.library import INSIDE, byte_characters
from chainrule.tokens.subwords.tokenizer import SubwordTokenizer
from chainrule.tokens.words.tokenizer import WordTokenizer

START, LINE_END = "<s>", "\n"
_SPACED = "{} "  # a name with a space in it, which no word has


def published_files(tokenizer: Tokenizer, context: Context, longest: int) -> tuple[Definition, dict[str, Any]]:
    """tokenizer.json, and tokenizer_config.json for a model that reads at most `longest` tokens."""
    definition, start_name, config = definition_and_names(tokenizer)
    start = start_token(tokenizer, context)
    if start != tokenizer.bos:
        start_name = LINE_END if start == tokenizer.eos else token_name(tokenizer, start)
    definition["post_processor"] = surrounded_by((start, start_name))
    return definition, configuration(longest, splits=True, **config)


def rows_of(tokenizer: Tokenizer) -> int:
    """How many tokens a published table has: <s> of a published tokenizer is ours alone."""
    return tokenizer.size if isinstance(tokenizer, PublishedTokenizer) else tokenizer.vocab_size


def never_written(tokenizer: Tokenizer) -> list[int]:
    """The tokens that no text has, and that generation leaves out: <s> and <unk>."""
    return [i for i in (tokenizer.bos, tokenizer.unk) if i is not None and i < rows_of(tokenizer)]


def token_name(tokenizer: Tokenizer, token: int) -> str:
    """The name of a token in a published vocabulary."""
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
        found, start = _of_bytes(tokenizer), START
    elif isinstance(tokenizer, CharTokenizer):
        found, start = _of_characters(tokenizer), START
    elif isinstance(tokenizer, WordTokenizer) and tokenizer.splitting == "whitespace":
        found, start = _of_words(tokenizer), _SPACED.format(START)
    else:
        raise TokenizerError(f"{tokenizer.name} tokens cannot be written as tokenizer.json")
    return found, start, {"bos_token": start, "pad_token": start}


def _of_subwords(tokenizer: SubwordTokenizer) -> Definition:
    definition: Definition = tokenizer.to_json()["tokenizers"]
    definition["added_tokens"] = [
        added_token(tokenizer.bos, START, special=True),
        added_token(tokenizer.eos, LINE_END, special=False),
    ]
    inside = [replace({"String": INSIDE}, "")] if tokenizer.algorithm == "wordpiece" else []
    definition["decoder"] = steps("decoders", *inside, byte_level()) if inside else byte_level()
    return definition


def _of_bytes(tokenizer: ByteTokenizer) -> Definition:
    vocabulary = {character: byte for byte, character in byte_characters().items()}
    return definition_of(
        bpe(vocabulary, []),
        pre_tokenizer=byte_level(use_regex=False),
        decoder=byte_level(),
        added=[added_token(tokenizer.bos, START, special=True)],
    )


def _of_characters(tokenizer: CharTokenizer) -> Definition:
    unknown = "<unk>"
    vocabulary = {unknown: tokenizer.unk, START: tokenizer.bos, LINE_END: tokenizer.eos}
    vocabulary |= {character: number for number, character in enumerate(tokenizer.characters, start=3)}
    return definition_of(
        {"type": "WordLevel", "vocab": vocabulary, "unk_token": unknown},
        pre_tokenizer=split(r"(?m:.)", "Isolated"),
        decoder={"type": "Fuse"},
        added=[added_token(tokenizer.bos, START, special=True)],
    )


def _of_words(tokenizer: WordTokenizer) -> Definition:
    start, unknown = _SPACED.format(START), _SPACED.format("<unk>")
    vocabulary = {unknown: tokenizer.unk, start: tokenizer.bos, LINE_END: tokenizer.eos}
    vocabulary |= {word: number for number, word in enumerate(tokenizer.words, start=3)}
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
        {"type": "WordLevel", "vocab": vocabulary, "unk_token": unknown},
        pre_tokenizer=steps("pretokenizers", split("\n", "Isolated"), spaces),
        decoder=decoder,
        added=[added_token(tokenizer.bos, start, special=True)],
    )
