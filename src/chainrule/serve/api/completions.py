"""/v1/completions: texts that continue prompts, at once or as a stream."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from chainrule.serve.api.answers import event_stream, find_model
from chainrule.serve.api.pieces import as_json, check_entries, in_pieces, off_loop
from chainrule.serve.api.schemas import CompletionRequest, Prompt, Sampling, one_by_one
from chainrule.serve.api.texts import Choice, check_prompt, prompt_text, prompt_tokens
from chainrule.serve.batching.requests import Ask, Started
from chainrule.serve.models import Served
from chainrule.serve.scoring import score_ids

router = APIRouter()


class Job:
    """A request for texts with its model: completions, an answer in a chat, or a response."""

    def __init__(
        self,
        served: Served,
        request: Sampling,
        prompts: Sequence[Prompt],
        max_tokens: int,
        *,
        n: int = 1,
        stops: Sequence[str] = (),
        alternatives: int | None = None,
        heal: bool = True,
    ) -> None:
        """`n` texts are generated for each prompt, which may stop inside a token (decode/healing.py) if `heal`.

        `alternatives` is the number of other tokens that are listed for each token, with ln p of all of them; None
        lists no ln p at all.
        """
        self.served, self.lm, self.request, self.max_tokens = served, served.lm, request, max_tokens
        self.alternatives, self._heal = alternatives, heal and alternatives is None
        if alternatives is not None and not getattr(request, "stream", False):
            check_entries(len(prompts) * n * max_tokens, alternatives)
        for prompt in prompts:
            check_prompt(self.lm, prompt)
        self.choices = [
            [Choice(self.lm, p * n + i, prompt, stops, alternatives) for i in range(n)]
            for p, prompt in enumerate(prompts)
        ]
        """The texts of each prompt."""

    def head(self, prefix: str, kind: str) -> dict[str, Any]:
        """Return the fields that each part of an answer begins with."""
        name = f"{prefix}-{secrets.token_hex(12)}"
        return {"id": name, "object": kind, "created": int(time.time()), "model": self.served.name}

    async def score_prompts(self) -> None:
        """List the tokens of the prompts as well."""
        prompts, top = [some[0].prompt for some in self.choices], self.alternatives or 0
        rows = await in_pieces(sum(map(len, prompts)), (prompt_tokens(self.lm, prompt) for prompt in prompts))
        check_entries(sum(len(row) * len(some) for row, some in zip(rows, self.choices, strict=True)), top)
        for some, ids, scored in zip(self.choices, rows, await score_ids(self.served, rows, top), strict=True):
            listed = some[0].tokens
            assert listed is not None
            await in_pieces(10 * len(ids) * (1 + top), listed.add(ids, scored.log_probs, scored.tops))
            for choice in some[1:]:
                choice.tokens = listed.copy()

    async def prompt_texts(self) -> dict[Prompt, str]:
        """Return the text of each prompt."""
        prompts = [some[0].prompt for some in self.choices]
        texts = await in_pieces(sum(map(len, prompts)), (prompt_text(self.lm, prompt) for prompt in prompts))
        return dict(zip(prompts, texts, strict=True))

    def pieces(self) -> AsyncIterator[tuple[Choice, str]]:
        """Yield each new piece of all texts, until all of them have ended."""
        strategy = self.request.strategy(self.lm.tokenizer.vocab_size)
        seed = secrets.randbits(63) if self.request.seed is None else self.request.seed
        parts, seen = [], Counter[Prompt]()
        for some in self.choices:
            prompt, n, top = some[0].prompt, len(some), self.alternatives or 0
            ask = Ask(prompt, strategy, self.max_tokens, n, seed, top, seen[prompt], self._heal)
            seen[prompt] += n
            parts.append(self._generated(some, ask))
        return parts[0] if len(parts) == 1 else _merged(parts)

    async def _generated(self, choices: list[Choice], ask: Ask) -> AsyncIterator[tuple[Choice, str]]:
        """Yield each new piece of the texts of one prompt."""
        ticket = self.served.scheduler.generate(ask)
        try:
            async for event in ticket.events():
                choice = choices[event.row]
                if isinstance(event, Started):
                    await off_loop(len(choice.prompt), partial(choice.start, event))
                elif choice.finish is None:
                    yield choice, await off_loop(choice.work_of(event), partial(choice.add, event))
                    if all(one.finish for one in choices):
                        return
        finally:
            ticket.cancel()

    async def usage(self) -> dict[str, int]:
        """Return how many tokens were read and generated."""
        size = sum(len(some[0].prompt) for some in self.choices)
        read = sum(await in_pieces(size, (self._tokens_of_prompt(some[0]) for some in self.choices)))
        new = sum(choice.new_tokens for some in self.choices for choice in some)
        return {"prompt_tokens": read, "completion_tokens": new, "total_tokens": read + new}

    def _tokens_of_prompt(self, choice: Choice) -> int:
        # the model has counted the tokens, unless it reads the last line alone
        prompt = choice.prompt
        if choice.prompt_tokens and (
            isinstance(prompt, tuple) or self.lm.context == "stream" or "\n" not in prompt
        ):
            return choice.prompt_tokens
        return len(prompt_tokens(self.lm, prompt))


async def all_of(pieces: AsyncIterator[Any]) -> None:
    """Wait for all pieces; the texts are in their choices."""
    async for _ in pieces:
        pass


async def _merged(parts: list[AsyncIterator[Any]]) -> AsyncIterator[Any]:
    """Yield the items of several iterators, as they come."""
    queue: asyncio.Queue[tuple[bool, Any]] = asyncio.Queue(1)  # what is not sent yet waits in the tickets

    async def drain(part: AsyncIterator[Any]) -> None:
        try:
            async for item in part:
                await queue.put((True, item))
            await queue.put((False, None))
        except Exception as error:
            await queue.put((False, error))

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


@router.post("/v1/completions")
async def completions(body: CompletionRequest, request: Request) -> Response:
    """Continue one or more prompts."""
    job = Job(
        find_model(request, body.model),
        body,
        one_by_one(body.prompt),
        16 if body.max_tokens is None else body.max_tokens,
        n=body.best_of or body.n or 1,
        stops=body.stops,
        alternatives=body.alternatives,
        heal=not body.echo,
    )
    if body.echo and body.alternatives is not None:
        await job.score_prompts()
    head = job.head("cmpl", "text_completion")
    if body.stream:
        return event_stream(_chunks(job, body, head))
    if job.max_tokens:
        await all_of(job.pieces())
    count, chosen = body.n or 1, []
    for some in job.choices:  # if more were generated than are sent, those with the highest mean ln p
        chosen += sorted(some, key=lambda one: -one.mean_log_prob)[:count] if len(some) > count else some
    echoed = await job.prompt_texts() if body.echo else {}
    choices = [
        {
            "index": index,
            "text": echoed.get(choice.prompt, "") + choice.text,
            "logprobs": choice.tokens.take() if choice.tokens else None,
            "finish_reason": choice.finish or "length",
        }
        for index, choice in enumerate(chosen)
    ]
    return await as_json({**head, "choices": choices, "usage": await job.usage()})


async def _chunks(job: Job, body: CompletionRequest, head: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    def chunk(choice: Choice, text: str, finish: str | None) -> dict[str, Any]:
        log_probs = choice.tokens.take() if choice.tokens else None
        piece = {"index": choice.index, "text": text, "logprobs": log_probs, "finish_reason": finish}
        return {**head, "choices": [piece]}

    if body.echo:
        texts = await job.prompt_texts()
        for some in job.choices:
            for choice in some:
                yield chunk(choice, texts[choice.prompt], None if job.max_tokens else "length")
    if job.max_tokens:
        async for choice, text in job.pieces():
            if text or choice.finish or choice.tokens:
                yield chunk(choice, text, choice.finish)
    if body.sends_usage:
        yield {**head, "choices": [], "usage": await job.usage()}
