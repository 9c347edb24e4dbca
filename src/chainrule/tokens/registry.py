"""Tokenizers by name: learned from text, written to and read from one tokenizer.json.

Another package adds a tokenizer by an entry point in the group `chainrule.tokenizers`. The name of the entry point
is the name for --tokenizer. Its object is a subclass of `Tokenizer` with a `kind` of its own and the class methods
`train(blocks, limit)` and `from_json(data)`.
"""

from __future__ import annotations

import contextlib
import difflib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from chainrule.errors import PluginError, TokenizerError
from chainrule.system.disk import replaced_file
from chainrule.system.disk.checksums import CHECKSUM, UNSIGNED, is_signed, signed
from chainrule.system.parallel import EMBEDDED, Executor
from chainrule.system.plugins import find_plugins, load_plugin
from chainrule.system.progress import SILENT, Progress, Reports, as_progress
from chainrule.text.corpus import Corpus
from chainrule.text.given import Text, as_corpus
from chainrule.tokens.base import Tokenizer
from chainrule.tokens.char import ByteTokenizer, CharTokenizer
from chainrule.tokens.ids import Encoded, encode_corpus, learn_and_encode
from chainrule.tokens.lowercase import LowercaseTokenizer, lowered
from chainrule.tokens.published import PublishedTokenizer
from chainrule.tokens.subwords.library import Algorithm
from chainrule.tokens.subwords.tokenizer import SubwordTokenizer
from chainrule.tokens.vocabulary import Limit
from chainrule.tokens.words.splitting import Splitting
from chainrule.tokens.words.tokenizer import WordTokenizer

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

PLUGINS = "chainrule.tokenizers"
"""The group of entry points that add tokenizers."""
NAMES = ("word", "word:unicode", "char", "byte", "bpe", "wordpiece", "unigram")
FILE_NAME = "tokenizer.json"
_FORMAT = "chainrule-tokenizer"
_VERSION = 1
_CLASSES: dict[str, Any] = {
    c.kind: c for c in (WordTokenizer, CharTokenizer, ByteTokenizer, SubwordTokenizer, PublishedTokenizer)
}


def train_tokenizer(
    name: str,
    text: Text,
    limit: Limit | int | str | None = None,
    progress: Reports = False,
    *,
    lowercase: bool = False,
) -> Tokenizer:
    """Learn the named tokenizer from text: strings are text, paths are files.

    `limit` is the size of the vocabulary, such as 8000 or "90%". `lowercase`: it reads upper-case letters as
    lower-case ones.

    >>> tokenizer = train_tokenizer("word", "the cat sat on the mat")
    >>> tokenizer
    <WordTokenizer word, 8 tokens>
    >>> tokenizer.encode("the cat purred").tolist()
    [3, 4, 0]
    >>> train_tokenizer("word", "the cat sat on the mat", 2)
    <WordTokenizer word, 5 tokens>
    """
    corpus, progress = as_corpus(text), as_progress(progress)
    if not isinstance(limit, Limit):
        limit = Limit.parse(limit)
    if name not in tokenizer_names():
        known = f"{', '.join(tokenizer_names())}, or a folder that holds one"
        raise TokenizerError(f"there is no tokenizer {name!r}; there are: {known}")
    found = _learned(name, corpus, limit, progress, lowercase)
    return LowercaseTokenizer(found) if lowercase else found


def _learned(name: str, corpus: Corpus, limit: Limit, progress: Progress, lowercase: bool) -> Tokenizer:
    """Return the named tokenizer of a text, or of the text in lower case."""
    if name == "byte":
        return ByteTokenizer()
    with progress.task("reading words" if name.startswith("word") else "reading", corpus.size(), "B") as task:

        def blocks() -> Any:
            for block in corpus.blocks():
                yield lowered(block) if lowercase else block
                task.advance(len(block))

        if name not in NAMES:
            plugin: Any = _tokenizer_class(find_plugins(PLUGINS)[name])
            return cast(Tokenizer, plugin.train(blocks(), limit))
        if name == "char":
            return CharTokenizer.train(blocks(), limit)
        if splitting := word_splitting(name):
            return WordTokenizer.train(blocks(), limit, splitting)
        return SubwordTokenizer.train(blocks(), cast(Algorithm, name), limit, progress)


def train_and_encode(
    name: str,
    corpus: Corpus,
    path: Path,
    limit: Limit | None = None,
    progress: Progress = SILENT,
    executor: Executor = EMBEDDED,
    *,
    lowercase: bool = False,
) -> tuple[Tokenizer, Encoded]:
    """Learn the named tokenizer from a corpus and write its ids to `path`; for words in one pass over the text."""
    if not lowercase and (splitting := word_splitting(name)):
        return learn_and_encode(corpus, limit or Limit(), splitting, path, progress, executor)
    tokenizer = train_tokenizer(name, corpus, limit, progress, lowercase=lowercase)
    return tokenizer, encode_corpus(corpus, tokenizer, path, progress, executor)


def tokenizer_names() -> list[str]:
    """Return the name of every tokenizer that can be learned, plug-ins included; no plug-in is imported."""
    return [*NAMES, *(name for name in find_plugins(PLUGINS) if name not in NAMES)]


def _tokenizer_class(point: EntryPoint) -> type[Tokenizer]:
    found = load_plugin(point, type)
    if not issubclass(found, Tokenizer):
        raise PluginError(f"the plug-in {point.name!r} ({point.value}) is not a subclass of Tokenizer")
    return found


def _class_of(kind: Any) -> Any:
    """Return the class whose tokenizers have that kind; None if there is none."""
    if kind in list(_CLASSES):
        return _CLASSES[kind]
    for point in find_plugins(PLUGINS).values():
        # a plug-in that cannot be loaded is no reason to refuse the tokenizers of another one
        with contextlib.suppress(PluginError):
            found = _tokenizer_class(point)
            if found.kind == kind:
                return found
    return None


def word_splitting(name: str) -> Splitting | None:
    """Return how the named tokenizer splits words; None where its tokens are not words."""
    splittings: dict[str, Splitting] = {"word": "whitespace", "word:unicode": "unicode"}
    return splittings.get(name)


def dump_tokenizer(tokenizer: Tokenizer) -> str:
    """Return the content of tokenizer.json."""
    return json.dumps({"format": _FORMAT, "version": _VERSION, **tokenizer.to_json()}, ensure_ascii=False)


def write_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write tokenizer.json into a folder, with a checksum of itself, which `load_tokenizer` compares."""
    folder.mkdir(parents=True, exist_ok=True)
    text = dump_tokenizer(tokenizer)
    with replaced_file(folder / FILE_NAME) as file:
        file.write(signed('{"' + CHECKSUM + '": "' + UNSIGNED + '", ' + text.removeprefix("{")))


def parse_tokenizer(content: str, place: str) -> Tokenizer:
    """Return a tokenizer from the content of a tokenizer.json; `place` names it in errors."""
    try:
        data = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise TokenizerError(f"{place}: not JSON: {error}") from None
    if not isinstance(data, dict) or data.get("format") != _FORMAT:
        raise TokenizerError(f"{place}: not a tokenizer of chainrule (no format {_FORMAT!r} in it)")
    if CHECKSUM in data and not is_signed(content.encode()):
        raise TokenizerError(f"{place}: damaged: its checksum differs from the one it was written with")
    if data.get("version") != _VERSION:
        raise TokenizerError(f"{place}: version {data.get('version')}; this chainrule reads version {_VERSION}")
    is_lowered = data.get("kind") == LowercaseTokenizer.kind
    of = data.get("of") or {} if is_lowered else data
    found = _class_of(of.get("kind"))
    if found is None:
        raise TokenizerError(f"{place}: unknown kind of tokenizer {of.get('kind')!r}")
    try:
        made = cast(Tokenizer, found.from_json(of))
        return LowercaseTokenizer(made) if is_lowered else made
    except TokenizerError as error:
        raise TokenizerError(f"{place}: damaged: {error}") from error
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise TokenizerError(f"{place}: damaged: {type(error).__name__}: {error}") from error


def load_tokenizer(path: str | Path) -> Tokenizer:
    """Load the tokenizer of a model folder, of a folder made by `chainrule tokenize --out`, or of a file.

    >>> import chainrule as cr
    >>> import tempfile
    >>> lm = cr.train("ngram", ["i love cats"], order=2, tokenizer="word")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     lm.save(f"{folder}/model")
    ...     print(cr.load_tokenizer(f"{folder}/model"))
    <WordTokenizer word, 6 tokens>
    """
    path = Path(path)
    file = path / FILE_NAME if path.is_dir() else path
    try:
        content = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        close = difflib.get_close_matches(str(path), tokenizer_names(), n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        known = f"{', '.join(tokenizer_names())}, or a folder that holds one"
        raise TokenizerError(f"{file}: no such file{hint} (tokenizers are: {known})") from None
    except (OSError, UnicodeDecodeError) as error:
        raise TokenizerError(f"{file}: cannot be read: {error}") from error
    return parse_tokenizer(content, str(file))
