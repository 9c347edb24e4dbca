"""Tagged sentences: CoNLL-U and word/TAG lines, and what is wrong with a line."""

from __future__ import annotations

from pathlib import Path

import pytest

from chainrule.errors import CorpusError
from chainrule.text.corpus import Corpus
from chainrule.text.split import split
from chainrule.text.tagged import Tagged, as_tagged, read_sentences

CONLLU = """# sent_id = a-1
# text = I don't know
1\tI\tI\tPRON\tPRP\t_\t3\tnsubj\t_\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdo\tdo\tAUX\tVBP\t_\t4\taux\t_\t_
3\tn't\tnot\tPART\tRB\t_\t4\tadvmod\t_\t_
4\tknow\tknow\tVERB\tVB\t_\t0\troot\t_\tSpaceAfter=No
4.1\tthat\tthat\tPRON\t_\t_\t_\t_\t4:obj\t_

# sent_id = a-2
1\t10 000\t10000\tNUM\tCD\t_\t0\troot\t_\t_
2\t1/2\t1/2\tNUM\tCD\t_\t1\tflat\t_\t_
"""


def written(folder: Path, text: str, name: str = "some.conllu") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_conllu_has_words_and_tags(tmp_path: Path) -> None:
    """Words that are written together are tagged one by one, those that are not written not at all."""
    first, second = Tagged.open(written(tmp_path, CONLLU))
    assert first.words == ("I", "do", "n't", "know")
    assert first.tags == ("PRON", "AUX", "PART", "VERB")
    assert second.words == ("10_000", "1/2")
    assert second.line == "10_000/NUM 1/2/NUM"


def test_a_sentence_is_a_line_of_a_corpus(tmp_path: Path) -> None:
    lines = b"".join(Tagged.open(written(tmp_path, CONLLU)).lines.blocks())
    assert lines == b"I/PRON do/AUX n't/PART know/VERB\n10_000/NUM 1/2/NUM\n"


@pytest.mark.parametrize("name", ["some.conllu", "some.txt"])
def test_the_form_is_recognised_by_the_name_or_by_a_tab(tmp_path: Path, name: str) -> None:
    assert len(list(Tagged.open(written(tmp_path, CONLLU, name)))) == 2


def test_lines_of_slashes(tmp_path: Path) -> None:
    (one, two) = Tagged.open(written(tmp_path, "the/DET  cat/NOUN\n\n1/2/NUM\n", "some.txt"))
    assert (one.words, one.tags) == (("the", "cat"), ("DET", "NOUN"))
    assert (two.words, two.tags) == (("1/2",), ("NUM",))


def test_conllu_is_written_again_with_other_tags(tmp_path: Path) -> None:
    corpus = Corpus.open(written(tmp_path, CONLLU))
    first, _ = read_sentences(corpus, with_tags=True)
    assert first.retagged(first.tags) == CONLLU.split("\n\n", maxsplit=1)[0].split("\n")
    assert first.retagged(("X",) * 4)[3] == "2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_"
    (made,) = Tagged.of([[("a", "DET")]])
    assert made.retagged(["X"]) == ["1\ta\t_\tX\t_\t_\t_\t_\t_\t_"]


def row(*columns: str) -> str:
    return "\t".join([*columns, *"_" * (10 - len(columns))]) + "\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (row("1", "a", "a", "DET") + "2\tcat\n", r"line 2, column 2: CoNLL-U has 10 columns, .* this line has 2"),
        (row("one", "a", "a", "DET"), r"line 1, column 1: expected the number of a word, such as 1, found 'one'"),
        (row("1", "a", "a", "DET") + row("3", "b", "b", "X"), r"line 2, column 1: expected word 2 .* found 3"),
        (row("1", " ", "a", "DET"), r"line 1, column 2: the word is empty"),
        ("# a comment\n" + row("1", "a", "a", "_"), r"line 2, column 4: the word has no tag"),
        (row("1", "a", "a", "A/B"), r"line 1, column 4: a tag has neither / nor white space"),
        (row("1-2", "ab"), r"line 1, column 1: a sentence without words"),
        ("", "no sentences"),
    ],
)
def test_a_malformed_line_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(CorpusError, match=f"{path}.*{message}" if text else message):
        Tagged.open(path)


def test_a_word_without_a_tag_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, "the/DET cat/NOUN\na/DET dog barks/VERB\n", "some.txt")
    with pytest.raises(CorpusError, match=r"some.txt, line 2, column 7: expected word/TAG, found 'dog'"):
        Tagged.open(path)


def test_words_without_tags_can_be_read(tmp_path: Path) -> None:
    corpus = Corpus.open(written(tmp_path, row("1", "a")))
    (one,) = read_sentences(corpus, with_tags=False, form="conllu")
    assert one.words == ("a",)


def test_what_is_given_in_python(tmp_path: Path) -> None:
    path = written(tmp_path, CONLLU)
    pairs = [[("the", "DET"), ("cat", "NOUN")]]
    assert len(list(as_tagged(path))) == 2
    for given in (pairs, ["the/DET cat/NOUN"], "the/DET cat/NOUN", Tagged.of(pairs)):
        assert [one.line for one in as_tagged(given)] == ["the/DET cat/NOUN"]
    for wrong, message in (
        ([], "no sentences"),
        ([[]], "sentence 0 is empty"),
        ([[("a", "")]], "sentence 0, word 0: the word has no tag"),
        ([[("a", "b", "c")]], "expected \\(word, tag\\)"),
        ([[(" ", "b")]], "the word is empty"),
    ):
        with pytest.raises(CorpusError, match=message):
            as_tagged(wrong)


def test_records_are_no_sentences(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="not records"):
        Tagged.open(written(tmp_path, '{"text": "a"}\n', "some.jsonl"))


def test_sentences_are_split_as_their_lines_are(tmp_path: Path) -> None:
    """A part has the sentences themselves, not lines to be parsed again."""
    sentences = [[(f"word{i % 17}", "NOUN"), (f"verb{i % 5}", "VERB")] for i in range(60)]
    tagged, shares = Tagged.of(sentences), {"train": 0.8, "valid": 0.2}
    parts = tagged.split(shares, tmp_path, seed=3)
    lines = split(tagged.lines, shares, tmp_path, seed=3)
    assert {name: b"".join(part.lines.blocks()) for name, part in parts.items()} == {
        name: b"".join(part.blocks()) for name, part in lines.items()
    }
    assert all(any(one is sentence for sentence in tagged) for part in parts.values() for one in part)
    with pytest.raises(CorpusError, match="too few documents for the parts train, valid"):
        Tagged.of(sentences[:1]).split(shares, tmp_path)
