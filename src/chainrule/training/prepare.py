"""What every kind needs before it is trained: a tokenizer, and the text as ids."""

from __future__ import annotations

import platform
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from chainrule._version import __version__
from chainrule.errors import SettingsError
from chainrule.progress import SILENT, Progress
from chainrule.text.corpus import Corpus, Source, as_corpus
from chainrule.text.split import split
from chainrule.tokens.base import Tokenizer
from chainrule.tokens.ids import Encoded, encode_corpus
from chainrule.tokens.registry import NAMES, load_tokenizer, train_and_encode, train_tokenizer, word_splitting
from chainrule.tokens.vocabulary import Limit
from chainrule.tokens.word import WordTokenizer


@dataclass(frozen=True)
class TokenizerChoice:
    """Which tokenizer, and how large or with which words; a folder stands for the tokenizer in it."""

    name: str = "word"
    vocab_size: str | int | None = None
    min_count: int = 1
    vocabulary: str | Path | None = None
    """A file with a word on each line: exactly these are known, whether the corpus has them or not."""

    def make(self, corpus: Corpus, progress: Progress = SILENT) -> Tokenizer:
        """Learned from the corpus, or given."""
        limit, tokenizer = self._limit(), self._given()
        return train_tokenizer(self.name, corpus, limit, progress) if tokenizer is None else tokenizer

    def make_and_encode(self, corpus: Corpus, path: Path, progress: Progress = SILENT) -> tuple[Tokenizer, Encoded]:
        """The same, and the ids of the corpus in a file; reads the text once where the tokenizer can do both."""
        limit, tokenizer = self._limit(), self._given()
        if tokenizer is None:
            return train_and_encode(self.name, corpus, path, limit, progress)
        return tokenizer, encode_corpus(corpus, tokenizer, path, progress)

    def _given(self) -> Tokenizer | None:
        """The tokenizer that needs no text to learn from, if it is one."""
        if self.vocabulary is None:
            return None if self.name in NAMES else load_tokenizer(self.name)
        splitting = word_splitting(self.name)
        if splitting is None:
            raise SettingsError(
                f"a list of words is for the tokenizers word and word:unicode, not for {self.name}: "
                f"leave out the vocabulary {self.vocabulary}, or choose one of the two"
            )
        return WordTokenizer.from_file(self.vocabulary, splitting)

    def _limit(self) -> Limit:
        limit = Limit.parse(self.vocab_size, self.min_count)
        which = None
        if self.vocabulary is not None:
            which = f"the vocabulary is what {self.vocabulary} lists"
        elif self.name == "byte":
            which = "byte tokens are the 256 bytes"
        elif self.name not in NAMES:
            which = f"the tokenizer in {self.name} is given"
        if which and limit != Limit():
            raise SettingsError(f"{which}: leave out the vocabulary size and the minimum count")
        return limit


def split_off(
    corpus: Corpus,
    given: Mapping[str, Corpus | Source | None],
    shares: Mapping[str, float],
    folder: Path,
    *,
    seed: int = 0,
    progress: Progress = SILENT,
) -> dict[str, Corpus]:
    """A part for each share: those that are given, and the others split off the corpus; train gets what is left."""
    parts = {name: as_corpus(source) for name, source in given.items() if source is not None}
    wanted = {name: share for name, share in shares.items() if name not in parts}
    if list(wanted) == ["train"]:
        return {"train": corpus, **parts}
    wanted["train"] += 1 - sum(wanted.values())
    return {**split(corpus, wanted, folder, seed=seed, progress=progress), **parts}


def encode_parts(
    parts: Mapping[str, Corpus],
    tokenizer: Tokenizer | TokenizerChoice,
    folder: Path,
    progress: Progress = SILENT,
) -> tuple[Tokenizer, dict[str, Encoded]]:
    """Each part's ids, in files of `folder`; a tokenizer that is still to be made is learned from `train`."""
    encoded: dict[str, Encoded] = {}
    if isinstance(tokenizer, TokenizerChoice):
        tokenizer, encoded["train"] = tokenizer.make_and_encode(parts["train"], folder / "train.ids", progress)
    for name, corpus in parts.items():
        if name not in encoded:
            encoded[name] = encode_corpus(corpus, tokenizer, folder / f"{name}.ids", progress)
    return tokenizer, encoded


def provenance(train: Encoded, valid: Encoded | None, seed: int) -> dict[str, Any]:
    """Where a model comes from: text, seed, versions, command."""
    libraries = {}
    for name in ("numpy", "tokenizers", "torch"):
        try:
            libraries[name] = version(name)
        except PackageNotFoundError:
            continue
    return {
        "corpus_sha256": train.fingerprint,
        "corpus_bytes": train.bytes,
        "corpus_tokens": train.tokens,
        "held_out_sha256": valid.fingerprint if valid else None,
        "held_out_tokens": valid.tokens if valid else 0,
        "seed": seed,
        "chainrule": __version__,
        "python": platform.python_version(),
        **libraries,
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]) if sys.argv and sys.argv[0] else "python",
    }
