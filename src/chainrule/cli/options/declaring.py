"""How options are declared: as decorators of a verb's function."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])
"""The function of a verb, which a decorator gives an option and returns."""


def with_options(command: Command, options: Sequence[Callable[[Command], Command]]) -> Command:
    """The function of a verb with several options, which its help shows in this order."""
    for option in reversed(options):
        command = option(command)
    return command


class RenamedOption(click.Option):
    """An option whose earlier names, declared after its present one, still work but are not shown."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """The option by its present name."""
        return click.Option.get_help_record(self._without_earlier_names(), ctx)

    def get_error_hint(self, ctx: click.Context | None) -> str:
        """The option by its present name."""
        return click.Option.get_error_hint(self._without_earlier_names(), ctx)

    def _without_earlier_names(self) -> RenamedOption:
        option = copy.copy(self)
        option.opts = self.opts[:1]
        return option
