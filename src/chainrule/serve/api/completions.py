"""/v1/completions: texts that continue prompts, at once or as a stream."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from fastapi.responses import Response, StreamingResponse
from starlette.exceptions import HTTPException

from chainrule.errors import DecodingError
from chainrule.serve.api.errors import described
from chainrule.serve.api.schemas import CompletionRequest
from chainrule.serve.api.texts import Spoken, TokenList
from chainrule.serve.batching.requests import Ask, Begun, Written
from chainrule.serve.models import Models, Served
from chainrule.serve.scoring import ScoredIds, score_ids

router = APIRouter()

Result = TypeVar("Result")

Prompt = str | tuple[int, ...]


@dataclass
class Choice:
    """One text of a request, as far as it is written."""

    index: int
    prompt: Prompt
    spoken: Spoken | None = None
    tokens: TokenList | None = None
    """ln p of the tokens that were not told yet, where they are asked for."""
    read: list[int] = field(default_factory=list)
    offset: int = 0
    """Where its next token begins in the text."""
    prompt_tokens: int = 0


def check_prompt(served: Served, prompt: Prompt) -> None:
    """Refuse tokens that a model does not have."""
    size = served.lm.tokenizer.vocab_size
    if isinstance(prompt, tuple) and any(token >= size for token in prompt):
        raise DecodingError(f"the prompt has a token that the model does not have: tokens are below {size}")


def prompt_text(served: Served, prompt: Prompt) -> str:
    """A prompt as text."""
    return prompt if isinstance(prompt, str) else served.lm.tokenizer.decode(prompt)


def prompt_tokens(served: Served, prompt: Prompt) -> list[int]:
    """A prompt as tokens, all of its lines."""
    return served.lm.tokenizer.encode(prompt).tolist() if isinstance(prompt, str) else list(prompt)


def start_token_list(served: Served, choice: Choice, scored: ScoredIds | None, top: int) -> None:
    """Begin the list of a choice's tokens, with those of the prompt if they were scored."""
    choice.tokens = TokenList(served.lm.tokenizer)
    ids = prompt_tokens(served, choice.prompt)
    if scored is not None:
        tops = scored.tops if top else None
        choice.tokens.add([], ids, scored.log_probs, tops, 0)
    choice.offset = len(prompt_text(served, choice.prompt))


async def written(
    served: Served, choices: list[Choice], ask: Ask, stops: tuple[str, ...]
) -> AsyncIterator[tuple[Choice, str]]:
    """Each new piece of the texts of one prompt, as the text to show; all of them until each has ended."""
    ticket = served.engine.write(ask)
    try:
        async for event in ticket.events():
            choice = choices[event.row] if isinstance(event, (Begun, Written)) else choices[0]
            if isinstance(event, Begun):
                choice.spoken = Spoken(served.lm, prompt_text(served, choice.prompt), event, stops)
                choice.read, choice.prompt_tokens = [*event.read, *event.ids], event.tokens
            elif isinstance(event, Written):
                assert choice.spoken is not None
                if choice.spoken.finish is not None:
                    continue
                if choice.tokens is not None:
                    choice.offset = choice.tokens.add(
                        choice.read, event.ids, event.log_probs, event.tops, choice.offset
                    )
                    choice.read = [*choice.read, *event.ids][-32:]
                yield choice, choice.spoken.add(event)
                if all(one.spoken is not None and one.spoken.finish for one in choices):
                    return
    finally:
        ticket.cancel()


async def merged(parts: list[AsyncIterator[Any]]) -> AsyncIterator[Any]:
    """What several iterators give, as it comes."""
    if len(parts) == 1:
        async for item in parts[0]:
            yield item
        return
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
        going = len(parts)
        while going:
            is_item, item = await queue.get()
            if is_item:
                yield item
            elif item is not None:
                raise item
            else:
                going -= 1
    finally:
        for task in tasks:
            task.cancel()


@dataclass(frozen=True)
class Job:
    """A request for completions, understood."""

    served: Served
    request: CompletionRequest
    choices: list[list[Choice]]
    """The texts of each prompt."""
    scored: list[ScoredIds] | None
    """The tokens of each prompt, where they are to be told."""

    @classmethod
    async def of(cls, models: Models, request: CompletionRequest) -> Job:
        served = models.find(request.model)
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
                    start_token_list(served, choice, scored[p] if scored else None, top)
        return cls(served, request, choices, scored)

    def pieces(self) -> AsyncIterator[tuple[Choice, str]]:
        """The new pieces of all texts."""
        request, lm = self.request, self.served.lm
        seed = secrets.randbits(63) if request.seed is None else request.seed
        strategy = request.strategy(lm.tokenizer.vocab_size)
        asks = [
            Ask(
                some[0].prompt,
                strategy,
                16 if request.max_tokens is None else request.max_tokens,
                len(some),
                seed,
                request.alternatives or 0,
                copy=len(some) * sum(other[0].prompt == some[0].prompt for other in self.choices[:p]),
                heal=not request.echo and request.alternatives is None,
            )
            for p, some in enumerate(self.choices)
        ]
        return merged(
            [written(self.served, some, ask, request.stops) for some, ask in zip(self.choices, asks, strict=True)]
        )

    @property
    def writes(self) -> bool:
        """Whether anything is to be written: max_tokens=0 asks for the prompt alone."""
        return self.request.max_tokens != 0

    def usage(self) -> dict[str, int]:
        """How many tokens were read and written."""
        read = sum(self._tokens_of_prompt(p) for p in range(len(self.choices)))
        new = sum(choice.spoken.tokens for some in self.choices for choice in some if choice.spoken)
        return {"prompt_tokens": read, "completion_tokens": new, "total_tokens": read + new}

    def _tokens_of_prompt(self, p: int) -> int:
        choice = self.choices[p][0]
        if self.scored is not None:
            return len(self.scored[p].log_probs)
        if isinstance(choice.prompt, tuple):
            return len(choice.prompt)
        # the model has counted them, unless it reads the last line alone
        is_counted = choice.prompt_tokens and "\n" not in choice.prompt
        return choice.prompt_tokens if is_counted else len(prompt_tokens(self.served, choice.prompt))

    def chosen(self) -> list[Choice]:
        """The texts to tell: of each prompt, the n of the highest mean ln p, if more were written."""
        count, found = self.request.n or 1, []
        for some in self.choices:
            best = some
            if len(some) > count:
                best = sorted(some, key=lambda one: -_mean(one))[:count]
            found += best
        return found


def _mean(choice: Choice) -> float:
    return choice.spoken.log_prob / max(1, choice.spoken.tokens) if choice.spoken else 0.0


@router.post("/v1/completions")
async def completions(body: CompletionRequest, request: Request) -> Response:
    """Continue one or more prompts."""
    job = await Job.of(request.app.state.models, body)
    head = {"id": f"cmpl-{secrets.token_hex(12)}", "object": "text_completion"}
    head |= {"created": int(time.time()), "model": job.served.name}  # type: ignore[dict-item]
    if body.stream:
        return event_stream(_chunks(job, head))
    if job.writes:
        await unless_gone(request, all_of(job.pieces()))
    choices = [
        {
            "index": index,
            "text": (prompt_text(job.served, choice.prompt) if body.echo else "")
            + (choice.spoken.text if choice.spoken else ""),
            "logprobs": choice.tokens.to_json() if choice.tokens else None,
            "finish_reason": choice.spoken.finish if choice.spoken else "length",
        }
        for index, choice in enumerate(job.chosen())
    ]
    return as_json({**head, "choices": choices, "usage": job.usage()})


async def _chunks(job: Job, head: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    def chunk(choice: Choice, text: str, finish: str | None) -> dict[str, Any]:
        told, log_probs = choice.tokens, None
        if told is not None:
            log_probs, choice.tokens = told.to_json(), TokenList(job.served.lm.tokenizer)
        piece = {"index": choice.index, "text": text, "logprobs": log_probs, "finish_reason": finish}
        return {**head, "choices": [piece]}

    if job.request.echo:
        for some in job.choices:
            for choice in some:
                yield chunk(choice, prompt_text(job.served, choice.prompt), None if job.writes else "length")
    if job.writes:
        async for choice, text in job.pieces():
            assert choice.spoken is not None
            if text or choice.spoken.finish or choice.tokens is not None:
                yield chunk(choice, text, choice.spoken.finish)
    options = job.request.stream_options
    if options is not None and options.include_usage:
        yield {**head, "choices": [], "usage": job.usage()}


# -- answers ----------------------------------------------------------------------------------------------


def as_json(body: Any) -> Response:
    """An answer in JSON, written without a schema in between, which would take longer than many a model."""
    return Response(json.dumps(body, ensure_ascii=False, separators=(",", ":")), media_type="application/json")


def event_stream(chunks: AsyncIterator[dict[str, Any]], *, named: bool = False) -> StreamingResponse:
    """Server-sent events, one for each chunk; an error on the way is the last one. `named`: with their types."""

    async def lines() -> AsyncIterator[str]:
        try:
            async for chunk in chunks:
                name = f"event: {chunk['type']}\n" if named else ""
                yield f"{name}data: {json.dumps(chunk, ensure_ascii=False, separators=(',', ':'))}\n\n"
        except Exception as error:
            body = described(error)[1]
            yield f"data: {json.dumps({'type': 'error', **body['error']} if named else body)}\n\n"
        if not named:
            yield "data: [DONE]\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})


async def unless_gone(request: Request, work: Awaitable[Result]) -> Result:
    """The result of some work, which is given up if the client goes away."""
    working, is_gone = asyncio.current_task(), False
    assert working is not None

    async def watch() -> None:
        nonlocal is_gone
        while (await request.receive())["type"] != "http.disconnect":
            pass
        is_gone = True
        working.cancel()

    watching = asyncio.create_task(watch())
    try:
        return await work
    except asyncio.CancelledError:
        if not is_gone:
            raise
        working.uncancel()
        # nobody reads this answer, but a cancelled task would be logged as a failure of the server
        raise HTTPException(499, "the client has closed the connection") from None
    finally:
        watching.cancel()


async def all_of(pieces: AsyncIterator[Any]) -> None:
    """Wait for all pieces; what was written is in their choices."""
    async for _ in pieces:
        pass
