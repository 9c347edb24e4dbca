"""How a verb runs and ends: its time, its random numbers, the form of its results, and what they may replace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from chainrule.cli.options.declaring import Command


def json_option(command: Command) -> Command:
    """--json: whether to print JSON, for machines."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for machines.")(command)


def overwrite_option(what: str) -> Callable[[Command], Command]:
    """--overwrite: whether to replace what exists."""
    return click.option("--overwrite", is_flag=True, help=f"Replace {what} that exists.")


def check_new_file(path: str | Path, option: str, overwrite: bool) -> None:
    """Refuse, before any work, a file that exists, or one in a folder that does not."""
    from chainrule.errors import FolderError

    path = Path(path)
    if path.is_dir():
        raise FolderError(f"{path} is a folder; choose another {option}")
    if path.is_file() and not overwrite:
        raise FolderError(f"{path} exists; choose another {option}, or --overwrite it")
    if not path.parent.is_dir():
        raise FolderError(f"{path}: there is no folder {path.parent}; make it, or choose another {option}")


def minutes_option(explanation: str) -> Callable[[Command], Command]:
    """--minutes: the most time to train."""
    return click.option("--minutes", type=click.FloatRange(min=0, min_open=True), metavar="M", help=explanation)


def seed_option(command: Command) -> Command:
    """--seed: the seed of the random generators."""
    return click.option("--seed", type=int, default=0, show_default=True, help="Seed of the random generators.")(
        command
    )
