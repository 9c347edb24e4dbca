"""The surprisal of every token of a held-out text, on disk, with the place of each token in the text.

A comparison folder keeps the text once and the surprisals of each model beside it:

    test.txt                the held-out text, UTF-8; a line end is one byte
    test.npy                the bytes of each of its documents
    surprisal/FOLDER.npz    of the model in FOLDER: nats (float32), -ln p of each token of test.txt, line ends
                            included; ends (int64), the byte of test.txt at which each token ends

Models with different tokenizers compare by bytes: token i covers the bytes from ends[i - 1] to ends[i].
"""

from __future__ import annotations

import math
import shlex
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from chainrule.comparison.results import Comparison
from chainrule.contract.kinds import load
from chainrule.contract.lm import LanguageModel
from chainrule.errors import CorpusError, DamagedFileError
from chainrule.evaluation.intervals import FEWEST
from chainrule.evaluation.measure import score_ids
from chainrule.folder import MANIFEST
from chainrule.system.disk import replaced_file
from chainrule.system.progress import Reports, as_progress
from chainrule.text.corpus import Corpus
from chainrule.text.given import Text, as_corpus
from chainrule.text.split import documents_by
from chainrule.tokens.base import Ids, Tokenizer, encode_in_parallel, line_bounds, lines_of
from chainrule.tokens.spelling import byte_spans

TEXT, SIZES = "test.txt", "test.npy"
SURPRISALS = "surprisal"

MOST_BITS = 64.0
"""The most bits that a token counts in sums and charts: a token of probability 0 has infinitely many."""


@dataclass(frozen=True)
class Surprisals:
    """-ln p of each token of a text, and where in the text the tokens end."""

    nats: NDArray[np.float32]
    ends: NDArray[np.int64]

    @property
    def starts(self) -> NDArray[np.int64]:
        """The byte at which each token begins, with the white space before it that no token spells."""
        return np.concatenate([np.zeros(1, np.int64), self.ends[:-1]])[: len(self.ends)]

    def total_before(self, places: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the nats of the text before each of these bytes; a token's are spread evenly over its bytes.

        The nats of the bytes from a to b are total_before(b) - total_before(a), for any tokenizer. No token counts
        more than MOST_BITS.

        >>> found = Surprisals(np.asarray([1, 3], np.float32), np.asarray([2, 5]))  # tokens of two and three bytes
        >>> found.total_before(np.asarray([1, 2, 4])).tolist()
        [0.5, 1.0, 3.0]
        """
        nats = np.minimum(self.nats.astype(np.float64), MOST_BITS * math.log(2))
        # a token that has no bytes of its own counts with the one before it
        own = np.flatnonzero(np.diff(self.ends, append=self.ends[-1] + 1))
        edges = np.concatenate([np.zeros(1, np.int64), self.ends[own]])
        totals = np.concatenate([np.zeros(1), np.cumsum(nats)[own]])
        found: NDArray[np.float64] = np.interp(places, edges, totals)
        return found


def surprisals_path(folder: Path, name: str) -> Path:
    """Return the path of the surprisals of the model in `folder`/`name`."""
    return folder / SURPRISALS / f"{Path(name).name}.npz"


def surprisals_of(lm: LanguageModel, block: bytes) -> Surprisals:
    """Compute the surprisals of a block of whole lines (valid UTF-8), as `evaluate` measures them."""
    ids = encode_in_parallel(lm.tokenizer, block)
    nats = [-scores for scores in score_ids(lm, ids.astype(np.int64))]
    return Surprisals(np.concatenate(nats).astype(np.float32), token_ends(lm.tokenizer, block, ids))


def write_text(folder: Path, text: Text) -> bytes:
    """Write the held-out text of a comparison; return its bytes, with a line end after the last line too."""
    documents = [one if one.endswith(b"\n") else one + b"\n" for one in documents_by(as_corpus(text), "auto")]
    block = b"".join(documents)
    if len(documents) < FEWEST:  # then intervals are over paragraphs, rather than missing
        documents = [*Corpus.from_text(block.decode()).documents()]
    if not block:
        raise CorpusError(f"{as_corpus(text).name}: the text is empty")
    with replaced_file(folder / TEXT) as file:
        file.write(block)
    with replaced_file(folder / SIZES) as file:
        np.save(file, np.asarray([*map(len, documents)], np.int64))
    return block


def write_surprisals(folder: Path, name: str, found: Surprisals) -> None:
    """Write the surprisals of one model of a comparison folder."""
    path = surprisals_path(folder, name)
    path.parent.mkdir(exist_ok=True)
    with replaced_file(path) as file:
        np.savez_compressed(file, nats=found.nats, ends=found.ends)


def read_text(folder: Path) -> bytes | None:
    """Read the held-out text of a comparison; None if the folder has none."""
    path = folder / TEXT
    if not path.is_file():
        return None
    block = path.read_bytes().removesuffix(b"\n") + b"\n"
    try:
        block.decode()
    except UnicodeDecodeError as error:
        raise DamagedFileError(
            f"{path}: damaged, since it is not UTF-8 ({error.reason} at byte {error.start:,}); make it anew "
            f"from the held-out text: chainrule report {shlex.quote(str(folder))} --test FILE"
        ) from None
    return block


def read_sizes(folder: Path, block: bytes) -> NDArray[np.int64]:
    """Read the bytes of each document of a held-out text; an earlier version divided it at its blank lines."""
    path = folder / SIZES
    if not path.is_file():
        return np.asarray([len(one) for one in Corpus.from_text(block.decode()).documents()], np.int64)
    try:
        with path.open("rb") as file:
            sizes: NDArray[np.int64] = np.load(file, allow_pickle=False)
    except (ValueError, OSError, EOFError):
        sizes = np.zeros(0, np.int64)
    if sizes.dtype != np.int64 or sizes.ndim != 1 or (sizes <= 0).any() or sizes.sum() != len(block):
        raise DamagedFileError(
            f"{path}: these are not the sizes of the documents of {folder / TEXT}; remove it, and the text is "
            "divided at blank lines"
        )
    return sizes


def read_surprisals(folder: Path, name: str, size: int) -> Surprisals | None:
    """Read the surprisals of one model on a text of `size` bytes; None if the folder does not have them."""
    path = surprisals_path(folder, name)
    if not path.is_file():
        return None
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            found = Surprisals(arrays["nats"].astype(np.float32), arrays["ends"].astype(np.int64))
    except (ValueError, KeyError, OSError, EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        raise DamagedFileError(
            f"{path}: not a file of surprisals ({error}); make it anew: "
            f"chainrule report {shlex.quote(str(folder))} --test FILE"
        ) from None
    in_order = len(found.nats) == len(found.ends) > 0 and bool((np.diff(found.ends, prepend=0) >= 0).all())
    if not in_order or found.ends[-1] != size or np.isnan(found.nats).any():
        raise DamagedFileError(
            f"{path}: these are not the surprisals of {folder / TEXT} ({size:,} bytes); make them anew: "
            f"{shlex.join(['chainrule', 'report', str(folder), '--test', str(folder / TEXT)])}"
        )
    return found


def record_surprisals(folder: Path, comparison: Comparison, text: Text, *, progress: Reports = False) -> None:
    """Write a held-out text, and the surprisals of it under every model that is still in the folder."""
    progress = as_progress(progress)
    block = write_text(folder, text)
    with progress.task("surprisals", len(comparison.results), "models") as task:
        for result in comparison.results:
            where = folder / Path(result.folder).name
            if (where / MANIFEST).is_file():
                lm = load(where, verify=False, tasks=["language"])
                write_surprisals(folder, result.folder, surprisals_of(lm, block))
            task.advance(1)


# -- where tokens end -------------------------------------------------------------------------------------


def token_ends(tokenizer: Tokenizer, block: bytes, ids: Ids) -> NDArray[np.int64]:
    """Return the byte of the block at which each token ends.

    A line end is one byte. White space that no token spells belongs to the token after it.
    """
    pieces = tokenizer.pieces()
    lines = lines_of(block)
    starts, stops = line_bounds(ids, tokenizer.eos)
    if pieces is not None and tokenizer.splitting is None:
        lengths = np.asarray([len(piece) for piece in pieces])[ids]
        lengths[ids == tokenizer.eos] = 1
        sizes = np.asarray([len(line) + 1 for line in lines])
        spelled = np.add.reduceat(lengths, starts)
        if np.array_equal(spelled, sizes) and not (tokenizer.unk is not None and np.any(ids == tokenizer.unk)):
            return np.cumsum(lengths)
    ends: list[int] = []
    begin = 0
    for line, start, stop in zip(lines, starts.tolist(), stops.tolist(), strict=True):
        inside = _ends_in_line(tokenizer, line, ids[start : stop - 1].tolist())
        ends += [begin + end for end in inside]
        begin += len(line) + 1
        ends.append(begin)
    return np.asarray(ends, dtype=np.int64)


def _ends_in_line(tokenizer: Tokenizer, line: bytes, ids: list[int]) -> list[int]:
    """Return the byte of a line at which each of its tokens ends."""
    if tokenizer.splitting is not None or tokenizer.spelling is not None:
        return [end for _, end in byte_spans(tokenizer, line, ids)]
    end, ends = 0, list[int]()
    for number, token in enumerate(ids):  # the text of a token depends on the tokens before it
        end = min(end + len(tokenizer.continuation(ids[:number], [token]).encode()), len(line))
        ends.append(end)
    return ends
