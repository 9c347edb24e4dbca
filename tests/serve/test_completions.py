"""Completions through OpenAI's own client: what is written is what the library writes, however it is asked for."""

from __future__ import annotations

import asyncio

import openai
import pytest
from tests.serve.serving import Running, run_async

import chainrule as cr

FAMILIES = ["ngram", "words", "lstm", "transformer", "mixture"]
STRATEGY = cr.Temperature(0.8) | cr.TopK(20) | cr.TopP(0.9)
ASKED = {"temperature": 0.8, "top_p": 0.9, "extra_body": {"top_k": 20}}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_seed_gives_the_text_of_generate(
    name: str, client: openai.OpenAI, models: dict[str, cr.LanguageModel]
) -> None:
    for prompt in ("the c", "", "the cat sat"):
        found = client.completions.create(model=name, prompt=prompt, max_tokens=12, seed=5, n=3, **ASKED)
        expected = cr.generate_many(models[name], [prompt], STRATEGY, n=3, max_tokens=12, seed=5)
        assert [choice.text for choice in found.choices] == [one.continuation for one in expected]
        assert [choice.index for choice in found.choices] == [0, 1, 2]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_stream_has_the_text_of_an_answer_at_once(name: str, client: openai.OpenAI) -> None:
    asked = {"model": name, "prompt": "a dog", "max_tokens": 20, "seed": 2, "n": 2, **ASKED}
    whole = client.completions.create(**asked)
    texts, finish = ["", ""], [None, None]
    usage = None
    for chunk in client.completions.create(**asked, stream=True, stream_options={"include_usage": True}):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
            finish[choice.index] = choice.finish_reason or finish[choice.index]
        usage = chunk.usage or usage
    assert texts == [choice.text for choice in whole.choices]
    assert finish == [choice.finish_reason for choice in whole.choices]
    assert usage == whole.usage


@pytest.mark.parametrize("name", FAMILIES)
def test_echo_with_log_probs_scores_the_prompt(
    name: str, client: openai.OpenAI, models: dict[str, cr.LanguageModel]
) -> None:
    """lm-evaluation-harness measures by this: every token of the prompt has its ln p, the first one too."""
    lm, prompt = models[name], "the cat saw the dog"
    ids = lm.tokenizer.encode(prompt)
    expected = cr.to_numpy(lm.score(ids[None].astype("int64")))[0]
    found = client.completions.create(model=name, prompt=prompt, max_tokens=0, echo=True, logprobs=2).choices[0]
    assert found.text == prompt
    assert found.logprobs.token_logprobs == pytest.approx(expected.tolist(), abs=1e-4)
    assert len(found.logprobs.tokens) == len(ids) == len(found.logprobs.top_logprobs)
    for own, top in zip(found.logprobs.token_logprobs, found.logprobs.top_logprobs, strict=True):
        assert len(top) == 2 and max(top.values()) >= own - 1e-6
    alone = client.completions.create(model=name, prompt=prompt, max_tokens=0, echo=True, logprobs=0).choices[0]
    assert alone.logprobs.token_logprobs == found.logprobs.token_logprobs
    assert not any(alone.logprobs.top_logprobs or [])
    if lm.tokenizer.lossless:
        assert "".join(found.logprobs.tokens) == prompt
        offsets = [sum(map(len, found.logprobs.tokens[:i])) for i in range(len(ids))]
        assert found.logprobs.text_offset == offsets
    by_ids = client.completions.create(
        model=name, prompt=ids.tolist(), max_tokens=0, echo=True, logprobs=2
    ).choices[0]
    assert by_ids.logprobs == found.logprobs


@pytest.mark.parametrize("name", FAMILIES)
def test_echo_with_new_tokens_has_entries_for_all(
    name: str, client: openai.OpenAI, models: dict[str, cr.LanguageModel]
) -> None:
    lm, prompt = models[name], "the cat"
    read = len(lm.tokenizer.encode(prompt))
    found = client.completions.create(model=name, prompt=prompt, max_tokens=3, echo=True, logprobs=1, temperature=0)
    choice = found.choices[0]
    new = found.usage.completion_tokens
    assert found.usage.prompt_tokens == read
    assert len(choice.logprobs.tokens) == len(choice.logprobs.token_logprobs) == read + new
    assert choice.text.startswith(prompt)
    # greedy: each new token is the likeliest
    for own, top in zip(choice.logprobs.token_logprobs[read:], choice.logprobs.top_logprobs[read:], strict=True):
        assert own == pytest.approx(max(top.values()), abs=1e-5)


def test_lines_before_the_last_are_scored_by_themselves(
    client: openai.OpenAI, models: dict[str, cr.LanguageModel]
) -> None:
    lm, text = models["ngram"], "the cat\nthe dog"
    found = client.completions.create(model="ngram", prompt=text, max_tokens=0, echo=True, logprobs=0).choices[0]
    first = cr.score(lm, "the cat").log_probs.tolist()
    assert found.logprobs.token_logprobs[: len(first)] == pytest.approx(first, abs=1e-5)
    second = cr.to_numpy(lm.score(lm.tokenizer.encode("the dog")[None].astype("int64")))[0].tolist()
    assert found.logprobs.token_logprobs[len(first) :] == pytest.approx(second, abs=1e-5)


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_sequence_is_not_part_of_the_text(stream: bool, client: openai.OpenAI) -> None:
    asked = {"model": "lstm", "prompt": "the", "max_tokens": 60, "seed": 1}
    plain = client.completions.create(**asked).choices[0].text
    stop = plain[5:8]
    assert stop and plain.find(stop) <= 5
    expected = plain[: plain.find(stop)]
    if stream:
        chunks = [chunk.choices[0] for chunk in client.completions.create(**asked, stop=[stop, "zzz"], stream=True)]
        assert "".join(chunk.text for chunk in chunks) == expected
        assert chunks[-1].finish_reason == "stop"
    else:
        found = client.completions.create(**asked, stop=stop).choices[0]
        assert (found.text, found.finish_reason) == (expected, "stop")


def test_best_of_returns_the_likeliest(client: openai.OpenAI) -> None:
    asked = {"model": "words", "prompt": "the", "max_tokens": 6, "seed": 4, "logprobs": 0}
    every = client.completions.create(**asked, n=8).choices
    best = client.completions.create(**asked, n=2, best_of=8).choices

    def mean(choice: object) -> float:
        log_probs = choice.logprobs.token_logprobs
        return sum(log_probs) / len(log_probs)

    ranked = sorted(every, key=mean, reverse=True)
    assert [choice.text for choice in best] == [choice.text for choice in ranked[:2]]


def test_which_of_several_texts_is_best_is_known_at_the_end(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="cannot be streamed"):
        client.completions.create(model="lstm", prompt="the", best_of=2, stream=True)
    asked = {"model": "lstm", "prompt": "the", "max_tokens": 3, "seed": 1}
    assert [*client.completions.create(**asked, best_of=1, stream=True)]
    assert [*client.completions.create(**asked, n=2, best_of=2, stream=True)]


def test_a_bias_forbids_a_token_and_forces_another(
    client: openai.OpenAI, models: dict[str, cr.LanguageModel]
) -> None:
    tokenizer = models["words"].tokenizer
    cat = int(tokenizer.encode("cat")[0])
    forced = client.completions.create(model="words", prompt="the ", max_tokens=4, logit_bias={str(cat): 100})
    assert forced.choices[0].text.split() == ["cat"] * 4
    never = client.completions.create(model="words", prompt="the ", max_tokens=300, logit_bias={str(cat): -100})
    assert "cat" not in never.choices[0].text.split()


def test_penalties_change_the_text_as_in_generate(
    client: openai.OpenAI, models: dict[str, cr.LanguageModel]
) -> None:
    for asked, strategy in (
        ({"presence_penalty": 1.5}, cr.PresencePenalty(1.5)),
        ({"frequency_penalty": 1.5}, cr.FrequencyPenalty(1.5)),
        (
            {"extra_body": {"repetition_penalty": 2.0, "min_p": 0.05}},
            cr.RepetitionPenalty(2.0) | cr.MinP(0.05),
        ),
    ):
        for name in ("words", "transformer"):
            found = client.completions.create(model=name, prompt="the", max_tokens=15, seed=9, **asked)
            (expected,) = cr.generate_many(models[name], ["the"], strategy, max_tokens=15, seed=9)
            assert found.choices[0].text == expected.continuation


def test_prompts_in_a_list_are_answered_in_order(
    client: openai.OpenAI, models: dict[str, cr.LanguageModel]
) -> None:
    prompts = ["the cat", "a dog", "the cat"]
    found = client.completions.create(model="ngram", prompt=prompts, n=2, max_tokens=5, seed=3)
    expected = cr.generate_many(models["ngram"], prompts, n=2, max_tokens=5, seed=3)
    assert [choice.text for choice in found.choices] == [one.continuation for one in expected]
    assert [choice.index for choice in found.choices] == [*range(6)]


@pytest.mark.parametrize("name", ["ngram", "lstm", "transformer"])
def test_requests_at_once_do_not_touch_each_other(
    name: str, server: Running, models: dict[str, cr.LanguageModel]
) -> None:
    """Different prompts, lengths and strategies in one batch: each text is the one that it is alone."""
    asked = [
        (f"the {'cat' if i % 2 else 'dog'}{' and' * (i % 3)}", 1 + i % 17, i, (None, 0.7, 0.0)[i % 3])
        for i in range(48)
    ]

    async def all_at_once() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{server.address}/v1", api_key="x", max_retries=0) as client:

            async def one(prompt: str, size: int, seed: int, temperature: float | None) -> str:
                found = await client.completions.create(
                    model=name, prompt=prompt, max_tokens=size, seed=seed, temperature=temperature
                )
                return found.choices[0].text

            return await asyncio.gather(*(one(*some) for some in asked))

    found = run_async(all_at_once())
    for text, (prompt, size, seed, temperature) in zip(found, asked, strict=True):
        strategy = None if temperature is None else cr.Temperature(temperature)
        (expected,) = cr.generate_many(models[name], [prompt], strategy, max_tokens=size, seed=seed)
        assert text == expected.continuation


def test_chats_stop_where_somebody_else_speaks(client: openai.OpenAI) -> None:
    messages = [{"role": "system", "content": "be kind"}, {"role": "user", "content": "the cat"}]
    found = client.chat.completions.create(
        model="transformer", messages=messages, max_completion_tokens=30, seed=1, logprobs=True, top_logprobs=2
    )
    choice = found.choices[0]
    assert choice.message.role == "assistant" and "User:" not in choice.message.content
    assert len(choice.logprobs.content) == found.usage.completion_tokens
    assert all(len(token.top_logprobs) == 2 for token in choice.logprobs.content)
    alone = client.chat.completions.create(model="transformer", messages=messages, max_tokens=2, logprobs=True)
    assert all(token.top_logprobs == [] for token in alone.choices[0].logprobs.content)
    streamed = ""
    for chunk in client.chat.completions.create(
        model="transformer", messages=messages, max_tokens=30, seed=1, stream=True
    ):
        streamed += chunk.choices[0].delta.content or ""
    whole = client.chat.completions.create(model="transformer", messages=messages, max_tokens=30, seed=1)
    assert streamed == whole.choices[0].message.content


@pytest.mark.parametrize("name", ["ngram", "words", "lstm", "transformer", "mixture"])
def test_a_streamed_chat_has_the_text_of_the_whole_one(name: str, client: openai.OpenAI) -> None:
    for seed in range(4):
        asked = {"model": name, "messages": [{"role": "user", "content": "the cat"}], "seed": seed, "n": 2}
        whole = client.chat.completions.create(**asked, max_tokens=12).choices
        assert all(choice.logprobs is None for choice in whole)
        texts = ["", ""]
        for chunk in client.chat.completions.create(**asked, max_tokens=12, stream=True):
            texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
        assert texts == [choice.message.content for choice in whole]


def test_what_is_not_offered_is_refused(client: openai.OpenAI) -> None:
    messages = [{"role": "user", "content": "the cat"}]
    for wrong in (
        {"response_format": {"type": "json_object"}},
        {"functions": [{"name": "f", "parameters": {}}]},
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"tool_choice": "required"},
        {"function_call": {"name": "f"}},
        {"modalities": ["text", "audio"]},
        {"web_search_options": {"search_context_size": "low"}},
    ):
        with pytest.raises(openai.BadRequestError, match="not offered"):
            client.chat.completions.create(model="lstm", messages=messages, **wrong)
    schema = {"type": "object"}
    for wrong in (
        {"response_format": {"type": "json_object"}},
        {"guided_json": schema},
        {"structured_outputs": {"json": schema}},
        {"json_schema": schema},
        {"grammar": "root ::= [0-9]"},
    ):
        with pytest.raises(openai.BadRequestError, match="not offered"):
            client.completions.create(model="lstm", prompt="the", extra_body=wrong)
    form = {"format": {"type": "json_schema", "name": "x", "schema": {}}}
    for wrong in (
        {"text": form},
        {"background": True},
        {"previous_response_id": "resp_1"},
        {"prompt": {"id": "p"}},
    ):
        with pytest.raises(openai.BadRequestError, match="not offered"):
            client.responses.create(model="lstm", input="the", **wrong)
    size = len(client.embeddings.create(model="lstm", input="the").data[0].embedding)
    with pytest.raises(openai.BadRequestError, match="dimensions"):
        client.embeddings.create(model="lstm", input="the", dimensions=size - 1)
    # what says nothing new is no reason to refuse
    plain = {"response_format": {"type": "text"}, "modalities": ["text"], "tool_choice": "auto", "max_tokens": 2}
    assert client.chat.completions.create(model="lstm", messages=messages, **plain).choices
    text = {"format": {"type": "text"}}
    assert client.responses.create(model="lstm", input="the", max_output_tokens=2, text=text).output
    assert client.embeddings.create(model="lstm", input="the", dimensions=size).data


def test_the_clients_stream_of_responses_ends_where_it_is_cut(client: openai.OpenAI) -> None:
    asked = {"model": "transformer", "input": "the cat sat", "temperature": 0}
    with client.responses.stream(**asked, max_output_tokens=3) as stream:
        *_, item, last = stream
    assert (last.type, last.response.status) == ("response.incomplete", "incomplete")
    assert item.type == "response.output_item.done" and item.item.status == "incomplete"
    assert last.response.incomplete_details.reason == "max_output_tokens"
    assert last.response.output_text == client.responses.create(**asked, max_output_tokens=3).output_text


def test_responses_give_text_and_its_events(client: openai.OpenAI) -> None:
    asked = {"model": "transformer", "input": "the cat sat", "max_output_tokens": 12, "temperature": 0}
    found = client.responses.create(**asked)
    assert found.status in ("completed", "incomplete")
    assert found.usage.output_tokens <= 12
    deltas, kinds = "", []
    for number, event in enumerate(client.responses.create(**asked, stream=True)):
        assert event.sequence_number == number
        kinds.append(event.type)
        if event.type == "response.output_text.delta":
            assert (event.output_index, event.content_index) == (0, 0)
            deltas += event.delta
    assert deltas == found.output_text
    assert kinds[0] == "response.created" and kinds[-1] in ("response.completed", "response.incomplete")


def test_embeddings_come_from_networks(client: openai.OpenAI) -> None:
    found = client.embeddings.create(model="lstm", input=["the cat", "the cat", "a mat"])
    first, same, other = (one.embedding for one in found.data)
    assert first == same != other
    assert sum(value * value for value in first) == pytest.approx(1, abs=1e-5)
    assert len(client.embeddings.create(model="lstm", input="").data[0].embedding) == len(first)
    with pytest.raises(openai.BadRequestError, match="networks"):
        client.embeddings.create(model="ngram", input="the cat")
