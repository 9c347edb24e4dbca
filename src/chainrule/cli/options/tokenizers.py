"""The choice of a tokenizer and of its vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from chainrule.cli.options.declaring import Command, with_options

if TYPE_CHECKING:
    from chainrule.runs.prepare import TokenizerChoice


TOKENIZER_HELP = "word, word:unicode, char, byte, bpe, wordpiece, unigram, or a folder that holds one."


def tokenizer_options(default: str | None) -> Callable[[Command], Command]:
    """--tokenizer, --vocab-size, --min-count and --vocabulary, which `tokenizer_choice` reads.

    Without a default, the kind of model has one.
    """

    def decorate(command: Command) -> Command:
        options = (
            click.option(
                "--tokenizer",
                default=default,
                show_default=default is not None or "that of the kind",
                help=TOKENIZER_HELP,
                shell_complete=_tokenizers,
            ),
            click.option(
                "--vocab-size",
                metavar="N|P%",
                help="Keep the N, or the P percent, most frequent; special tokens come on top. "
                "[default: all; subwords 8192]",
            ),
            click.option(
                "--min-count",
                type=int,
                default=1,
                show_default=True,
                help="What is seen less often is unknown.",
            ),
            click.option(
                "--vocabulary",
                type=click.Path(),
                metavar="FILE",
                help="Know exactly the words of FILE, one on each line (word, word:unicode).",
            ),
        )
        return with_options(command, options)

    return decorate


def tokenizer_choice(options: Mapping[str, Any], default: str = "word") -> TokenizerChoice:
    """The tokenizer that the options of `tokenizer_options` choose."""
    from chainrule.runs.prepare import TokenizerChoice

    names = ("vocab_size", "min_count", "vocabulary")
    return TokenizerChoice(options["tokenizer"] or default, **{name: options[name] for name in names})


def _tokenizers(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    from click.shell_completion import CompletionItem

    from chainrule.tokens.registry import tokenizer_names

    names = [CompletionItem(name) for name in tokenizer_names() if name.startswith(incomplete)]
    return names or [CompletionItem(incomplete, type="dir")]
