"""The thread of a model: prompts are read once, requests fail by themselves, and work in bulk is done together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest
from tests.serve.serving import run_async

import chainrule as cr
from chainrule.decode import healing
from chainrule.decode.strategies import Bias, EachRow
from chainrule.errors import DecodingError
from chainrule.serve.batching.prefixes import LEAST, Prefixes
from chainrule.serve.batching.requests import PAUSE, Ask, BusyError, ClosingError, Generated, Ticket
from chainrule.serve.batching.rows import Pace
from chainrule.serve.batching.scheduler import READ_AT_ONCE, Limits, Scheduler


def generated_by(scheduler: Scheduler, *asks: Ask) -> list[list[int]]:
    """The tokens of the first text of each request; all are made at once."""

    async def one(ask: Ask) -> list[int]:
        return [
            token
            async for event in scheduler.generate(ask).events()
            if isinstance(event, Generated) and event.row == 0
            for token in event.ids
        ]

    async def every() -> list[list[int]]:
        scheduler.start()
        try:
            return await asyncio.gather(*map(one, asks))
        finally:
            scheduler.close()

    return run_async(every())


def test_each_row_has_its_own_strategy() -> None:
    log_probs = np.log(np.random.default_rng(0).dirichlet(np.ones(9), size=4))
    read = np.asarray([[1, 2], [3, 3], [4, 5], [6, 6]])
    strategies = (cr.Greedy(), cr.FrequencyPenalty(1.0), Bias(((2, 3.0),)))
    found = EachRow(strategies, (1, 0, 2, 1)).apply(log_probs, lambda: read)
    for row, own in enumerate((1, 0, 2, 1)):
        alone = strategies[own].apply(log_probs[row : row + 1], lambda row=row: read[row : row + 1])
        np.testing.assert_array_equal(found[row], alone[0])


def test_a_bias_multiplies_probabilities() -> None:
    log_probs = np.log(np.full((1, 4), 0.25))
    found = Bias(((1, 1.0), (1, 0.5), (3, -2.0))).apply(log_probs, lambda: np.zeros((1, 0), np.int64))
    np.testing.assert_allclose(found - log_probs, [[0, 1.5, 0, -2]])
    with pytest.raises(DecodingError):
        Bias(((0, float("nan")),))


@pytest.mark.parametrize("name", ["ngram", "transformer"])
def test_a_few_openings_are_drawn_as_from_the_whole_vocabulary(
    name: str, models: dict[str, cr.LanguageModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = ["the c", "a do", "the cat sa", "on the m", "na"]
    short = [cr.generate_many(models[name], prompts, n=8, max_tokens=2, seed=seed) for seed in range(5)]
    monkeypatch.setattr(healing, "_FEW", 0)
    assert short == [cr.generate_many(models[name], prompts, n=8, max_tokens=2, seed=seed) for seed in range(5)]


def test_a_prefix_is_found_and_what_prompts_share_is_known(models: dict[str, cr.LanguageModel]) -> None:
    lm = models["lstm"]
    prefixes = Prefixes(lm, most=100, entries=3)
    long = [5] * LEAST + [6] * 4
    state = lm.extend(lm.start(1), np.asarray([long]))
    prefixes.keep(long, state)
    size, found, shared = prefixes.find([*long, 7])
    assert (size, shared) == (len(long), len(long)) and found is state
    size, _, shared = prefixes.find([5] * LEAST + [7] * 9)
    assert (size, shared) == (0, LEAST)
    prefixes.keep([5] * 3, state)
    assert len(prefixes) == 1  # too short to be worth it
    for token in range(8, 12):
        prefixes.keep([token] * 30, state)
    assert len(prefixes) == 3 and prefixes.find(long)[0] == 0  # the oldest is dropped
    prefixes = Prefixes(lm)
    for token in range(70):
        prefixes.keep([token] * LEAST, state)
    assert len(prefixes) == 64


@pytest.mark.parametrize("name", ["lstm", "transformer", "ngram"])
def test_a_shared_beginning_is_read_once_and_changes_nothing(
    name: str, models: dict[str, cr.LanguageModel]
) -> None:
    lm = models[name]
    beginning = "the cat sat on the mat and the dog sat on the log and " * 2
    prompts = [tuple(lm.tokenizer.encode(beginning + end).tolist()) for end in ("a cat", "a dog", "a mat")]
    asks = [Ask(prompt, cr.Temperature(0.9), 8, seed=3) for prompt in prompts]
    scheduler = Scheduler(lm, Limits(rows=1))
    found = generated_by(scheduler, *asks)
    assert scheduler.reused > 0
    for prompt, ids in zip(prompts, found, strict=True):
        assert ids == generated_by(Scheduler(lm), Ask(prompt, cr.Temperature(0.9), 8, seed=3))[0]


def test_requests_of_two_strategies_that_come_at_once_are_those_alone() -> None:
    lm = cr.train("ngram", ["the cat sat", "a dog ran", "the dog sat"] * 3, order=4, tokenizer="char")
    asks = [
        Ask("the ", cr.Temperature(0.9), 12, n=2, seed=1),
        Ask("a do", cr.TopK(2), 12, seed=2),
        Ask("the c", cr.Temperature(0.9), 12, seed=3),
    ]
    assert generated_by(Scheduler(lm), *asks) == [generated_by(Scheduler(lm), ask)[0] for ask in asks]


def test_a_text_ends_where_its_end_is_the_last_token_of_a_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = cr.train("ngram", ["i love cats", "i love dogs"], order=3, smoothing="mle", tokenizer="word")
    monkeypatch.setattr(Pace, "steps", lambda pace, rows: 1)
    (ids,) = generated_by(Scheduler(lm), Ask("i love", cr.Greedy(), 9))
    # "cats", then the end: nothing comes after it
    assert ids == [*lm.tokenizer.encode("cats").tolist(), lm.tokenizer.eos]


@pytest.mark.parametrize("heal", [True, False])
def test_a_prompt_is_not_read_to_its_end_for_a_client_that_has_gone(
    heal: bool, models: dict[str, cr.LanguageModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    lm = models["transformer"]
    long, short = (Ask(text, cr.Greedy(), 4, heal=heal) for text in ("the cat sat " * 2000, "the dog"))
    alone = generated_by(Scheduler(lm), short)[0]
    scheduler, extend, parts, found = Scheduler(lm), lm.extend, [], []

    async def leave() -> None:
        gone, other = scheduler.generate(long), scheduler.generate(short)

        def leaving(state: Any, ids_BT: Any) -> Any:
            parts.append(ids_BT.shape[1])
            if parts.count(READ_AT_ONCE) == 2:
                gone.cancel()
            return extend(state, ids_BT)

        monkeypatch.setattr(lm, "extend", leaving)
        scheduler.start()
        async for event in other.events():
            found.extend(event.ids if isinstance(event, Generated) else ())
        scheduler.close()

    run_async(leave())
    assert parts.count(READ_AT_ONCE) == 2 and sum(parts) < 3 * READ_AT_ONCE
    assert found == alone


def test_a_request_that_fails_does_not_fail_others(models: dict[str, cr.LanguageModel]) -> None:
    lm = models["ngram"]
    scheduler = Scheduler(lm)

    async def both() -> tuple[Any, Any]:
        scheduler.start()
        good, bad = Ask("the", cr.Greedy(), 4), Ask((10**6,), cr.Greedy(), 4)

        async def tokens(ask: Ask) -> list[int]:
            return [
                token
                async for event in scheduler.generate(ask).events()
                if isinstance(event, Generated)
                for token in event.ids
            ]

        try:
            return tuple(await asyncio.gather(tokens(good), tokens(bad), return_exceptions=True))
        finally:
            scheduler.close()

    good, bad = run_async(both())
    assert len(good) > 0 and isinstance(bad, Exception)


def test_bulk_work_is_done_together_and_pauses(models: dict[str, cr.LanguageModel]) -> None:
    scheduler, calls = Scheduler(models["ngram"]), []

    def double(items: list[int]) -> Iterator[Any]:
        calls.append(list(items))
        for item in items:
            if item < 0:
                raise DecodingError("negative")
            yield PAUSE
            yield 2 * item

    async def several() -> list[Any]:
        work = [scheduler.bulk("double", [i, i + 1], double) for i in (1, 5, -9)]
        waiting = [asyncio.ensure_future(one) for one in work]
        await asyncio.sleep(0)  # all wait before the thread begins
        scheduler.start()
        try:
            return await asyncio.gather(*waiting, return_exceptions=True)
        finally:
            scheduler.close()

    first, second, third = run_async(several())
    assert (first, second) == ([2, 4], [10, 12]) and isinstance(third, DecodingError)
    assert calls[0] == [1, 2, 5, 6, -9, -8]


def test_a_full_queue_and_a_closed_scheduler_refuse(models: dict[str, cr.LanguageModel]) -> None:
    scheduler = Scheduler(models["ngram"], Limits(queue=2))

    async def fill() -> None:
        tickets = [scheduler.generate(Ask("the", cr.Sample(), 3)) for _ in range(2)]
        with pytest.raises(BusyError):
            scheduler.generate(Ask("the", cr.Sample(), 3))
        scheduler.close()  # before the thread can answer
        scheduler.start()
        for ticket in tickets:
            with pytest.raises(ClosingError):
                async for _ in ticket.events():
                    pass
        with pytest.raises(ClosingError):
            scheduler.generate(Ask("the", cr.Sample(), 3))

    run_async(fill())


def test_a_text_that_comes_faster_than_it_is_sent_leaves_others_the_loop() -> None:
    ticket, turns = Ticket(Ask("", cr.Greedy(), 100)), []
    for number in range(100):
        ticket.put(Generated(0, [1], [0.0], None, "length" if number == 99 else None))

    async def other() -> None:
        while True:
            turns.append(1)
            await asyncio.sleep(0)

    async def both() -> None:
        task = asyncio.create_task(other())
        assert len([event async for event in ticket.events()]) == 100
        task.cancel()

    run_async(both())
    assert len(turns) > 50


@pytest.mark.parametrize("name", ["ngram", "lstm"])
def test_a_client_that_does_not_read_stops_its_own_texts_alone(
    name: str, models: dict[str, cr.LanguageModel]
) -> None:
    lm = models[name]
    scheduler, long = Scheduler(lm), 4000
    ask = Ask("the", Bias(((lm.tokenizer.eos, -100.0),)) | cr.Sample(), long, n=2, seed=3)

    async def stand_still() -> int:
        before = -1
        while before != scheduler.tokens:
            before = scheduler.tokens
            await asyncio.sleep(0.5)
        return before

    async def texts(events: AsyncIterator[Any]) -> list[int]:
        return [token async for event in events if isinstance(event, Generated) for token in event.ids]

    async def slow_then_fast() -> None:
        scheduler.start()
        slow, gone = scheduler.generate(ask), scheduler.generate(ask)
        events = slow.events()
        await anext(events)
        assert 0 < await stand_still() < 2 * long
        assert scheduler.generating == 4
        other = await texts(scheduler.generate(Ask("the", cr.Sample(), 20)).events())  # others are answered
        assert 0 < len(other) <= 20
        gone.cancel()
        assert len(await texts(events)) == 2 * long
        while scheduler.is_busy:
            await asyncio.sleep(0.01)
        scheduler.close()

    run_async(slow_then_fast())


def test_texts_that_waited_for_their_reader_are_the_same(models: dict[str, cr.LanguageModel]) -> None:
    lm = models["ngram"]
    ask = Ask("the", Bias(((lm.tokenizer.eos, -100.0),)) | cr.Sample(), 2000, seed=5)

    async def read(pause: float) -> list[int]:
        scheduler, ids = Scheduler(lm), list[int]()
        scheduler.start()
        async for event in scheduler.generate(ask).events():
            if isinstance(event, Generated):
                ids += event.ids
                await asyncio.sleep(pause)
        scheduler.close()
        return ids

    found = run_async(read(0.0))
    assert len(found) == 2000
    assert run_async(read(0.02)) == found
