"""Text generation: a prompt in, text out, by sampling or beam search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from types import NoneType
from typing import Any

import numpy as np

from chainrule.arrays import pad
from chainrule.contract.lm import LanguageModel, State
from chainrule.decode.beam import beam_search
from chainrule.decode.drafts import Draft, DraftTally, GivenDraft, as_draft
from chainrule.decode.healing import Respellings, find_respellings, respell
from chainrule.decode.randomness import Uniforms
from chainrule.decode.sample import Continuation, sample, sample_steps
from chainrule.decode.speculative import speculate, speculated
from chainrule.decode.strategies import Beam, Forbid, Sample, Strategy, TopP, sampling
from chainrule.errors import DecodingError

DEFAULT_MAX_TOKENS = 100
_SAMPLE_TOKENS = 60
_NEARBY = 64  # tokens before a piece: more than can change how it is decoded


@dataclass(frozen=True)
class Generation:
    """A prompt and its continuation."""

    prompt: str
    continuation: str
    tokens: int
    """The number of its tokens; a token that ends where the prompt ends does not count."""
    log_prob: float
    """ln p of the continuation's tokens under the model, given the text of the prompt."""
    finished: bool
    """True if the continuation came to an end; False if it was cut off."""
    steps: int | None = None
    """In how many steps of the model it was written, if tokens were drafted: fewer than there are tokens."""
    drafted: int = 0
    """How many tokens were drafted, accepted or not."""

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
    heal: bool = True,
    draft: GivenDraft | None = None,
    **options: float,
) -> str:
    """Return the prompt and a continuation: a line, or `max_tokens` tokens if context flows across lines.

    The prompt is a text that may stop anywhere, also inside a word; `heal=False` takes its tokens for complete.
    `draft` is a faster model over the same vocabulary, or "context"; its guesses are checked several at a time.
    The usual options of sampling can stand in place of a strategy: temperature, top_k, top_p, min_p and penalties.

    >>> import chainrule as cr
    >>> lm = cr.train("ngram", ["i love cats", "i love dogs", "cats chase mice"], order=3, smoothing="mle")
    >>> cr.generate(lm, "cats", cr.Greedy())
    'cats chase mice'
    >>> cr.generate(lm, "dogs", temperature=0.5, top_k=10) == lm.generate("dogs", cr.Temperature(0.5) | cr.TopK(10))
    True
    """
    if options:
        if strategy is not None:
            raise DecodingError(f"choose one of {type(strategy).__name__} and {', '.join(options)}")
        strategy = sampling(**options)
    return generate_many(lm, [prompt], strategy, max_tokens=max_tokens, seed=seed, heal=heal, draft=draft)[0].text


def generate_many(
    lm: LanguageModel,
    prompts: Sequence[str],
    strategy: Strategy | Beam | None = None,
    *,
    n: int = 1,
    max_tokens: int = DEFAULT_MAX_TOKENS,
    seed: int = 0,
    heal: bool = True,
    draft: GivenDraft | None = None,
    tally: DraftTally | None = None,
) -> list[Generation]:
    """Return `n` continuations of each prompt; the text depends on seed and prompt, not on the batch.

    A prompt that is listed twice gets `n` more continuations. <unk> is never generated. A beam search gives its
    `n` best, or as many as there are. The tokens that complete a prompt (healing.py) do not count as
    `max_tokens`. With a `draft`, one text is generated after the other, and `tally` counts accepted guesses.

    >>> import chainrule as cr
    >>> lm = cr.train("ngram", ["i love cats", "i love dogs"] * 3, order=2, tokenizer="word")
    >>> [found.text for found in cr.generate_many(lm, ["i love", "dogs"], cr.Greedy())]
    ['i love cats', 'dogs']
    """
    _check(lm, n, max_tokens, strategy)
    chosen = as_draft(draft, lm, strategy)
    if isinstance(prompts, str):
        raise DecodingError("prompts should be a list of texts; for a single one there is generate()")
    if not prompts:
        return []
    contexts, end = [context_of(lm, prompt) for prompt in prompts], end_of(lm)
    state, respellings = find_respellings(lm, contexts, heal=heal and max_tokens > 0)
    if isinstance(strategy, Beam):
        if n > strategy.width:
            raise DecodingError(f"{strategy.width} beams cannot give {n} texts: ask for more beams")
        forbid = () if lm.tokenizer.unk is None else (lm.tokenizer.unk,)
        starts = [found.best(strategy.width) for found in respellings]
        written = beam_search(
            lm, state, strategy, max_tokens=max_tokens, end=end, forbid=forbid, best=n, starts=starts
        )
    else:
        rows, ids = np.repeat(np.arange(len(prompts)), n), [prompt_ids(lm, prompt) for prompt in prompts]
        uniforms = Uniforms(seed, [ids[row] for row in rows], _copies(prompts, n))
        of_rows = [respellings[row] for row in rows]
        flat = _sample_after(lm, state.select(rows), of_rows, strategy, uniforms, max_tokens, chosen, tally)
        written = [flat[i * n : (i + 1) * n] for i in range(len(prompts))]
    return [
        _generation(lm, prompt, found, continuation)
        for prompt, found, continuations in zip(prompts, respellings, written, strict=True)
        for continuation in continuations
    ]


def _sample_after(
    lm: LanguageModel,
    state: State,
    respellings: Sequence[Respellings],
    strategy: Strategy | None,
    uniforms: Uniforms,
    max_tokens: int,
    draft: Draft | None,
    tally: DraftTally | None,
) -> list[Continuation]:
    """Choose a respelling of each row, and sample the text after it."""
    strategy = text_only(lm, strategy)
    state, drawn, read = respell(lm, state, respellings, strategy, uniforms)
    new: list[Continuation] = []
    if draft is None:
        new = sample(lm, state, strategy, uniforms, max_tokens=max_tokens, end=end_of(lm), read_BT=pad(read))
    else:
        how: dict[str, Any] = {"max_tokens": max_tokens, "end": end_of(lm)}
        for row, ids in enumerate(read):
            own = state.select(np.asarray([row]))
            new.append(speculated(speculate(lm, own, draft, strategy, uniforms, row, read=ids, **how)))
            if tally is not None:
                tally.count(len(new[-1].ids), new[-1].steps or 0, new[-1].drafted)
    return [
        replace(c, ids=(*o.ids, *c.ids), log_prob=o.log_prob + c.log_prob, inside=o.inside)
        for o, c in zip(drawn, new, strict=True)
    ]


def stream(
    lm: LanguageModel,
    prompt: str = "",
    strategy: Strategy | None = None,
    *,
    max_tokens: int = DEFAULT_MAX_TOKENS,
    seed: int = 0,
    heal: bool = True,
    draft: GivenDraft | None = None,
) -> Iterator[str]:
    """Yield the continuation piece by piece, as it is generated; together the pieces are what `generate` adds.

    >>> import chainrule as cr
    >>> lm = cr.train("ngram", ["i love cats", "i love dogs"] * 3, order=2, tokenizer="word")
    >>> list(cr.stream(lm, "i", cr.Greedy()))
    [' love', ' cats']
    """
    pieces = stream_many(lm, prompt, strategy, n=1, max_tokens=max_tokens, seed=seed, heal=heal, draft=draft)
    return (piece for _, piece in pieces if piece)


def stream_many(
    lm: LanguageModel,
    prompt: str = "",
    strategy: Strategy | None = None,
    *,
    n: int,
    max_tokens: int = DEFAULT_MAX_TOKENS,
    seed: int = 0,
    heal: bool = True,
    draft: GivenDraft | None = None,
    tally: DraftTally | None = None,
) -> Iterator[tuple[int, str]]:
    """Yield `n` continuations as pairs (number of the text, piece): the first as it grows, then the second, ...

    All are generated in one batch; pieces of later texts are kept until their turn. With a `draft`, one text
    comes after the other, and `tally` counts accepted guesses as the pieces come.
    """
    _check(lm, n, max_tokens, strategy)
    if isinstance(strategy, Beam):
        raise DecodingError("a beam search knows its text only at the end and cannot be streamed")
    chosen, counted, sampled_by = as_draft(draft, lm, strategy), tally or DraftTally(), text_only(lm, strategy)

    def pieces() -> Iterator[tuple[int, str]]:
        state, (respellings,) = find_respellings(lm, [context_of(lm, prompt)], heal=heal and max_tokens > 0)
        uniforms = Uniforms(seed, [prompt_ids(lm, prompt)] * n)
        state = state.select(np.zeros(n, dtype=np.int64))
        state, drawn, read = respell(lm, state, [respellings] * n, sampled_by, uniforms)
        texts = [Growing(lm, prompt, respellings, respelling.ids) for respelling in drawn]
        how: dict[str, Any] = {"max_tokens": max_tokens, "end": end_of(lm)}
        if chosen is not None:  # one text after the other
            for number, text in enumerate(texts):
                own = state.select(np.asarray([number]))
                for step in speculate(lm, own, chosen, sampled_by, uniforms, number, read=read[number], **how):
                    counted.count(len(step.tokens), step.steps, step.drafted)
                    text.waiting += step.tokens
                    if shown := text.shown():
                        yield number, shown
                yield number, text.shown() + text.rest()
            return
        turn = 0
        for piece in sample_steps(lm, state, sampled_by, uniforms, read_BT=pad(read), at_once=1, **how):
            for row, tokens in zip(piece.rows, piece.tokens, strict=True):
                texts[row].waiting += tokens
            while turn < n and turn not in piece.active:
                yield turn, texts[turn].shown() + texts[turn].rest()
                turn += 1
            if turn < n and (shown := texts[turn].shown()):
                yield turn, shown
        for later in range(turn, n):
            yield later, texts[later].shown() + texts[later].rest()

    return pieces()


class Growing:
    """A continuation that is shown piece by piece."""

    def __init__(self, lm: LanguageModel, prompt: str, respellings: Respellings, first: Sequence[int]) -> None:
        """`first` are the tokens that complete the prompt."""
        self.lm, self.prompt = lm, prompt
        self.read, self.unspelled = respellings.stable, respellings.rest
        self.waiting: list[int] = [*first]
        """Tokens whose text is not shown yet."""
        self.has_text = False

    def shown(self) -> str:
        """Return the text of the waiting tokens; nothing while it ends in half a character."""
        text = self._text()
        if text.endswith("\ufffd"):
            return ""
        self.has_text = self.has_text or bool(self.waiting)
        if self.waiting:
            self.read, self.unspelled, self.waiting = [*self.read[-_NEARBY:], *self.waiting], b"", []
        return text

    def rest(self) -> str:
        """Return the text of the waiting tokens when no more tokens come."""
        text, self.waiting = self._text(), []
        return text

    def _text(self) -> str:
        return added_text(self.lm, self.prompt, Respellings(self.read, self.unspelled), self.waiting, self.has_text)


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


def _check(lm: object, n: int, max_tokens: int, strategy: object) -> None:
    LanguageModel.expect(lm)
    if not isinstance(strategy, (Strategy, Beam, NoneType)):
        raise DecodingError(f"a strategy is a value such as Greedy() or TopP(0.9), not {strategy!r}")
    if n < 1:
        raise DecodingError(f"the number of texts should be at least 1, not {n}")
    if max_tokens < 0:
        raise DecodingError(f"the number of tokens should be at least 0, not {max_tokens}")


def end_of(lm: LanguageModel) -> int | None:
    """The token that ends a text: the end of a line, where lines are read by themselves; or a published model's."""
    return lm.tokenizer.eos if lm.context == "line" else lm.tokenizer.stop


def text_only(lm: LanguageModel, strategy: Strategy | None) -> Strategy:
    """The strategy without <unk>, which is not text."""
    strategy = strategy or Sample()
    return strategy if lm.tokenizer.unk is None else Forbid((lm.tokenizer.unk,)) | strategy


def prompt_ids(lm: LanguageModel, prompt: str) -> list[int]:
    """The ids of a prompt, or of its last line if the model reads each line by itself."""
    ids: list[int] = lm.tokenizer.encode(context_of(lm, prompt)).tolist()
    return ids


def context_of(lm: LanguageModel, prompt: str) -> str:
    """The part of a prompt that a model reads: earlier lines are no context to a model of single lines."""
    if not isinstance(prompt, str):
        raise DecodingError(f"a prompt is text (str), not {prompt!r}")
    return prompt.rpartition("\n")[2] if lm.context == "line" else prompt


def _generation(lm: LanguageModel, prompt: str, respellings: Respellings, new: Continuation) -> Generation:
    text = added_text(lm, prompt, respellings, list(new.ids), has_text=False)
    tokens = len(new.ids) - new.inside
    return Generation(prompt, text, tokens, new.log_prob, new.finished, new.steps, new.drafted)


def added_text(lm: LanguageModel, prompt: str, respellings: Respellings, new: list[int], has_text: bool) -> str:
    """Return the text that new tokens add to the prompt; the token that ends a line adds nothing.

    They come after the stable ids, and spell the rest of the prompt first.
    """
    if new and new[-1] == end_of(lm):
        new = new[:-1]
    text = lm.tokenizer.continuation(respellings.stable, new)
    if not lm.tokenizer.keeps_spaces and not has_text and (respellings.rest or prompt[-1:].isspace()):
        # tokens that do not keep white space bring a space of their own, which the prompt has already
        text = text.removeprefix(" ")
    return text.removeprefix(respellings.rest.decode())
