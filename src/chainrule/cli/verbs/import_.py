"""`chainrule import`: a model folder of what another program wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from chainrule.cli.options.runs import json_option, overwrite_option
from chainrule.cli.output.lines import console, print_json, say
from chainrule.cli.output.words import number


@click.command("import", short_help="Make a model folder of a model of another program.")
@click.argument("path", type=click.Path())
@click.option("--out", type=click.Path(), required=True, metavar="DIR", help="The model folder to write.")
@click.option(
    "--context",
    type=click.Choice(["line", "stream"]),
    help="Lines are sequences, or context flows across them. [default: stream for GPT-2, Llama, Qwen3, else line]",
)
@click.option("--encoding", metavar="NAME", default="utf-8", help="Of an ARPA file: latin-1, ... [default: utf-8]")
@click.option("--tokenizer-file", type=click.Path(), metavar="FILE", help="Of llama2.c: the tokenizer's .bin file.")
@click.option(
    "--pattern",
    type=click.Choice(["gpt2", "cl100k", "o200k"]),
    help="Of a .tiktoken file: how text is split. [default: by its size]",
)
@overwrite_option("a DIR")
@json_option
def import_verb(
    path: str,
    out: str,
    context: Any,
    encoding: str,
    tokenizer_file: str | None,
    pattern: str | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Make a model folder of a model of another program.

    PATH is a folder of transformers (GPT-2, Llama, Qwen3, BERT or BART, weights in safetensors), also one of the
    Hugging Face hub as hf://OWNER/NAME, a GGUF file (llama), an ARPA file, or a .bin checkpoint of llama2.c. Of a
    vocabulary alone (tokenizer.json, GPT-2's encoder.json and vocab.bpe, a .tiktoken or .model file), a folder is
    made that --tokenizer takes.

    \b
    chainrule import SmolLM --out smollm
    chainrule import other.arpa.gz --encoding latin-1 --out model
    chainrule import stories260K.bin --tokenizer-file tok512.bin --out stories
    """
    from chainrule.cli.output.progress import terminal_progress
    from chainrule.folder import check_destination, megabytes
    from chainrule.interop.conversion import import_model, import_tokenizer, is_vocabulary
    from chainrule.tokens.registry import write_tokenizer

    check_destination(out, overwrite=overwrite)
    if is_vocabulary(Path(path)):
        tokenizer: Any = import_tokenizer(path, pattern=pattern)
        write_tokenizer(tokenizer, Path(out))
        found = f"a tokenizer of {tokenizer.vocab_size:,} tokens"
    else:
        progress = terminal_progress()
        lm = import_model(path, context=context, encoding=encoding, tokenizer=tokenizer_file, progress=progress)
        lm.save(out, overwrite=overwrite)
        tokenizer, found = lm.tokenizer, f"{lm.kind} of {lm.tokenizer.vocab_size:,} tokens, {lm.context}"
    size = megabytes(out)
    if as_json:
        print_json({"out": out, "what": found, "vocab_size": tokenizer.vocab_size, "megabytes": size})
    else:
        say(console(), f"{out}: {found}; {number(size)} MB")
