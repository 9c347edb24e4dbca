"""Tokenizers of masked models and of encoder-decoders, which put tokens before and after every text.

A masked model reads a token, the text and </s>; [MASK] in a text is a gap. An encoder-decoder reads a source and
</s>, of some makers with a token before it. `AutoTokenizer` gives the ids that we give to a text of one line.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chainrule.contract.lm import Context, start_token
from chainrule.errors import TokenizerError
from chainrule.interop.vocabularies.definitions import (
    Definition,
    added_token,
    configuration,
    made,
    replace,
    steps,
    surrounded_by,
)
from chainrule.interop.vocabularies.files import (
    added_ids,
    folder_description,
    plain,
    processors,
    read_json,
    template_end,
    token_content,
)
from chainrule.interop.vocabularies.ours import LINE_END, definition_and_names, token_name
from chainrule.masked.contract import MASK
from chainrule.masked.filling import gaps_take_spaces
from chainrule.tokens.base import Tokenizer
from chainrule.tokens.published import PublishedTokenizer

_USUAL = {"mask_token": MASK, "cls_token": "[CLS]", "sep_token": "[SEP]"}
_INPUTS = {"model_input_names": ["input_ids", "attention_mask"]}
_UNSEEN = "<s> "  # with a space, which no piece of a text has at its end


# -- writing ----------------------------------------------------------------------------------------------


def mask_of(tokenizer: Tokenizer) -> int:
    """Return the id of [MASK] in the published vocabulary; <s> of a published tokenizer is ours alone."""
    if not isinstance(tokenizer, PublishedTokenizer):
        return tokenizer.vocab_size
    return tokenizer.size if tokenizer.mask is None else tokenizer.mask


def masked_files(tokenizer: Tokenizer, context: Context, longest: int) -> tuple[Definition, dict[str, Any]]:
    """tokenizer.json and tokenizer_config.json of a masked model that reads at most `longest` tokens.

    Special tokens are found in texts there, since [MASK] should be. So <s> is none of them, but an entry of the
    vocabulary that no text can have.
    """
    definition, _, _ = definition_and_names(tokenizer)
    mask, start = mask_of(tokenizer), start_token(tokenizer, context)
    if isinstance(tokenizer, PublishedTokenizer):
        end = tokenizer.eos
        end_name, start_name = token_name(tokenizer, end), token_name(tokenizer, start)
    else:
        end, end_name = tokenizer.eos, LINE_END
        start_name = end_name if start == end else _UNSEEN
        _hide_start(definition, tokenizer.bos)
    if mask not in {token["id"] for token in definition["added_tokens"]}:
        token = added_token(mask, MASK, special=True)
        definition["added_tokens"].append({**token, "lstrip": gaps_take_spaces(tokenizer)})
    mask_name = next(token["content"] for token in definition["added_tokens"] if token["id"] == mask)
    definition["post_processor"] = surrounded_by((start, start_name), (end, end_name))
    names = {"mask_token": mask_name, "pad_token": end_name, "sep_token": end_name}
    return definition, configuration(longest, splits=False, **_INPUTS, **names)


def source_files(tokenizer: Tokenizer, longest: int, *, starts: bool) -> tuple[Definition, dict[str, Any]]:
    """tokenizer.json and tokenizer_config.json of an encoder-decoder, for sources of at most `longest` tokens.

    `starts`: its sources begin with a token. A source is one line: a line end in it is a space.
    """
    definition, start_name, names = definition_and_names(tokenizer)
    if isinstance(tokenizer, PublishedTokenizer):
        first = None if tokenizer.before is None else (tokenizer.before, token_name(tokenizer, tokenizer.before))
        end_name = token_name(tokenizer, tokenizer.eos)
    else:
        first, end_name = (tokenizer.bos, start_name), LINE_END
        one_line = replace({"String": "\n"}, " ")
        before = definition.get("normalizer")
        definition["normalizer"] = one_line if before is None else steps("normalizers", one_line, before)
    definition["post_processor"] = surrounded_by(first if starts else None, (tokenizer.eos, end_name))
    return definition, configuration(longest, splits=True, **_INPUTS, **{**names, "eos_token": end_name})


def _hide_start(definition: Definition, bos: int) -> None:
    """Make <s> an entry of the vocabulary instead of a token that is found in texts."""
    definition["added_tokens"] = [token for token in definition["added_tokens"] if token["id"] != bos]
    vocabulary = definition["model"]["vocab"]
    if isinstance(vocabulary, list):
        vocabulary.append([_UNSEEN, min(score for _, score in vocabulary)])
        return
    for name in [name for name, number in vocabulary.items() if number == bos]:
        del vocabulary[name]
    vocabulary[_UNSEEN] = bos


# -- reading ----------------------------------------------------------------------------------------------


def masked_tokenizer(folder: Path, size: int) -> PublishedTokenizer:
    """Return the tokenizer of a masked model in a folder, with its [MASK]."""
    path, definition, described = _described(folder)
    first, last = _around(definition, described)
    mask = _named(definition, described, "mask_token")
    for what, token in (("mask_token", mask), ("cls_token", first), ("sep_token", last)):
        if token is None:
            raise TokenizerError(f"{path}: a masked model needs a {what}, which is not given")
    return made(plain(definition, path), path, size=size, closes=True, start=first, stop=last, mask=mask)


def source_tokenizer(folder: Path, size: int) -> PublishedTokenizer:
    """Return the tokenizer of an encoder-decoder in a folder, for its sources and targets."""
    path, definition, described = _described(folder)
    first, last = _around(definition, described)
    ends, start = (described.get(f"{name}_token_id") for name in ("eos", "decoder_start"))
    end: Any = ends[0] if isinstance(ends, list) and ends else ends
    for what, token in (("eos_token_id", end), ("decoder_start_token_id", start)):
        if not isinstance(token, int):
            raise TokenizerError(f"{folder}: an encoder-decoder needs a {what}, which is not given")
    if last not in (None, end):
        raise TokenizerError(f"{path}: sources end in the token {last}, and targets in {end}: they should be one")
    return made(plain(definition, path), path, size=size, closes=True, start=start, stop=end, before=first)


def _described(folder: Path) -> tuple[Path, Definition, dict[str, Any]]:
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise TokenizerError(f"{folder}: there is no tokenizer.json in it, the only form of these that is read")
    return path, read_json(path), folder_description(folder)


def _around(definition: Definition, described: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Return the tokens that the tokenizer puts before and after a text, or else those that are named."""
    for step in processors(definition):
        if step.get("type") in ("BertProcessing", "RobertaProcessing"):
            return int(step["cls"][1]), int(step["sep"][1])
        if step.get("type") == "TemplateProcessing":
            return template_end(step, 0), template_end(step, -1)
    return _named(definition, described, "cls_token"), _named(definition, described, "sep_token")


def _named(definition: Definition, described: Mapping[str, Any], which: str) -> int | None:
    """Return the id of a special token, by the name that the folder gives it or else by its usual one."""
    name = token_content(described.get(which, _USUAL[which]))
    return added_ids(definition).get(name) if isinstance(name, str) else None
