"""`chainrule export` and `chainrule import`, and what they refuse."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest
from tests.cli.running import Run

import chainrule as cr
from chainrule.errors import ArpaError, ForeignFileError
from chainrule.interop.conversion import import_model
from chainrule.tokens.base import Tokenizer
from chainrule.tokens.registry import load_tokenizer

from .conftest import small
from .test_bart import pairs_model
from .test_bert import masked

STORIES = Path(os.environ.get("CHAINRULE_DATA", "."), "stories260k")
ARPA = r"""\data\
ngram 1=5
ngram 2=1

\1-grams:
-1	<unk>
-99	<s>	-0.3
-0.5	</s>
-0.6	café	-0.1
-99	naïve

\2-grams:
-0.2	<s> café

\end\
"""


@pytest.mark.skipif(not STORIES.exists(), reason="CHAINRULE_DATA does not name a folder with stories260k")
def test_llama2c_tells_its_story(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "stories"
    done = run("import", STORIES / "stories260K.bin", "--tokenizer-file", STORIES / "tok512.bin", "--out", out)
    assert done.code == 0, done.err
    lm = cr.load(out)
    assert cr.generate(lm, "", cr.Greedy(), max_tokens=60) == (
        "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One day, "
        "she saw a big, red ball. She wanted to play with it, but it was too high"
    )
    assert cr.generate(lm, "Once upon a time, Tom", cr.Greedy(), max_tokens=8).startswith(
        "Once upon a time, Tom and"
    )
    assert lm.perplexity("Once upon a time, there was a little girl named Lily.") < 2


def test_checkpoints_of_llama2c_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "m.bin"
    path.write_bytes(struct.pack("<7i", 8, 16, 1, 2, 2, 32, 8) + b"\0" * 40)
    with pytest.raises(ForeignFileError, match=r"a checkpoint of these sizes has .* bytes, not 68"):
        import_model(path)
    path.write_bytes(b"\x80\x02 a pickle of torch, which is not read at all")
    with pytest.raises(ForeignFileError, match="a pickled file, which could run any code"):
        import_model(path)
    path.write_bytes(b"\xff" * 64)
    with pytest.raises(ForeignFileError, match=r"not a checkpoint of llama2\.c"):
        import_model(path)


@pytest.mark.parametrize(
    ("make", "architecture", "imported", "verb"),
    [
        (
            lambda tokenizer: small(tokenizer, preset="llama"),
            "LlamaForCausalLM",
            "transformer of 503 tokens, stream",
            ("generate", "--prompt", "The", "--strategy", "greedy", "--no-heal"),
        ),
        (masked, "BertForMaskedLM", "masked of 504 tokens, line", ("fill", "The [MASK] of")),
        (pairs_model, "BartForConditionalGeneration", "seq2seq of", ("translate", "t.txt")),
    ],
)
def test_export_and_import(
    run: Run,
    bpe: Tokenizer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Any,
    architecture: str,
    imported: str,
    verb: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.txt").write_text("The value of the expression\n\nis a number\n")
    model = make(bpe)
    model.save("model")
    done = run("export", "model", "--to", "hf", "--out", "hf", "--json")
    assert json.loads(done.out)["written"] == architecture
    assert run("export", "model", "--to", "hf", "--out", "hf").code == 2
    done = run("import", "hf", "--out", "back")
    assert done.code == 0 and imported in done.out
    one, other = (run(verb[0], name, *verb[1:]) for name in ("model", "back"))
    assert (one.code, other.code) == (0, 0) and one.out == other.out
    other_format, message = (
        ("arpa", "only n-gram models") if model.kind == "transformer" else ("gguf", "not a model of")
    )
    refused = run("export", "model", "--to", other_format, "--out", "m")
    assert refused.code == 2 and message in refused.err


def test_arpa_in_other_encodings(run: Run, tmp_path: Path) -> None:
    (tmp_path / "utf8.arpa").write_text(ARPA, encoding="utf-8")
    (tmp_path / "latin.arpa").write_text(ARPA, encoding="latin-1")
    done = run("import", tmp_path / "latin.arpa", "--encoding", "latin-1", "--out", tmp_path / "m")
    assert done.code == 0, done.err
    lm, same = cr.load(tmp_path / "m"), cr.load_arpa(tmp_path / "utf8.arpa")
    assert lm.tokenizer.words == same.tokenizer.words == ["café", "naïve"]
    assert lm.log_prob("café") == same.log_prob("café")
    # -99 stands for no probability
    assert lm.log_prob("naïve") < -200 or lm.log_prob("naïve") == -float("inf")
    exported = run("export", tmp_path / "m", "--to", "arpa", "--out", tmp_path / "again.arpa")
    assert exported.code == 0 and cr.load_arpa(tmp_path / "again.arpa").log_prob("café") == pytest.approx(
        lm.log_prob("café"), rel=1e-5
    )
    with pytest.raises(ArpaError, match="there is no encoding 'klingon'"):
        cr.load_arpa(tmp_path / "utf8.arpa", encoding="klingon")
    with pytest.raises(ArpaError, match="not ascii"):
        cr.load_arpa(tmp_path / "utf8.arpa", encoding="ascii")


def test_vocabularies_alone(run: Run, bpe: Tokenizer, tmp_path: Path) -> None:
    from chainrule.interop.vocabularies.ours import published_files

    definition, config = published_files(bpe, "stream", 64)
    (tmp_path / "v").mkdir()
    (tmp_path / "v" / "tokenizer.json").write_text(json.dumps(definition))
    (tmp_path / "v" / "tokenizer_config.json").write_text(json.dumps(config))
    done = run("import", tmp_path / "v", "--out", tmp_path / "t")
    assert done.code == 0 and "a tokenizer of 503 tokens" in done.out
    assert load_tokenizer(tmp_path / "t").encode("The value\n\n").tolist() == bpe.encode("The value\n\n").tolist()
    (tmp_path / "text").write_text("the value of the expression\nis a number\n" * 20)
    trained = run("train", "ngram", tmp_path / "text", "--tokenizer", tmp_path / "t", "--out", tmp_path / "n")
    assert trained.code == 0, trained.err


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "no such file or folder"),
        (lambda path: path.mkdir(), r"not a folder of transformers: it has no config\.json"),
        (lambda path: path.write_text("some text\n"), "expected a folder of transformers, a GGUF or ARPA file"),
    ],
)
def test_what_is_no_model(run: Run, tmp_path: Path, make: Any, message: str) -> None:
    make(tmp_path / "it")
    with pytest.raises(ForeignFileError, match=message):
        import_model(tmp_path / "it")
    done = run("import", tmp_path / "it", "--out", tmp_path / "out")
    assert done.code == 2 and done.err.count("\n") == 1 and not (tmp_path / "out").exists()
