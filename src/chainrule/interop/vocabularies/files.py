"""Vocabularies of other programs: tokenizer.json, GPT-2's encoder.json and vocab.bpe, and .tiktoken files."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from chainrule.errors import SettingsError, TokenizerError
from chainrule.interop.foreign import reading
from chainrule.interop.vocabularies.definitions import Definition, byte_level, byte_level_bpe, made, split, steps
from chainrule.interop.vocabularies.sentencepiece import sentencepiece_tokenizer
from chainrule.tokens.published import PublishedTokenizer
from chainrule.tokens.subwords.library import byte_characters

END_OF_TEXT = "<|endoftext|>"
_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CLITICS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
PATTERNS: Mapping[str, str | None] = {
    "gpt2": None,
    "cl100k": f"{_CLITICS}|{_LETTERS}",
    "o200k": (
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CLITICS}?|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CLITICS}?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
}
"""How text is split into words before it is encoded: None, as GPT-2 does. A .tiktoken file does not say."""

_CONFIG = "tokenizer_config.json"
_SIZES = {50256: "gpt2", 50280: "gpt2", 100256: "cl100k", 199998: "o200k"}


def read_tokenizer(path: str | Path, *, pattern: str | None = None, size: int | None = None) -> PublishedTokenizer:
    """Return the tokenizer of a file or folder; `size` is the number of ids of the model in a folder.

    A folder has tokenizer.json, or encoder.json and vocab.bpe (also called vocab.json and merges.txt).
    """
    path = Path(path)
    if not path.exists():
        raise TokenizerError(f"{path}: no such file")
    with reading(path):
        if path.is_dir():
            return _of_folder(path, size)
        if path.suffix == ".tiktoken":
            return tiktoken_tokenizer(path, pattern)
        if path.suffix == ".model":
            return sentencepiece_tokenizer(path)
        if path.suffix == ".json":
            return json_tokenizer(path, {})
    raise TokenizerError(f"{path}: expected tokenizer.json, a .tiktoken or a .model file, or a folder")


def _of_folder(folder: Path, size: int | None) -> PublishedTokenizer:
    described = folder_description(folder)
    if (folder / "tokenizer.json").is_file():
        return json_tokenizer(folder / "tokenizer.json", described, size)
    for words, merges in (("encoder.json", "vocab.bpe"), ("vocab.json", "merges.txt")):
        if (folder / words).is_file() and (folder / merges).is_file():
            return gpt2_tokenizer(folder / words, folder / merges, size)
    if (folder / "tokenizer.model").is_file():
        return sentencepiece_tokenizer(folder / "tokenizer.model", size)
    raise TokenizerError(f"{folder}: no tokenizer.json, vocab.json and merges.txt, or tokenizer.model in it")


def folder_description(folder: Path) -> dict[str, Any]:
    """Return the special tokens of a folder, from any of its files; the first file that names a token counts.

    A tokenizer that is code of its own is refused, also where there is a file beside it: its ids might be others.
    """
    found: dict[str, Any] = {}
    for name in (_CONFIG, "special_tokens_map.json", "generation_config.json", "config.json"):
        if (folder / name).is_file():
            if name == _CONFIG and read_json(folder / name).get("auto_map"):
                raise TokenizerError(
                    f"{folder / name}: its tokenizer is code in the folder (auto_map), which is never run"
                )
            found = {**{k: v for k, v in read_json(folder / name).items() if v is not None}, **found}
    return found


def read_json(path: Path) -> dict[str, Any]:
    """Return the object of a JSON file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError, OSError) as error:
        raise TokenizerError(f"{path}: not JSON: {error}") from None
    if not isinstance(data, dict):
        raise TokenizerError(f"{path}: expected an object, found {type(data).__name__}")
    return data


def json_tokenizer(path: Path, described: Mapping[str, Any], size: int | None = None) -> PublishedTokenizer:
    """Return the tokenizer of a tokenizer.json of the `tokenizers` library, of bytes or of SentencePiece."""
    definition = read_json(path)
    text_alone, ids = plain(definition, path), added_ids(definition)
    stop = _token(described, "eos", ids)
    templates = [step for step in processors(definition) if step.get("type") == "TemplateProcessing"]
    first = [template_end(step, 0) for step in templates]
    found = (*first, _token(described, "bos", ids), stop, ids.get(END_OF_TEXT))
    start = next((token for token in found if token is not None), None)
    if start is None:
        raise TokenizerError(f"{path}: no token to begin a text with: neither bos_token nor eos_token is given")
    return made(text_alone, path, size=size, start=start, stop=stop)


def plain(definition: Definition, path: Path) -> Definition:
    """Return the definition without the steps that add or cut off tokens; one of another kind is refused."""
    kind = (definition.get("model") or {}).get("type", "BPE")
    if kind not in ("BPE", "Unigram", "WordLevel", "WordPiece"):
        raise TokenizerError(f"{path}: a tokenizer of type {kind!r} cannot be read")
    return definition | {"post_processor": None, "truncation": None, "padding": None}


def added_ids(definition: Definition) -> dict[str, int]:
    """Return the ids of added tokens, special ones among them, by name."""
    return {token["content"]: int(token["id"]) for token in definition.get("added_tokens") or []}


def processors(definition: Definition) -> list[dict[str, Any]]:
    """Return the steps that put tokens around a text."""
    processor = definition.get("post_processor") or {}
    found: Any = processor.get("processors", [processor]) if isinstance(processor, dict) else None
    if not isinstance(found, list) or not all(isinstance(step, dict) for step in found):
        raise SettingsError(f"post_processor should be an object of objects, not {type(processor).__name__}")
    return found


def template_end(step: Mapping[str, Any], place: Literal[0, -1]) -> int | None:
    """Return the token that a template puts before a text (0) or after it (-1)."""
    name = (step.get("single") or [{}])[place].get("SpecialToken", {}).get("id")
    return None if name is None else int(step["special_tokens"][name]["ids"][0])


def token_content(named: Any) -> Any:
    """Return the name of a token, which may stand in an object with its properties."""
    return named.get("content") if isinstance(named, dict) else named


def _token(described: Mapping[str, Any], which: str, ids: Mapping[str, int]) -> int | None:
    """Return the id of the token that begins or ends a text, by its name or by its number."""
    name = token_content(described.get(f"{which}_token"))
    if isinstance(name, str) and name in ids:
        return ids[name]
    number = described.get(f"{which}_token_id")
    number = number[0] if isinstance(number, list) and number else number
    return number if isinstance(number, int) else None


def gpt2_tokenizer(words: Path, merges: Path, size: int | None = None) -> PublishedTokenizer:
    """Return the tokenizer of GPT-2's encoder.json and vocab.bpe."""
    vocabulary = read_json(words)
    lines = merges.read_text(encoding="utf-8").split("\n")
    pairs = [line.split(" ") for line in lines if line and not line.startswith("#version")]
    if any(len(pair) != 2 for pair in pairs) or not all(type(number) is int for number in vocabulary.values()):
        raise TokenizerError(f"{merges}: expected two pieces a line, and in {words.name} a number for each piece")
    end = vocabulary.get(END_OF_TEXT)
    if end is None:
        raise TokenizerError(f"{words}: there is no {END_OF_TEXT} in it")
    definition = byte_level_bpe(vocabulary, pairs, (end, END_OF_TEXT))
    return made(definition, words, size=size, start=end, stop=end)


def tiktoken_tokenizer(path: Path, pattern: str | None = None) -> PublishedTokenizer:
    """Return the tokenizer of a .tiktoken file: a token in base64 and its rank on each line."""
    try:
        pairs = [line.split() for line in path.read_bytes().splitlines() if line]
        ranks = {base64.b64decode(token, validate=True): int(rank) for token, rank in pairs}
    except (ValueError, TypeError) as error:
        raise TokenizerError(f"{path}: expected a token in base64 and its rank on each line ({error})") from None
    chosen = pattern or _SIZES.get(len(ranks))
    if chosen is None or chosen not in PATTERNS:
        raise TokenizerError(
            f"{path}: a .tiktoken file does not say how text is split: name the pattern, {', '.join(PATTERNS)}"
        )
    spelled = {token: "".join(byte_characters()[byte] for byte in token) for token in ranks}
    halves = [_halves(token, ranks) for token in sorted(ranks, key=ranks.__getitem__) if len(token) > 1]
    merges = [[spelled[part] for part in pair] for pair in halves if len(pair) == 2]
    end, expression = max(ranks.values()) + 1, PATTERNS[chosen]
    words = byte_level()
    if expression is not None:
        words = steps("pretokenizers", split(expression, "Isolated"), byte_level(use_regex=False))
    vocabulary = {spelled[token]: rank for token, rank in ranks.items()}
    definition = byte_level_bpe(vocabulary, merges, (end, END_OF_TEXT), words=words)
    return made(definition, path, start=end, stop=end)


def _halves(token: bytes, ranks: Mapping[bytes, int]) -> list[bytes]:
    """Return the two tokens that are merged last into a token: what its bytes become by merges of lower rank."""
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 2:
        found = [(ranks.get(a + b, ranks[token]), i) for i, (a, b) in enumerate(pairwise(parts))]
        rank, place = min(found)
        if rank >= ranks[token]:
            break
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
    return parts
