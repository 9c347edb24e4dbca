"""The parts of a tokenizer.json of the `tokenizers` library."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from chainrule.errors import TokenizerError
from chainrule.tokens.published import PublishedTokenizer

Definition = dict[str, Any]


def definition_of(
    model: Mapping[str, Any],
    *,
    normalizer: Any = None,
    pre_tokenizer: Any = None,
    decoder: Any = None,
    added: Sequence[Mapping[str, Any]] = (),
) -> Definition:
    """Return a tokenizer.json; no text is cut or filled up, and none gets tokens before or after it."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": list(added),
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None,
        "decoder": decoder,
        "model": dict(model),
    }


def made(definition: Definition, path: Path, **tokens: Any) -> PublishedTokenizer:
    """Return the tokenizer of a definition from a file, with its special tokens; an error names the file."""
    try:
        return PublishedTokenizer(json.dumps(definition, ensure_ascii=False), **tokens)
    except TokenizerError as error:
        raise TokenizerError(f"{path}: {error}") from None


def configuration(longest: int, *, splits: bool, **names: Any) -> dict[str, Any]:
    """Return a tokenizer_config.json for a model of at most `longest` tokens, and the names of special tokens.

    `splits`: a text never becomes a special token.
    """
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": longest,
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": splits,
        **names,
    }


def bpe(vocabulary: Mapping[str, int], merges: Sequence[Sequence[str]], **options: Any) -> dict[str, Any]:
    """Return a model of merges."""
    base: dict[str, Any] = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None}
    base |= {"end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False}
    return {**base, **options, "vocab": dict(vocabulary), "merges": [list(pair) for pair in merges]}


def byte_level_bpe(
    vocabulary: Mapping[str, int], merges: Sequence[Sequence[str]], *special: tuple[int, str], words: Any = None
) -> Definition:
    """Return byte-level BPE with these special tokens; `words` is the step that splits a text [as GPT-2 does]."""
    added = [added_token(number, name, special=True) for number, name in special]
    words = words or byte_level()
    return definition_of(bpe(vocabulary, merges), pre_tokenizer=words, decoder=byte_level(), added=added)


def added_token(number: int, content: str, *, special: bool) -> dict[str, Any]:
    """Return a token that is split off before anything else; our tokenizers do not split off special tokens."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": number, "content": content, **flags, "special": special}


def byte_level(*, use_regex: bool = True) -> dict[str, Any]:
    """Return the step that writes bytes as characters, with text split into words as GPT-2 does, or not split."""
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": use_regex}


def split(pattern: str, behaviour: str) -> dict[str, Any]:
    """Return a step that splits at matches of a regular expression."""
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behaviour, "invert": False}


def replace(pattern: Mapping[str, str], content: str) -> dict[str, Any]:
    """Return a step that replaces a string, or the matches of a regular expression."""
    return {"type": "Replace", "pattern": dict(pattern), "content": content}


def steps(kind: str, *parts: Mapping[str, Any]) -> dict[str, Any]:
    """Several steps in sequence; `kind` is what the library calls their list."""
    return {"type": "Sequence", kind: list(parts)}


def surrounded_by(first: tuple[int, str] | None, last: tuple[int, str] | None = None) -> dict[str, Any]:
    """Return the step that puts a token before and after every text, each given by id and name, or None."""
    before, after = ([] if token is None else [_special(token[1])] for token in (first, last))
    text, other = ({"Sequence": {"id": name, "type_id": number}} for number, name in enumerate("AB"))
    return {
        "type": "TemplateProcessing",
        "single": [*before, text, *after],
        "pair": [*before, text, *after, other, *after],
        "special_tokens": {
            name: {"id": name, "ids": [number], "tokens": [name]} for number, name in filter(None, (first, last))
        },
    }


def _special(name: str) -> dict[str, Any]:
    return {"SpecialToken": {"id": name, "type_id": 0}}
