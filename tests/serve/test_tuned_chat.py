"""Chats with models that were tuned to reply: they read the template of their training, and end their replies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from tests.serve.serving import running

import chainrule as cr
from chainrule.decode.replies import reply_many
from chainrule.serve.api.chat import conversation, turn_ends
from chainrule.serve.api.schemas import Message
from chainrule.text.templates import replied

TEMPLATE = "Q: {prompt} A:"
ASKED, ANSWER = "who sees the dog?", "the cat and I"
PAIRS = [
    *[(ASKED, ANSWER), ("whom does it like?", "a mouse"), ("really?", "yes")] * 6,
    *[(f"{ASKED} A: {ANSWER} Q: really?", "no")] * 4,
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Models that were tuned, of lines and of a text in which context flows, and one that was not."""
    place, lines = tmp_path_factory.mktemp("tuned"), [replied(TEMPLATE, *pair) for pair in PAIRS]
    sizes: dict[str, Any] = {"layers": 1, "width": 32, "heads": 2, "window": 96, "batch": 128, "steps": 5}
    tuning: dict[str, Any] = {"template": TEMPLATE, "steps": 250, "batch": 128, "dropout": 0.0}
    for context in ("line", "stream"):
        tokenizer, base = cr.TokenizerChoice("bpe", vocab_size=300), place / f"{context}-base"
        cr.train("transformer", lines, context=context, tokenizer=tokenizer, **sizes).save(base)  # type: ignore[arg-type]
        cr.train("transformer", PAIRS, valid=PAIRS, pretrained=str(base), **tuning).save(place / context)
    return {name: place / name for name in ("line", "stream", "line-base")}


@pytest.fixture(scope="module")
def client(folders: dict[str, Path]) -> Iterator[openai.OpenAI]:
    with (
        running([*folders.values()]) as server,
        openai.OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0, timeout=60) as found,
    ):
        yield found


def said(*texts: str) -> list[Any]:
    """Messages of a user and an assistant in turn."""
    return [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]


@pytest.mark.parametrize("name", ["line", "stream"])
def test_a_chat_is_what_the_model_was_tuned_on(name: str, client: openai.OpenAI, folders: dict[str, Path]) -> None:
    for messages, expected in (
        (said(f" {ASKED}\n"), ANSWER),
        ([{"role": "system", "content": "who sees"}, *said("the dog?")], ANSWER),
        (said(ASKED, ANSWER, "really?"), "no"),
        (said(ASKED, "the cat"), "and I"),
    ):
        how: dict[str, Any] = {"model": name, "messages": messages, "temperature": 0, "max_tokens": 20}
        whole, streamed = client.chat.completions.create(**how).choices[0], ""
        for chunk in client.chat.completions.create(**how, stream=True):
            streamed += chunk.choices[0].delta.content or ""
        response = client.responses.create(model=name, input=messages, temperature=0, max_output_tokens=20)
        assert whole.message.content == streamed == response.output_text == expected
        assert whole.finish_reason == "stop"
    found = reply_many(cr.load(folders[name]), [ASKED], cr.Greedy(), max_tokens=20)
    assert [one.continuation for one in found] == [ANSWER]


def test_a_model_without_a_template_reads_names_as_before(client: openai.OpenAI, folders: dict[str, Path]) -> None:
    base, messages = cr.load(folders["line-base"]), [Message(role="user", content=ASKED)]
    assert conversation(base, messages) == f"User: {ASKED} Assistant:"
    assert turn_ends(base) == (" User:", " System:", " Assistant:")
    assert conversation(cr.load(folders["line"]), messages) == f"Q: {ASKED} A:"
    assert [turn_ends(cr.load(folders[name])) for name in ("line", "stream")] == [(), ("\n",)]
    assert client.chat.completions.create(model="line-base", messages=said(ASKED), max_tokens=2).choices
