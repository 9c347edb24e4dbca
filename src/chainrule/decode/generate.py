"""Text generation: a prompt in, text out, by sampling or beam search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import NoneType

import numpy as np

from chainrule.arrays import pad
from chainrule.decode.beam import beam_search
from chainrule.decode.randomness import Uniforms
from chainrule.decode.sample import Continuation, sample, sample_steps
from chainrule.decode.strategies import Beam, Forbid, Sample, Strategy, TopP
from chainrule.errors import DecodingError
from chainrule.lm import LanguageModel

DEFAULT_MAX_TOKENS = 100
_SAMPLE_TOKENS = 60


@dataclass(frozen=True)
class Generation:
    """A prompt and its continuation."""

    prompt: str
    continuation: str
    tokens: int
    log_prob: float
    """ln p of the continuation's tokens under the model."""
    finished: bool
    """Whether the continuation came to an end; False if it was cut off."""

    @property
    def text(self) -> str:
        """The prompt and the continuation as one text."""
        return self.prompt + self.continuation


def generate(
    lm: LanguageModel,
    prompt: str = "",
    strategy: Strategy | Beam | None = None,
    *,
    max_tokens: int = DEFAULT_MAX_TOKENS,
    seed: int = 0,
) -> str:
    """The prompt and a continuation of it: a line, or `max_tokens` tokens where context flows across lines."""
    return generate_many(lm, [prompt], strategy, max_tokens=max_tokens, seed=seed)[0].text


def generate_many(
    lm: LanguageModel,
    prompts: Sequence[str],
    strategy: Strategy | Beam | None = None,
    *,
    n: int = 1,
    max_tokens: int = DEFAULT_MAX_TOKENS,
    seed: int = 0,
) -> list[Generation]:
    """`n` continuations of each prompt, in one batch; the text depends on seed and prompt, not on the batch.

    A prompt that is listed twice gets `n` more continuations. <unk> is never written: it is not text. A beam search
    gives its `n` best, or as many as there are.
    """
    _check(n, max_tokens, strategy)
    if isinstance(prompts, str):
        raise DecodingError("prompts should be a list of texts; for a single one there is generate()")
    if not prompts:
        return []
    ids = [prompt_ids(lm, prompt) for prompt in prompts]
    state, end = lm.extend(lm.start(len(ids)), pad(ids)), _end(lm)
    if isinstance(strategy, Beam):
        if n > strategy.width:
            raise DecodingError(f"{strategy.width} beams cannot give {n} texts: ask for more beams")
        forbid = () if lm.tokenizer.unk is None else (lm.tokenizer.unk,)
        found = beam_search(lm, state, strategy, max_tokens=max_tokens, end=end, forbid=forbid, best=n)
    else:
        rows = np.repeat(np.arange(len(ids)), n)
        uniforms = Uniforms(seed, [ids[row] for row in rows], _copies(prompts, n))
        flat = sample(
            lm,
            state.select(rows),
            _text_only(lm, strategy),
            uniforms,
            max_tokens=max_tokens,
            end=end,
            read_BT=pad(ids)[rows],
        )
        found = [flat[i * n : (i + 1) * n] for i in range(len(ids))]
    return [
        _generation(lm, prompt, row, continuation)
        for prompt, row, continuations in zip(prompts, ids, found, strict=True)
        for continuation in continuations
    ]


def stream(
    lm: LanguageModel,
    prompt: str = "",
    strategy: Strategy | None = None,
    *,
    max_tokens: int = DEFAULT_MAX_TOKENS,
    seed: int = 0,
) -> Iterator[str]:
    """The continuation piece by piece, as it is written; together the pieces are what `generate` adds."""
    _check(1, max_tokens, strategy)
    if isinstance(strategy, Beam):
        raise DecodingError("a beam search knows its text only at the end and cannot be streamed")
    return _stream(lm, prompt, strategy, max_tokens, seed)


def _stream(lm: LanguageModel, prompt: str, strategy: Strategy | None, max_tokens: int, seed: int) -> Iterator[str]:
    read = prompt_ids(lm, prompt)
    waiting: list[int] = []  # tokens whose text is not shown yet
    begun = False
    for piece in sample_steps(
        lm,
        lm.extend(lm.start(1), pad([read])),
        _text_only(lm, strategy),
        Uniforms(seed, [read]),
        max_tokens=max_tokens,
        end=_end(lm),
        read_BT=pad([read]),
        at_once=1,
    ):
        waiting += piece.tokens[0]
        text = _added_text(lm, prompt, read, waiting, begun)
        if not text.endswith("\ufffd"):  # half a character, whose bytes are still coming, is held back
            if text:
                yield text
            begun = begun or bool(waiting)
            read, waiting = [*read, *waiting], []
    if rest := _added_text(lm, prompt, read, waiting, begun):
        yield rest


def sample_text(lm: LanguageModel, seed: int = 0, lines: int = 1) -> str:
    """A sample to show to people: `lines` lines, without empty ones, or one text where context flows."""
    count = lines if lm.context == "line" else 1
    drawn = generate_many(lm, [""], TopP(0.9), n=count, max_tokens=_SAMPLE_TOKENS, seed=seed)
    return "\n".join(generation.text for generation in drawn if count == 1 or generation.text.strip())


def _copies(prompts: Sequence[str], n: int) -> list[int]:
    """The number of each row among the copies of its prompt; copies have the same text, not only the same ids."""
    seen: Counter[str] = Counter()
    copies: list[int] = []
    for prompt in prompts:
        copies += range(seen[prompt], seen[prompt] + n)
        seen[prompt] += n
    return copies


def _check(n: int, max_tokens: int, strategy: object) -> None:
    if not isinstance(strategy, (Strategy, Beam, NoneType)):
        raise DecodingError(f"a strategy is a value such as Greedy() or TopP(0.9), not {strategy!r}")
    if n < 1:
        raise DecodingError(f"the number of texts should be at least 1, not {n}")
    if max_tokens < 0:
        raise DecodingError(f"the number of tokens should be at least 0, not {max_tokens}")


def _end(lm: LanguageModel) -> int | None:
    return lm.tokenizer.eos if lm.context == "line" else None


def _text_only(lm: LanguageModel, strategy: Strategy | None) -> Strategy:
    strategy = strategy or Sample()
    return strategy if lm.tokenizer.unk is None else Forbid((lm.tokenizer.unk,)) | strategy


def prompt_ids(lm: LanguageModel, prompt: str) -> list[int]:
    """The ids of a prompt, or of its last line if the model reads each line by itself."""
    if lm.context == "line":
        prompt = prompt.rpartition("\n")[2]  # earlier lines are no context to a model of single lines
    ids: list[int] = lm.tokenizer.encode(prompt).tolist()
    return ids


def _generation(lm: LanguageModel, prompt: str, read: list[int], new: Continuation) -> Generation:
    text = _added_text(lm, prompt, read, list(new.ids), begun=False)
    return Generation(prompt, text, len(new.ids), new.log_prob, new.finished)


def _added_text(lm: LanguageModel, prompt: str, read: list[int], new: list[int], begun: bool) -> str:
    """The text that new tokens add to what was read; the token that ends a line adds nothing."""
    if new and new[-1] == _end(lm):
        new = new[:-1]
    text = lm.tokenizer.continuation(read, new)
    # tokens that do not keep white space bring a space of their own, which a prompt may have already
    return text.removeprefix(" ") if not lm.tokenizer.lossless and not begun and prompt[-1:].isspace() else text
