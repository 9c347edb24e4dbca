"""Tasks: what models do, and what commands do with the models of a task.

Commands, trainings and comparisons know a task only by its declaration, a `Task`. A task of this package is listed
in `_BUILT_IN`; one of another package is declared as an entry point in the group `chainrule.tasks`. A kind of model
says by `Kind.task` which task it is for.
"""

from __future__ import annotations

from dataclasses import dataclass

from chainrule.errors import ChainruleError
from chainrule.system.plugins import find_plugins, import_object, load_plugin

PLUGINS = "chainrule.tasks"
"""The group of entry points that add tasks."""

_BUILT_IN = {
    "language": "chainrule.contract.tasks:LANGUAGE",
    "translation": "chainrule.seq2seq.training:TRANSLATION",
    "tagging": "chainrule.tagging.training:TAGGING",
    "masked": "chainrule.masked.training:MASKED",
    "classification": "chainrule.classification.training:CLASSIFICATION",
}
"""The module and the variable of each task."""


@dataclass(frozen=True)
class Task:
    """What some models do, and what commands do with them.

    A function is named as MODULE:NAME, and is imported when it is called.
    """

    name: str
    does: str
    """What a model does, as in "it tags words"."""
    verb: str
    """The verb of the command line that has a model do it."""
    evaluate: str
    """The function behind `chainrule evaluate`: (model, examples, progress=...) to figures with `to_json`."""
    show: str
    """The function that prints these figures: (console, [(folder, figures), ...])."""
    options: tuple[str, ...] = ()
    """The arguments of `evaluate` that `chainrule evaluate` has options for: dynamic, strategy."""
    plot: str | None = None
    """The function that draws these figures as SVG: ([(folder, figures), ...]); None if there is no picture."""
    examples: str = "chainrule.text.given:as_corpus"
    """The function that makes examples of what a caller gives, or of a corpus.

    Examples are a corpus, or have `lines`, a corpus with a line for each, and `origin`, the corpus of their files.
    """
    encode: str = "chainrule.runs.prepare:encode_parts"
    """The function that turns lines of examples into ids; runs/prepare.py has those of this package."""
    has_sources: bool = False
    """True if an example is a pair, a source and a target: files are then given for each side."""
    has_labels: bool = False
    """True if an example is a text with a label: a field of records is then the label."""
    fields: tuple[str, ...] = ()
    """The fields of records that are the two sides of a pair, where a user names none."""
    has_template: bool = False
    """True if sources are prompts, which the settings have a template for: both sides are then one text."""
    example: str = "line"
    """What an example is called."""
    unit: str = "token"
    """The unit that a model predicts, by which progress and examples are counted."""
    perplexity_of: str = ""
    """The words after "perplexity" in the summary of a training, such as " of tags"."""


LANGUAGE = Task(
    "language",
    does="predicts text",
    verb="generate",
    evaluate="chainrule.evaluation.measure:evaluate",
    show="chainrule.cli.output.measured:show_language",
    options=("dynamic",),
)
REPLIES = Task(
    "replies",
    does="replies to prompts",
    verb="generate",
    evaluate="chainrule.evaluation.replies:evaluate_replies",
    show="chainrule.cli.output.measured:show_figures",
    examples="chainrule.text.pairs:as_pairs",
    encode="chainrule.runs.prepare:encode_pairs",
    has_sources=True,
    fields=("prompt", "reply"),
    has_template=True,
    example="pair",
    perplexity_of=" of replies",
)
"""The task of a language model that is tuned on prompts and replies; no kind of model is for it alone."""


def task_names() -> list[str]:
    """Return the names of all tasks, plug-ins included; none is imported."""
    return [*_BUILT_IN, *(name for name in find_plugins(PLUGINS) if name not in _BUILT_IN)]


def find_task(name: str) -> Task:
    """Return the task of that name.

    >>> find_task("tagging").does
    'tags words'
    """
    if name in _BUILT_IN:
        found: Task = import_object(_BUILT_IN[name])
        return found
    if (point := find_plugins(PLUGINS).get(name)) is not None:
        return load_plugin(point, Task)
    raise ChainruleError(f"there is no task {name!r} (there are: {', '.join(task_names())})")
