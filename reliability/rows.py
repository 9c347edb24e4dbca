"""The rows of the scorecard, in the order of the page."""

from __future__ import annotations

from . import faults, files, kills, pipes, stops, syncs
from .frame import Control, Row

_ROWS = [
    Row(
        "kills",
        "Processes save models of every kind, checkpoints, exports, reports and texts in a loop and acknowledge each; "
        "SIGKILL comes at a random millisecond.",
        "what is there is whole, nothing acknowledged is lost, and nothing stays behind after the next start.",
        kills.run,
        count=5000,
        small=30,
        controls=[Control("folders are written in place", ["model folder"], 30)],
    ),
    Row(
        "io-faults",
        "The Nth open, write, sync, rename, make or remove fails (ENOSPC, EIO), once, from then on or half-way, or the "
        "process is killed there, for every N and every writer.",
        "the old or the new version is there, whole; an error names its file; success is success.",
        faults.run,
        count=10**9,
        small=1,
        controls=[
            Control("an error of a sync is swallowed", ["model folder"], 10**9),
            Control("the old folder is deleted first", ["model folder"], 10**9),
        ],
        needs=faults.needs,
    ),
    Row(
        "sync-order",
        "Calls of every writer are recorded, with exchanged names and with two renames.",
        "a file is on disk before it gets its name, and its folder after that.",
        syncs.run,
        count=2000,
        small=62,
        controls=[Control("nothing is synced", ["model folder", "report"], 4)],
    ),
    Row(
        "bad-files",
        "Files of every format and model folders of every kind are changed in bytes, lines, values and numbers, and "
        "read within 2 GB and 5 seconds; files that once were answered wrongly are replayed.",
        "a valid result, or our own error that names the file; nothing else.",
        files.run,
        count=1_000_000,
        small=600,
        controls=[
            Control("signatures are not checked", ["ngram"], 150),
            Control("checksums are not checked", ["ngram"], 150),
            Control("weights of mixtures are not checked", ["mixture"], 300),
            Control("values of other programs are trusted", ["folder of transformers"], 80),
            Control("damaged parquet files are not told", ["parquet"], 30),
            Control("a format is trusted", ["CoNLL-U"], 40),
        ],
    ),
    Row(
        "pipes",
        "Texts come from named pipes, and from files that another thread changes and truncates meanwhile.",
        "the model of the whole text, or one clear error.",
        pipes.run,
        count=1000,
        small=8,
        controls=[Control("the last piece of a pipe is lost", ["pipe"], 2)],
    ),
    Row(
        "stops",
        "`train`, `tokenize` and `compare` get SIGTERM or SIGINT at a random moment.",
        "they end with the code of the signal, at once, and leave nothing in TMPDIR.",
        stops.run,
        count=500,
        small=2,
        controls=[],
    ),
]
ROWS = {row.name: row for row in _ROWS}
