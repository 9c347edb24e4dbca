"""/v1/chat/completions and /v1/responses: conversations, by the template of a model, or a plain one.

A model that was tuned on prompts and replies reads a conversation in the template that it was tuned with, and ends
its reply itself. Other models continue text; they were not trained to converse. They read a conversation as a text
in which each message starts with the name of the speaker, and which ends with the name of the assistant. If a model
reads each line by itself, the whole conversation is one line.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from chainrule.contract.lm import LanguageModel
from chainrule.decode.replies import reply_ends, template_of
from chainrule.serve.api.answers import event_stream, find_model
from chainrule.serve.api.completions import Job, all_of
from chainrule.serve.api.pieces import as_json, off_loop
from chainrule.serve.api.schemas import ChatRequest, Message, ResponseRequest
from chainrule.serve.api.texts import Choice
from chainrule.text import templates

router = APIRouter()

DEFAULT_TOKENS = 128
_NAMES = {"system": "System", "developer": "System", "user": "User", "assistant": "Assistant"}


def conversation(lm: LanguageModel, messages: Sequence[Message]) -> str:
    """Return the conversation as a text, which the assistant continues."""
    if (template := template_of(lm)) is not None:
        return templates.conversation(template, [(message.role, message.text) for message in messages])
    parts = [f"{_NAMES[message.role]}: {message.text.strip()}" for message in messages]
    if lm.context == "line":
        return " ".join([*(" ".join(part.split()) for part in parts), "Assistant:"])
    return "\n".join([*parts, "Assistant:"])


async def _prompt(lm: LanguageModel, messages: Sequence[Message]) -> str:
    return await off_loop(sum(len(one.text) for one in messages), lambda: conversation(lm, messages))


def turn_ends(lm: LanguageModel) -> tuple[str, ...]:
    """Return the texts that end the assistant's turn: another speaker's name, unless it is tuned to reply."""
    if template_of(lm) is not None:
        return reply_ends(lm)
    before = "\n" if lm.context == "stream" else " "
    return tuple(f"{before}{name}:" for name in ("User", "System", "Assistant"))


@router.post("/v1/chat/completions")
async def chat_completions(body: ChatRequest, request: Request) -> Response:
    """Answer the last message of a conversation."""
    served = find_model(request, body.model)
    job = Job(
        served,
        body,
        [await _prompt(served.lm, body.messages)],
        body.max_completion_tokens or body.max_tokens or DEFAULT_TOKENS,
        n=body.n or 1,
        stops=(*body.stops, *turn_ends(served.lm)),
        alternatives=(body.top_logprobs or 0) if body.logprobs else None,
        heal=template_of(served.lm) is None,
    )
    pieces, head = job.pieces(), job.head("chatcmpl", f"chat.completion{'.chunk' if body.stream else ''}")
    if body.stream:
        return event_stream(_chat_chunks(job, pieces, head, body.sends_usage))
    await all_of(pieces)
    each = 1 + (job.alternatives or 0)
    answers = [
        {
            "index": choice.index,
            "message": {"role": "assistant", "content": _text(choice), "refusal": None},
            "logprobs": await off_loop(each * choice.new_tokens, partial(_chat_tokens, choice)),
            "finish_reason": choice.finish,
        }
        for choice in job.choices[0]
    ]
    return await as_json({**head, "choices": answers, "usage": await job.usage()})


async def _chat_chunks(
    job: Job, pieces: AsyncIterator[tuple[Choice, str]], head: dict[str, Any], sends_usage: bool
) -> AsyncIterator[dict[str, Any]]:
    def chunk(choice: Choice, delta: dict[str, Any], finish: str | None, log_probs: Any = None) -> dict[str, Any]:
        piece = {"index": choice.index, "delta": delta, "logprobs": log_probs, "finish_reason": finish}
        return {**head, "choices": [piece]}

    for choice in job.choices[0]:
        yield chunk(choice, {"role": "assistant", "content": ""}, None)
    async for choice, text in pieces:
        if len(choice.text) == len(text):  # as in `_text`
            text = text.removeprefix(" ")
        log_probs = _chat_tokens(choice)
        if text or log_probs:
            yield chunk(choice, {"content": text}, None, log_probs)
        if choice.finish:
            yield chunk(choice, {}, choice.finish)
    if sends_usage:
        yield {**head, "choices": [], "usage": await job.usage()}


def _text(choice: Choice) -> str:
    """Return what the assistant says, without the space after its name."""
    return choice.text.removeprefix(" ")


def _chat_tokens(choice: Choice) -> dict[str, Any] | None:
    """Return ln p of the tokens that were not sent yet, where they are asked for."""
    if choice.tokens is None:
        return None

    def described(text: str, log_prob: float) -> dict[str, Any]:
        return {"token": text, "logprob": log_prob, "bytes": list(text.encode())}

    found = choice.tokens.take()
    tokens, tops = found["tokens"], found["top_logprobs"] or [{}] * len(found["tokens"])
    content = [
        {**described(text, log_prob), "top_logprobs": [described(other, p) for other, p in top.items()]}
        for text, log_prob, top in zip(tokens, found["token_logprobs"], tops, strict=True)
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
    prompt, most = await _prompt(served.lm, messages), body.max_output_tokens or DEFAULT_TOKENS
    heal = template_of(served.lm) is None  # a template ends where a token does
    job = Job(served, body, [prompt], most, stops=turn_ends(served.lm), heal=heal)
    pieces, response = job.pieces(), _Response(job, body)
    if body.stream:
        return event_stream(response.events(pieces), named=True)
    await all_of(pieces)
    return await as_json(await response.to_json("completed"))


class _Response:
    """The answer of /v1/responses: one message of the assistant."""

    def __init__(self, job: Job, asked: ResponseRequest) -> None:
        self.job, self.choice, self.asked = job, job.choices[0][0], asked
        self.id, self.item = f"resp_{secrets.token_hex(12)}", f"msg_{secrets.token_hex(12)}"
        self.created = int(time.time())

    async def to_json(self, status: str) -> dict[str, Any]:
        """Return the whole answer."""
        asked, done = self.asked, status == "completed"
        cut = done and self.choice.finish == "length"
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": "incomplete" if cut else status,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "error": None,
            "instructions": asked.instructions,
            "max_output_tokens": asked.max_output_tokens,
            "model": self.job.served.name,
            "output": [self._whole_message()] if done else [],
            "parallel_tool_calls": False,
            "tool_choice": "none",
            "tools": [],
            "temperature": asked.temperature,
            "top_p": asked.top_p,
            "metadata": {},
            "usage": await self._usage() if done else None,
        }

    async def _usage(self) -> dict[str, Any]:
        counts = await self.job.usage()
        return {
            "input_tokens": counts["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": counts["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": counts["total_tokens"],
        }

    def _message(self, status: str, content: list[Any]) -> dict[str, Any]:
        return {"type": "message", "id": self.item, "status": status, "role": "assistant", "content": content}

    def _whole_message(self) -> dict[str, Any]:
        status = "incomplete" if self.choice.finish == "length" else "completed"
        return self._message(status, [_part(_text(self.choice))])

    async def events(self, pieces: AsyncIterator[tuple[Choice, str]]) -> AsyncIterator[dict[str, Any]]:
        """Yield the answer as events."""
        number = 0

        def event(kind: str, **fields: Any) -> dict[str, Any]:
            nonlocal number
            number += 1
            return {"type": f"response.{kind}", "sequence_number": number - 1, **fields}

        place = {"item_id": self.item, "output_index": 0, "content_index": 0}
        yield event("created", response=await self.to_json("in_progress"))
        yield event("in_progress", response=await self.to_json("in_progress"))
        yield event("output_item.added", output_index=0, item=self._message("in_progress", []))
        yield event("content_part.added", **place, part=_part(""))
        sent = ""
        async for _ in pieces:
            if new := _text(self.choice)[len(sent) :]:
                sent += new
                yield event("output_text.delta", **place, delta=new, logprobs=[])
        yield event("output_text.done", **place, text=sent, logprobs=[])
        yield event("content_part.done", **place, part=_part(sent))
        yield event("output_item.done", output_index=0, item=self._whole_message())
        final = await self.to_json("completed")
        yield event(final["status"], response=final)


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": []}
