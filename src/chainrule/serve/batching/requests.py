"""What a client asks a model for, and the ticket by which it hears what comes of it.

Requests are made on the event loop of the server and carried out on the thread of a model. A ticket is where the
two meet: the thread sends events to it, and the event loop reads them, or cancels the request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from chainrule.decode.strategies import Strategy
from chainrule.errors import ChainruleError


class BusyError(ChainruleError):
    """The queue is full: a client should come again later."""


class ClosingError(ChainruleError):
    """The server is shutting down."""


@dataclass(frozen=True)
class Ask:
    """A text to write, `n` times."""

    prompt: str | tuple[int, ...]
    """A text, or tokens."""
    strategy: Strategy
    max_tokens: int
    n: int = 1
    seed: int = 0
    top: int = 0
    """How many alternatives of each token to tell."""
    copy: int = 0
    """The number of the first text among those of equal prompts: each has random numbers of its own."""
    heal: bool = True
    """Whether a text may stop inside a token (decode/healing.py)."""


@dataclass(frozen=True)
class Begun:
    """A text begins: what was read of its prompt, and the tokens that spell the rest of it, and perhaps more."""

    row: int
    read: list[int]
    rest: bytes
    """The end of the prompt that `ids` spell."""
    ids: list[int]
    tokens: int
    """The tokens of the prompt."""


@dataclass(frozen=True)
class Written:
    """The next tokens of a text, and ln p of each."""

    row: int
    ids: list[int]
    log_probs: list[float]
    tops: list[list[tuple[int, float]]] | None
    """The likeliest tokens at each place with their ln p, where they were asked for."""
    finish: str | None
    """Why nothing follows: "stop", at an end; "length", at the greatest length; None: more will come."""


@dataclass(frozen=True)
class Failed:
    """The request came to nothing."""

    error: Exception


Event: TypeAlias = Begun | Written | Failed


class Ticket:
    """A request for texts that is on its way. It belongs to the event loop that made it."""

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self.cancelled = False
        self.waiting = ask.n
        """Texts that have not ended."""
        self._events: asyncio.Queue[Event] = asyncio.Queue()

    def put(self, event: Event) -> None:
        """Add an event; on the event loop."""
        self._events.put_nowait(event)

    async def events(self) -> AsyncIterator[Event]:
        """The events until all texts have ended; an error of the model is raised. Leaving early cancels it."""
        try:
            while self.waiting:
                event = await self._events.get()
                if isinstance(event, Failed):
                    raise event.error
                if isinstance(event, Written) and event.finish:
                    self.waiting -= 1
                yield event
        finally:
            self.cancel()

    def cancel(self) -> None:
        """Nobody listens any more: the thread drops what is not written yet."""
        self.cancelled = True


@dataclass
class Bulk:
    """Items that a function takes together with those of other requests that have the same key."""

    key: Hashable
    items: Sequence[Any]
    run: Callable[[list[Any]], Iterator[Any]]
    """Gives a result for each item, in order, and PAUSE wherever texts that are being written may go on."""
    future: asyncio.Future[list[Any]]

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for the results any more."""
        return self.future.cancelled()


PAUSE = object()
"""What the function of a `Bulk` gives between two results, or two parts of one."""
