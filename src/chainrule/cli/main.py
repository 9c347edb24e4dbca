"""`chainrule`: the verbs together, and what happens when one fails."""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache, wraps
from importlib import import_module
from typing import Any, NoReturn

import click

from chainrule._version import __version__
from chainrule.cli.options.unknown import hint, verb_hint
from chainrule.cli.output import WAITING, echo, wrapped
from chainrule.errors import ChainruleError, Interrupted
from chainrule.system.signals import EXIT_CODES, Acknowledgement, Termination, end_process

_MODULES = (
    "compare+report scale+sweep train+resume evaluate score",  # train and measure models
    "generate suggest+predict fill translate tag+classify",  # use them
    "filter anomalies correct rerank pairs+probe tokenize",  # put them to work on texts
    "mix serve convert+export+import inspect explain+diagnose positions gradcheck entropy count+kinds lesson",
)
"""The modules of verbs/ and, after a +, their other verbs, in the order in which the help lists them."""


def verbs() -> list[click.Command]:
    """Return every verb, in the order in which the help lists them."""
    modules = (names.partition("+")[0] for names in " ".join(_MODULES).split())
    return [*(verb for module in modules for verb in _verbs_of(module)), completion]


@cache
def _verbs_of(name: str) -> list[click.Command]:
    """Return the verbs that a module of verbs/ defines."""
    module = import_module(f"chainrule.cli.verbs.{name}")
    found = []
    for one in vars(module).values():
        if isinstance(one, click.Command) and one.callback and one.callback.__module__ == module.__name__:
            one.callback = _announced(one.callback)
            found.append(one)
    return found


class _Verbs(click.Group):
    """The verbs, which are imported when they are asked for: all of them take 40 ms."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        modules = (names.split("+") for names in " ".join(_MODULES).split())
        module = next((names[0] for names in modules if cmd_name in names), None)
        for verb in verbs() if module is None else _verbs_of(module):
            self.add_command(verb)
        return super().get_command(ctx, cmd_name)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [str(verb.name) for verb in verbs()]

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except BrokenPipeError:
            # the reader has closed the pipe, as `| head` does: no error, and the rest of the output is discarded
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(0)


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="chainrule %(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """Train, measure, compare and use language models on your own text.

    Start with: chainrule compare builtin:shakespeare --out ladder
    """


def _announced(run: Callable[..., Any]) -> Callable[..., Any]:
    """Have a verb say that it starts, before it imports libraries, which may take seconds."""

    @wraps(run)
    def start(*arguments: Any, **options: Any) -> Any:
        WAITING.show("chainrule: starting")
        return run(*arguments, **options)

    return start


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for SHELL.

    \b
    bash:  echo 'eval "$(chainrule completion bash)"' >> ~/.bashrc
    zsh:   echo 'eval "$(chainrule completion zsh)"' >> ~/.zshrc
    fish:  chainrule completion fish > ~/.config/fish/completions/chainrule.fish
    """
    from click.shell_completion import get_completion_class

    maker = get_completion_class(shell)
    assert maker is not None
    click.echo(
        maker(click.get_current_context().find_root().command, {}, "chainrule", "_CHAINRULE_COMPLETE").source()
    )


def run_process() -> NoReturn:
    """Run the verb that the command line names, as a process of its own."""
    try:
        main(at_once=_stop_importing)
    except SystemExit as ending:
        if ending.code in EXIT_CODES:
            _stop_at_once(int(ending.code))
        raise


def _stop_importing(code: int) -> NoReturn:
    """End the process on a signal, while a module is imported: any other exception might be dropped there."""
    with suppress(Exception):
        WAITING.end()
        if code == EXIT_CODES[0]:
            _say("stopped")
    _stop_at_once(code)


def _stop_at_once(code: int) -> NoReturn:
    """End the process at once; no `finally` block runs."""
    with suppress(Exception):  # this module may be the one that is being imported; the next start removes the files
        from chainrule.system.disk.scratch import close_scratch_files

        close_scratch_files()
    end_process(code)


def main(arguments: list[str] | None = None, *, at_once: Callable[[int], object] | None = None) -> NoReturn:
    """Run a verb and exit; an error that the user can correct is one line on standard error and exit code 2.

    `at_once` ends the process on a signal that arrives while a module is imported.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in arguments
    if debug:
        arguments.remove("--debug")
    _open_closed_streams()
    termination, acknowledgement = Termination(at_once), Acknowledgement(_say_stopping)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # an ∞ that an old terminal cannot show is no reason to stop
    try:
        code = cli.main(arguments, prog_name="chainrule", standalone_mode=False)
        termination.end()
        sys.exit(code if isinstance(code, int) else 0)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(2)
    except click.UsageError as error:
        page = f" (see {error.ctx.command_path} --help)" if error.ctx is not None else ""
        message, parameters = error.format_message(), error.ctx.command.params if error.ctx is not None else []
        if isinstance(error, click.NoSuchOption) and (meant := hint(error, arguments)):
            message = f"No such option '{error.option_name}': {meant}"
        elif (verb := re.match(r"No such command '([^']*)'", message)) and (meant := verb_hint(verb[1])):
            message = f"No such command '{verb[1]}': {meant}"
        elif "unexpected extra argument" in message and any("TEXT" in (one.metavar or "") for one in parameters):
            message = f"{message.rstrip('.')}: a text of several words goes in quotes"
        elif "unexpected extra argument" in message and any("--prompt" in one.opts for one in parameters):
            message = f'{message.rstrip(".")}: give a text as --prompt "TEXT"'
        _say(f"error: {message}{page}")
        sys.exit(2)
    except (KeyboardInterrupt, click.Abort):
        _say("stopped")
        sys.exit(130)
    except Interrupted as error:
        if os.environ.get("RANK", "0") == "0" or "TORCHELASTIC_RUN_ID" not in os.environ:
            _say(str(error))  # the first of many processes says it for all
        sys.exit(128 + error.signal)
    except (ChainruleError, OSError, MemoryError) as error:
        if debug:
            raise
        if not getattr(error, "is_reported", False):
            _say(f"error: {_message(error)}")
        sys.exit(2)
    except Exception as error:
        if termination.received is not None:  # some code turns every exception into one of its own
            sys.exit(128 + termination.received)
        if debug:
            raise
        _say(f"internal error: {type(error).__name__}: {error} (--debug shows where; please report it)")
        sys.exit(1)
    finally:
        WAITING.end()
        acknowledgement.end()
        termination.end()


def _open_closed_streams() -> None:
    """Open the null device for a standard stream that is closed, as by `2>&-`.

    Python has None in place of such a stream, and the next file that is opened would get its number: what a
    library prints would go into that file.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: that of the stream
            os.set_inheritable(descriptor, True)
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8", closefd=False))


def _say_stopping() -> None:
    """Acknowledge a signal while work that must finish goes on, such as a step and its checkpoint."""
    message = "stopping; a second Ctrl-C stops at once"
    progress = sys.modules.get("chainrule.cli.output.progress")  # before it is imported, no bar is shown
    if progress is None or not progress.say_above_bars(f"chainrule: {message}"):
        _say(message)


def _message(error: Exception) -> str:
    """Return the message of an error; for an OSError the file comes first, and its number is left out."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    if isinstance(error, MemoryError) and not str(error):
        return "there is too little memory for this"
    return str(error) or type(error).__name__


def _say(message: str) -> None:
    line = f"chainrule: {' '.join(message.split())}"
    if sys.stderr.isatty():
        line = wrapped(line, shutil.get_terminal_size().columns)
    echo(line, err=True)
