"""/v1/chat/completions and /v1/responses: conversations, by a plain template.

These models continue text; none was taught to converse. A conversation is put to them as a text in which each
message begins with the name of who speaks, and which ends with that of the assistant. Where a model reads each line
by itself, all of it is one line.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from chainrule.contract.lm import LanguageModel
from chainrule.serve.api.completions import (
    Choice,
    all_of,
    as_json,
    event_stream,
    start_token_list,
    unless_gone,
    written,
)
from chainrule.serve.api.schemas import ChatRequest, Message, ResponseRequest, Sampling
from chainrule.serve.api.texts import TokenList
from chainrule.serve.batching.requests import Ask
from chainrule.serve.models import Models, Served

router = APIRouter()

DEFAULT_TOKENS = 128
_NAMES = {"system": "System", "developer": "System", "user": "User", "assistant": "Assistant"}


def conversation(lm: LanguageModel, messages: Sequence[Message]) -> str:
    """The conversation as a text, which the assistant goes on with."""
    parts = [f"{_NAMES[message.role]}: {message.text.strip()}" for message in messages]
    if lm.context == "line":
        return " ".join([*(" ".join(part.split()) for part in parts), "Assistant:"])
    return "\n".join([*parts, "Assistant:"])


def turn_ends(lm: LanguageModel) -> tuple[str, ...]:
    """Where the assistant's turn ends: where somebody else speaks."""
    before = "\n" if lm.context == "stream" else " "
    return tuple(f"{before}{name}:" for name in ("User", "System", "Assistant"))


def _ask(served: Served, prompt: str, request: Sampling, max_tokens: int, n: int, top: int | None) -> Ask:
    seed = secrets.randbits(63) if request.seed is None else request.seed
    strategy = request.strategy(served.lm.tokenizer.vocab_size)
    return Ask(prompt, strategy, max_tokens, n, seed, top or 0, heal=top is None)


@router.post("/v1/chat/completions")
async def chat_completions(body: ChatRequest, request: Request) -> Response:
    """Answer the last message of a conversation."""
    models: Models = request.app.state.models
    served = models.find(body.model)
    prompt = conversation(served.lm, body.messages)
    choices = [Choice(index, prompt) for index in range(body.n or 1)]
    top = (body.top_logprobs or 0) if body.logprobs else None
    if top is not None:
        for choice in choices:
            start_token_list(served, choice, None, top)
    ask = _ask(
        served, prompt, body, body.max_completion_tokens or body.max_tokens or DEFAULT_TOKENS, len(choices), top
    )
    pieces = written(served, choices, ask, (*body.stops, *turn_ends(served.lm)))
    head = {"id": f"chatcmpl-{secrets.token_hex(12)}", "created": int(time.time()), "model": served.name}
    if body.stream:
        usage = body.stream_options is not None and body.stream_options.include_usage
        return event_stream(_chat_chunks(served, choices, pieces, head, usage))
    await unless_gone(request, all_of(pieces))
    told = [
        {
            "index": choice.index,
            "message": {"role": "assistant", "content": _text(choice), "refusal": None},
            "logprobs": None
            if choice.tokens is None
            else {"content": _chat_tokens(choice.tokens), "refusal": None},
            "finish_reason": choice.spoken.finish if choice.spoken else "stop",
        }
        for choice in choices
    ]
    return as_json({**head, "object": "chat.completion", "choices": told, "usage": _usage(choices)})


async def _chat_chunks(
    served: Served,
    choices: list[Choice],
    pieces: AsyncIterator[tuple[Choice, str]],
    head: dict[str, Any],
    usage: bool,
) -> AsyncIterator[dict[str, Any]]:
    head = {**head, "object": "chat.completion.chunk"}

    def chunk(index: int, delta: dict[str, Any], finish: str | None, log_probs: Any = None) -> dict[str, Any]:
        return {
            **head,
            "choices": [{"index": index, "delta": delta, "logprobs": log_probs, "finish_reason": finish}],
        }

    for choice in choices:
        yield chunk(choice.index, {"role": "assistant", "content": ""}, None)
    async for choice, text in pieces:
        assert choice.spoken is not None
        log_probs = None
        if choice.tokens is not None:
            log_probs = {"content": _chat_tokens(choice.tokens), "refusal": None}
            choice.tokens = TokenList(served.lm.tokenizer)
        if text or log_probs:
            yield chunk(choice.index, {"content": text}, None, log_probs)
        if choice.spoken.finish:
            yield chunk(choice.index, {}, choice.spoken.finish)
    if usage:
        yield {**head, "choices": [], "usage": _usage(choices)}


def _text(choice: Choice) -> str:
    """What the assistant says; the space after its name is none of it."""
    return choice.spoken.text.removeprefix(" ") if choice.spoken else ""


def _chat_tokens(tokens: TokenList) -> list[dict[str, Any]]:
    tops = tokens.tops or [{}] * len(tokens.tokens)
    return [
        {
            "token": text,
            "logprob": log_prob,
            "bytes": list(text.encode()),
            "top_logprobs": [
                {"token": other, "logprob": p, "bytes": list(other.encode())} for other, p in top.items()
            ],
        }
        for text, log_prob, top in zip(tokens.tokens, tokens.log_probs, tops, strict=True)
    ]


def _usage(choices: Sequence[Choice]) -> dict[str, int]:
    read, new = choices[0].prompt_tokens, sum(choice.spoken.tokens for choice in choices if choice.spoken)
    return {"prompt_tokens": read, "completion_tokens": new, "total_tokens": read + new}


# -- responses --------------------------------------------------------------------------------------------


@router.post("/v1/responses")
async def responses(body: ResponseRequest, request: Request) -> Response:
    """Answer a text or a conversation, in the form of OpenAI's newer interface."""
    models: Models = request.app.state.models
    served = models.find(body.model)
    messages = [Message(role="user", content=body.input)] if isinstance(body.input, str) else [*body.input]
    if body.instructions:
        messages.insert(0, Message(role="system", content=body.instructions))
    prompt = conversation(served.lm, messages)
    choices = [Choice(0, prompt)]
    ask = _ask(served, prompt, body, body.max_output_tokens or DEFAULT_TOKENS, 1, None)
    pieces = written(served, choices, ask, turn_ends(served.lm))
    response = _Response(served.name, choices[0], body)
    if body.stream:
        return event_stream(response.events(pieces), named=True)
    await unless_gone(request, all_of(pieces))
    return as_json(response.to_json("completed"))


class _Response:
    """The answer of /v1/responses: one message of the assistant."""

    def __init__(self, model: str, choice: Choice, asked: ResponseRequest) -> None:
        self.model, self.choice, self.asked = model, choice, asked
        self.id, self.item = f"resp_{secrets.token_hex(12)}", f"msg_{secrets.token_hex(12)}"
        self.created = int(time.time())

    def to_json(self, status: str) -> dict[str, Any]:
        """The whole answer."""
        asked, cut = self.asked, bool(self.choice.spoken and self.choice.spoken.finish == "length")
        usage = _usage([self.choice])
        done = status == "completed"
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": "incomplete" if done and cut else status,
            "incomplete_details": {"reason": "max_output_tokens"} if done and cut else None,
            "error": None,
            "instructions": asked.instructions,
            "max_output_tokens": asked.max_output_tokens,
            "model": self.model,
            "output": [self._message("completed", [self._part()])] if done else [],
            "parallel_tool_calls": False,
            "tool_choice": "none",
            "tools": [],
            "temperature": asked.temperature,
            "top_p": asked.top_p,
            "metadata": {},
            "usage": {
                "input_tokens": usage["prompt_tokens"],
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": usage["completion_tokens"],
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": usage["total_tokens"],
            }
            if done
            else None,
        }

    def _message(self, status: str, content: list[Any]) -> dict[str, Any]:
        return {"type": "message", "id": self.item, "status": status, "role": "assistant", "content": content}

    def _part(self) -> dict[str, Any]:
        return {"type": "output_text", "text": _text(self.choice), "annotations": []}

    async def events(self, pieces: AsyncIterator[tuple[Choice, str]]) -> AsyncIterator[dict[str, Any]]:
        """The answer as a stream of events."""
        number = 0

        def event(kind: str, **fields: Any) -> dict[str, Any]:
            nonlocal number
            number += 1
            return {"type": f"response.{kind}", "sequence_number": number - 1, **fields}

        place = {"item_id": self.item, "output_index": 0, "content_index": 0}
        yield event("created", response=self.to_json("in_progress"))
        yield event("in_progress", response=self.to_json("in_progress"))
        yield event("output_item.added", output_index=0, item=self._message("in_progress", []))
        yield event("content_part.added", **place, part={"type": "output_text", "text": "", "annotations": []})
        shown = ""
        async for _ in pieces:
            if new := _text(self.choice)[len(shown) :]:
                shown += new
                yield event("output_text.delta", **place, delta=new, logprobs=[])
        yield event("output_text.done", **place, text=shown, logprobs=[])
        yield event("content_part.done", **place, part=self._part())
        yield event("output_item.done", output_index=0, item=self._message("completed", [self._part()]))
        final = self.to_json("completed")
        yield event(final["status"], response=final)
