"""`chainrule convert`, `export` and `import`: models in the files of other programs, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import chainrule as cr
from chainrule.cli import options as opt
from chainrule.cli.output import emit, number, terminal_progress

_ENDINGS = (".arpa", ".arpa.gz")


@click.command(short_help="Make a model folder of an ARPA file, or the reverse.")
@click.argument("source", type=click.Path())
@click.argument("target", type=click.Path())
@opt.options("""
    --context [line|stream]
        For what an ARPA file says: a line is a sequence, or context flows across lines. [default: line]
    --overwrite  Replace a TARGET that exists.
""")
@opt.json
def convert(source: str, target: str, context: Any, overwrite: bool, as_json: bool) -> None:
    """Make a model folder of an ARPA file, or an ARPA file of a model folder.

    ARPA files are how KenLM, SRILM and others write n-gram models. A TARGET that ends in .arpa or .arpa.gz becomes
    one, any other a model folder. Only models of word tokens can be written.

    \b
    chainrule convert other.arpa.gz model
    chainrule convert model model.arpa
    """
    from chainrule.folder import check_destination
    from chainrule.ngram.arpa.writing import check_target

    is_folder, to_arpa = Path(source).is_dir(), target.lower().endswith(_ENDINGS)
    if is_folder and not to_arpa:
        raise click.UsageError(f"{source} is a model folder: TARGET should end in .arpa or .arpa.gz")
    if is_folder and context:
        raise click.UsageError("--context is for what an ARPA file says; a model folder has a context")
    (check_target if to_arpa else check_destination)(Path(target), overwrite=overwrite)
    progress = terminal_progress()
    if is_folder:
        lm = cr.load(source, tasks=["language"])
    else:
        lm = cr.load_arpa(source, context=context or "line", progress=progress)
    if to_arpa:
        cr.save_arpa(lm, target, overwrite=overwrite, progress=progress)
    else:
        lm.save(target, overwrite=overwrite)
    ngrams = list(lm.metrics["ngrams"])
    counts = ", ".join(f"{count:,}" for count in ngrams)
    figures = {"target": target, "vocab_size": lm.tokenizer.vocab_size, "ngrams": ngrams}
    _report(target, f"n-grams of 1 to {len(ngrams)} words: {counts}", figures, as_json)


@click.command(short_help="Write a model for transformers, llama.cpp or KenLM.")
@click.argument("folder", metavar="MODEL", type=click.Path())
@opt.options("""
    --to [hf|arpa|gguf] required as form  What to write.
    --out PATH required                   The folder (hf) or file to write.
    --overwrite                           Replace what is at PATH, where that exists.
""")
@opt.json
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
    from chainrule.contract.kinds import load_content
    from chainrule.folder import read_folder
    from chainrule.interop.conversion import export_model

    model = load_content(read_folder(folder))
    written = export_model(model, form, out, overwrite=overwrite, progress=terminal_progress())
    _report(out, written, {"out": out, "form": form, "written": written}, as_json)


@click.command("import", short_help="Make a model folder of a model of another program.")
@click.argument("path", type=click.Path())
@opt.options(
    """
    --out DIR required                  The model folder to write.
    --context [line|stream]
        Lines are sequences, or context flows across them. [default: stream for GPT-2, Llama, Qwen3, else line]
    --encoding NAME                     Of an ARPA file: latin-1, ... [default: utf-8]
    --tokenizer-file FILE as tokenizer  Of llama2.c: the tokenizer's .bin file.
    --pattern [gpt2|cl100k|o200k]       Of a .tiktoken file: how text is split. [default: by its size]
    --overwrite                         Replace a DIR that exists.
    """,
    encoding={"default": "utf-8", "show_default": False},
)
@opt.json
def import_verb(path: str, out: str, pattern: str | None, overwrite: bool, as_json: bool, **options: Any) -> None:
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
    from chainrule.folder import check_destination
    from chainrule.interop.conversion import import_model, import_tokenizer, is_vocabulary
    from chainrule.tokens.registry import write_tokenizer

    check_destination(out, overwrite=overwrite)
    if is_vocabulary(Path(path)):
        tokenizer: Any = import_tokenizer(path, pattern=pattern)
        write_tokenizer(tokenizer, Path(out))
        found = f"a tokenizer of {tokenizer.vocab_size:,} tokens"
    else:
        lm = import_model(path, **options, progress=terminal_progress())
        lm.save(out, overwrite=overwrite)
        tokenizer, found = lm.tokenizer, f"{lm.kind} of {lm.tokenizer.vocab_size:,} tokens, {lm.context}"
    _report(out, found, {"out": out, "what": found, "vocab_size": tokenizer.vocab_size}, as_json)


def _report(out: str, written: str, figures: dict[str, Any], as_json: bool) -> None:
    """Print what was written, and how large it is."""
    from chainrule.folder import megabytes

    size = megabytes(out)
    emit(as_json, {**figures, "megabytes": size}, f"{out}: {written}; {number(size)} MB")
