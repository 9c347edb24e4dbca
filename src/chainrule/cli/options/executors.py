"""Where large work is done: by the threads of this process, or by the workers of a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from chainrule.cli.options.declaring import Command, RenamedOption, with_options

if TYPE_CHECKING:
    from chainrule.system.parallel import Executor

_RAY_ALONE = ("address", "work")


def executor_options(command: Command) -> Command:
    """Add --executor, --address and --work, which `opened_executor` reads."""
    options = (
        click.option(
            "--executor",
            "--engine",
            "executor",
            cls=RenamedOption,
            type=click.Choice(["embedded", "ray"]),
            default="embedded",
            show_default=True,
            help="Who does the work: threads of this process, or the processes of Ray, also on many machines.",
        ),
        click.option(
            "--address",
            metavar="HOST:PORT",
            help="Ray: the cluster, ray://HOST:PORT, or auto. [default: this machine's cores]",
        ),
        click.option(
            "--work",
            type=click.Path(),
            metavar="DIR",
            help="Ray: a folder that all machines see, for what is larger than memory. [default: TMPDIR]",
        ),
    )
    return with_options(command, options)


@contextmanager
def opened_executor(options: dict[str, Any]) -> Iterator[Executor]:
    """Open the executor that the options name; leaving the block closes it."""
    from chainrule.system.parallel import EMBEDDED

    if options["executor"] == "embedded":
        for name in _RAY_ALONE:
            if options[name] is not None:
                raise click.UsageError(f"--{name} is for --executor ray: give that too, or leave it out")
        yield EMBEDDED
        return
    from chainrule.ray.connection import ray_executor

    with ray_executor(options["address"], work=options["work"]) as executor:
        yield executor
