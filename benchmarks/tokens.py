"""Text to an id file: our pipeline against calling `tokenizers` and `tiktoken` directly.

    python -m benchmarks tokens [--corpus FILE] [--whole]

Our side reads the file, validates it, encodes it and writes the ids. The peers get text that is already in memory,
only as much as they encode in a few seconds, and keep the ids in memory. Ids are compared on the same text; --whole
compares every id of the corpus with those of `tokenizers` (minutes).
"""

from __future__ import annotations

import shutil
import tempfile
from itertools import islice
from pathlib import Path

import numpy as np

from benchmarks.harness import DATA, Side, new_parser, open_text, race
from chainrule.text.corpus import Corpus
from chainrule.tokens.ids import encode_corpus
from chainrule.tokens.registry import train_and_encode, train_tokenizer
from chainrule.tokens.subwords.tokenizer import SubwordTokenizer
from chainrule.tokens.vocabulary import Limit
from chainrule.tokens.words.tokenizer import WordTokenizer

GPT2_PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
MB = 1_000_000


def main(arguments: list[str]) -> None:
    parser = new_parser("tokens", __doc__)
    parser.add_argument("--corpus", type=Path, help="a text file [default: simplewiki, if it is there]")
    parser.add_argument("--whole", action="store_true", help="compare every id with those of `tokenizers`")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = _corpus_file(options.corpus, folder)
        corpus, size = Corpus.open(path), path.stat().st_size / MB
        part = next(iter(corpus.blocks()))
        small = part[: part.rfind(b"\n", 0, 1 * MB) + 1]
        print(f"{path.name}: {size:.1f} MB; peers: {len(part) / MB:.1f} MB of it")
        _subwords(corpus, size, part, folder, options.whole)
        _words(corpus, size, part, small, folder)


def _corpus_file(given: Path | None, folder: Path) -> Path:
    if given is not None:
        return given
    packed = DATA / "simplewiki" / "train.txt.gz"
    if not packed.exists():
        raise SystemExit("simplewiki is not here: name a text file of 100 MB or so with --corpus")
    path = folder / "simplewiki.txt"
    with open_text(packed) as source, path.open("wb") as target:
        shutil.copyfileobj(source, target)
    return path


def _subwords(corpus: Corpus, size: float, part: bytes, folder: Path, whole: bool) -> None:
    import tiktoken

    # six blocks of 4 MB give nearly the same 32,000 pieces as the whole text
    tokenizer = SubwordTokenizer.train(islice(corpus.blocks(), 6), "bpe", Limit(top=32_000))
    vocabulary = {tokenizer._piece_bytes[i]: i for i in range(tokenizer.vocab_size - 2)}
    peer = tiktoken.Encoding("same", pat_str=GPT2_PATTERN, mergeable_ranks=vocabulary, special_tokens={})
    lines = part.removesuffix(b"\n").decode().split("\n")

    def by_tiktoken() -> list[list[int]]:
        return peer.encode_ordinary_batch(lines, num_threads=2)

    right = tokenizer.encode_lines_by_library(part)
    assert np.array_equal(tokenizer.encode_lines(part), right), "ours differs from tokenizers"
    flat = [i for line in by_tiktoken() for i in [*line, tokenizer.eos]]
    print(f"ids identical to tokenizers: yes ({len(right):,}); to tiktoken: {np.array_equal(flat, right)}")
    if whole:
        for block in corpus.blocks():
            assert np.array_equal(tokenizer.encode_lines(block), tokenizer.encode_lines_by_library(block))
        print("every id of the corpus is identical to that of tokenizers")
    sides = [
        Side("chainrule, file to id file", lambda: encode_corpus(corpus, tokenizer, folder / "ids"), size),
        Side("tokenizers, in memory", lambda: tokenizer.encode_lines_by_library(part), len(part) / MB),
        Side("tiktoken, in memory", by_tiktoken, len(part) / MB),
    ]
    race("byte-level BPE, 32,000 pieces", "MB", sides)


def _words(corpus: Corpus, size: float, part: bytes, small: bytes, folder: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = train_tokenizer("word", corpus)
    assert isinstance(tokenizer, WordTokenizer)
    numbers = {word: i for i, word in enumerate(tokenizer.spellings, start=3)}
    library = Tokenizer(models.WordLevel({w.decode(): i for w, i in numbers.items()} | {"<unk> ": 0}, "<unk> "))
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    lines = small.removesuffix(b"\n").decode().split("\n")

    def by_dictionary() -> list[int]:
        get, ids = numbers.get, []
        for line in part.removesuffix(b"\n").split(b"\n"):
            ids += [get(word, 0) for word in line.split()]
            ids.append(2)
        return ids

    assert np.array_equal(tokenizer.encode_lines(part), by_dictionary()), "ours differs from a dictionary"
    print(f"word ids identical to split() and a dictionary: yes; vocabulary {tokenizer.vocab_size:,}")
    ids = folder / "ids"
    sides = [
        Side("chainrule, file to id file", lambda: encode_corpus(corpus, tokenizer, ids), size),
        Side("split() and a dictionary, in memory", by_dictionary, len(part) / MB),
        Side("tokenizers WordLevel, in memory", lambda: library.encode_batch_fast(lines), len(small) / MB),
    ]
    race("words to numbers, every word known", "MB", sides)
    sides = [
        Side("chainrule, file to vocabulary", lambda: train_tokenizer("word", corpus), size),
        Side("chainrule, file to vocabulary and id file", lambda: train_and_encode("word", corpus, ids), size),
    ]
    race("counting words", "MB", sides)
