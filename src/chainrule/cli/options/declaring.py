"""How options are declared: as decorators of a verb's function."""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from chainrule.errors import FolderError

Command = TypeVar("Command", bound=Callable[..., Any])
"""The function of a verb, to which a decorator adds an option."""


_OPTION = re.compile(r"^(-.*?)(?:  +|\n +)(\S.*(?:\n +.*)*)", re.MULTILINE)
_USAGE = re.compile(
    r"(?P<flag>\S+)(?: (?P<metavar>(?!(?:required|[:=]|as|formerly) )\S+))?(?P<required> required)?"
    r"(?: : (?P<type>\S+))?(?: = (?P<default>\S+))?(?: as (?P<name>\w+))?(?: formerly (?P<formerly>\S+))?"
)
_INTERVAL = re.compile(r"([\[(])([\d.]+),([\d.]+|∞)([\])])")


def options(text: str, **details: Mapping[str, Any]) -> Callable[[Command], Command]:
    """Declare options as a text, each with its explanation beside it or indented below it, as the help shows them.

        --out DIR required  The model folder to write.
        --top N : 1.. = 10  How many of them.
        --tune SHARE : (0,1) = 0.5 as share
            The share of the lists, drawn at random, that weights are tuned on; the rest tests them.

    "--top N" takes a value, "--by [mean|total]" one of these, "--kind KIND..." may be given several times, and
    "--follow" is a flag; the value of "--out DIR" is a path. Then come the type, the default, the name of the
    verb's argument, and the name that the option had formerly, which still works. A type is int, float, a range of
    whole numbers, an interval of others, or `new`: a file that must not exist, unless --overwrite is given.
    `details` are what else click is told, by the verb's argument.
    """
    declared = []
    for usage, explanation in _OPTION.findall(inspect.cleandoc(text)):
        said = _USAGE.fullmatch(usage)
        assert said is not None, usage
        name = said["name"] or said["flag"].partition("/")[0].strip("-").replace("-", "_")
        declared.append(_option(said, name, " ".join(explanation.split()), dict(details.get(name, {}))))
    return group(*declared)


def _option(said: re.Match[str], name: str, explanation: str, more: dict[str, Any]) -> Callable[[Command], Command]:
    """Declare an option by its usage, which `_USAGE` has taken apart."""
    flag, metavar, names, default = said["flag"], said["metavar"] or "", [said["flag"], name], said["default"]
    if metavar.endswith("...") and not metavar.endswith(",..."):  # LxW,... is one value, a list
        metavar, more["multiple"] = metavar.removesuffix("..."), True
    if said["type"] == "new":
        more["callback"] = _check_new_file
    elif said["type"] is not None:
        more["type"] = _number(said["type"])
    if metavar.startswith("["):
        more["type"], metavar = click.Choice(metavar[1:-1].split("|")), ""
    elif metavar in ("FILE", "FILE.svg", "DIR", "PATH"):
        more = {"type": click.Path(), **more}
    elif metavar in ("TEXT", "INTEGER", "FLOAT"):  # as click calls the types
        metavar = ""
    elif "/" in flag:
        names, more["default"] = [flag], None  # neither is given; click would take the second
    elif not metavar:
        more |= {"is_flag": True, "is_eager": name == "overwrite"}  # which the check of a new file reads
    if default is not None:
        more |= {"default": float(default) if said["type"] == "float" else default, "show_default": True}
    if said["formerly"] is not None:
        names, more["cls"] = [flag, said["formerly"], name], RenamedOption
    is_required = said["required"] is not None
    return click.option(*names, metavar=metavar or None, help=explanation, required=is_required, **more)


def _number(text: str) -> Any:
    """Return the type that int, float, a range such as 1..9 or 1.., or an interval such as (0,1] names."""
    if text in ("int", "float"):
        return int if text == "int" else float
    if interval := _INTERVAL.fullmatch(text):
        least, most = (
            None if end == "∞" else float(end) if "." in end else int(end) for end in interval.group(2, 3)
        )
        return click.FloatRange(least, most, interval[1] == "(", most is not None and interval[4] == ")")
    low, _, high = text.partition("..")
    return click.IntRange(int(low), int(high) if high else None)


def _check_new_file(ctx: click.Context, parameter: click.Parameter, name: str | None) -> str | None:
    """Return the name of a file; raise if it exists, or if its folder does not."""
    if name is None or name == "-" or ctx.resilient_parsing:
        return name
    path, option = Path(name), parameter.opts[0]
    if path.is_dir():
        raise FolderError(f"{path} is a folder; choose another {option}")
    if path.is_file() and not ctx.params["overwrite"]:
        raise FolderError(f"{path} exists; choose another {option}, or --overwrite it")
    if not path.parent.is_dir():
        raise FolderError(f"{path}: there is no folder {path.parent}; make it, or choose another {option}")
    return name


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
