"""The memory of a network at fixed addresses, which a captured step reads and writes in place.

A CUDA graph replays kernels at the addresses they had when it was captured. So the arrays of a memory are copied
here before the first step, updated in place by each step, and copied out after the last one: the memory of a state
is a value, and stays one. A Transformer's keys and values are too many to copy at every call; the newest cache may
live in the arrays themselves, and moves out when another one comes.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from chainrule.inference.gpu.recurrent_step import RecurrentStep, recurrent_step
from chainrule.inference.gpu.step import FusedStep, Source, Step, is_available, power_of_two
from chainrule.networks.memory import ArrayMemory, Memory
from chainrule.networks.network import Network
from chainrule.networks.seq2seq.encoder_decoder import SourcedMemory, Sources
from chainrule.networks.seq2seq.recurrent import DecoderMemory
from chainrule.networks.transformer.cache import Buffer, Cache
from chainrule.networks.transformer.decoder import Transformer
from chainrule.system.devices import has_triton

_NARROWEST = 32  # tokens of a source; more are rounded up to a power of two
_MOST_MOVED, _TILE = 16, 4096  # rows of a text that a program moves at once, and the numbers that it moves
_MOST_SOURCES = 512  # with more, the GPU has enough to do, and their arrays take much memory


class FixedMemory(ABC):
    """The arrays of one memory for at most so many rows, and the step that reads a token of each row."""

    fused: Step | None = None
    """The step by kernels; None where a network has none."""

    @abstractmethod
    def put(self, memory: Any, rows: int) -> None:
        """Copy a memory of this many rows here."""

    @abstractmethod
    def read(self, ids_B: Tensor, is_token_B: Tensor, lengths_B: Tensor) -> Tensor:
        """Read one token a row, and return the features [B, D]; rows without a token keep their memory."""

    def read_embedded(self, x_BD: Tensor, is_token_B: Tensor, lengths_B: Tensor) -> Tensor:
        """Read the embedding of a token of each row by `fused`; return what `fused.last_norm` makes features of."""
        raise NotImplementedError

    @abstractmethod
    def taken(self, given: Any, rows: int, lengths_B: Tensor, longest: int) -> Memory:
        """Return the memory after the steps as a value; `given` is what was put here, or of the same sources."""

    @abstractmethod
    def reorder(self, parents_B: Tensor, width: int, shared_P: Tensor, lengths_B: Tensor) -> None:
        """Give each of the first rows the memory of another one of its text; the others stay as they are.

        Texts have `width` rows each, which have read `lengths_B` tokens, the first `shared_P` of them the same.
        The rows of a text have the same sources.
        """

    @contextmanager
    def tried(self, positions: int) -> Iterator[None]:
        """Restore after this block what steps that only try something out write to, `positions` for each row."""
        yield


def fixed_memory(network: Any, memory: Memory, rows: int) -> FixedMemory | None:
    """Return arrays for memories like this one; None for too many sources, or a memory of another form."""
    sources, target = None, memory
    if isinstance(memory, SourcedMemory):
        if rows > _MOST_SOURCES:
            return None
        sources, target = FixedSources(memory.sources, rows), memory.target
    if isinstance(target, Cache):
        return FixedCache(network, rows, sources)
    return FixedArrays(network, target, rows, sources) if isinstance(target, ArrayMemory) else None


def width_of_sources(memory: Memory) -> int:
    """Return the width of the arrays for a memory's sources; 0 if it has none."""
    return _width(memory.sources) if isinstance(memory, SourcedMemory) else 0


def _width(sources: Sources) -> int:
    return max(power_of_two(sources.is_token_NS.shape[1]), _NARROWEST)


class FixedSources:
    """The encoded sources of an encoder-decoder, one for each row."""

    def __init__(self, sources: Sources, rows: int) -> None:
        width = _width(sources)
        of_rows = [array.new_zeros(rows, width, *array.shape[2:]) for array in sources.arrays]
        self.sources = Sources(tuple(of_rows), sources.is_token_NS.new_zeros(rows, width))
        # a row of the batch that no text fills looks at something too: a softmax over nothing would be NaN
        self.sources.is_token_NS[:, 0] = True
        self.lasts_N = torch.zeros(rows, dtype=torch.int64, device=sources.is_token_NS.device)
        """The position of the last token of each source: padding stands behind it."""
        self._newest: weakref.ref[Sources] | None = None

    def put(self, sources: Sources, rows: int) -> None:
        """Copy the sources of this many rows here, unless they are those that were copied last."""
        if self._newest is not None and self._newest() is sources:
            return
        each = sources.each()
        mine = (*self.sources.arrays, self.sources.is_token_NS)
        for array, new in zip(mine, (*each.arrays, each.is_token_NS), strict=True):
            array[:rows, : new.shape[1]] = new
            array[:rows, new.shape[1] :] = 0
        self.lasts_N[:rows] = each.is_token_NS.sum(dim=1) - 1
        self._newest = weakref.ref(sources)


# -- arrays -----------------------------------------------------------------------------------------------


class FixedArrays(FixedMemory):
    """The memory of a network whose memory has the same size whatever it has read, as of recurrent ones."""

    def __init__(self, network: Network, memory: ArrayMemory, rows: int, sources: FixedSources | None) -> None:
        self.network, self.sources = network, sources
        some = torch.zeros(rows, dtype=torch.int64, device=next(_arrays_of(memory)).device)
        self.memory = memory.select(some)
        places = () if sources is None else (sources.sources.arrays, sources.lasts_N)
        self.fused: RecurrentStep | None = recurrent_step(network, rows, *places)

    def put(self, memory: Any, rows: int) -> None:
        if self.sources is not None:
            self.sources.put(memory.sources, rows)
            memory = memory.target
        for array, new in zip(_arrays_of(self.memory), _arrays_of(memory), strict=True):
            array[:rows] = new

    def read(self, ids_B: Tensor, is_token_B: Tensor, lengths_B: Tensor) -> Tensor:
        if self.fused is not None:
            return self.read_embedded(self.fused.embed(ids_B, lengths_B), is_token_B, lengths_B)
        whole: Any = self.memory if self.sources is None else SourcedMemory(self.memory, self.sources.sources)
        features_B1D, after, _ = self.network(ids_B[:, None], whole)
        self._replace(after if self.sources is None else after.target, is_token_B)
        features_BD: Tensor = features_B1D[:, 0]
        return features_BD

    def read_embedded(self, x_BD: Tensor, is_token_B: Tensor, lengths_B: Tensor) -> Tensor:
        assert self.fused is not None and isinstance(self.memory, DecoderMemory)
        return self.fused.read(x_BD, self.memory, is_token_B)

    def read_windows(self, ids_BW: Tensor, is_token_BW: Tensor) -> Tensor:
        """Forget what was read and read these tokens of each row; return the features of the last, [B, D]."""
        features_BD, memory = self.network.read_window(ids_BW, is_token_BW)
        for array, new in zip(_arrays_of(self.memory), _arrays_of(memory), strict=True):
            array.copy_(new)
        return features_BD

    def _replace(self, memory: Any, rows_B: Tensor) -> None:
        """Take over the memory of some rows."""
        for array, new in zip(_arrays_of(self.memory), _arrays_of(memory), strict=True):
            if new is not array:
                is_new = rows_B.reshape(-1, *[1] * (array.dim() - 1))
                torch.where(is_new, new.to(array.dtype), array, out=array)

    def reorder(self, parents_B: Tensor, width: int, shared_P: Tensor, lengths_B: Tensor) -> None:
        for array in _arrays_of(self.memory):
            array[: len(parents_B)] = array[parents_B]

    def taken(self, given: Any, rows: int, lengths_B: Tensor, longest: int) -> Memory:
        after = self.memory.select(torch.arange(rows, device=lengths_B.device))
        return after if self.sources is None else SourcedMemory(after, given.sources)


def _arrays_of(part: Any) -> Iterator[Tensor]:
    """Yield the arrays of a memory, in order."""
    if isinstance(part, Tensor):
        yield part
    elif part is not None:
        inner = part if isinstance(part, tuple) else [getattr(part, field.name) for field in fields(part)]
        for one in inner:
            yield from _arrays_of(one)


# -- keys and values --------------------------------------------------------------------------------------


class FixedCache(FixedMemory):
    """The keys and values of a Transformer, or of the decoder of an encoder-decoder."""

    def __init__(self, network: Any, rows: int, sources: FixedSources | None = None) -> None:
        self.sources = sources
        decoder: Transformer = network if sources is None else network.decoder
        assert decoder.window is not None
        empty = decoder.begin(rows, decoder.window)
        self.keys_LBGSK, self.values_LBGSK = empty.buffer.keys_LBGSK, empty.buffer.values_LBGSK
        self.owner: weakref.ref[Buffer] = weakref.ref(empty.buffer)
        self.held: Buffer | None = None
        """The buffer between `put` and `taken`, while no cache refers to it."""
        source = None if sources is None else Source(sources.sources.arrays, sources.lasts_N)
        self.fused: FusedStep | None = FusedStep(decoder, rows, source) if is_available(decoder, rows) else None
        view = None if sources is None else network.view(sources.sources)
        self._step: Callable[..., Tensor] = self.fused or partial(decoder.step, source=view)

    def put(self, memory: Any, rows: int) -> None:
        if self.sources is not None:
            self.sources.put(memory.sources, rows)
            memory = memory.target
        self.held = self.adopt(memory, rows)

    def adopt(self, cache: Cache, rows: int) -> Buffer:
        """Return a buffer at the fixed addresses with the keys and values of a cache.

        Another buffer that lives there moves to a copy of its arrays.
        """
        owner = self.owner()
        if owner is not None and owner is cache.buffer and owner.version == cache.version:
            return owner
        if owner is not None:
            owner.keys_LBGSK, owner.values_LBGSK = owner.keys_LBGSK.clone(), owner.values_LBGSK.clone()
        used = min(cache.longest, cache.buffer.capacity)
        buffer = Buffer(self.keys_LBGSK[:, :rows], self.values_LBGSK[:, :rows])
        buffer.keys_LBGSK[:, :, :, :used] = cache.buffer.keys_LBGSK[:, :, :, :used]
        buffer.values_LBGSK[:, :, :, :used] = cache.buffer.values_LBGSK[:, :, :, :used]
        self.owner = weakref.ref(buffer)
        return buffer

    def read(self, ids_B: Tensor, is_token_B: Tensor, lengths_B: Tensor) -> Tensor:
        # a row without a token writes behind its end, where nothing looks
        return self._step(ids_B, self.keys_LBGSK, self.values_LBGSK, lengths_B)

    def read_embedded(self, x_BD: Tensor, is_token_B: Tensor, lengths_B: Tensor) -> Tensor:
        assert self.fused is not None
        return self.fused.read(x_BD, self.keys_LBGSK, self.values_LBGSK, lengths_B)

    def reorder(self, parents_B: Tensor, width: int, shared_P: Tensor, lengths_B: Tensor) -> None:
        if self.keys_LBGSK.is_cuda and has_triton() and width <= _MOST_MOVED:
            self.reorder_by_kernel(parents_B, width, shared_P, lengths_B)
            return
        rows, S = len(parents_B), self.keys_LBGSK.shape[3]
        is_read_BS = torch.arange(S, device=lengths_B.device) < lengths_B[:rows, None]
        for array in (self.keys_LBGSK, self.values_LBGSK):
            moved_LBGSK = array.index_select(1, parents_B)
            array[:, :rows] = torch.where(is_read_BS[:, None, :, None], moved_LBGSK, array[:, :rows])

    def reorder_by_kernel(self, parents_B: Tensor, width: int, shared_P: Tensor, lengths_B: Tensor) -> None:
        from chainrule.inference.gpu.search_kernels import reorder_rows

        L, _, G, _, K = self.keys_LBGSK.shape
        block = power_of_two(max(_TILE // (width * K), 1))
        reorder_rows[(L * G, len(parents_B) // width)](
            self.keys_LBGSK, self.values_LBGSK, parents_B, shared_P, lengths_B, *self.keys_LBGSK.stride()[:3],
            G, K, width, power_of_two(width), block, power_of_two(K), num_warps=4,
        )  # fmt: skip

    def taken(self, given: Any, rows: int, lengths_B: Tensor, longest: int) -> Memory:
        buffer, self.held = self.held, None
        assert buffer is not None
        buffer.version += 1
        cache = given if self.sources is None else given.target
        after = Cache(buffer, buffer.version, lengths_B, longest, False, cache.window)
        return after if self.sources is None else replace(given, target=after)

    @contextmanager
    def tried(self, positions: int) -> Iterator[None]:
        """Restore the first positions: a cache may live in these arrays, and a step that is tried writes there."""
        stores = self.keys_LBGSK, self.values_LBGSK
        first = [store_LBGSK[:, :, :, :positions].clone() for store_LBGSK in stores]
        yield
        for store_LBGSK, known_LBGSK in zip(stores, first, strict=True):
            store_LBGSK[:, :, :, :positions] = known_LBGSK
