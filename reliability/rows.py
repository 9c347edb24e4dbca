"""The rows of the scorecard, in the order of the page."""

from __future__ import annotations

from . import (
    abuse,
    browser,
    checkpoints,
    distributions,
    equivalences,
    faults,
    files,
    hostile,
    kills,
    load,
    mutants,
    pipes,
    references,
    reproducibility,
    resume,
    stops,
    surroundings,
    syncs,
)
from .frame import Control, Row

_ROWS = [
    Row(
        "kills",
        "Processes save models of every kind, checkpoints, exports, reports and texts in a loop and "
        "acknowledge each; SIGKILL comes at a random millisecond.",
        "what is there is whole, nothing acknowledged is lost, and nothing stays behind after the next start.",
        kills.run,
        count=5000,
        small=27,
        controls=[Control("folders are written in place", ["model folder"], 30)],
        has_parts=True,
    ),
    Row(
        "io-faults",
        "The Nth open, write, sync, rename, make or remove fails (ENOSPC, EIO), once, from then on or half-"
        "way, or the process is killed there, for every N and every writer.",
        "the old or the new version is there, whole; an error names its file; success is success.",
        faults.run,
        count=10**9,
        small=1,
        controls=[
            Control("an error of a sync is swallowed", ["model folder"], 10**9),
            Control("the old folder is deleted first", ["model folder"], 10**9),
        ],
        needs=faults.needs,
        size="every operation",
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
        "Files of every format and model folders of every kind are changed in bytes, lines, values and "
        "numbers, and read within 2 GB and 5 seconds; files that once were answered wrongly are replayed.",
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
        count=150,
        small=2,
        controls=[Control("a stop has another exit code", [], 3)],
    ),
    Row(
        "exact-resume",
        "Every kind that is trained in steps, with dropout, is killed after a random step and resumed, in one"
        " process and on two processes of torchrun.",
        "all weights equal those of a run that was never killed, bit for bit.",
        resume.run,
        count=60,
        small=2,
        controls=[Control("a resumed run has other random numbers", ["lstm"], 2)],
    ),
    Row(
        "damaged-checkpoint",
        "A file of the newest checkpoint is truncated, changed, deleted or swapped.",
        "the run goes back to the newest good one, and says so.",
        checkpoints.run,
        count=5000,
        small=150,
        controls=[Control("checksums of checkpoints are not checked", [], 50)],
    ),
    Row(
        "hostile-text",
        "Texts with byte order marks, NULs, invalid UTF-8 of every class, strings of special tokens, scripts "
        "for a page and a line of 50 MB are read, encoded, learned and shown; a browser opens reports and views "
        "of the server with a script in every field.",
        "the stated result or our own error, 2 GB at most, and no page runs a text.",
        hostile.run,
        count=10_000,
        small=60,
        controls=[
            Control("invalid UTF-8 is taken for text", ["invalid: FF", "invalid: FE"], 4),
            Control("texts of reports are not escaped", [hostile.REPORT], 1, browser.missing),
        ],
        size="every text and tokenizer",
    ),
    Row(
        "distributions",
        "Distributions over the next token, of 20 generated models of each smoothing method after every "
        "context of up to two tokens and random longer ones, and of every other sort of model after random "
        "ones.",
        "they sum to one, within 1e-9 where numbers are stored in double precision and 1e-5 in single "
        "(as n-gram models and networks store them).",
        distributions.run,
        count=300_000,
        small=2000,
        controls=[Control("probabilities leak", ["kneser-ney", "laplace"], 100)],
        size="20 models of each method, 10,000 contexts of others",
    ),
    Row(
        "equivalences",
        "Every law of the contract (steps and batches, caches, padding, fast paths and plain ways, drafts) on"
        " generated models of every family; the tape and torch; streams; saving and loading.",
        "equal, or within 1e-5.",
        equivalences.run,
        count=5000,
        small=12,
        controls=[Control("scores are one token late", ["ngram"], 60)],
        has_parts=True,
    ),
    Row(
        "references",
        "Generated sentences beside KenLM's own file, relative frequencies beside NLTK, the tokens and logits of "
        "prompts beside transformers for each architecture that is imported (with random weights), and the tests "
        "that hold transformers, tiktoken, sacrebleu and SentencePiece beside ours. Two peers are missing: minbpe "
        "is not on the index of packages, and SRILM has to be asked for and cannot be installed by a command.",
        "equal, within 1e-4 of log10 p per token (the digits of KenLM's file) and 1e-5 elsewhere.",
        references.run,
        count=10_000,
        small=300,
        controls=[
            Control("discounts are too small", [references.KENLM], 20),
            Control("imported weights are a thousandth too large", ["LlamaForCausalLM"], 100),
        ],
        size="10,000 sentences, 1,000 prompts of each architecture, and tests",
        has_parts=True,
    ),
    Row(
        "api-abuse",
        "Requests that harmed such servers: many choices, giant bodies and headers, deep JSON, NaN, foreign "
        "hosts and origins, paths outside, changed bytes, clients that leave; connections that are held by "
        "sending byte by byte or not reading; 300 clients that leave at once; wrong keys that share letters with "
        "the right one; the largest requests of each route.",
        "the stated code, and slow clients are given up after the stated time. Beside all of it another client "
        "sends small requests to another model: its p99 stays under 0.25 s or twice that of the quiet server; and "
        "a stream stands still for 0.5 s at most, or twice the longest time on the quiet server. What is late is "
        "tried twice more, and lost if it is late each time. After a storm nothing is left to do within 5 s. "
        "The check of a wrong key takes the same time, within a tenth, whatever it shares with the right one.",
        abuse.run,
        count=3000,
        small=2 * len(abuse.ABUSES),
        controls=[
            Control("every host is taken for this one", ["another host"], 2),
            Control("all work is done on the event loop", ["/v1/score 30 kB, top 20, largest"], 1),
            Control("slow clients are waited for", list(abuse.SLOW), 1),
            Control("clients that leave are not noticed", [abuse.STORM], 1),
            Control("keys are compared up to the first difference", [abuse.GUESSES], 1),
        ],
    ),
    Row(
        "load-and-drain",
        "32 connections send requests without a pause; then the server gets SIGTERM under load.",
        "every request is answered as the library does, or refused; the server ends within its stated time.",
        load.run,
        count=1,
        small=1,
        controls=[Control("random numbers are not seeded")],
        size="60 seconds",
    ),
    Row(
        "strange-surroundings",
        "Commands without HOME, with a read-only one, with LANG=C, TERM=dumb, closed streams, no TMPDIR, "
        "strange paths, python -O, -W error and others.",
        "they work, or say why not in one line.",
        surroundings.run,
        count=len(surroundings.COMMANDS) * len(surroundings.SURROUNDINGS),
        small=1,
        controls=[Control("output must be encodable", ["ASCII output"], 9)],
        has_parts=True,
    ),
    Row(
        "reproducibility",
        "The same seed in two fresh processes, with one thread and two, and another order of hashes.",
        "the same model, the same text.",
        reproducibility.run,
        count=200,
        small=1,
        controls=[Control("random numbers are not seeded", ["ngram"], 1)],
    ),
    Row(
        "mutants",
        "One operator, comparison, number or condition of the contract, folder, disk, loop, checkpoint, "
        "decode and serve packages is changed, and the tests of that package that `make test` has and that "
        "reach it are run, for a minute at most.",
        "at least 90 % are caught; those that live are listed.",
        mutants.run,
        count=200,
        small=1,
        controls=[Control("no test can fail")],
        tolerated=0.1,
    ),
]
ROWS = {row.name: row for row in _ROWS}
