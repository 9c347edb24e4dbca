"""Corpora at addresses: files of fsspec's stores, and datasets in the form of the Hugging Face hub."""

from __future__ import annotations

import gzip
import json
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.cli.running import TRAIN_NGRAM, Run

import chainrule as cr
from chainrule.errors import CorpusError, MissingExtraError
from chainrule.runs.record import describe_corpus, open_corpus
from chainrule.text.hub import Address, parse_address

fsspec = pytest.importorskip("fsspec")


def text_of(corpus: cr.Corpus) -> str:
    return b"".join(corpus.blocks()).decode()


@pytest.fixture
def store() -> Iterator[Any]:
    """A store in memory with a few files, which is empty again after the test."""
    system = fsspec.filesystem("memory")
    files = {
        "/books/a.txt": b"i love cats\n",
        "/books/more/b.txt": b"i love dogs\n",
        "/books/c.jsonl": b'{"text": "cats chase mice", "title": "Cats"}\n',
        "/books/.hidden": b"\xff",
        "/books/d.txt.gz": gzip.compress(b"dogs chase cats\n"),
    }
    for path, content in files.items():
        system.pipe_file(path, content)
    yield system
    system.rm("/books", recursive=True)


@pytest.mark.usefixtures("store")
def test_a_file_a_pattern_and_a_folder() -> None:
    opened = cr.Corpus.open
    assert text_of(opened("memory://books/a.txt")) == "i love cats\n"
    assert text_of(opened("memory://books/d.txt.gz")) == "dogs chase cats\n"
    assert text_of(opened("memory://books/c.jsonl", fields="title,text")) == "Cats\ncats chase mice\n"
    assert text_of(opened("memory://books/**/*.txt")) == "i love cats\ni love dogs\n"
    assert text_of(opened("memory://books", files=["*.txt"])) == "i love cats\ni love dogs\n"
    every = opened("memory://books")
    assert text_of(every) == "i love cats\ncats chase mice\ndogs chase cats\ni love dogs\n"
    assert every.name == "memory:///books/a.txt and 3 more"
    assert text_of(every) == text_of(every)  # a corpus is read several times
    assert (
        cr.train("ngram", opened("memory://books/a.txt"), order=2, tokenizer="word").perplexity("i love cats") < 4
    )


@pytest.mark.usefixtures("store")
def test_what_is_not_there() -> None:
    for address, message in {
        "memory://books/z.txt": r"^memory://books/z.txt: no such file$",
        "memory://books/*.csv": r"^no file matches 'memory://books/\*.csv'$",
        "nostore://a/b.txt": r"^nostore://a/b.txt: there is no kind of store nostore://$",
    }.items():
        with pytest.raises(CorpusError, match=message):
            cr.Corpus.open(address)
    with pytest.raises(CorpusError, match=r"none of its 4 files matches '\*.csv'"):
        cr.Corpus.open("memory://books", files=["*.csv"])


def test_errors_of_a_store_are_one_line(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any, **named: Any) -> None:
        raise PermissionError("no\ncredentials")

    monkeypatch.setattr(type(store), "isfile", refuse)
    with pytest.raises(CorpusError, match=r"^memory://books/a.txt: PermissionError: no credentials$"):
        cr.Corpus.open("memory://books/a.txt")
    monkeypatch.undo()
    store.pipe_file("/books/latin.txt", b"caf\xe9\n")
    with pytest.raises(CorpusError, match=r"^memory://books/latin.txt: line 1, byte 4: expected UTF-8"):
        text_of(cr.Corpus.open("memory://books/latin.txt"))


@pytest.mark.parametrize(("protocol", "library"), [("s3", "s3fs"), ("gs", "gcsfs")])
def test_stores_are_extras(protocol: str, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, protocol, raising=False)  # type: ignore[attr-defined]
    with pytest.raises(
        MissingExtraError, match=rf"reading {protocol}://b/a.txt needs {library}.*chainrule\[remote\]"
    ):
        cr.Corpus.open(f"{protocol}://b/a.txt")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(MissingExtraError, match=r"needs fsspec.*chainrule\[remote\]"):
        cr.Corpus.open(f"{protocol}://b/a.txt")


def test_files_of_this_machine_take_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    (tmp_path / "a text.txt").write_text("i love cats\n", encoding="utf-8")
    corpus = cr.Corpus.open((tmp_path / "a text.txt").as_uri())
    assert corpus.paths == (tmp_path / "a text.txt",) and text_of(corpus) == "i love cats\n"
    assert text_of(cr.Corpus.open(f"file://{tmp_path}/*.txt")) == "i love cats\n"
    with pytest.raises(CorpusError, match="no such file"):
        cr.Corpus.open(f"file://{tmp_path}/b.txt")
    with pytest.raises(CorpusError, match=r"three slashes: file:///home/a.txt"):
        cr.Corpus.open("file://home/a.txt")


def test_an_address_is_not_a_path_or_a_text() -> None:
    with pytest.raises(
        CorpusError, match=r"s3:/b/a.txt: an address is not a Path: write Corpus.open\('s3://b/a.txt'\)"
    ):
        cr.Corpus.open(Path("s3://b/a.txt"))
    with pytest.raises(CorpusError, match=r"is text here; write Corpus.open\('hf://owner/name'\)"):
        cr.train("ngram", "hf://owner/name", order=2, tokenizer="word")


def test_a_server(tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    (tmp_path / "a.txt").write_text("i love cats\n", encoding="utf-8")

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *given: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            address = f"http://127.0.0.1:{server.server_port}"
            assert text_of(cr.Corpus.open(f"{address}/a.txt?download=1")) == "i love cats\n"
            with pytest.raises(CorpusError, match=r"b.txt: no such file$"):
                cr.Corpus.open(f"{address}/b.txt")
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.usefixtures("store")
def test_a_run_remembers_addresses(tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text("mine\n", encoding="utf-8")
    corpus = cr.Corpus.open("memory://books/*.txt", tmp_path / "own.txt")
    description = describe_corpus(corpus)
    assert [name.rpartition("/")[2] for name in description["files"]] == ["a.txt", "own.txt"]
    again = open_corpus(json.loads(json.dumps(description)), "corpus", tmp_path)
    assert isinstance(again, cr.Corpus) and text_of(again) == text_of(corpus)


# -- datasets ---------------------------------------------------------------------------------------------


ROWS = [
    {"text": "i love cats", "meta": {"title": "Cats"}, "stars": 5},
    {"text": "i love dogs\nand cats", "meta": {"title": "Dogs"}, "stars": 4},
]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Datasets in folders: saved by `save_to_disk`, with parts and without, and as files."""
    datasets = pytest.importorskip("datasets")
    folder = tmp_path_factory.mktemp("hub")
    whole = datasets.Dataset.from_list(ROWS)
    whole.save_to_disk(str(folder / "saved"))
    datasets.DatasetDict({"train": whole, "test": whole.select([1])}).save_to_disk(str(folder / "parts"))
    (folder / "parquet").mkdir()
    whole.to_parquet(str(folder / "parquet" / "train.parquet"))
    whole.select([1]).to_parquet(str(folder / "parquet" / "validation.parquet"))
    (folder / "lines").mkdir()
    whole.to_json(str(folder / "lines" / "test.jsonl"))
    return folder


BOTH, SECOND = "i love cats\ni love dogs\nand cats\n", "i love dogs\nand cats\n"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("saved", BOTH),
        ("parts", BOTH),
        ("parts?split=test", SECOND),
        ("parquet", BOTH),
        ("parquet?split=validation", SECOND),
        ("lines", BOTH),  # its only part is "test"
    ],
)
def test_datasets(hub: Path, name: str, text: str) -> None:
    corpus = cr.Corpus.open(f"hf://{hub}/{name}")
    assert text_of(corpus) == text == text_of(corpus)
    assert corpus.name == f"hf://{hub}/{name}" and corpus.has_records


@pytest.mark.filterwarnings("ignore")
def test_fields_of_datasets(hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(hub)
    corpus = cr.Corpus.open("hf://./parquet", fields=["meta.title", "stars"])
    assert text_of(corpus) == "Cats\n5\nDogs\n4\n"
    pairs = cr.Pairs.open("hf://./saved", fields=["meta.title", "stars"])
    assert list(pairs) == [("Cats", "5"), ("Dogs", "4")]
    scored = cr.score(cr.train("ngram", corpus, order=2, tokenizer="word"), corpus)
    assert len(scored) == 4


@pytest.mark.filterwarnings("ignore")
def test_what_is_wrong_with_an_address(hub: Path) -> None:
    for address, message in {
        f"hf://{hub}/absent": "absent: no such folder$",
        f"hf://{hub}/parts?split=dev": "there is no split 'dev'; there are: train, test$",
        f"hf://{hub}/parts?part=dev": "there is no part=; there are: config, split, revision",
        "hf://a/b/c": "expected hf://OWNER/NAME",
        "hf://": "expected hf://OWNER/NAME",
    }.items():
        with pytest.raises(CorpusError, match=message):
            cr.Corpus.open(address)
    with pytest.raises(CorpusError, match='there is no field "body"; there are: text, meta, stars'):
        cr.Corpus.open(f"hf://{hub}/parquet", fields="body")
    with pytest.raises(CorpusError, match='the field "meta" holds an object'):
        text_of(cr.Corpus.open(f"hf://{hub}/saved", fields="meta"))


@pytest.mark.filterwarnings("ignore")
def test_a_dataset_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")

    def refuse(*given: Any, **named: Any) -> None:
        assert given == ("owner/name", "small") and named == {"revision": "v1", "streaming": True}
        raise ConnectionError("the hub\ncannot be reached")

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    with pytest.raises(CorpusError, match=r": ConnectionError: the hub cannot be reached$"):
        cr.Corpus.open("hf://owner/name?config=small&revision=v1")


def test_datasets_are_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtraError, match=r"needs datasets.*chainrule\[hub\]"):
        cr.Corpus.open("hf://owner/name")
    assert parse_address("hf://owner/name?split=a%20b") == Address("owner/name", split="a b")


@pytest.mark.filterwarnings("ignore")
def test_the_command_line(hub: Path, tmp_path: Path, run: Run) -> None:
    words = [*TRAIN_NGRAM, f"hf://{hub}/parquet", "--field", "text", "--set", "order=2", "--out"]
    done = run(*words, tmp_path / "model")
    assert not done.code, done.err
    refused = run(*[word.replace("parquet", "absent") for word in words], tmp_path / "other")
    assert refused.code and "no such folder" in refused.err


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_server_of_s3(monkeypatch: pytest.MonkeyPatch) -> None:
    """The protocol of S3 itself, as moto's server speaks it."""
    pytest.importorskip("s3fs")
    servers = pytest.importorskip("moto.server")
    server = servers.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        variables = {"ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b", "DEFAULT_REGION": "us-east-1"}
        for name, value in {**variables, "ENDPOINT_URL": f"http://{host}:{port}"}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        system = fsspec.filesystem("s3")
        system.mkdir("library")
        system.pipe_file("library/books/a.txt", b"i love cats\n")
        system.pipe_file("library/books/b.jsonl", b'{"text": "i love dogs"}\n')
        assert text_of(cr.Corpus.open("s3://library/books/a.txt")) == "i love cats\n"
        assert text_of(cr.Corpus.open("s3://library/books")) == "i love cats\ni love dogs\n"
        assert text_of(cr.Corpus.open("s3://library/*/*.jsonl")) == "i love dogs\n"
        for absent in ("s3://library/c.txt", "s3://absent/c.txt"):
            with pytest.raises(CorpusError, match=rf"^{absent}: no such file$"):
                cr.Corpus.open(absent)
    finally:
        server.stop()
