"""`chainrule evaluate`: how good models are on a text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import chainrule as cr
from chainrule.cli import options as opt
from chainrule.cli import output
from chainrule.cli.options.texts import corpus_options, is_text, label_field, open_examples
from chainrule.cli.output import terminal_progress

if TYPE_CHECKING:
    from chainrule.contract.tasks import Task

_FOR_OTHERS = {
    "dynamic": "--dynamic is for models that predict text",
    "strategy": "--beams is for models that translate, with --source and --target",
}
"""The errors for options of other tasks, by the argument of `evaluate` that the option sets."""


@click.command()
@click.argument("folders_and_text", nargs=-1, metavar="DIR... [TEXT...]", type=click.Path())
@opt.options("""
    --source FILE          Translation: the sources, a line for each.
    --target FILE          Translation: their targets, a line for each.
    --beams B : int        Translation: hypotheses. [default: 5]
    --plot FILE.svg : new  Translation: draw BLEU against the length of the source.
    --overwrite            Replace a plot that exists.
""")
@opt.group(opt.dynamic_options, opt.compute, corpus_options, label_field, opt.json)
def evaluate(folders_and_text: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Measure the models in DIR... on TEXT.

    Perplexity and cross-entropy (in nats and bits) are per token, so they compare models of the same tokenizer.
    Bits per byte compare any that spell out the whole text; word tokens do not, and are marked. TEXT is a file, a
    folder, a pattern in quotes, a text of several words itself, or - for standard input. Several TEXTs, of which
    all but the last are files or texts themselves, are measured one by one, in one table. Of an n-gram model, the
    n-gram hits say how many tokens it predicts with each length of n-gram.

    With --json: one object, or a list for several folders or texts, with perplexity, nats, bits, bits_per_byte,
    tokens, oov. A model that gives some token probability 0 has infinite perplexity; JSON has 1e999 then.

    With --dynamic, each token is scored before networks learn from it: the figures are those of a model that adapts
    to the text as it reads, and the models in DIR... stay as they are.

    Masked models have a pseudo-log-likelihood instead, of each token given those on both sides: no perplexity.

    Models that translate are measured on pairs, --source and --target, or TEXT with a --field for each side: the
    perplexity of the targets given the sources, and BLEU and chrF of their translations (by sacrebleu), also by the
    length of the source.

    A model that was tuned to reply is measured on text, and on pairs, a prompt and its reply (TEXT with the fields
    prompt and reply, or those that --field names): the perplexity of the replies given the prompts, and how many of
    them the model gives word for word.

    For taggers, TEXT is CoNLL-U or lines of word/TAG: accuracy, also on unknown words, each tag, and a table of
    which tags are confused, beside the most frequent tag of each word.

    For classifiers, TEXT is records with a --label-field, or lines of LABEL TAB TEXT: accuracy and macro F1 with
    their intervals, each label, which are confused, and how far probabilities are from the shares of right labels.

    \b
    chainrule evaluate model held-out.txt
    chainrule evaluate model "to be or not to be"
    chainrule evaluate model news.txt plays.txt
    chainrule evaluate model --source test.en --target test.de --plot lengths.svg
    """
    from chainrule.contract.kinds import check_task, read_model, task_of
    from chainrule.contract.tasks import REPLIES
    from chainrule.system.plugins import import_object

    folders, files = _named(folders_and_text, options)
    # a wrong name is found at once, and not after an hour; what is damaged in the others, when they are loaded
    contents = [read_model(folder, verify=False if place else None) for place, folder in enumerate(folders)]
    is_pairs = _is_pairs(files, options)
    tasks = {
        REPLIES if is_pairs and content.config.get("template") else task_of(content.kind) for content in contents
    }
    is_two_sided = options["source"] is not None
    if is_two_sided:
        for content in contents:
            if REPLIES not in tasks:
                check_task(content, [task.name for task in tasks if task.has_sources])
    if len(tasks) > 1:
        names = ", ".join(sorted(task.name for task in tasks))
        raise click.UsageError(f"models of several tasks are not measured together: {names}")
    (task,) = tasks
    how = _arguments(task, options)
    if task.has_sources and not is_two_sided and not options["fields"] and not task.fields:
        raise click.UsageError(
            f"a model that translates is measured on pairs: --source FILE --target FILE, or {files[0]} with a "
            "--field for each side"
        )
    given = {"": files} if is_two_sided else {file: [file] for file in files}
    texts = {}
    for name, group in given.items():
        if len(group) == 1 and is_text(group[0]) and not task.has_sources:
            texts[name] = import_object(task.examples)(cr.Corpus.from_text(group[0]))
        else:
            (texts[name],) = open_examples(options, task, group)
    measure, progress = import_object(task.evaluate), terminal_progress()
    loaded_as = "language" if task is REPLIES else task.name
    results: list[tuple[str, str, Any]] = []
    for folder in folders:  # one after the other: memory need not hold all models at once
        model = opt.load_model(folder, options, loaded_as)
        results += [(folder, text, measure(model, one, progress=progress, **how)) for text, one in texts.items()]
    by_folder = [(folder, measured) for folder, _, measured in results]
    output.draw(options["plot"], lambda: import_object(task.plot or "")(by_folder))
    objects, shown = output.measured_objects(by_folder), by_folder
    if len(texts) > 1:
        objects = [{"folder": folder, "text": text, **one.to_json()} for folder, text, one in results]
        shown = [(text if len(folders) == 1 else f"{folder} on {text}", one) for folder, text, one in results]
    output.print_json(objects) if as_json else import_object(task.show)(output.console(), shown)


def _named(given: tuple[str, ...], options: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return the model folders and the files of a command: a text, or the sources and targets of pairs."""
    files = [file for file in (options["source"], options["target"]) if file is not None]
    if len(files) == 1:
        raise click.UsageError("--source and --target go together: a file of sources, and one of their targets")
    folders = list(given)
    if not files:
        last = len(folders) - 1
        while last > 1 and _is_text_file(folders[last - 1]):
            last -= 1
        folders, files = folders[:last], folders[last:]
    if not folders:
        raise click.UsageError("name one or more model folders, and then the text, or --source and --target")
    return _without_runs(folders), files


def _is_text_file(name: str) -> bool:
    """Return True if an argument that is not the last is a text, and no model."""
    from chainrule.contract.kinds import is_model_file
    from chainrule.text.builtin import BUILTIN

    return is_text(name) or name in BUILTIN or (Path(name).is_file() and not is_model_file(name))


def _is_pairs(files: list[str], options: dict[str, Any]) -> bool:
    """Return True if files may be prompts and replies: two files, or records unless one field is chosen."""
    from chainrule.text.files import form_of
    from chainrule.text.hub import is_dataset

    if options["source"] is not None:
        return True
    names = [name for given in options["fields"] for name in given.split(",")]
    return (
        len(names) in (0, 2)
        and not is_text(files[0])
        and (is_dataset(files[0]) or form_of(Path(files[0])) != "text")
    )


def _arguments(task: Task, options: dict[str, Any]) -> dict[str, Any]:
    """Return how models of a task are measured; options that are for another task are refused."""
    given: dict[str, Any] = {}
    if (dynamic := opt.chosen_dynamic(options)) is not None:
        given["dynamic"] = dynamic
    if options["beams"] is not None:
        from chainrule.seq2seq.translate import BEAM

        given["strategy"] = replace(BEAM, width=options["beams"])
    for name in given.keys() - task.options:
        raise click.UsageError(_FOR_OTHERS[name])
    if options["plot"] is not None and task.plot is None:
        raise click.UsageError("--plot is for models that translate, with --source and --target")
    return given


def _without_runs(folders: list[str]) -> list[str]:
    """Leave out the run folders that a pattern such as models/* finds beside model folders."""
    from chainrule.folder import MANIFEST
    from chainrule.training.checkpoints.run_folder import METRICS

    runs = [f for f in folders if (Path(f) / METRICS).exists() and not (Path(f) / MANIFEST).exists()]
    if not runs or len(runs) == len(folders):  # if all are runs, loading raises a helpful error
        return folders
    terminal_progress().note(f"left out, as they are runs and not models: {', '.join(runs)}")
    return [folder for folder in folders if folder not in runs]
