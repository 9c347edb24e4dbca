"""Arguments and options that several verbs share, each declared once; a verb takes one by `@opt.device`.

declaring.py   how options are declared, renamed, and left out of a short help
texts.py       corpora and pairs: their options, and opening what these name; the choice of a tokenizer
decoding.py    how the next token is chosen
unknown.py     hints for options that a verb does not have
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import chainrule as cr
from chainrule.cli.options import declaring

if TYPE_CHECKING:
    from chainrule.contract.kinds import Workers
    from chainrule.system.parallel import Executor

options, group = declaring.options, declaring.group

# -- how a verb runs and ends -----------------------------------------------------------------------------

json = options("--json as as_json  Print JSON, for machines.")
seed = options("--seed INTEGER : int = 0  Seed of the random generators.")

# -- a model that is used ---------------------------------------------------------------------------------

model = click.argument("folder", metavar="DIR", type=click.Path())
models = click.argument("folders", nargs=-1, required=True, metavar="DIR...", type=click.Path())
models_and_file = click.argument(
    "folders_and_file", nargs=-1, required=True, type=click.Path(), metavar="DIR... FILE"
)
"""Several models, and the file that each of them reads."""


def split_file(given: tuple[str, ...]) -> tuple[list[str], str]:
    """Return the model folders and the file of `models_and_file`."""
    if len(given) < 2:
        raise click.UsageError("name one or more model folders, and then the file")
    return list(given[:-1]), given[-1]


device = options("""
    --device NAME = auto  Where to compute: cpu, cuda (or cuda:1, mps, ... as torch names it), or auto.
""")
dtype = options("""
    --dtype [float32|bfloat16] = float32
        The precision in which a network computes: bfloat16 is faster on a GPU, and a little less exact.
""")
compute = group(device, dtype)
"""The options that `load_model` reads."""


def load_model(folder: str, options: Mapping[str, Any], *tasks: str, writes: bool = False) -> cr.LanguageModel:
    """Load a model as --device and --dtype say; refuse a model that is for none of the `tasks`.

    `writes` says that it reads one token at a time: on a CPU, small networks are then computed by the tape.
    """
    if writes and _is_faster_on_tape(folder, options):
        from chainrule.autodiff.tape_model import load_on_tape

        return load_on_tape(folder)
    lm: cr.LanguageModel = cr.load(folder, device=options["device"], dtype=options["dtype"], tasks=tasks)
    note_slow_precision(lm)
    return lm


_SMALL_BYTES = 40_000_000
"""Networks of at most this many bytes write a single text faster on the tape, and start without torch."""


def _is_faster_on_tape(folder: str, options: Mapping[str, Any]) -> bool:
    """Return True for a small network of torch that would compute on the CPU, in single precision."""
    from chainrule.contract.kinds import read_model
    from chainrule.system.devices import choose_device

    if options["device"] not in ("auto", "cpu") or options["dtype"] != "float32":
        return False
    content = read_model(folder, verify=False)  # checksums are verified when it is loaded
    if content.config.get("engine") != "torch":
        return False
    size = sum(array.nbytes for array in content.tensors.values())
    return size <= _SMALL_BYTES and choose_device(options["device"]) == "cpu"


def note_slow_precision(*lms: Any) -> None:
    """Note if a model computes in bfloat16, which is meant to be faster, on a CPU where that is slower."""
    from chainrule.system.devices import has_fast_bfloat16

    in_bfloat16 = any(getattr(lm, "device", "") == "cpu" and getattr(lm, "dtype", "") == "bfloat16" for lm in lms)
    if in_bfloat16 and not has_fast_bfloat16():
        from chainrule.cli.output import terminal_progress

        terminal_progress().note("this CPU is slow in bfloat16: without --dtype it would be faster")


executor_options = options("""
    --executor [embedded|ray] = embedded formerly --engine
        Who does the work: threads of this process, or the processes of Ray, also on many machines.
    --address HOST:PORT  Ray: the cluster, ray://HOST:PORT, or auto. [default: this machine's cores]
    --work DIR           Ray: a folder that all machines see, for what is larger than memory. [default: TMPDIR]
""")
"""The options that `opened_executor` reads."""


@contextmanager
def opened_executor(options: Mapping[str, Any]) -> Iterator[Executor]:
    """Open the executor that the options name; leaving the block closes it."""
    if options["executor"] == "embedded":
        for name in ("address", "work"):
            if options[name] is not None:
                raise click.UsageError(f"--{name} is for --executor ray: give that too, or leave it out")
        from chainrule.system.parallel import EMBEDDED

        yield EMBEDDED
        return
    from chainrule.ray.connection import ray_executor

    with ray_executor(options["address"], work=options["work"]) as executor:
        yield executor


@contextmanager
def opened_workers(folder: str, options: Mapping[str, Any]) -> Iterator[Workers | None]:
    """Open workers that use the model in a folder; None if the executor that the options name is this process."""
    from chainrule.contract.kinds import Stored, Workers

    with opened_executor(options) as executor:
        stored = Stored(Path(folder).absolute(), options["device"], options["dtype"])
        yield Workers(executor, stored) if executor.is_remote else None


dynamic_options = options("""
    --dynamic RATE : float as dynamic_rate
        Dynamic evaluation: networks learn from the text while it is scored, by steps of this size, such as 0.0001.
    --dynamic-set KEY=VALUE...
        With --dynamic: decay (back to the trained weights), segment (tokens between steps), method (rms or sgd),
        epsilon.
""")
"""The options that `chosen_dynamic` reads."""


def chosen_dynamic(options: Mapping[str, Any]) -> cr.mixtures.Dynamic | None:
    """Return how networks learn while they score; None if they stay as they are."""
    from chainrule.settings import parse, split_words

    if options["dynamic_rate"] is None:
        if options["dynamic_set"]:
            raise click.UsageError("--dynamic-set goes with --dynamic RATE")
        return None
    return parse(cr.mixtures.Dynamic, {**split_words(options["dynamic_set"]), "rate": options["dynamic_rate"]})


# -- a prompt ---------------------------------------------------------------------------------------------

read_text = click.argument("text", metavar="[TEXT]", required=False)
read_prompt = options(
    "--prompt TEXT  In place of TEXT: predict the token after this, the most likely one or --next."
)


def read_by_model(text: str | None, prompt: str | None, next_word: str | None = None) -> dict[str, Any]:
    """Return the text that a model reads, and what it predicts, as arguments of `explain` and `diagnose`."""
    if (text is None) == (prompt is None):
        raise click.UsageError(
            'give a TEXT in quotes to predict its last token, or --prompt "..." to predict the token after it'
        )
    found = {"text": text or prompt or "", "after": prompt is not None}
    return found if next_word is None else found | {"next_word": next_word}


heal = options("""
    --heal/--no-heal = yes  A prompt is text that may stop inside a word, or its tokens are complete.
""")


def note_unknown_prompt(lm: cr.LanguageModel, prompt: str, heal: bool = True) -> None:
    """Note if the model does not know some of the prompt."""
    from chainrule.cli.output import terminal_progress
    from chainrule.decode.generate import context_of
    from chainrule.decode.healing import find_respellings

    _, (respellings,) = find_respellings(lm, [context_of(lm, prompt)], heal=heal)
    if lm.tokenizer.unk in respellings.stable:
        terminal_progress().note("some of the prompt is unknown to the model, and tells it nothing")
