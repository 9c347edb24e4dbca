"""Requests to a model, and the events that answer them.

Requests are made on the event loop of the server and carried out on the thread of a model. A ticket connects the
two: the thread sends events to it, and the event loop reads them, or cancels the request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from chainrule.decode.strategies import Strategy
from chainrule.errors import ChainruleError

PIECES_AHEAD = 4
"""The most unsent pieces of a text: its generation stops there until the client reads."""


class BusyError(ChainruleError):
    """The queue is full: a client should try again later."""


class ClosingError(ChainruleError):
    """The server is shutting down."""


@dataclass(frozen=True)
class Ask:
    """A request for `n` texts that continue a prompt."""

    prompt: str | tuple[int, ...]
    """A text, or tokens."""
    strategy: Strategy
    max_tokens: int
    n: int = 1
    seed: int = 0
    top: int = 0
    """How many alternatives of each token to send."""
    copy: int = 0
    """The number of the first text among those of equal prompts: each has random numbers of its own."""
    heal: bool = True
    """Whether a text may stop inside a token (decode/healing.py)."""

    @property
    def is_healed(self) -> bool:
        """True if the last tokens of the prompt are chosen again."""
        return self.heal and isinstance(self.prompt, str)


@dataclass(frozen=True)
class Started:
    """A text starts: the tokens of its prompt that were read, and those that spell the rest, and perhaps more."""

    row: int
    read: list[int]
    rest: bytes
    """The end of the prompt that `ids` spell."""
    ids: list[int]
    tokens: int
    """The tokens of the prompt."""


@dataclass(frozen=True)
class Generated:
    """The next tokens of a text, and ln p of each."""

    row: int
    ids: list[int]
    log_probs: list[float]
    tops: list[list[tuple[int, float]]] | None
    """The most likely tokens at each place with their ln p, where they were asked for."""
    finish: str | None
    """Why the text ended: "stop", by itself; "length", at its greatest length; None: more will come."""


Event: TypeAlias = Started | Generated | Exception
"""An exception: the request failed."""


class Ticket:
    """A request for texts that is under way. It belongs to the event loop that made it."""

    def __init__(self, ask: Ask, wake: Callable[[], None] = lambda: None) -> None:
        """`wake` tells the thread of the model to look again at a request that was set aside."""
        self.ask, self._wake = ask, wake
        self.cancelled = False
        self.is_aside = False
        """True if generation of its texts waits until the client has read more."""
        self.waiting = ask.n
        """Texts that have not ended."""
        self._events: asyncio.Queue[Event] = asyncio.Queue()

    @property
    def is_behind(self) -> bool:
        """True if too many pieces are unsent; once texts were set aside, until at most one piece of each is."""
        return self._events.qsize() > (1 if self.is_aside else PIECES_AHEAD) * self.ask.n

    def put(self, event: Event) -> None:
        """Add an event; on the event loop."""
        self._events.put_nowait(event)

    async def events(self) -> AsyncIterator[Started | Generated]:
        """Yield the events until all texts have ended; an error of the model is raised."""
        try:
            while self.waiting:
                if not self._events.empty():
                    await asyncio.sleep(0)  # else a text that is generated faster than it is sent holds up the loop
                event = await self._events.get()
                self._look_again()
                if isinstance(event, Exception):
                    raise event
                if isinstance(event, Generated) and event.finish:
                    self.waiting -= 1
                yield event
        finally:
            self.cancel()

    def cancel(self) -> None:
        """Have the thread drop what is not generated yet: nobody waits for it any more."""
        self.cancelled = True
        self._look_again()

    def _look_again(self) -> None:
        if self.is_aside and (self.cancelled or not self.is_behind):
            self._wake()


@dataclass
class Bulk:
    """Items that a function takes together with those of other requests that have the same key."""

    key: Hashable
    items: Sequence[Any]
    run: Callable[[list[Any]], Iterator[Any]]
    """Yields a result for each item, in order, and PAUSE where texts may be generated in between."""
    future: asyncio.Future[list[Any]]

    def finish(self, found: list[Any] | Exception) -> None:
        """Hand over the results, or the error; on the event loop."""
        if self.future.done():
            return
        if isinstance(found, Exception):
            self.future.set_exception(found)
        else:
            self.future.set_result(found)


PAUSE = object()
"""Yielded by the function of a `Bulk` between two results, or two parts of one."""
