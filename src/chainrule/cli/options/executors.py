"""Where large work is done: by the threads of this process, or by the workers of a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from chainrule.cli.options.declaring import group, option

if TYPE_CHECKING:
    from chainrule.contract.kinds import Workers
    from chainrule.system.parallel import Executor

executor_options = group(
    option(
        "--executor [embedded|ray]",
        "Who does the work: threads of this process, or the processes of Ray, also on many machines.",
        formerly="--engine",
        default="embedded",
    ),
    option("--address HOST:PORT", "Ray: the cluster, ray://HOST:PORT, or auto. [default: this machine's cores]"),
    option("--work DIR", "Ray: a folder that all machines see, for what is larger than memory. [default: TMPDIR]"),
)
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
