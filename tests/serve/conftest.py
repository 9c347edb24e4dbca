"""Small models of every family, and a server that has them all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from tests.browsing import launched
from tests.report.test_run_report import run_folder
from tests.serve.serving import Running, running

import chainrule as cr

LINES = [
    "the cat sat on the mat",
    "the dog sat on the log",
    "a cat and a dog sat on a mat",
    "the cat saw the dog and the dog saw the cat",
    "naïve café, señor — dogs and cats",
] * 8

SETTINGS = {"embedding": 16, "hidden": 24, "steps": 30, "batch": 64}
TAGGED = ["the/DET cat/NOUN sat/VERB", "a/DET dog/NOUN ran/VERB"] * 4
SMALL = {"steps": 8, "batch": 64}


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    """A browser for all pages of this folder; while it runs, its process has an event loop."""
    with launched() as found:
        yield found


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folder of a model of each family, by its name."""
    place = tmp_path_factory.mktemp("models")
    made = {
        "ngram": cr.train("ngram", LINES, order=3, tokenizer=cr.TokenizerChoice("bpe", vocab_size=300)),
        "words": cr.train("ngram", LINES, order=3, context="stream", tokenizer="word"),
        "lstm": cr.train("lstm", LINES, tokenizer=cr.TokenizerChoice("char"), **SETTINGS),
        "transformer": cr.train(
            "transformer",
            LINES,
            tokenizer=cr.TokenizerChoice("bpe", vocab_size=300),
            context="stream",
            layers=1,
            width=16,
            heads=2,
            window=64,
            steps=20,
            batch=64,
        ),
    }
    made["mixture"] = cr.mix([made["ngram"], made["ngram"]], LINES[:5])
    found = {}
    for name, model in made.items():
        model.save(place / name)
        found[name] = place / name
    return found


@pytest.fixture(scope="session")
def task_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of models that do something else than predict text, by their names."""
    place = tmp_path_factory.mktemp("tasks")
    (place / "tags.txt").write_text("\n".join(TAGGED) + "\n")
    pairs = [("a b c", "c b a"), ("b c a", "a c b")] * 8
    made = {
        "translator": cr.train("seq2seq", pairs, cell="gru", width=8, layers=1, **SMALL),
        "tagger": cr.train("tagger", place / "tags.txt", width=8, embedding=8, spelling=8, layers=1, **SMALL),
        "classifier": cr.train("bayes", [("the cat sat", "en"), ("die Katze", "de")] * 4, lm_settings="order=2"),
        "filler": cr.train("masked", LINES, width=16, layers=1, heads=2, window=32, **SMALL),
    }
    for name, model in made.items():
        model.save(place / name)
    return {name: place / name for name in made}


@pytest.fixture(scope="session")
def models(folders: dict[str, Path]) -> dict[str, cr.LanguageModel]:
    """The same models, in this process."""
    return {name: cr.load(folder) for name, folder in folders.items()}


@pytest.fixture(scope="session")
def server(folders: dict[str, Path]) -> Iterator[Running]:
    """A server of all of them."""
    with running([*folders.values()]) as found:
        yield found


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two trainings, one of which has a report."""
    top = tmp_path_factory.mktemp("runs")
    cr.report.write_report(run_folder(top / "a.run"), pictures=False)
    run_folder(top / "b.run", steps=12)
    return top


@pytest.fixture(scope="session")
def page_server(
    folders: dict[str, Path], task_folders: dict[str, Path], runs: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """A server with something for every view of the page."""
    anygram = tmp_path_factory.mktemp("anygram") / "anygram"
    cr.train("anygram", LINES, tokenizer="word").save(anygram)
    with running([*folders.values(), *task_folders.values(), anygram], "--runs", str(runs), "--learn") as found:
        yield found


@pytest.fixture
def client(server: Running) -> Iterator[openai.OpenAI]:
    """OpenAI's own client."""
    with openai.OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0, timeout=60) as found:
        yield found
