"""Learning merges by hand: a worked example, and the library's merges in the library's order."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest

from chainrule.errors import TokenizerError
from chainrule.text.builtin import builtin_documents
from chainrule.tokens.subwords.library import byte_characters
from chainrule.tokens.subwords.merges import (
    Merge,
    count_pieces,
    learn_merges,
    merge_steps,
    replay_merges,
    spelled_words,
)
from chainrule.tokens.subwords.tokenizer import SubwordTokenizer
from chainrule.tokens.vocabulary import Limit

LOVE = b"i love cats\ni love dogs\ni love cats\n"


def test_words_carry_their_leading_space() -> None:
    """Spelled in byte characters, the space is Ġ."""
    assert count_pieces([LOVE]) == {"i": 3, "Ġlove": 3, "Ġcats": 2, "Ġdogs": 1}


def test_merges_of_a_worked_example() -> None:
    """Pairs at first: Ġl lo ov ve 3 each, Ġc ca at ts 2 each, Ġd do og gs 1 each.

    Of equals the one whose tokens are oldest goes first. Bytes are older than anything merged and are numbered by
    their characters, so lo comes before ov and ve, and Ġl comes last of the four. After lo, its neighbours are
    the pairs Ġ+lo and lo+v; v+e is older than both.
    """
    merges = list(learn_merges(count_pieces([LOVE]), vocab_size=1000))
    assert [(m.left, m.right, m.count) for m in merges] == [
        (b"l", b"o", 3),
        (b"v", b"e", 3),
        (b" ", b"lo", 3),
        (b" lo", b"ve", 3),
        (b"a", b"t", 2),
        (b"c", b"at", 2),
        (b" ", b"cat", 2),
        (b" cat", b"s", 2),
    ]  # all other pairs occur once
    assert [m.token for m in merges][3::4] == [b" love", b" cats"]
    assert [m.vocab_size for m in merges] == list(range(257, 265))


def test_merges_stop_when_the_vocabulary_is_full() -> None:
    assert len(list(learn_merges(count_pieces([LOVE]), vocab_size=258))) == 2
    assert list(learn_merges(count_pieces([LOVE]), vocab_size=256)) == []


def test_merges_stop_when_pairs_are_too_rare() -> None:
    assert [m.token for m in learn_merges(count_pieces([LOVE]), 1000, min_count=3)][-1] == b" love"
    assert list(learn_merges(count_pieces([LOVE]), 1000, min_count=4)) == []
    assert list(learn_merges(Counter(), 1000)) == []


def test_a_run_of_one_letter_is_merged_from_the_left() -> None:
    """aaaaa ten times: the pair aa stands at four places in each, and two of them can be merged: aa aa a."""
    merges = list(learn_merges(Counter({"aaaaa": 10}), vocab_size=1000))
    assert [(m.left, m.right, m.count) for m in merges] == [
        (b"a", b"a", 40),
        (b"aa", b"a", 10),  # a is older than aa, but the pair begins with aa either way: (aa, a) before (aa, aa)
        (b"aa", b"aaa", 10),
    ]


def test_a_merge_reads_as_a_sentence() -> None:
    assert str(Merge(b" lo", b"ve", 1234, 260)) == "' lo' + 've' -> ' love' (1,234 times)"
    assert str(Merge(b"\xc3", b"\xa9", 2, 260)) == "'<0xC3>' + '<0xA9>' -> 'é' (2 times)"


def random_text() -> bytes:
    """Three letters and accents in words of any length: many ties, many runs."""
    draw = random.Random(0)
    return "".join(draw.choices("abé \n", weights=[6, 4, 2, 2, 1], k=2_000)).encode()


@pytest.mark.parametrize(
    "text",
    [LOVE, random_text(), b"".join(builtin_documents("builtin:python"))[:30_000]],
    ids=["love", "random", "reference"],
)
def test_the_merges_are_those_of_the_library_in_order(text: bytes) -> None:
    size = 256 + 120
    definition = json.loads(SubwordTokenizer.train(iter([text]), "bpe", Limit(top=size)).definition)
    byte_of = {character: byte for byte, character in byte_characters().items()}
    by_library = [
        tuple(bytes(byte_of[character] for character in part) for part in pair)
        for pair in definition["model"]["merges"]
    ]
    ours = [(merge.left, merge.right) for merge in learn_merges(count_pieces([text]), size)]
    assert ours == by_library


def test_a_replay_takes_the_merge_that_was_learned_first() -> None:
    """Of l+o, v+e, Ġ+lo, Ġlo+ve (in this order), " love" needs all four; "lo" needs the first alone."""
    tokenizer = SubwordTokenizer.train(iter([LOVE]), "bpe", Limit(top=264))
    steps = list(replay_merges(tokenizer, "lo love"))
    assert [(one.left, one.right, one.rank) for one in steps] == [
        (b"l", b"o", 0),
        (b"v", b"e", 1),
        (b" ", b"lo", 2),
        (b" lo", b"ve", 3),
    ]
    assert steps[0].changed == {0: [b"lo"], 1: [b" ", b"lo", b"v", b"e"]}
    assert steps[-1].changed == {1: [b" love"]}


@pytest.mark.parametrize("text", ["", "the value\nof  naïve — dogs", "aaaaaaa", "日本語 x\n\n"])
def test_a_replay_ends_with_the_tokens_of_the_tokenizer(text: str) -> None:
    tokenizer = SubwordTokenizer.train(iter([b"the value of the naive dogs\naaaa aa\n" * 3]), "bpe", Limit(top=290))
    words = spelled_words(text)
    assert b"".join(token for word in words for token in word) == text.encode()
    for one in replay_merges(tokenizer, text):
        words = [one.changed.get(number, word) for number, word in enumerate(words)]
    spelling = tokenizer.spelling
    assert spelling is not None
    expected = [b"\n" if i == tokenizer.eos else spelling.pieces[i] for i in tokenizer.encode(text)]
    assert [token for word in words for token in word] == expected


def test_only_bpe_is_replayed() -> None:
    tokenizer = SubwordTokenizer.train(iter([LOVE]), "wordpiece", Limit(top=600))
    with pytest.raises(TokenizerError, match="only BPE"):
        list(replay_merges(tokenizer, "love"))


def test_steps_from_characters_have_the_librarys_merges() -> None:
    """Without the 256 bytes, the alphabet is the characters of the words, and the merges are the library's."""
    import tokenizers

    words = Counter(b" ".join(builtin_documents("builtin:python"))[:20_000].decode().split())
    library = tokenizers.Tokenizer(tokenizers.models.BPE())
    library.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    size = len(set("".join(words))) + 60
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=size, min_frequency=2, show_progress=False)
    library.train_from_iterator([" ".join(words.elements())], trainer)
    theirs = [tuple(pair) for pair in json.loads(library.to_str())["model"]["merges"]]
    ours = [tuple(step.tokens[i] for i in step.best) for step, _ in zip(merge_steps(words), theirs, strict=False)]
    assert len(ours) == 60
    assert ours == theirs


def test_a_step_counts_every_pair_and_spells_the_words_anew() -> None:
    """love twice and cats once, as a lecture has it: V_0 is the eight letters."""
    first, second, *_ = merge_steps(Counter(["love", "love", "cats"]))
    assert first.tokens == [*"acelostv", "lo"]
    assert first.ranked() == [
        ("l", "o", 2),
        ("o", "v", 2),
        ("v", "e", 2),
        ("a", "t", 1),
        ("c", "a", 1),
        ("t", "s", 1),
    ]
    assert {word: [first.tokens[i] for i in ids] for word, ids in first.words.items()} == {
        "love": ["lo", "v", "e"],
        "cats": ["c", "a", "t", "s"],
    }
    assert second.ranked()[0] == ("v", "e", 2)
