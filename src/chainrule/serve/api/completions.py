"""/v1/completions: texts that continue prompts, at once or as a stream."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from chainrule.errors import DecodingError
from chainrule.serve.api.answers import as_json, event_stream, find_model, unless_gone
from chainrule.serve.api.schemas import CompletionRequest, Prompt, Sampling
from chainrule.serve.api.texts import StreamedText, TokenList
from chainrule.serve.batching.requests import Ask, Generated, Started
from chainrule.serve.models import Served
from chainrule.serve.scoring import ScoredIds, score_ids

router = APIRouter()


@dataclass
class Choice:
    """One text of a request, as far as it is generated."""

    index: int
    prompt: Prompt
    streamed: StreamedText | None = None
    tokens: TokenList | None = None
    """ln p of the tokens that were not sent yet, where they are asked for."""
    read: list[int] = field(default_factory=list)
    offset: int = 0
    """Where its next token starts in the text."""
    prompt_tokens: int = 0

    @property
    def text(self) -> str:
        return self.streamed.text if self.streamed else ""

    @property
    def new_tokens(self) -> int:
        return self.streamed.tokens if self.streamed else 0

    @property
    def mean_log_prob(self) -> float:
        return self.streamed.log_prob / max(1, self.streamed.tokens) if self.streamed else 0.0

    def start(self, served: Served, started: Started, stops: Sequence[str]) -> None:
        """Note that the prompt was read."""
        self.streamed = StreamedText(served.lm, prompt_text(served, self.prompt), started, stops)
        self.read, self.prompt_tokens = [*started.read, *started.ids], started.tokens

    def add(self, new: Generated) -> str:
        """Add tokens, and return the text to send now."""
        assert self.streamed is not None
        if self.tokens is not None:
            self.offset = self.tokens.add(self.read, new.ids, new.log_probs, new.tops, self.offset)
            self.read = [*self.read, *new.ids][-32:]
        return self.streamed.add(new)

    def list_tokens(self, served: Served, scored: ScoredIds | None = None, top: int = 0) -> None:
        """Start the list of its tokens, with those of the prompt if they were scored."""
        self.tokens = TokenList(served.lm.tokenizer)
        if scored is not None:
            ids = prompt_tokens(served, self.prompt)
            self.tokens.add([], ids, scored.log_probs, scored.tops if top else None, 0)
        self.offset = len(prompt_text(served, self.prompt))


def check_prompt(served: Served, prompt: Prompt) -> None:
    """Refuse tokens that a model does not have."""
    size = served.lm.tokenizer.vocab_size
    if isinstance(prompt, tuple) and any(token >= size for token in prompt):
        raise DecodingError(f"the prompt has a token that the model does not have: tokens are below {size}")


def prompt_text(served: Served, prompt: Prompt) -> str:
    """Return a prompt as text."""
    return prompt if isinstance(prompt, str) else served.lm.tokenizer.decode(prompt)


def prompt_tokens(served: Served, prompt: Prompt) -> list[int]:
    """Return a prompt as tokens, all of its lines."""
    return served.lm.tokenizer.encode(prompt).tolist() if isinstance(prompt, str) else list(prompt)


def usage(read: int, choices: Sequence[Choice]) -> dict[str, int]:
    """Return how many tokens were read and generated."""
    new = sum(choice.new_tokens for choice in choices)
    return {"prompt_tokens": read, "completion_tokens": new, "total_tokens": read + new}


def make_ask(served: Served, prompt: Prompt, request: Sampling, max_tokens: int, seed: int, **more: Any) -> Ask:
    """Return what the model is asked for."""
    return Ask(prompt, request.strategy(served.lm.tokenizer.vocab_size), max_tokens, seed=seed, **more)


async def generated(
    served: Served, choices: list[Choice], ask: Ask, stops: tuple[str, ...]
) -> AsyncIterator[tuple[Choice, str]]:
    """Yield each new piece of the texts of one prompt, until all of them have ended."""
    ticket = served.scheduler.generate(ask)
    try:
        async for event in ticket.events():
            if isinstance(event, Started):
                choices[event.row].start(served, event, stops)
            elif isinstance(event, Generated):
                choice = choices[event.row]
                assert choice.streamed is not None
                if choice.streamed.finish is not None:
                    continue
                yield choice, choice.add(event)
                if all(one.streamed is not None and one.streamed.finish for one in choices):
                    return
    finally:
        ticket.cancel()


async def all_of(pieces: AsyncIterator[Any]) -> None:
    """Wait for all pieces; the texts are in their choices."""
    async for _ in pieces:
        pass


async def merged(parts: list[AsyncIterator[Any]]) -> AsyncIterator[Any]:
    """Yield the items of several iterators, as they come."""
    queue: asyncio.Queue[tuple[bool, Any]] = asyncio.Queue()

    async def drain(part: AsyncIterator[Any]) -> None:
        try:
            async for item in part:
                queue.put_nowait((True, item))
            queue.put_nowait((False, None))
        except Exception as error:
            queue.put_nowait((False, error))

    tasks = [asyncio.create_task(drain(part)) for part in parts]
    try:
        active = len(parts)
        while active:
            is_item, item = await queue.get()
            if is_item:
                yield item
            elif item is not None:
                raise item
            else:
                active -= 1
    finally:
        for task in tasks:
            task.cancel()


@dataclass(frozen=True)
class Job:
    """A request for completions with its model and its texts."""

    served: Served
    request: CompletionRequest
    choices: list[list[Choice]]
    """The texts of each prompt."""
    scored: list[ScoredIds] | None
    """The scores of each prompt's tokens, where they are asked for."""

    @classmethod
    async def of(cls, served: Served, request: CompletionRequest) -> Job:
        prompts = request.prompts
        for prompt in prompts:
            check_prompt(served, prompt)
        count = request.best_of or request.n or 1
        choices = [[Choice(p * count + i, prompt) for i in range(count)] for p, prompt in enumerate(prompts)]
        scored, top = None, request.alternatives
        if top is not None and request.echo:
            scored = await score_ids(served, [prompt_tokens(served, prompt) for prompt in prompts], top)
        if top is not None:
            for p, some in enumerate(choices):
                for choice in some:
                    choice.list_tokens(served, scored[p] if scored else None, top)
        return cls(served, request, choices, scored)

    def pieces(self) -> AsyncIterator[tuple[Choice, str]]:
        """Yield the new pieces of all texts."""
        request, seed, parts = self.request, self.request.drawn_seed(), []
        for p, some in enumerate(self.choices):
            ask = make_ask(
                self.served,
                some[0].prompt,
                request,
                16 if request.max_tokens is None else request.max_tokens,
                seed,
                n=len(some),
                top=request.alternatives or 0,
                copy=len(some) * sum(other[0].prompt == some[0].prompt for other in self.choices[:p]),
                heal=not request.echo and request.alternatives is None,
            )
            parts.append(generated(self.served, some, ask, request.stops))
        return parts[0] if len(parts) == 1 else merged(parts)

    @property
    def generates(self) -> bool:
        """False where max_tokens=0 asks for the prompt alone."""
        return self.request.max_tokens != 0

    def usage(self) -> dict[str, int]:
        """Return how many tokens were read and generated."""
        read = sum(self._tokens_of_prompt(p) for p in range(len(self.choices)))
        return usage(read, [choice for some in self.choices for choice in some])

    def _tokens_of_prompt(self, p: int) -> int:
        choice = self.choices[p][0]
        if self.scored is not None:
            return len(self.scored[p].log_probs)
        # the model has counted the tokens of a text, unless it reads the last line alone
        if isinstance(choice.prompt, str) and choice.prompt_tokens and "\n" not in choice.prompt:
            return choice.prompt_tokens
        return len(prompt_tokens(self.served, choice.prompt))

    def chosen(self) -> list[Choice]:
        """Return the texts to send: of each prompt, the n with the highest mean ln p, if more were generated."""
        count, found = self.request.n or 1, []
        for some in self.choices:
            found += sorted(some, key=lambda one: -one.mean_log_prob)[:count] if len(some) > count else some
        return found


@router.post("/v1/completions")
async def completions(body: CompletionRequest, request: Request) -> Response:
    """Continue one or more prompts."""
    job = await Job.of(find_model(request, body.model), body)
    head: dict[str, Any] = {"id": f"cmpl-{secrets.token_hex(12)}", "object": "text_completion"}
    head |= {"created": int(time.time()), "model": job.served.name}
    if body.stream:
        return event_stream(_chunks(job, head))
    if job.generates:
        await unless_gone(request, all_of(job.pieces()))
    choices = [
        {
            "index": index,
            "text": (prompt_text(job.served, choice.prompt) if body.echo else "") + choice.text,
            "logprobs": choice.tokens.to_json() if choice.tokens else None,
            "finish_reason": choice.streamed.finish if choice.streamed else "length",
        }
        for index, choice in enumerate(job.chosen())
    ]
    return as_json({**head, "choices": choices, "usage": job.usage()})


async def _chunks(job: Job, head: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    def chunk(choice: Choice, text: str, finish: str | None) -> dict[str, Any]:
        tokens, log_probs = choice.tokens, None
        if tokens is not None:
            log_probs, choice.tokens = tokens.to_json(), TokenList(job.served.lm.tokenizer)
        piece = {"index": choice.index, "text": text, "logprobs": log_probs, "finish_reason": finish}
        return {**head, "choices": [piece]}

    if job.request.echo:
        for some in job.choices:
            for choice in some:
                yield chunk(choice, prompt_text(job.served, choice.prompt), None if job.generates else "length")
    if job.generates:
        async for choice, text in job.pieces():
            assert choice.streamed is not None
            if text or choice.streamed.finish or choice.tokens is not None:
                yield chunk(choice, text, choice.streamed.finish)
    if job.request.sends_usage:
        yield {**head, "choices": [], "usage": job.usage()}
