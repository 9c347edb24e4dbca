"""`chainrule serve`: models behind the interface that clients already speak."""

from __future__ import annotations

import os
from pathlib import Path

import click

from chainrule.cli.options.models import device_option, note_slow_precision, precision_option
from chainrule.cli.output.lines import console, say
from chainrule.errors import MissingExtraError, SettingsError


@click.command()
@click.argument("folders", metavar="DIR...", nargs=-1, required=True)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="The address to listen on; any but a local one needs a key.",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="The port; 0: any that is free."
)
@click.option(
    "--key-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A file with the key that clients have to send. [default: CHAINRULE_KEY]",
)
@click.option(
    "--allow-host",
    multiple=True,
    metavar="NAME",
    help="Another name by which the server may be called; repeatable.",
)
@click.option(
    "--rows",
    type=click.IntRange(1, 4096),
    default=64,
    show_default=True,
    help="Texts of a model that are written together.",
)
@click.option(
    "--queue",
    type=click.IntRange(1, 100_000),
    default=256,
    show_default=True,
    help="Requests of a model that may wait; others are told to come again.",
)
@device_option
@precision_option
@click.option(
    "--runs",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Show the trainings (OUT.run) and comparisons below FOLDER, also while they go on.",
)
@click.option("--reload", is_flag=True, help="Take up a folder that is replaced, without dropping requests.")
def serve(
    folders: tuple[str, ...],
    host: str,
    port: int,
    key_file: Path | None,
    allow_host: tuple[str, ...],
    rows: int,
    queue: int,
    device: str,
    dtype: str,
    runs: Path | None,
    reload: bool,
) -> None:
    """Serve models of any kind over HTTP, until Ctrl-C.

    Clients of OpenAI's interface can use it: completions, chats, embeddings. A model is called by the name of its
    folder; NAME=DIR gives it another name.

    \b
    chainrule serve ladder/lstm ladder/mixture
    curl http://127.0.0.1:8000/v1/completions -H 'Content-Type: application/json' -d '{"prompt": "The"}'
    """
    try:
        from chainrule.contract.lm import LanguageModel
        from chainrule.serve.batching.engine import Limits
        from chainrule.serve.models import Models, named_folders
        from chainrule.serve.run import serve as run
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith("chainrule"):
            raise
        raise MissingExtraError(error.name or "fastapi", "serve", "serving models") from None
    models = Models(named_folders(folders), Limits(rows, queue), device, dtype)
    models.load()
    note_slow_precision(dtype, *(one.model for one in models.all() if isinstance(one.model, LanguageModel)))
    names = ", ".join(one.name for one in models.all())

    def started(address: str) -> None:
        say(console(), f"Serving {names} at {address}; Ctrl-C stops it")

    run(
        models,
        host=host,
        port=port,
        key=_key(key_file),
        hosts=allow_host,
        reload=reload,
        runs_below=runs,
        say=started,
    )


def _key(file: Path | None) -> str | None:
    """The key of a file, or of the environment: on the command line, other users of the machine would see it."""
    if file is None:
        return os.environ.get("CHAINRULE_KEY") or None
    try:
        key = file.read_text().strip()
    except OSError as error:
        raise SettingsError(f"{file}: {error.strerror}") from None
    if not key:
        raise SettingsError(f"{file} has no key in it")
    return key
