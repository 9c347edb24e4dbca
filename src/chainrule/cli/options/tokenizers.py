"""The choice of a tokenizer and of its vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

import chainrule as cr
from chainrule.cli.options.declaring import Command, group, option


def tokenizer_options(default: str | None) -> Callable[[Command], Command]:
    """Declare --tokenizer, --vocab-size, --min-count and --vocabulary, which `tokenizer_choice` reads.

    Without a default, the kind of model has one.
    """
    return group(
        option(
            "--tokenizer TEXT",
            "word, word:unicode, char, byte, bpe, wordpiece, unigram, or a folder that holds one.",
            default=default,
            show_default=default is not None or "that of the kind",
            shell_complete=_tokenizers,
        ),
        option(
            "--vocab-size N|P%",
            "Keep the N, or the P percent, most frequent; special tokens come on top. "
            "[default: all; subwords 1,024 to 8,192, by the size of the text]",
        ),
        option("--min-count INTEGER", "What is seen less often is unknown.", type=int, default=1),
        option("--vocabulary FILE", "Know exactly the words of FILE, one on each line (word, word:unicode)."),
    )


def tokenizer_choice(options: Mapping[str, Any], default: str = "bpe") -> cr.TokenizerChoice:
    """Return the tokenizer that the options of `tokenizer_options` choose."""
    if options["vocabulary"] is not None:
        default = "word"  # a list of words
    names = ("vocab_size", "min_count", "vocabulary")
    return cr.TokenizerChoice(options["tokenizer"] or default, **{name: options[name] for name in names})


def given_tokenizer(options: Mapping[str, Any]) -> cr.TokenizerChoice | None:
    """Return the tokenizer if any of its options is given, else None."""
    is_given = any(options[name] is not None for name in ("tokenizer", "vocab_size", "vocabulary"))
    return tokenizer_choice(options) if is_given or options["min_count"] > 1 else None


def _tokenizers(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    from click.shell_completion import CompletionItem

    from chainrule.tokens.registry import tokenizer_names

    names = [CompletionItem(name) for name in tokenizer_names() if name.startswith(incomplete)]
    return names or [CompletionItem(incomplete, type="dir")]
