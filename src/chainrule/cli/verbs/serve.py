"""`chainrule serve`: models behind the interface that clients already speak."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import click

import chainrule as cr
from chainrule.cli import options as opt
from chainrule.cli.output import console, say
from chainrule.errors import MissingExtraError, SettingsError


@click.command()
@click.argument("folders", metavar="[DIR]...", nargs=-1)
@opt.options(
    """
    --host TEXT = 127.0.0.1            The address to listen on; any but a local one needs a key.
    --port INTEGER : 0..65535 = 8000   The port; 0: any that is free.
    --key-file FILE                    A file with the key that clients have to send. [default: CHAINRULE_KEY]
    --allow-host NAME... as hosts      Another name by which the server may be called; repeatable.
    --allow-origin ORIGIN... as origins
        Let pages of another address, such as http://localhost:3000, use the server; repeatable.
    --rows INTEGER : 1..4096 = 64      Texts of a model that are generated together.
    --queue INTEGER : 1..100000 = 256  Requests of a model that may wait; others are refused until later.
    """,
    key_file={"type": click.Path(path_type=Path)},
)
@opt.compute
@opt.options(
    """
    --runs FOLDER as runs_below  Show the trainings (OUT.run) and comparisons below FOLDER, also while they go on.
    --learn
        Show the lessons of the course beside the views, with a field for each answer; without DIR, two small
        models are trained for them.
    --reload                     Take up a folder that is replaced, without dropping requests.
    """,
    runs_below={"type": click.Path(exists=True, file_okay=False, path_type=Path)},
)
def serve(folders: tuple[str, ...], key_file: Path | None, **options: Any) -> None:
    """Serve models of any kind over HTTP, until Ctrl-C.

    Clients of OpenAI's interface can use it: completions, chats, embeddings. A model is called by the name of its
    folder; NAME=DIR gives it another name.

    \b
    chainrule serve ladder/lstm ladder/mixture
    chainrule serve --learn
    curl http://127.0.0.1:8000/v1/completions -H 'Content-Type: application/json' -d '{"prompt": "The"}'
    """
    try:
        from chainrule.serve.batching.scheduler import Limits
        from chainrule.serve.models import Models, named_folders
        from chainrule.serve.run import serve as run
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith("chainrule"):
            raise
        raise MissingExtraError(error.name or "fastapi", "serve", "serving models") from None
    learn = options["learn"]
    if not folders and not learn:
        raise click.UsageError("which models? chainrule serve DIR, or chainrule serve --learn for the course")
    limits, key = Limits(options["rows"], options["queue"]), _key(key_file)
    with tempfile.TemporaryDirectory() as place:
        named = named_folders(folders) or _write_examples(Path(place))
        models = Models(named, limits, options["device"], options["dtype"])
        models.load(lambda message: say(console(), message))
        opt.note_slow_precision(*(one.model for one in models.all()))
        names = ", ".join(one.name for one in models.all())

        def started(address: str) -> None:
            say(console(), f"Serving {names} at {address}{'/#/learn' if learn else ''}; Ctrl-C stops it")

        how = {name: options[name] for name in ("host", "port", "hosts", "origins", "reload", "runs_below")}
        run(models, key=key, say=started, learn=learn, **how)


def _write_examples(folder: Path) -> dict[str, Path]:
    """Train models for a reader who has none, in a second or two; return where each is, by its name.

    `shakespeare` writes, and its byte-pair tokens have merges to watch; `toy` is the table of counts of lesson 3.
    """
    say(console(), "Training two small models for the lessons")
    text, subwords = cr.Corpus.open("builtin:shakespeare"), cr.TokenizerChoice("bpe", vocab_size=2000)
    toy = ["i love cats", "i love dogs", "cats chase mice"]
    made = {
        "shakespeare": cr.train("ngram", text, order=4, tokenizer=subwords, context="stream"),
        "toy": cr.train("ngram", toy, order=3, smoothing="mle", counts=True, tokenizer="word"),
    }
    for name, model in made.items():
        model.save(folder / name)
    return {name: folder / name for name in made}


def _key(file: Path | None) -> str | None:
    """Read the key from a file or the environment: on the command line, other users of the machine would see it."""
    if file is None:
        return os.environ.get("CHAINRULE_KEY") or None
    try:
        key = file.read_text().strip()
    except OSError as error:
        raise SettingsError(f"{file}: {error.strerror}") from None
    if not key:
        raise SettingsError(f"{file} has no key in it")
    return key
