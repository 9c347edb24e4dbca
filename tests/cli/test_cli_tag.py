"""`chainrule train tagger`, `tag`, and `evaluate` of a tagger."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from .running import TRAIN_NGRAM, Fails, Run, sets

SENTENCES = (
    "the/DET cat/NOUN sees/VERB a/DET dog/NOUN\na/DET dog/NOUN sleeps/VERB\nthe/DET dog/NOUN sees/VERB\n" * 8
)
CONLLU = "# sent_id = 1\n1\tthe\t_\tDET\t_\t_\t_\t_\t_\t_\n2\tcat\t_\tNOUN\t_\t_\t_\t_\t_\tX=y\n\n"
SET = sets("steps=3", "width=8", "layers=1", "embedding=4", "spelling=4", "batch=64")


@pytest.fixture
def tagger(tmp_path: Path, run: Run) -> Path:
    corpus, out = tmp_path / "train.txt", tmp_path / "tagger"
    corpus.write_text(SENTENCES)
    done = run("train", "tagger", corpus, "--out", out, *SET)
    assert done.code == 0, done.err
    return out


def test_text_is_tagged(tagger: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    class Input:
        buffer = io.BytesIO(b"The cat sees.\n\na dog\n")

        @staticmethod
        def isatty() -> bool:
            return False

    monkeypatch.setattr("sys.stdin", Input())
    lines = run("tag", tagger).out.splitlines()
    assert [[token.rpartition("/")[0] for token in line.split()] for line in lines] == [
        ["The", "cat", "sees", "."],
        ["a", "dog"],
    ]


def test_json_and_white_space(tagger: Path, tmp_path: Path, run: Run) -> None:
    (tmp_path / "text").write_text("The cat sees.\n")
    found = json.loads(run("tag", tagger, tmp_path / "text", "--format", "json", "--split", "whitespace").out)
    assert found["words"] == ["The", "cat", "sees."]
    assert len(found["tags"]) == 3 and all(value <= 0 for value in found["log_probs"])


def test_conllu_in_and_out(tagger: Path, tmp_path: Path, run: Run) -> None:
    """What CoNLL-U says beside the tags is kept."""
    (tmp_path / "a.conllu").write_text(CONLLU)
    out = run("tag", tagger, tmp_path / "a.conllu", "--conllu", "--format", "conllu").out
    given, found = (
        [[c for i, c in enumerate(line.split("\t")) if i != 3] for line in text.split("\n")]
        for text in (CONLLU, out)
    )
    assert given == found


def test_a_tagger_is_evaluated(tagger: Path, tmp_path: Path, run: Run) -> None:
    test = tmp_path / "test.txt"
    test.write_text("the/DET cat/NOUN sees/VERB\na/DET zebra/NOUN\n")
    found = run("evaluate", tagger, test, "--json").json
    assert (found["words"], found["unknown"], found["sentences"]) == (5, 1, 2)
    assert found["baseline"] >= 0.8
    out = run("evaluate", tagger, test).out
    assert "most frequent tag" in out and "precision" in out and "unknown words" in out


def test_a_text_of_several_words_is_the_text_itself(tagger: Path, run: Run, fails: Fails) -> None:
    tagged = run("tag", tagger, "the cat sat")
    assert tagged.code == 0 and [word.partition("/")[0] for word in tagged.out.split()] == ["the", "cat", "sat"]
    assert "no such file" in fails("tag", tagger, "cat")


def test_misuse_names_the_verb(tagger: Path, tmp_path: Path, run: Run, fails: Fails) -> None:
    corpus = tmp_path / "some.txt"
    corpus.write_text("i love cats\n")
    run(*TRAIN_NGRAM, corpus, "--out", tmp_path / "lm")
    assert "a model of the kind tagger tags words: use chainrule tag" in fails("generate", tagger)
    assert "a model of the kind tagger tags words: use chainrule tag" in fails("score", tagger, corpus)
    assert "use chainrule tag" in fails("inspect", tagger, "--prompt", "the")
    assert run("inspect", tagger).code == 0
    refused = fails("tag", tmp_path / "lm", corpus)
    assert "kind ngram predicts text: use chainrule generate" in refused
    assert refused.rstrip().endswith("chainrule train tagger makes one for this")
    assert "several tasks" in fails("evaluate", tagger, tmp_path / "lm", corpus)
    told = fails("train", "tagger", corpus, "--out", tmp_path / "x")
    assert "some.txt, line 1, column 1: expected word/TAG, found 'i'" in told
