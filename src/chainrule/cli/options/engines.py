"""Where large work is done: by the threads of this process, or by the workers of a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from chainrule.cli.options.declaring import Command, with_options

if TYPE_CHECKING:
    from chainrule.system.parallel import Engine

_RAY_ALONE = ("address", "work")


def engine_options(command: Command) -> Command:
    """--engine, --address and --work, which `opened_engine` reads."""
    options = (
        click.option(
            "--engine",
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
def opened_engine(options: dict[str, Any]) -> Iterator[Engine]:
    """The engine that the options name, for as long as the block lasts."""
    from chainrule.system.parallel import EMBEDDED

    if options["engine"] == "embedded":
        for name in _RAY_ALONE:
            if options[name] is not None:
                raise click.UsageError(f"--{name} is for --engine ray: give that too, or leave it out")
        yield EMBEDDED
        return
    from chainrule.ray.connection import ray_engine

    with ray_engine(options["address"], work=options["work"]) as engine:
        yield engine
