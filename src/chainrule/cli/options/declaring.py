"""How options are declared: as decorators of a verb's function."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])
"""The function of a verb, to which a decorator adds an option."""


def option(
    usage: str,
    explanation: str,
    *,
    name: str | None = None,
    formerly: str | None = None,
    type: Any = None,  # noqa: A002 (click's word)
    default: Any = None,
    **more: Any,
) -> Callable[[Command], Command]:
    """Declare an option as the help shows it.

    "--top N" takes a value, "--by [mean|total]" one of these, "--kind KIND..." may be given several times, and
    "--follow" is a flag. The value of "--out FILE" is a path. A default is shown. The name that it had formerly
    still works.
    """
    flag, _, metavar = usage.partition(" ")
    if metavar.endswith("...") and not metavar.endswith(",..."):  # LxW,... is one value, a list
        metavar, more["multiple"] = metavar.removesuffix("..."), True
    if metavar in ("TEXT", "INTEGER", "FLOAT"):  # as click calls the types
        metavar = ""
    elif metavar.startswith("["):
        type, metavar = click.Choice(metavar[1:-1].split("|")), ""  # noqa: A001
    elif metavar in ("FILE", "FILE.svg", "DIR", "PATH") and type is None:
        type = click.Path()  # noqa: A001
    elif not metavar and "/" not in flag:
        more["is_flag"] = True
    elif "/" in flag and default is None:
        more["default"] = None  # neither is given; click would take the second
    if default is not None:
        more = {"default": default, "show_default": True, **more}
    names = [flag] if name is None else [flag, name]
    if formerly is not None:
        names, more["cls"] = [flag, formerly, name or flag.strip("-").replace("-", "_")], RenamedOption
    return click.option(*names, type=type, metavar=metavar or None, help=explanation, **more)


def group(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Declare several options, which the help shows in this order."""

    def decorate(command: Command) -> Command:
        for declare in reversed(options):
            command = declare(command)
        return command

    return decorate


def names_from(place: str) -> Callable[..., list[str]]:
    """Complete an argument by the names that the function MODULE:NAME returns."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        from chainrule.system.plugins import import_object

        return [name for name in import_object(place)() if name.startswith(incomplete)]

    return complete


class RenamedOption(click.Option):
    """An option whose earlier names, declared after its present one, still work but are not shown."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Show the option by its present name."""
        return click.Option.get_help_record(self._without_earlier_names(), ctx)

    def get_error_hint(self, ctx: click.Context | None) -> str:
        """Name the option by its present name."""
        return click.Option.get_error_hint(self._without_earlier_names(), ctx)

    def _without_earlier_names(self) -> RenamedOption:
        option = copy.copy(self)
        option.opts = self.opts[:1]
        return option


def rare(decorator: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Mark the options of a decorator as rare: the short help of a `BriefCommand` leaves them out."""

    def decorate(command: Command) -> Command:
        before = len(getattr(command, "__click_params__", ()))
        command = decorator(command)
        for parameter in command.__click_params__[before:]:  # type: ignore[attr-defined]
            parameter.is_rare = True
        return command

    return decorate


class BriefCommand(click.Command):
    """A verb of many options: --help leaves out the rare ones, --help-all shows all of them."""

    def __init__(self, *arguments: Any, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        how: Any = {"is_flag": True, "is_eager": True, "expose_value": False, "callback": self._show_all}
        self.params.append(click.Option(["--help-all"], help="Show every option and exit.", **how))

    def full_help(self, ctx: click.Context) -> str:
        """Return the help with all options."""
        ctx.meta[__name__] = "all"
        return self.get_help(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the common options, and then the rare ones if they are asked for."""
        options = [option for option in self.get_params(ctx) if isinstance(option, click.Option)]
        hidden = [option for option in options if getattr(option, "is_rare", False)]
        more = [record for option in hidden if (record := option.get_help_record(ctx)) is not None]
        for option in hidden:
            option.hidden = True
        super().format_options(ctx, formatter)
        for option in hidden:
            option.hidden = False
        if ctx.meta.get(__name__) == "all":
            with formatter.section("More options"):
                formatter.write_dl(more)

    def _show_all(self, ctx: click.Context, parameter: click.Parameter, is_given: bool) -> None:
        if is_given and not ctx.resilient_parsing:
            click.echo(self.full_help(ctx), color=ctx.color)
            ctx.exit()
