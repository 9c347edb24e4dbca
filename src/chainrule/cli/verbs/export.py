"""`chainrule export`: a model folder in the form that another program reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from chainrule.cli.options.runs import json_option, overwrite_option
from chainrule.cli.output.lines import console, print_json, say
from chainrule.cli.output.words import number


@click.command(short_help="Write a model for transformers, llama.cpp or KenLM.")
@click.argument("folder", metavar="MODEL", type=click.Path())
@click.option("--to", "form", type=click.Choice(["hf", "arpa", "gguf"]), required=True, help="What to write.")
@click.option("--out", type=click.Path(), required=True, metavar="PATH", help="The folder (hf) or file to write.")
@overwrite_option("what is at PATH, where")
@json_option
def export(folder: str, form: Any, out: str, overwrite: bool, as_json: bool) -> None:
    """Write a model for transformers, llama.cpp or KenLM.

    hf is a folder that transformers loads, with weights and tokenizer: a Transformer as GPT-2, Llama or Qwen3, as
    its design is; a masked model with preset=bert as BERT, an encoder-decoder with preset=bart as BART. gguf is a
    file for llama.cpp, of a Transformer with preset=llama and BPE tokens. arpa is a file of an n-gram model of
    words.

    \b
    chainrule export model --to hf --out model-hf
    chainrule export model --to gguf --out model.gguf
    chainrule export model --to arpa --out model.arpa.gz
    """
    from chainrule.cli.output.progress import terminal_progress
    from chainrule.contract.kinds import load_content
    from chainrule.folder import megabytes, read_folder
    from chainrule.interop.conversion import export_model

    model = load_content(read_folder(folder))
    written = export_model(model, form, out, overwrite=overwrite, progress=terminal_progress())
    size = megabytes(out) if Path(out).is_dir() else Path(out).stat().st_size / 1e6
    if as_json:
        print_json({"out": out, "form": form, "written": written, "megabytes": size})
    else:
        say(console(), f"{out}: {written}; {number(size)} MB")
