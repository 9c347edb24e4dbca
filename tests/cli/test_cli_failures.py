"""What goes wrong: what the user can mend is one line and exit code 2."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chainrule.errors import ChainruleError
from manifests import read_manifest, write_manifest

from .running import TRAIN_NGRAM, Fails, Run

PAGE = b"<!DOCTYPE html>\n<html><body>404</body></html>\n"


# -- text -------------------------------------------------------------------------------------------------


def reading(verb: str, model: Path, text: object, out: Path) -> list[object]:
    """A command that reads the text."""
    return {
        "train": [*TRAIN_NGRAM, text, "--out", out],
        "valid": [*TRAIN_NGRAM, model / "README.md", "--held-out", text, "--out", out],
        "compare": ["compare", text, "--out", out],
        "tokenize": ["tokenize", text],
        "evaluate": ["evaluate", model, text],
        "score": ["score", model, text],
    }[verb]


READERS = ["train", "valid", "compare", "tokenize", "evaluate", "score"]


@pytest.mark.parametrize("verb", READERS)
def test_a_missing_file_is_named(fails: Fails, model: Path, tmp_path: Path, verb: str) -> None:
    missing = tmp_path / "missing.txt"
    assert f"{missing}: no such file" in fails(*reading(verb, model, missing, tmp_path / "m"))


@pytest.mark.parametrize("verb", READERS)
def test_a_folder_without_text_is_named(fails: Fails, model: Path, tmp_path: Path, verb: str) -> None:
    command = reading(verb, model, tmp_path, tmp_path / "m")
    assert f"{tmp_path}: there is no file in this folder" in fails(*command)
    (tmp_path / "a.md").touch()
    assert "none of its 1 files matches '*.txt'" in fails(*command, "--files", "*.txt")


@pytest.mark.parametrize("verb", READERS)
def test_a_model_folder_is_no_text(fails: Fails, model: Path, tmp_path: Path, verb: str) -> None:
    assert f"{model} is a model folder" in fails(*reading(verb, model, model, tmp_path / "m"))


@pytest.mark.parametrize("verb", READERS)
def test_options_that_are_for_other_texts(fails: Fails, model: Path, toy: Path, tmp_path: Path, verb: str) -> None:
    command = reading(verb, model, toy, tmp_path / "m")
    assert "plain text has no fields" in fails(*command, "--field", "body")
    assert "no folder is given" in fails(*command, "--files", "*.txt")


@pytest.mark.parametrize("verb", READERS)
def test_a_field_that_is_not_there_is_named_with_those_that_are(
    fails: Fails, model: Path, tmp_path: Path, verb: str
) -> None:
    text = tmp_path / "text.csv"
    text.write_text("id,body\n1,hello\n", encoding="utf-8")
    assert 'there is no field "text"; there are: id, body' in fails(*reading(verb, model, text, tmp_path / "m"))


def test_a_pattern_without_files_is_named(fails: Fails, model: Path, tmp_path: Path) -> None:
    assert "no file matches" in fails("evaluate", model, tmp_path / "*.txt")


@pytest.mark.parametrize("verb", ["train", "valid", "tokenize", "evaluate"])
def test_an_empty_text_is_called_empty(fails: Fails, model: Path, tmp_path: Path, verb: str) -> None:
    empty = tmp_path / "empty.txt"
    empty.touch()
    assert "empty" in fails(*reading(verb, model, empty, tmp_path / "m"))


@pytest.mark.parametrize("verb", READERS)
def test_bytes_that_are_not_utf8_are_located(fails: Fails, model: Path, tmp_path: Path, verb: str) -> None:
    text = tmp_path / "text.txt"
    text.write_bytes(b"fine\nnot \xff fine\n")
    message = fails(*reading(verb, model, text, tmp_path / "m"))
    assert f"{text}: line 2, byte 5" in message
    assert "--encoding-errors replace" in message


@pytest.mark.parametrize("content", ['{"text": [3]}\n', '{"text": {}}\n', '["text"]\n', "hello\n"])
def test_jsonl_needs_text(fails: Fails, tmp_path: Path, content: str) -> None:
    text = tmp_path / "text.jsonl"
    text.write_text('{"text": "fine"}\n' + content, encoding="utf-8")
    assert f"{text}: line 2: " in fails(*TRAIN_NGRAM, text, "--out", tmp_path / "m")


def test_what_failed_to_train_leaves_nothing(fails: Fails, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_bytes(b"\xff\n")
    fails(*TRAIN_NGRAM, text, "--out", tmp_path / "m")
    assert list(tmp_path.iterdir()) == [text]


# -- options ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--set", "ordr=3"], "unknown setting 'ordr'; did you mean 'order'?"),
        (["--set", "order=three"], "order should be a whole number, not 'three'"),
        (["--set", "order="], "order should be a whole number, not ''"),
        (["--set", "order=0"], "order should be at least 1, not 0"),
        (["--set", "smoothing=magic"], "|mle|stupid-backoff, not 'magic'"),
        (["--set", "k=0"], "k should be above 0"),
        (["--set", "k=nan"], "k should be above 0"),
        (["--set", "order"], "--set takes key=value, not 'order'"),
        (["--set", "seed=3"], "unknown setting 'seed'"),
        (["--set", "context=stream"], "unknown setting 'context'"),
        (["--set", "kind=ngram"], "unknown setting 'kind'"),
        (["--vocab-size", "0"], "not '0'"),
        (["--vocab-size", "-5"], "not '-5'"),
        (["--vocab-size", "many"], "not 'many'"),
        (["--vocab-size", "0%"], "not '0%'"),
        (["--vocab-size", "101%"], "not '101%'"),
        (["--vocab-size", "nan%"], "not 'nan%'"),
        (["--min-count", "0"], "the minimum count must be at least 1, not 0"),
        (["--tokenizer", "wrd"], "wrd: no such file; did you mean 'word'? (tokenizers are: word,"),
        (["--tokenizer", "bpe", "--vocab-size", "50%"], "give a number"),
        (["--tokenizer", "bpe", "--vocab-size", "100"], "at least 256"),
    ],
)
def test_training_refuses(fails: Fails, corpus: Path, tmp_path: Path, options: list[str], message: str) -> None:
    assert message in fails(*TRAIN_NGRAM, corpus, "--out", tmp_path / "m", *options)
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("verb", ["train", "compare"])
def test_an_unknown_kind_is_guessed_at(fails: Fails, corpus: Path, tmp_path: Path, verb: str) -> None:
    words = ["ngrm", corpus] if verb == "train" else [corpus, "--kind", "ngrm"]
    assert "'ngrm'; did you mean 'ngram'? (there are: ngram" in fails(verb, *words, "--out", tmp_path / "m")


@pytest.mark.parametrize("seed", [-1, 2**64, 10**60])
def test_any_whole_number_is_a_seed(run: Run, toy: Path, tmp_path: Path, seed: int) -> None:
    ran = run(*TRAIN_NGRAM, toy, "--seed", seed, "--out", tmp_path / "m")
    assert ran.code == 0, ran.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--temperature", "-1"], "temperature should be a finite number, at least 0, not -1"),
        (["--temperature", "nan"], "temperature should be a finite number, at least 0, not nan"),
        (["--top-k", "0"], "top-k should be at least 1, not 0"),
        (["--top-p", "0"], "top-p should be above 0 and at most 1, not 0"),
        (["--top-p", "2"], "top-p should be above 0 and at most 1, not 2"),
        (["--min-p", "1.5"], "min-p should be between 0 and 1, not 1.5"),
        (["--repetition-penalty", "0"], "repetition penalty should be above 0 and at most a million, not 0"),
        (["--strategy", "beam", "--beams", "0"], "the number of beams should be at least 1, not 0"),
        (["-n", "0"], "the number of texts should be at least 1, not 0"),
        (["--max-tokens", "-1"], "the number of tokens should be at least 0, not -1"),
    ],
)
def test_generating_refuses(fails: Fails, model: Path, options: list[str], message: str) -> None:
    assert message in fails("generate", model, *options)


@pytest.mark.parametrize("verb", ["generate", "inspect"])
def test_a_prompt_that_is_not_utf8_is_refused(fails: Fails, model: Path, verb: str) -> None:
    """Python hands over a stray byte of the command line as half a character."""
    assert "UTF-8" in fails(verb, model, "--prompt", "caf\udce9")


def test_an_unknown_verb_or_option_is_one_line_that_says_where_help_is(fails: Fails, model: Path) -> None:
    assert "No such command 'trian'" in fails("trian")
    assert "No such option '--heat'" in fails("generate", model, "--heat", "3")
    assert "Missing argument 'DIR'. (see chainrule generate --help)" in fails("generate")


def test_no_verb_shows_the_verbs(run: Run) -> None:
    ran = run()
    assert ran.code == 2
    assert ran.err.startswith("Usage: chainrule")
    assert "compare" in ran.err


# -- destinations -----------------------------------------------------------------------------------------


def test_a_model_that_exists_is_kept(fails: Fails, run: Run, corpus: Path, tmp_path: Path) -> None:
    assert run(*TRAIN_NGRAM, corpus, "--out", tmp_path / "m").code == 0
    before = (tmp_path / "m" / "manifest.json").read_bytes()
    assert "--overwrite" in fails(*TRAIN_NGRAM, corpus, "--out", tmp_path / "m")
    assert (tmp_path / "m" / "manifest.json").read_bytes() == before


@pytest.mark.parametrize("options", [[], ["--overwrite"]])
def test_what_is_no_model_is_never_replaced(fails: Fails, corpus: Path, tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "letters").mkdir()
    letter = tmp_path / "letters" / "letter.txt"
    letter.write_text("dear reader", encoding="utf-8")
    for out in (tmp_path / "letters", letter):
        assert f"{out} exists and is not a model folder" in fails(*TRAIN_NGRAM, corpus, "--out", out, *options)
    assert letter.read_text(encoding="utf-8") == "dear reader"


def test_a_destination_is_refused_before_the_text_is_read(fails: Fails, model: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_bytes(b"\xff\n")
    assert "exists" in fails(*TRAIN_NGRAM, text, "--out", model)
    assert str(text / "m") in fails(*TRAIN_NGRAM, text, "--out", text / "m")


def test_the_present_folder_is_no_destination_and_stays_empty(
    fails: Fails, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "--out" in fails(*TRAIN_NGRAM, corpus, "--out", ".")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_one_line(fails: Fails, corpus: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    assert "No space left on device" in fails("tokenize", corpus, "--ids", "/dev/full")


# -- model folders ----------------------------------------------------------------------------------------


def put(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(content)


def remove(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def truncate(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-10])


def flip(name: str) -> Callable[[Path], object]:
    def damage(folder: Path) -> None:
        content = bytearray((folder / name).read_bytes())
        content[-3] ^= 4
        (folder / name).write_bytes(content)

    return damage


def edit(*keys: str, value: Any) -> Callable[[Path], object]:
    """The manifest with another value somewhere."""

    def damage(folder: Path) -> None:
        manifest = read_manifest(folder)
        place = manifest
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value
        write_manifest(folder, manifest)

    return damage


# more of them are in tests/test_folder.py
DAMAGES: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "truncated": (truncate, "model.safetensors", "damaged: "),
    "emptied": (put("model.safetensors", b""), "model.safetensors", "damaged: 0 bytes"),
    "flipped arrays": (flip("model.safetensors"), "model.safetensors", "checksum"),
    "web page for manifest": (put("manifest.json", PAGE), "manifest.json", "web page"),
    "pickle": (put("model.safetensors", pickle.dumps({"a": 1})), "model.safetensors", "pickle"),
    "arrays missing": (remove("model.safetensors"), "model.safetensors", "missing"),
    "tokenizer missing": (remove("tokenizer.json"), "tokenizer.json", "missing"),
    "flipped manifest": (flip("manifest.json"), "manifest.json", "damaged"),
    "manifest missing": (remove("manifest.json"), "manifest.json", "not a model folder"),
    "manifest not JSON": (put("manifest.json", b"{"), "manifest.json", "not JSON"),
    "manifest not UTF-8": (put("manifest.json", b'{"\xff'), "manifest.json", "not UTF-8"),
    "manifest too deep": (put("manifest.json", b"[" * 100_000), "manifest.json", "not JSON"),
    "manifest a list": (put("manifest.json", b"[]"), "manifest.json", "not a manifest of chainrule"),
    "other format": (edit("format", value="other"), "manifest.json", "not a manifest of chainrule"),
    "newer version": (
        edit("version", value=3),
        "manifest.json",
        "format version 3; this chainrule reads versions 1 and 2",
    ),
    "no files": (edit("files", value={}), "manifest.json", "does not list model.safetensors"),
    "files a list": (edit("files", value=[]), "manifest.json", "'files'"),
    "size in words": (edit("files", "tokenizer.json", "bytes", value="many"), "manifest.json", "tokenizer.json"),
    "context": (edit("context", value="page"), "manifest.json", "line or stream"),
    "unknown kind": (edit("kind", value="oracle"), "", "kind 'oracle' is not one this chainrule knows"),
    "unknown setting": (edit("config", "ordr", value=3), "", "unknown setting 'ordr'"),
    "order of no such arrays": (edit("config", "order", value=2), "", "order"),
    "order beyond the arrays": (edit("config", "order", value=7), "", "order"),
}


@pytest.mark.parametrize("verb", ["evaluate", "inspect"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_model_folder_is_refused(
    fails: Fails, model: Path, held_out: Path, tmp_path: Path, damage: str, verb: str
) -> None:
    apply, file, words = DAMAGES[damage]
    folder = tmp_path / "m"
    shutil.copytree(model, folder)
    apply(folder)
    message = fails(verb, folder, *([held_out] if verb == "evaluate" else []))
    assert words in message
    assert file in message
    assert str(folder) in message


@pytest.mark.parametrize("verb", ["evaluate", "score", "generate", "inspect"])
def test_a_missing_model_folder_is_named(fails: Fails, toy: Path, tmp_path: Path, verb: str) -> None:
    text = [toy] if verb in ("evaluate", "score") else []
    assert f"{tmp_path / 'm'}: no such model folder" in fails(verb, tmp_path / "m", *text)
    assert f"{toy}: a file, where a model folder was expected; a verb takes the model first" in fails(
        verb, toy, *text
    )
    assert f"{tmp_path}: not a model folder: it has no manifest.json" in fails(verb, tmp_path, *text)
    arpa = tmp_path / "m.arpa.gz"
    arpa.touch()
    assert f"chainrule convert {arpa} DIR makes a model folder" in fails(verb, arpa, *text)


# -- tokenizer folders ------------------------------------------------------------------------------------

HEAD = {"format": "chainrule-tokenizer", "version": 1}


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("{", id="not JSON"),
        pytest.param("[]", id="a list"),
        pytest.param("[" * 100_000, id="too deep"),
        pytest.param(PAGE.decode(), id="web page"),
        pytest.param(json.dumps({"model": {"type": "BPE"}}), id="another library's"),
        pytest.param(json.dumps(HEAD | {"version": 2, "kind": "byte"}), id="newer version"),
        pytest.param(json.dumps(HEAD), id="no kind"),
        pytest.param(json.dumps(HEAD | {"kind": "rune"}), id="unknown kind"),
        pytest.param(json.dumps(HEAD | {"kind": ["byte"]}), id="kind a list"),
        pytest.param(json.dumps(HEAD | {"kind": "word"}), id="no words"),
        pytest.param(json.dumps(HEAD | {"kind": "word", "words": 3}), id="words a number"),
        pytest.param(json.dumps(HEAD | {"kind": "word", "words": ["a"], "splitting": []}), id="splitting a list"),
        pytest.param(json.dumps(HEAD | {"kind": "char", "characters": [1]}), id="characters are numbers"),
        pytest.param(json.dumps(HEAD | {"kind": "subword", "algorithm": "bpe", "tokenizers": {}}), id="no merges"),
    ],
)
def test_a_malformed_tokenizer_is_refused(fails: Fails, corpus: Path, tmp_path: Path, content: str) -> None:
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    (folder / "tokenizer.json").write_text(content, encoding="utf-8")
    message = fails("train", "ngram", corpus, "--tokenizer", folder, "--out", tmp_path / "m")
    assert str(folder / "tokenizer.json") in message


def test_a_folder_without_a_tokenizer_is_named(fails: Fails, corpus: Path, tmp_path: Path) -> None:
    message = fails("train", "ngram", corpus, "--tokenizer", tmp_path, "--out", tmp_path / "m")
    assert f"{tmp_path / 'tokenizer.json'}: no such file" in message


# -- the unexpected ---------------------------------------------------------------------------------------


def test_a_bug_is_one_line_and_exit_code_1(
    run: Run, model: Path, toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object, **options: object) -> None:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr("chainrule.load", broken)
    ran = run("evaluate", model, toy)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("chainrule: internal error: RuntimeError: two lines (--debug")
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "there is too little memory for this"),
        (OSError(28, "No space left on device", "/disk/model"), "error: /disk/model: No space left on device"),
        (OSError("the line is dead"), "error: the line is dead"),
    ],
)
def test_what_the_machine_lacks_is_one_line(
    fails: Fails, model: Path, toy: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    def broken(*args: object, **options: object) -> None:
        raise error

    monkeypatch.setattr("chainrule.load", broken)
    assert said in fails("evaluate", model, toy)


def test_a_keystroke_stops_quietly(run: Run, model: Path, toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("chainrule.load", interrupted)
    ran = run("evaluate", model, toy)
    assert (ran.code, ran.err.strip()) == (130, "chainrule: stopped")


@pytest.mark.parametrize("place", [0, 3])
def test_debug_lets_errors_through_wherever_it_stands(run: Run, tmp_path: Path, toy: Path, place: int) -> None:
    words: list[object] = ["evaluate", tmp_path / "m", toy]
    words.insert(place, "--debug")
    with pytest.raises(ChainruleError, match="no such model folder"):
        run(*words)


# -- a person's slips -------------------------------------------------------------------------------------


def test_a_model_where_a_text_is_wanted_and_the_reverse(fails: Fails, model: Path, corpus: Path) -> None:
    assert "is a model folder, not a text" in fails(*TRAIN_NGRAM, model, "--out", "m")
    assert "name one or more model folders, and then the text" in fails("evaluate", model)
    assert "where a model folder was expected" in fails("evaluate", corpus, model)


def test_a_ladder_is_not_a_model_but_names_those_in_it(fails: Fails, model: Path) -> None:
    message = fails("generate", model.parent)
    assert "models in it:" in message
    assert model.name in message.partition("models in it:")[2]


@pytest.mark.parametrize(
    ("start", "what"),
    [
        (b"%PDF-1.7\n", "a PDF"),
        (b"\x89PNG\r\n", "a PNG picture"),
        (b"PK\x03\x04", "a zip archive"),
        (b"\x1f\x8b\x08", "compressed with gzip"),
        ("\ufeffhello\n".encode("utf-16-le"), "UTF-16"),
    ],
)
def test_files_of_other_forms_are_named(fails: Fails, tmp_path: Path, start: bytes, what: str) -> None:
    (tmp_path / "a.txt").write_bytes(start + b"i love cats\n" * 5)
    for options in ([], ["--encoding-errors", "replace"]):
        assert f"a.txt: expected text, found {what}" in fails(
            *TRAIN_NGRAM, tmp_path / "a.txt", "--out", "m", *options
        )


@pytest.mark.parametrize(
    "options", [["--tokenizer", "byte", "--vocab-size", "10"], ["--set", "smoothing=mle", "--set", "k=0.5"]]
)
def test_options_that_would_have_no_effect_are_refused(fails: Fails, corpus: Path, options: list[str]) -> None:
    assert fails(*TRAIN_NGRAM, corpus, "--out", "m", *options)
