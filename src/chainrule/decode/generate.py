"""Text from a prompt: the decoding loops with words at both ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import NoneType

from chainrule.decode.beam import beam_search
from chainrule.decode.sample import Continuation, sample, sample_steps
from chainrule.decode.strategies import Beam, Forbid, Sample, Strategy
from chainrule.errors import DecodingError
from chainrule.lm import LanguageModel

DEFAULT_MAX_TOKENS = 100


@dataclass(frozen=True)
class Generation:
    """A prompt and what follows it."""

    prompt: str
    continuation: str
    tokens: int
    log_prob: float
    """ln p of the continuation's tokens under the model."""
    finished: bool
    """Whether it came to an end; False if it was cut off."""

    @property
    def text(self) -> str:
        """All of it."""
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

    <unk> is never written: it is not text. A beam search gives its `n` best, or as many as there are.
    """
    _check(n, max_tokens, strategy)
    if isinstance(prompts, str):
        raise DecodingError("prompts should be a list of texts; for a single one there is generate()")
    if not prompts:
        return []
    ids = [_prompt_ids(lm, prompt) for prompt in prompts]
    end = _end(lm)
    if isinstance(strategy, Beam):
        if n > strategy.width:
            raise DecodingError(f"{strategy.width} beams cannot give {n} texts: ask for more beams")
        forbid = () if lm.tokenizer.unk is None else (lm.tokenizer.unk,)
        found = beam_search(lm, ids, strategy, max_tokens=max_tokens, end=end, forbid=forbid, best=n)
        if not all(found):
            raise DecodingError(f"nothing can follow {prompts[[bool(f) for f in found].index(False)]!r}")
    else:
        repeated = [row for row in ids for _ in range(n)]
        flat = sample(lm, repeated, _text_only(lm, strategy), max_tokens=max_tokens, seed=seed, end=end)
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
    ids = _prompt_ids(lm, prompt)
    written: list[int] = []
    shown = 0
    steps = sample_steps(lm, [ids], _text_only(lm, strategy), max_tokens=max_tokens, seed=seed, end=_end(lm))
    for step in steps:
        written += step.tokens
        text = _continuation_text(lm, prompt, ids, written)
        # half a character, whose bytes are still coming, is held back
        whole = len(text) if not text.endswith("\ufffd") else len(text.rstrip("\ufffd"))
        if whole > shown:
            yield text[shown:whole]
            shown = whole
    rest = _continuation_text(lm, prompt, ids, written)[shown:]
    if rest:
        yield rest


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


def _prompt_ids(lm: LanguageModel, prompt: str) -> list[int]:
    if lm.context == "line":
        prompt = prompt.rpartition("\n")[2]  # the lines before say nothing to a model of single lines
    ids: list[int] = lm.tokenizer.encode(prompt).tolist()
    return ids


def _generation(lm: LanguageModel, prompt: str, ids: list[int], new: Continuation) -> Generation:
    text = _continuation_text(lm, prompt, ids, list(new.ids))
    return Generation(prompt, text, len(new.ids), new.log_prob, new.finished)


def _continuation_text(lm: LanguageModel, prompt: str, ids: list[int], new: list[int]) -> str:
    if _end(lm) is not None and new and new[-1] == _end(lm):
        new = new[:-1]
    text = lm.tokenizer.decode([*ids, *new])[len(lm.tokenizer.decode(ids)) :]
    # word tokens join with a space of their own
    return text.removeprefix(" ") if lm.tokenizer.kind == "word" and prompt[-1:].isspace() else text
