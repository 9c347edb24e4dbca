"""/v1/chat/completions and /v1/responses: conversations, by a plain template.

These models continue text; none was trained to converse. They read a conversation as a text in which each message
starts with the name of the speaker, and which ends with the name of the assistant. If a model reads each line by
itself, the whole conversation is one line.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from chainrule.contract.lm import LanguageModel
from chainrule.serve.api.answers import as_json, event_stream, find_model, unless_gone
from chainrule.serve.api.completions import Choice, all_of, generated, make_ask, usage
from chainrule.serve.api.schemas import ChatRequest, Message, ResponseRequest
from chainrule.serve.api.texts import TokenList
from chainrule.serve.models import Served

router = APIRouter()

DEFAULT_TOKENS = 128
_NAMES = {"system": "System", "developer": "System", "user": "User", "assistant": "Assistant"}


def conversation(lm: LanguageModel, messages: Sequence[Message]) -> str:
    """Return the conversation as a text, which the assistant continues."""
    parts = [f"{_NAMES[message.role]}: {message.text.strip()}" for message in messages]
    if lm.context == "line":
        return " ".join([*(" ".join(part.split()) for part in parts), "Assistant:"])
    return "\n".join([*parts, "Assistant:"])


def turn_ends(lm: LanguageModel) -> tuple[str, ...]:
    """Return the texts that end the assistant's turn: another speaker's name."""
    before = "\n" if lm.context == "stream" else " "
    return tuple(f"{before}{name}:" for name in ("User", "System", "Assistant"))


@router.post("/v1/chat/completions")
async def chat_completions(body: ChatRequest, request: Request) -> Response:
    """Answer the last message of a conversation."""
    served = find_model(request, body.model)
    prompt = conversation(served.lm, body.messages)
    choices = [Choice(index, prompt) for index in range(body.n or 1)]
    if body.logprobs:
        for choice in choices:
            choice.list_tokens(served)
    most = body.max_completion_tokens or body.max_tokens or DEFAULT_TOKENS
    top = (body.top_logprobs or 0) if body.logprobs else 0
    ask = make_ask(served, prompt, body, most, body.drawn_seed(), n=len(choices), top=top, heal=not body.logprobs)
    pieces = generated(served, choices, ask, (*body.stops, *turn_ends(served.lm)))
    head = {"id": f"chatcmpl-{secrets.token_hex(12)}", "created": int(time.time()), "model": served.name}
    if body.stream:
        return event_stream(_chat_chunks(served, choices, pieces, head, body.sends_usage))
    await unless_gone(request, all_of(pieces))
    answers = [
        {
            "index": choice.index,
            "message": {"role": "assistant", "content": _text(choice), "refusal": None},
            "logprobs": _chat_tokens(choice),
            "finish_reason": choice.streamed.finish if choice.streamed else "stop",
        }
        for choice in choices
    ]
    counts = usage(choices[0].prompt_tokens, choices)
    return as_json({**head, "object": "chat.completion", "choices": answers, "usage": counts})


async def _chat_chunks(
    served: Served,
    choices: list[Choice],
    pieces: AsyncIterator[tuple[Choice, str]],
    head: dict[str, Any],
    sends_usage: bool,
) -> AsyncIterator[dict[str, Any]]:
    head = {**head, "object": "chat.completion.chunk"}

    def chunk(index: int, delta: dict[str, Any], finish: str | None, log_probs: Any = None) -> dict[str, Any]:
        choice = {"index": index, "delta": delta, "logprobs": log_probs, "finish_reason": finish}
        return {**head, "choices": [choice]}

    for choice in choices:
        yield chunk(choice.index, {"role": "assistant", "content": ""}, None)
    async for choice, text in pieces:
        assert choice.streamed is not None
        log_probs = _chat_tokens(choice)
        if log_probs is not None:
            choice.tokens = TokenList(served.lm.tokenizer)
        if text or log_probs:
            yield chunk(choice.index, {"content": text}, None, log_probs)
        if choice.streamed.finish:
            yield chunk(choice.index, {}, choice.streamed.finish)
    if sends_usage:
        yield {**head, "choices": [], "usage": usage(choices[0].prompt_tokens, choices)}


def _text(choice: Choice) -> str:
    """Return what the assistant says, without the space after its name."""
    return choice.text.removeprefix(" ")


def _chat_tokens(choice: Choice) -> dict[str, Any] | None:
    """Return ln p of the tokens that were not sent yet, where they are asked for."""
    if choice.tokens is None:
        return None

    def described(text: str, log_prob: float) -> dict[str, Any]:
        return {"token": text, "logprob": log_prob, "bytes": list(text.encode())}

    tokens, tops = choice.tokens, choice.tokens.tops or [{}] * len(choice.tokens.tokens)
    content = [
        {**described(text, log_prob), "top_logprobs": [described(other, p) for other, p in top.items()]}
        for text, log_prob, top in zip(tokens.tokens, tokens.log_probs, tops, strict=True)
    ]
    return {"content": content, "refusal": None}


# -- responses --------------------------------------------------------------------------------------------


@router.post("/v1/responses")
async def responses(body: ResponseRequest, request: Request) -> Response:
    """Answer a text or a conversation, in the form of OpenAI's newer interface."""
    served = find_model(request, body.model)
    messages = [Message(role="user", content=body.input)] if isinstance(body.input, str) else [*body.input]
    if body.instructions:
        messages.insert(0, Message(role="system", content=body.instructions))
    prompt = conversation(served.lm, messages)
    choices = [Choice(0, prompt)]
    ask = make_ask(served, prompt, body, body.max_output_tokens or DEFAULT_TOKENS, body.drawn_seed())
    pieces = generated(served, choices, ask, turn_ends(served.lm))
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
        """Return the whole answer."""
        asked, cut = self.asked, bool(self.choice.streamed and self.choice.streamed.finish == "length")
        counts = usage(self.choice.prompt_tokens, [self.choice])
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
                "input_tokens": counts["prompt_tokens"],
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": counts["completion_tokens"],
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": counts["total_tokens"],
            }
            if done
            else None,
        }

    def _message(self, status: str, content: list[Any]) -> dict[str, Any]:
        return {"type": "message", "id": self.item, "status": status, "role": "assistant", "content": content}

    def _part(self) -> dict[str, Any]:
        return {"type": "output_text", "text": _text(self.choice), "annotations": []}

    async def events(self, pieces: AsyncIterator[tuple[Choice, str]]) -> AsyncIterator[dict[str, Any]]:
        """Yield the answer as events."""
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
        sent = ""
        async for _ in pieces:
            if new := _text(self.choice)[len(sent) :]:
                sent += new
                yield event("output_text.delta", **place, delta=new, logprobs=[])
        yield event("output_text.done", **place, text=sent, logprobs=[])
        yield event("content_part.done", **place, part=self._part())
        yield event("output_item.done", output_index=0, item=self._message("completed", [self._part()]))
        final = self.to_json("completed")
        yield event(final["status"], response=final)
