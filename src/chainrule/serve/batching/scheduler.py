"""The thread of a model: it reads prompts, generates texts, and does other work, for all requests together.

One turn of its loop takes up the requests that wait, generates the next few tokens of every text, and does one part
of the work in bulk. So a long text to score does not stop texts that are being generated, and a request that comes
while others are under way joins them at the next turn.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from chainrule.arrays import pad
from chainrule.contract.lm import LanguageModel, State
from chainrule.contract.model import Model
from chainrule.decode.generate import context_of, prompt_ids, text_only
from chainrule.decode.healing import Respellings, draw_respellings, find_respellings
from chainrule.decode.randomness import Uniforms
from chainrule.serve.batching.prefixes import Prefixes
from chainrule.serve.batching.requests import PAUSE, Ask, Bulk, BusyError, ClosingError, Event, Started, Ticket
from chainrule.serve.batching.rows import Pace, Row, Rows

READ_AT_ONCE = 512
"""Tokens of prompts that are read before texts under way get their next tokens."""
_BULKS_AT_ONCE = 8
"""Kinds of work in bulk that are done in turns."""


@dataclass(frozen=True)
class Limits:
    """How much a model does at once."""

    rows: int = 64
    """Texts that are generated together."""
    queue: int = 256
    """Requests that wait; one more is refused."""


class Scheduler:
    """The thread of one model. Its methods are called on an event loop, where tickets and results arrive."""

    def __init__(self, model: Model, limits: Limits | None = None) -> None:
        self.model, self.limits = model, limits or Limits()
        self.tokens = 0
        """Tokens generated since it started."""
        self._asked: deque[Ticket] = deque()
        self._bulks: deque[Bulk] = deque()
        self._under_way: deque[tuple[list[Bulk], Iterator[Any], list[Any]]] = deque()
        """Work in bulk that has begun, the next to be continued first: a short one does not wait for a long one."""
        self._together: dict[Hashable, Rows] = {}
        """Rows that are generated together: all of a network's, those of one strategy where a row costs little."""
        self._aside: list[tuple[Hashable, Rows]] = []
        """Rows that wait until their clients have read more, with their key in `_together`."""
        self._prefixes = Prefixes(model) if isinstance(model, LanguageModel) else None
        self._pace = Pace()
        self._outbox: list[Callable[[], None]] = []
        self._wake = threading.Condition()
        self._closing = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="chainrule-model", daemon=True)

    def start(self) -> None:
        """Start the thread, from the event loop that runs now."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    # -- on the event loop --------------------------------------------------------------------------------

    def generate(self, ask: Ask) -> Ticket:
        """Have texts generated; an error if too many requests wait already."""
        ticket = Ticket(ask, self._wake_up)
        with self._wake:
            self._check_room()
            self._asked.append(ticket)
            self._wake.notify()
        return ticket

    async def bulk(
        self, key: Hashable, items: Sequence[Any], run: Callable[[list[Any]], Iterator[Any]]
    ) -> list[Any]:
        """Return the results of a function for items, which it may get together with those of other requests."""
        if not items:
            return []
        future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        with self._wake:
            self._check_room()
            self._bulks.append(Bulk(key, items, run, future))
            self._wake.notify()
        return await future

    def close(self) -> None:
        """End the thread; requests that are not finished fail."""
        with self._wake:
            self._closing = True
            self._wake.notify()

    def _wake_up(self) -> None:
        with self._wake:
            self._wake.notify()

    @property
    def waiting(self) -> int:
        """The number of requests that have not started."""
        return len(self._asked) + len(self._bulks)

    @property
    def generating(self) -> int:
        """The number of texts that are being generated, or wait until their client has read more."""
        return self._active + sum(len(rows) for _, rows in self._aside)

    @property
    def _active(self) -> int:
        return sum(len(rows) for rows in self._together.values())

    @property
    def is_busy(self) -> bool:
        """True if anything is waiting or under way."""
        return bool(self.waiting or self.generating or self._under_way)

    @property
    def reused(self) -> int:
        """The number of tokens of prompts that did not have to be read again."""
        return 0 if self._prefixes is None else self._prefixes.reused

    def _check_room(self) -> None:
        if self._closing:
            raise ClosingError("the server is shutting down")
        if self.waiting >= self.limits.queue:
            raise BusyError(f"{self.waiting} requests are waiting already: try again in a second")

    # -- on the thread ------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._wake:
                while not (self._closing or self._asked or self._bulks or self._under_way or self._active):
                    if any(_goes_on(row) for _, rows in self._aside for row in rows.rows):
                        break
                    self._wake.wait()
                if self._closing:
                    break
            self._go_on()
            self._take_up()
            self._advance()
            self._work()
            self._send()
        self._fail(ClosingError("the server is shutting down"))

    def _take_up(self) -> None:
        """Start requests that wait, as many as there is room for."""
        taken: list[Ticket] = []
        room = self.limits.rows - self._active
        with self._wake:
            while self._asked and (self._asked[0].ask.n <= room or not (taken or self._active)):
                ticket = self._asked.popleft()
                if not ticket.cancelled:
                    taken.append(ticket)
                    room -= ticket.ask.n
        for is_healed in (True, False):
            alike = [ticket for ticket in taken if ticket.ask.is_healed == is_healed]
            try:
                self._start_texts(alike)
            except Exception as error:
                if len(alike) == 1:
                    self._post(alike[0], error)
                    continue
                for ticket in alike:  # one bad request should not fail the others
                    try:
                        self._start_texts([ticket])
                    except Exception as its_error:
                        self._post(ticket, its_error)

    def _start_texts(self, tickets: Sequence[Ticket]) -> None:
        """Read the prompts, all of which are healed or none, and add their texts to those under way."""
        if not tickets:
            return
        lm = LanguageModel.expect(self.model)
        if tickets[0].ask.is_healed:
            texts = [context_of(lm, str(ticket.ask.prompt)) for ticket in tickets]
            states, respellings = find_respellings(lm, texts, read=partial(self._read, tickets))
        else:
            respellings = [Respellings(self._ids(lm, ticket.ask)) for ticket in tickets]
            states = self._read(tickets, [found.stable for found in respellings])
        rows: list[Row] = []
        added: list[tuple[int, ...]] = []  # the tokens that spell the rest of each row's prompt
        groups: dict[Hashable, list[int]] = {}
        for ticket, found in zip(tickets, respellings, strict=True):
            ask, strategy = ticket.ask, text_only(lm, ticket.ask.strategy)
            prompt = prompt_ids(lm, ask.prompt) if isinstance(ask.prompt, str) else ask.prompt
            uniforms = Uniforms(ask.seed, [prompt] * ask.n, range(ask.copy, ask.copy + ask.n))
            drawn = draw_respellings([found] * ask.n, strategy, uniforms, lm.tokenizer.vocab_size)
            group: Hashable = strategy if lm.capabilities.is_compiled else None
            groups.setdefault(group, []).extend(range(len(rows), len(rows) + ask.n))
            for number, respelling in enumerate(drawn):
                read = [*found.stable, *respelling.ids]
                rows.append(Row(ticket, number, strategy, uniforms, read, ask.max_tokens))
                added.append(respelling.ids)
                self._post(
                    ticket, Started(number, list(found.stable), found.rest, list(respelling.ids), len(prompt))
                )
        state = states.select(np.repeat(np.arange(len(tickets)), [ticket.ask.n for ticket in tickets]))
        if any(added):
            state = lm.extend(state, pad(added))
        for key, places in groups.items():
            its_state = state if len(groups) == 1 else state.select(np.asarray(places))
            self._together.setdefault(key, Rows(lm, pace=self._pace)).join(
                [rows[place] for place in places], its_state
            )

    def _ids(self, lm: LanguageModel, ask: Ask) -> list[int]:
        """Return the tokens of a prompt that is not healed."""
        if isinstance(ask.prompt, str):
            return prompt_ids(lm, ask.prompt)
        ids = list(ask.prompt)
        if lm.context == "line" and lm.tokenizer.eos in ids:  # earlier lines are no context
            ids = ids[len(ids) - ids[::-1].index(lm.tokenizer.eos) :]
        return ids

    def _read(self, tickets: Sequence[Ticket], prompts: list[list[int]]) -> State:
        """Return the state after prompts, from states that were kept; texts under way go on meanwhile.

        A prompt that nobody waits for any more is not read to its end.
        """
        assert self._prefixes is not None
        lm = self._prefixes.lm
        states, rest = [], []
        for ticket, ids in zip(tickets, prompts, strict=True):
            size, state, shared = self._prefixes.find(ids)
            while not ticket.cancelled and (len(ids) - size > READ_AT_ONCE or size < shared < len(ids)):
                stop = min(size + READ_AT_ONCE, shared if size < shared else len(ids))
                state = lm.extend(state, np.asarray([ids[size:stop]], dtype=np.int64))
                size = stop
                if size == shared:
                    self._prefixes.keep(ids[:size], state)
                self._advance()
                self._send()
            states.append(state)
            rest.append([] if ticket.cancelled else ids[size:])
        joined = _joined(states)
        joined = lm.extend(joined, pad(rest)) if any(rest) else joined
        for row, ids in enumerate(prompts):
            if rest[row] and self._prefixes.is_worth_keeping(ids):
                self._prefixes.keep(ids, joined.select(np.asarray([row])))
        return joined

    def _advance(self) -> None:
        """Generate the next few tokens of every text that somebody waits for."""
        for key, rows in [*self._together.items()]:
            rows.keep([place for place, row in enumerate(rows.rows) if not row.ticket.cancelled])
            self._set_aside(key, rows)
            try:
                for ticket, generated in rows.advance() if len(rows) else ():
                    self.tokens += len(generated.ids)
                    self._post(ticket, generated)
            except Exception as error:
                for row in rows.rows:
                    self._post(row.ticket, error)
                rows.keep([])
            if not len(rows):
                del self._together[key]

    def _set_aside(self, key: Hashable, rows: Rows) -> None:
        """Set texts aside whose client does not read: they would take time from others, and fill the memory."""
        behind = [place for place, row in enumerate(rows.rows) if row.ticket.is_behind]
        if not behind or self.generating - self._active + len(behind) > self.limits.rows:
            return
        self._aside.append((key, rows.part(behind)))
        for place in behind:
            rows.rows[place].ticket.is_aside = True
        rows.keep([place for place in range(len(rows)) if place not in {*behind}])

    def _go_on(self) -> None:
        """Go on with texts whose client has read, and drop those whose client has gone."""
        aside, self._aside = self._aside, []
        for key, rows in aside:
            rows.keep([place for place, row in enumerate(rows.rows) if not row.ticket.cancelled])
            ready = [place for place, row in enumerate(rows.rows) if _goes_on(row)]
            if ready and (not self._active or self._active + len(ready) <= self.limits.rows):
                again = rows.part(ready)
                assert again.state is not None
                for row in again.rows:
                    row.ticket.is_aside = False
                self._together.setdefault(key, Rows(rows.lm, pace=self._pace)).join(again.rows, again.state)
                rows.keep([place for place in range(len(rows)) if place not in {*ready}])
            if len(rows):
                self._aside.append((key, rows))

    def _work(self) -> None:
        """Begin some work in bulk that waits, and do one part of what has begun."""
        with self._wake:
            key = self._bulks[0].key if self._bulks and len(self._under_way) < _BULKS_AT_ONCE else None
            together = [bulk for bulk in self._bulks if bulk.key == key]
            self._bulks = deque(bulk for bulk in self._bulks if bulk.key != key)
        if together := [bulk for bulk in together if not bulk.future.cancelled()]:
            self._begin(together)
        if not self._under_way:
            return
        bulks, results, found = self._under_way[0]
        try:
            for result in results if not all(bulk.future.cancelled() for bulk in bulks) else ():
                if result is PAUSE:
                    self._under_way.rotate(-1)
                    return
                found.append(result)
        except Exception as error:
            self._under_way.popleft()
            for bulk in bulks:  # one bad request should not fail the others
                if len(bulks) > 1:
                    self._begin([bulk])
                else:
                    self._outbox.append(partial(bulk.finish, error))
            return
        self._under_way.popleft()
        first = 0
        for bulk in bulks:
            self._outbox.append(partial(bulk.finish, found[first : first + len(bulk.items)]))
            first += len(bulk.items)

    def _begin(self, bulks: list[Bulk]) -> None:
        """Begin some work in bulk, whose turn comes after what is under way."""
        items = [item for bulk in bulks for item in bulk.items]
        self._under_way.append((bulks, bulks[0].run(items), []))

    def _fail(self, error: Exception) -> None:
        """Fail all requests that are not finished."""
        for rows in [*self._together.values(), *(rows for _, rows in self._aside)]:
            for row in rows.rows:
                self._post(row.ticket, error)
        for ticket in self._asked:
            self._post(ticket, error)
        bulks = [*self._bulks, *(bulk for some, _, _ in self._under_way for bulk in some)]
        self._outbox += [partial(bulk.finish, error) for bulk in bulks]
        self._send()

    def _post(self, ticket: Ticket, event: Event) -> None:
        self._outbox.append(partial(ticket.put, event))

    def _send(self) -> None:
        """Hand all events to the event loop at once: to wake it for each would cost more than the texts."""
        if not self._outbox:
            return
        outbox, self._outbox = self._outbox, []
        assert self._loop is not None

        def deliver() -> None:
            for action in outbox:
                action()

        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(deliver)


def _goes_on(row: Row) -> bool:
    """Return True if a row that was set aside can go on, or can be dropped."""
    return row.ticket.cancelled or not row.ticket.is_behind


def _joined(states: Sequence[State]) -> State:
    """Join states of one row each; a state that occurs several times is joined once, and repeated."""
    distinct = {id(state): state for state in states}
    places = {key: place for place, key in enumerate(distinct)}
    first, *others = distinct.values()
    for state in others:
        first = first.join(state)
    return first.select(np.asarray([places[id(state)] for state in states]))
