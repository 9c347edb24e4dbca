"""`chainrule train`: a corpus in, a model folder out; `chainrule resume`: a training that was stopped goes on."""

from __future__ import annotations

import signal
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from chainrule.cli.options.executors import executor_options, opened_executor
from chainrule.cli.options.models import device_option
from chainrule.cli.options.runs import json_option, minutes_option, seed_option
from chainrule.cli.options.texts import (
    context_option,
    corpus_argument,
    corpus_options,
    held_out_option,
    open_examples,
    source_tokenizer_option,
)
from chainrule.cli.options.tokenizers import tokenizer_choice, tokenizer_options
from chainrule.cli.output.lines import console, print_json, say
from chainrule.cli.output.words import count, number
from chainrule.errors import Interrupted

if TYPE_CHECKING:
    from chainrule.contract.kinds import Kind
    from chainrule.contract.lm import LanguageModel


def _kinds(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from chainrule.contract.kinds import kind_names

    return [name for name in kind_names() if name.startswith(incomplete)]


@click.command()
@click.argument("kind", shell_complete=_kinds)
@corpus_argument
@click.option("--out", required=True, type=click.Path(), metavar="DIR", help="The model folder to write.")
@click.option(
    "--overwrite",
    is_flag=True,
    help="Replace a model folder that exists; its training begins anew, unless --resume is given.",
)
@click.option(
    "--resume", is_flag=True, help="Go on with a training that was stopped, or kept, from its run folder."
)
@click.option(
    "--keep", is_flag=True, help="Keep the checkpoints of a finished training: --resume can then make it longer."
)
@click.option(
    "--run",
    type=click.Path(),
    metavar="DIR",
    help="Checkpoints and measurements of kinds that train for long. [default: OUT.run]",
)
@held_out_option("Text to tune on; repeatable. [default: 5 % of CORPUS where the kind tunes on some]")
@tokenizer_options(None)
@source_tokenizer_option
@context_option
@minutes_option("The most time to train: short for --set minutes=M.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting of the kind; repeatable.")
@device_option
@executor_options
@seed_option
@corpus_options
@json_option
def train(
    kind: str,
    corpus: tuple[str, ...],
    out: str,
    overwrite: bool,
    held_out: tuple[str, ...],
    minutes: float | None,
    settings: tuple[str, ...],
    as_json: bool,
    **options: Any,
) -> None:
    """Train a model of KIND on CORPUS.

    CORPUS is files (text, .jsonl, .csv, .tsv or .parquet; .gz and .zst too), folders, patterns in quotes, - for
    standard input, or builtin:python. A line of text is a sequence, unless --context stream is given.

    `chainrule kinds` lists the kinds, `chainrule kinds KIND` the settings of one for --set. A training that is
    stopped (Ctrl-C) goes on with `chainrule resume OUT.run`, or with this command and --resume.

    A kind that translates learns from pairs: CORPUS is the file of sources and that of their targets, line by line,
    or one file of records with a --field for each side. --held-out is then given for both files too.

    \b
    chainrule train ngram corpus.txt --set order=5 --out model
    chainrule train seq2seq train.en train.de --held-out val.en --held-out val.de --out model
    chainrule train tagger train.conllu --held-out dev.conllu --out tagger
    chainrule train ngram 'files/*.txt' --executor ray --out model
    """
    from chainrule.cli.output.progress import terminal_progress
    from chainrule.contract.kinds import find_kind, learns_as
    from chainrule.runs.prepare import TokenizerChoice
    from chainrule.runs.train import check_executor, train_kind
    from chainrule.settings import parse, split_words
    from chainrule.system.disk import holding
    from chainrule.training.checkpoints.run_folder import check_output, checkpoint_folders, remove_checkpoints
    from chainrule.training.team import choose_own_device, rank, restarts

    run_folder, resume = Path(options["run"] or f"{out.rstrip('/')}.run"), options["resume"]
    is_first = rank() == 0  # of the processes that torchrun started, only the first writes
    if is_first:
        check_output(Path(out), run_folder, overwrite=overwrite, resume=resume)
    resume = resume or restarts() > 0
    the_kind = find_kind(kind)
    the_settings: Any = parse(the_kind.settings, _with_minutes(split_words(settings), minutes, the_kind))
    kept = the_kind.keeps_run
    if options["keep"] and not kept:
        raise click.UsageError("this training has no checkpoints to --keep")
    the_kind.check(the_settings, options["device"])
    check_executor(the_kind, the_settings, options["executor"], choose_own_device(options["device"]))
    tokenizer, sources = tokenizer_choice(options, the_kind.tokenizer), options["source_tokenizer"]
    tokenizer.check()
    if sources is not None:
        if the_kind.task != "translation":
            raise click.UsageError(f"the kind {kind} has no sources: leave out --source-tokenizer")
        TokenizerChoice(sources).check()
    text, valid = open_examples(options, learns_as(the_kind, the_settings), corpus, held_out or None)
    assert text is not None
    if the_kind.task == "tagging":
        from chainrule.text.tagged import as_tagged

        text, valid = as_tagged(text), None if valid is None else as_tagged(valid)  # type: ignore[assignment]
    with holding(run_folder) if kept and is_first else nullcontext(), opened_executor(options) as executor:
        # only after all checks; with --resume, --overwrite replaces the model and keeps the checkpoints
        if kept and overwrite and not resume and is_first:
            remove_checkpoints(run_folder)
        try:
            lm = train_kind(
                the_kind,
                the_settings,
                text,
                valid=valid,
                tokenizer=tokenizer,
                source_tokenizer=sources,
                context=options["context"],
                seed=options["seed"],
                progress=terminal_progress(),
                device=options["device"],
                run=run_folder if kept or options["run"] else None,
                resume=resume,
                executor=executor,
            )
        except KeyboardInterrupt:
            if not kept or checkpoint_folders(run_folder):
                raise
            raise Interrupted("stopped before the first step: nothing is kept", signal.SIGINT) from None
        if not is_first:
            return
        lm.save(out, overwrite=overwrite)
        if kept and not options["keep"]:
            remove_checkpoints(run_folder)  # the model is there: nothing is left to resume
    tell_trained(lm, out, as_json)


def _with_minutes(settings: dict[str, str], minutes: float | None, kind: Kind) -> dict[str, str]:
    """The settings with those of --minutes."""
    if minutes is None:
        return settings
    if "minutes" not in (field.name for field in fields(kind.settings)):
        raise click.UsageError(f"the kind {kind.name} has no setting minutes: leave out --minutes")
    if "minutes" in settings:
        raise click.UsageError("choose one of --minutes and --set minutes=M")
    return {**settings, "minutes": str(minutes)}


@click.command()
@click.argument("run", type=click.Path(path_type=Path), metavar="RUN")
@click.option("--corpus", multiple=True, metavar="FILE", help="The corpus, if it has moved; repeatable.")
@held_out_option("The held-out text, if it has moved; repeatable.")
@click.option("--out", metavar="DIR", help="The model folder to write. [default: RUN without .run]")
@click.option("--overwrite", is_flag=True, help="Replace a model folder that exists.")
@click.option("--keep", is_flag=True, help="Keep the checkpoints of the finished training.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting to change, such as steps=2000; repeatable.",
)
@click.option("--device", metavar="NAME", help="Where to compute. [default: where the run was begun]")
@json_option
def resume(
    run: Path,
    corpus: tuple[str, ...],
    held_out: tuple[str, ...],
    out: str | None,
    settings: tuple[str, ...],
    as_json: bool,
    **options: Any,
) -> None:
    """Go on with the training of the run folder RUN.

    RUN knows its kind, settings, tokenizer and corpus. Its name is that of the model folder that `chainrule train`
    was to write, and .run.

    Example: chainrule resume model.run
    """
    from chainrule.cli.output.progress import terminal_progress
    from chainrule.runs.record import read_record, reopened
    from chainrule.runs.resume import resume_run
    from chainrule.settings import split_words
    from chainrule.system.disk import holding
    from chainrule.training.checkpoints.run_folder import check_output, remove_checkpoints
    from chainrule.training.team import rank

    record = read_record(run)
    if out is None and run.suffix != ".run":
        raise click.UsageError(f"name the model folder to write with --out: {run} does not end in .run")
    out = out or str(run.with_suffix(""))
    is_first = rank() == 0
    if is_first:
        check_output(Path(out), run, overwrite=options["overwrite"], resume=True)
    with holding(run) if is_first else nullcontext():
        lm = resume_run(
            run,
            split_words(settings),
            corpus=reopened(record.corpus, corpus) if corpus else None,
            valid=reopened(record.valid or {}, held_out) if held_out else None,
            device=options["device"],
            progress=terminal_progress(),
        )
        if not is_first:
            return
        lm.save(out, overwrite=options["overwrite"])
        if not options["keep"]:
            remove_checkpoints(run)
    tell_trained(lm, out, as_json)


def tell_trained(lm: LanguageModel, out: str, as_json: bool) -> None:
    """Print what was trained, and how long it took."""
    from chainrule.contract.kinds import find_kind, kind_names
    from chainrule.evaluation.metrics import perplexity_of
    from chainrule.folder import megabytes

    tokens, held_out = lm.provenance["corpus_tokens"], lm.provenance["held_out_tokens"]
    pairs = lm.provenance.get("corpus_pairs")
    task = find_kind(lm.kind).task if lm.kind in kind_names() else "language"
    what = "sentence" if task == "tagging" else "pair"
    unit = "token" if pairs is None else "word" if task == "tagging" else "target token"
    figures, size = lm.metrics, lm.tokenizer.vocab_size
    steps, nats, seen = figures.get("steps"), figures.get("validation_nats"), figures.get("tokens_seen", tokens)
    seconds, training = figures["seconds"], figures["training_seconds"]
    if as_json:
        learned = {} if steps is None else {"steps": steps, "tokens_seen": seen, "validation_nats": nats}
        print_json(
            {
                "folder": out,
                **({} if pairs is None else {"pairs": pairs}),
                "tokens": tokens,
                "held_out_tokens": held_out,
                "vocab_size": size,
                "seconds": seconds,
                "training_seconds": training,
                **learned,
                "megabytes": megabytes(out),
            }
        )
        return
    text = count(seen, unit) if steps is None else f"{count(seen, unit)} ({_passes(seen / tokens)})"
    text = text if pairs is None else f"{count(pairs, what)}, {text},"
    tuned = ""
    if nats is not None:
        held = count(figures["validation_tokens"], unit)
        of = {"masked": " of hidden tokens", "tagging": " of tags"}.get(task, "")
        tuned = f"; perplexity{of} {number(perplexity_of(nats), 4)} on {held} held out"
    elif held_out:
        tuned = f", tuned on {held_out:,} held out"
    work = "" if steps is None else f" and {count(steps, 'step')}"
    say(
        console(),
        f"{out}: trained on {text} in {number(seconds)} s{work} ({number(seconds - training)} s before training)"
        f"{tuned}; vocabulary {size:,}, {number(megabytes(out))} MB",
    )


def _passes(epochs: float) -> str:
    """How often the text was read: 23 % of the text, 1.4 epochs."""
    if epochs < 1:
        return f"{epochs:.0%} of the text"
    return "1 epoch" if epochs == 1 else f"{epochs:.3g} epochs"
