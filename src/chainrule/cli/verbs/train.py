"""`chainrule train`: a corpus in, a model folder out; `chainrule resume`: a training that was stopped goes on."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import chainrule as cr
from chainrule.cli import options as opt
from chainrule.cli.options import texts
from chainrule.cli.options.declaring import BriefCommand, names_from, rare
from chainrule.cli.output import count, emit, number, terminal_progress
from chainrule.errors import Interrupted

if TYPE_CHECKING:
    from chainrule.contract.kinds import Kind


@click.command(cls=BriefCommand)
@click.argument("kind", shell_complete=names_from("chainrule.contract.kinds:kind_names"))
@texts.corpus_argument
@opt.options("""
    --out DIR required  The model folder to write.
    --overwrite         Replace a model folder that exists; its training begins anew, unless --resume is given.
    --resume            Continue a training that was stopped, or kept, from its run folder.
""")
@rare(
    opt.options("""
    --keep     Keep the checkpoints of a finished training: --resume can then make it longer.
    --run DIR  Checkpoints and measurements of kinds that train for long. [default: OUT.run]
    """)
)
@opt.options("""
    --held-out FILE... formerly --valid
        Text to tune on; repeatable. [default: 5 % of CORPUS where the kind tunes on some]
""")
@texts.tokenizer_options(None)
@opt.options("""
    --mask/--no-mask
        Read times, numbers, hexadecimal strings and addresses as zeros. [default: for files that end in .log]
""")
@rare(texts.source_tokenizer)
@texts.context_option()
@opt.options("--minutes M : (0,∞)  The most time to train: short for --set minutes=M.")
@opt.options("--set KEY=VALUE... as settings  A setting of the kind; repeatable.")
@opt.device
@rare(opt.executor_options)
@opt.seed
@rare(texts.corpus_options)
@rare(texts.label_field)
@opt.json
def train(kind: str, corpus: tuple[str, ...], out: str, overwrite: bool, as_json: bool, **options: Any) -> None:
    """Train a model of KIND on CORPUS.

    CORPUS is files (text, .jsonl, .csv, .tsv or .parquet; .gz and .zst too), folders, patterns in quotes, - for
    standard input, builtin:shakespeare or builtin:python. --field names the fields of records that are text.
    Context flows across the lines of paragraphs and of files of code; in other texts each line is a sequence
    (--context).

    `chainrule kinds` lists the kinds, `chainrule kinds KIND` the settings of one for --set. A training that is
    stopped (Ctrl-C) goes on with `chainrule resume OUT.run`, or with this command and --resume.

    A kind that translates learns from pairs: CORPUS is the file of sources and that of their targets, line by line,
    or one file of records with a --field for each side. --held-out is then given for both files too.

    A kind that classifies learns from texts with labels: records with the fields --field and --label-field, or
    lines of LABEL TAB TEXT.

    A model that was trained on text is tuned to reply by --set pretrained=DIR: CORPUS is then pairs, records with
    the fields prompt and reply, or those that --field names. The loss counts the replies alone.

    \b
    chainrule train ngram corpus.txt --set order=5 --out model
    chainrule train lstm corpus.txt --minutes 5 --out model
    chainrule train seq2seq train.en train.de --held-out val.en --held-out val.de --out model
    chainrule train tagger train.conllu --held-out dev.conllu --out tagger
    chainrule train classifier reviews.jsonl --field text --label-field stars --out classifier
    chainrule train transformer pairs.jsonl --set pretrained=model --out chat
    chainrule train ngram 'files/*.txt' --executor ray --out model
    """
    from chainrule.contract.kinds import find_kind, learns_as
    from chainrule.runs.train import check_executor, device_for, train_kind
    from chainrule.settings import parse, split_words
    from chainrule.system.disk import holding
    from chainrule.training.checkpoints.run_folder import check_output, checkpoint_folders, remove_checkpoints
    from chainrule.training.team import rank, restarts

    run_folder, resume = Path(options["run"] or f"{out.rstrip('/')}.run"), options["resume"]
    is_first = rank() == 0  # of the processes that torchrun started, only the first writes
    if is_first:
        check_output(Path(out), run_folder, overwrite=overwrite, resume=resume)
    resume = resume or restarts() > 0
    the_kind = find_kind(kind)
    given = _with_minutes(split_words(options["settings"]), options["minutes"], the_kind)
    the_settings: Any = parse(the_kind.settings, given)
    kept = the_kind.keeps_run
    if options["keep"] and not kept:
        raise click.UsageError("this training has no checkpoints to --keep")
    the_kind.check(the_settings, options["device"])
    check_executor(
        the_kind, the_settings, options["executor"], device_for(the_kind, the_settings, options["device"])
    )
    tokenizer = _checked_tokenizer(the_kind, options)
    if options["mask"] is None:
        options["mask"] = is_log = all(re.search(r"\.log(\.gz|\.zst)?$", name.lower()) for name in corpus)
        if is_log:
            terminal_progress().note("times, numbers and addresses of logs are read as zeros: --no-mask keeps them")
    task = learns_as(the_kind, the_settings)
    text, valid = texts.open_examples(options, task, corpus, options["held_out"] or None)
    with holding(run_folder) if kept and is_first else nullcontext(), opt.opened_executor(options) as executor:
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
                source_tokenizer=options["source_tokenizer"],
                progress=terminal_progress(),
                run=run_folder if kept or options["run"] else None,
                resume=resume,
                executor=executor,
                **{name: options[name] for name in ("context", "seed", "device")},
            )
        except KeyboardInterrupt:
            if not kept or checkpoint_folders(run_folder):
                raise
            raise Interrupted("stopped before the first step: nothing is kept", signal.SIGINT) from None
        if is_first:
            _finish(lm, out, None if options["keep"] or not kept else run_folder, overwrite, as_json)


def _checked_tokenizer(kind: Kind, options: Mapping[str, Any]) -> cr.TokenizerChoice:
    """Return the tokenizer that the options choose, and check it and that of the sources."""
    from chainrule.contract.tasks import find_task

    tokenizer, sources = texts.tokenizer_choice(options, kind.tokenizer), options["source_tokenizer"]
    tokenizer.check()
    if sources is not None:
        if not find_task(kind.task).has_sources:
            raise click.UsageError(f"the kind {kind.name} has no sources: leave out --source-tokenizer")
        cr.TokenizerChoice(sources).check()
    return tokenizer


def _with_minutes(settings: dict[str, str], minutes: float | None, kind: Kind) -> dict[str, str]:
    """Add --minutes to the settings."""
    if minutes is None:
        return settings
    if "minutes" not in (field.name for field in fields(kind.settings)):
        raise click.UsageError(f"the kind {kind.name} has no setting minutes: leave out --minutes")
    if "minutes" in settings:
        raise click.UsageError("choose one of --minutes and --set minutes=M")
    return {**settings, "minutes": str(minutes)}


@click.command()
@click.argument("run", type=click.Path(path_type=Path), metavar="RUN")
@opt.options("""
    --corpus FILE...                     The corpus, if it has moved; repeatable.
    --held-out FILE... formerly --valid  The held-out text, if it has moved; repeatable.
    --out DIR                            The model folder to write. [default: RUN without .run]
    --overwrite                          Replace a model folder that exists.
    --keep                               Keep the checkpoints of the finished training.
    --set KEY=VALUE... as settings       A setting to change, such as steps=2000; repeatable.
    --device NAME                        Where to compute. [default: where the run started]
""")
@opt.json
def resume(run: Path, out: str | None, as_json: bool, **options: Any) -> None:
    """Continue the training of the run folder RUN.

    RUN knows its kind, settings, tokenizer and corpus. It is named after the model folder that `chainrule train`
    was to write: model.run for model.

    Example: chainrule resume model.run
    """
    from chainrule.runs.record import read_record, reopened
    from chainrule.runs.train import resume_run
    from chainrule.settings import split_words
    from chainrule.system.disk import holding
    from chainrule.training.checkpoints.run_folder import check_output
    from chainrule.training.team import rank

    record, corpus, held_out = read_record(run), options["corpus"], options["held_out"]
    if out is None and run.suffix != ".run":
        raise click.UsageError(f"name the model folder to write with --out: {run} does not end in .run")
    out = out or str(run.with_suffix(""))
    is_first = rank() == 0
    if is_first:
        check_output(Path(out), run, overwrite=options["overwrite"], resume=True)
    with holding(run) if is_first else nullcontext():
        lm = resume_run(
            run,
            split_words(options["settings"]),
            corpus=reopened(record.corpus, corpus) if corpus else None,
            valid=reopened(record.valid or {}, held_out) if held_out else None,
            device=options["device"],
            progress=terminal_progress(),
        )
        if is_first:
            _finish(lm, out, None if options["keep"] else run, options["overwrite"], as_json)


def _finish(lm: cr.LanguageModel, out: str, run: Path | None, overwrite: bool, as_json: bool) -> None:
    """Save a model, remove the checkpoints in `run`, and print what was trained, and how long it took."""
    from chainrule.contract.kinds import task_of
    from chainrule.contract.tasks import REPLIES
    from chainrule.evaluation.metrics import perplexity_of
    from chainrule.folder import megabytes
    from chainrule.training.checkpoints.run_folder import remove_checkpoints

    lm.save(out, overwrite=overwrite)
    if run is not None:
        remove_checkpoints(run)  # the model is there: nothing is left to resume
    tokens, held_out = lm.provenance["corpus_tokens"], lm.provenance["held_out_tokens"]
    pairs = lm.provenance.get("corpus_pairs")
    figures, size = lm.metrics, lm.tokenizer.vocab_size
    steps, nats, seen = figures.get("steps"), figures.get("validation_nats"), figures.get("tokens_seen", tokens)
    seconds, training = figures["seconds"], figures["training_seconds"]
    found: dict[str, Any] = {"folder": out} | ({} if pairs is None else {"pairs": pairs})
    found |= {"tokens": tokens, "held_out_tokens": held_out, "vocab_size": size}
    found |= {"seconds": seconds, "training_seconds": training}
    found |= {} if steps is None else {"steps": steps, "tokens_seen": seen, "validation_nats": nats}
    found |= {"megabytes": megabytes(out)}
    task = REPLIES if getattr(lm.settings, "is_tuned", False) else task_of(lm.kind)
    text, epochs = count(seen, task.unit), seen / tokens
    if steps is not None:
        read = f"{epochs:.0%} of the text" if epochs < 1 else "1 epoch" if epochs == 1 else f"{epochs:.3g} epochs"
        text = f"{text} ({read})"
    text = text if pairs is None else f"{count(pairs, task.example)}, {text},"
    tuned = ""
    if nats is not None:
        held = count(figures["validation_tokens"], task.unit)
        tuned = f"; perplexity{task.perplexity_of} {number(perplexity_of(nats), 4)} on {held} held out"
    elif held_out:
        tuned = f", tuned on {held_out:,} held out"
    work = "" if steps is None else f" and {count(steps, 'step')}"
    context = ", context across lines" if lm.context == "stream" else ""
    prepared = f"({number(seconds - training)} s of it to prepare the text)"
    emit(
        as_json,
        found,
        f"{out}: trained on {text} in {number(seconds)} s{work} {prepared}"
        f"{tuned}; vocabulary {size:,}{context}, {number(found['megabytes'])} MB",
    )
