"""Reading on from a cache is reading it all again."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from chainrule.networks.transformer.cache import Cache
from chainrule.networks.transformer.config import TransformerConfig
from chainrule.networks.transformer.decoder import Transformer

CLOSE = {"rtol": 1e-5, "atol": 1e-5}
POSITIONS = ["learned", "sinusoidal", "rotary", "alibi", "none"]


def network(**settings: Any) -> Transformer:
    torch.manual_seed(3)
    small = {"layers": 2, "width": 32, "heads": 4, "window": 24, "zero_init": False, "initial_std": 0.2}
    return Transformer(TransformerConfig(**{**small, **settings}), 17).eval()


def some_ids(B: int, T: int, seed: int = 4) -> Tensor:
    return torch.randint(17, (B, T), generator=torch.Generator().manual_seed(seed))


def whole(transformer: Transformer, ids_BT: Tensor) -> Tensor:
    with torch.no_grad():
        return transformer(ids_BT).features_BTD


def read(transformer: Transformer, memory: Cache, ids_BT: Tensor, pieces: list[int]) -> tuple[Tensor, Cache]:
    features = []
    for piece in ids_BT.split(pieces, dim=1):
        reading = transformer(piece, memory)
        features.append(reading.features_BTD)
        memory = reading.memory
    return torch.cat(features, dim=1), memory


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("positions", POSITIONS)
def test_odd_pieces_are_the_whole(positions: str, kv_heads: int) -> None:
    transformer = network(positions=positions, kv_heads=kv_heads)
    ids_BT = some_ids(3, 24)
    for capacity, pieces in ((2, [1] * 24), (None, [5, 1, 1, 7, 2, 1, 6, 1]), (24, [23, 1]), (3, [24])):
        features_BTD, memory = read(transformer, transformer.begin(3, capacity), ids_BT, pieces)
        torch.testing.assert_close(features_BTD, whole(transformer, ids_BT), **CLOSE)
        assert memory.longest == 24
        assert memory.lengths_B.tolist() == [24, 24, 24]


@pytest.mark.parametrize("kv_heads", [4, 1])
@pytest.mark.parametrize("positions", POSITIONS)
def test_rows_of_different_lengths(positions: str, kv_heads: int) -> None:
    """Each row reads pieces of its own lengths, some of them empty, up to the end of the window."""
    transformer = network(positions=positions, kv_heads=kv_heads)
    ids_BT = some_ids(4, 24)
    counts = torch.tensor(
        [[3, 0, 1, 2, 7, 1, 0], [0, 4, 1, 0, 0, 1, 1], [9, 9, 1, 2, 2, 1, 0], [1, 1, 1, 1, 1, 1, 1]]
    )
    memory, at_B = transformer.begin(4, 2), torch.zeros(4, dtype=torch.int64)
    expected_BTD = whole(transformer, ids_BT)
    for count_B in counts.T:
        places_BT = at_B[:, None] + torch.arange(int(count_B.max()))
        is_token_BT = places_BT < (at_B + count_B)[:, None]
        reading = transformer(ids_BT.gather(1, places_BT.clamp(max=23)), memory, is_token_BT)
        for b in range(4):
            new = slice(int(at_B[b]), int(at_B[b] + count_B[b]))
            torch.testing.assert_close(reading.features_BTD[b, : int(count_B[b])], expected_BTD[b, new], **CLOSE)
        memory, at_B = reading.memory, at_B + count_B
        assert memory.lengths_B.tolist() == at_B.tolist()
    assert memory.longest == 24  # row 2 has read 24 = 9 + 9 + 1 + 2 + 2 + 1


def test_steps_of_rows_of_which_some_are_full() -> None:
    """A full row that reads nothing more keeps all it knows."""
    transformer = network()
    ids_BT = some_ids(2, 24)
    is_token_BT = torch.arange(24) < torch.tensor([[24], [10]])
    memory = transformer(ids_BT, transformer.begin(2), is_token_BT).memory
    before = memory.buffer.keys_LBGSK[:, 0].clone()
    for t in range(10, 20):
        reading = transformer(ids_BT[:, t, None], memory, torch.tensor([[False], [True]]))
        memory = reading.memory
        torch.testing.assert_close(
            reading.features_BTD[1, 0], whole(transformer, ids_BT[1:, : t + 1])[0, -1], **CLOSE
        )
    assert memory.lengths_B.tolist() == [24, 20]
    assert torch.equal(memory.buffer.keys_LBGSK[:, 0], before)


def test_padding_in_training_changes_nothing() -> None:
    transformer = network()
    ids_BT = some_ids(2, 9)
    longer_BT = torch.cat([ids_BT, some_ids(2, 5, seed=5)], dim=1)
    torch.testing.assert_close(whole(transformer, longer_BT)[:, :9], whole(transformer, ids_BT), **CLOSE)


def test_branches_in_any_order() -> None:
    transformer = network()
    stem, left, right = some_ids(2, 5), some_ids(2, 4, seed=6), some_ids(2, 4, seed=7)
    memory = transformer(stem, transformer.begin(2)).memory
    on_left, left_memory = read(transformer, memory, left[:, :2], [1, 1])
    on_right, right_memory = read(transformer, memory, right[:, :2], [2])
    more_left, _ = read(transformer, left_memory, left[:, 2:], [1, 1])
    more_right, _ = read(transformer, right_memory, right[:, 2:], [2])
    again, _ = read(transformer, memory, left, [4])
    for branch, parts in ((left, [on_left, more_left]), (right, [on_right, more_right]), (left, [again])):
        expected = whole(transformer, torch.cat([stem, branch], dim=1))[:, 5:]
        torch.testing.assert_close(torch.cat(parts, dim=1), expected, **CLOSE)


def test_reading_on_from_the_newest_copies_nothing() -> None:
    transformer = network()
    first = transformer(some_ids(1, 3), transformer.begin(1, 24)).memory
    second = transformer(some_ids(1, 1), first).memory
    assert second.buffer is first.buffer
    assert transformer(some_ids(1, 1), first).memory.buffer is not first.buffer, "an older one is read on from"
    assert transformer(some_ids(1, 1), second).memory.buffer is first.buffer


def test_room_grows_by_doubling_up_to_the_window() -> None:
    transformer = network()
    memory, capacities = transformer.begin(1, 3), []
    for _ in range(24):
        memory = transformer(some_ids(1, 1), memory).memory
        capacities.append(memory.buffer.capacity)
    assert capacities == [3] * 3 + [6] * 3 + [12] * 6 + [24] * 12


def test_select_reorders_repeats_and_drops() -> None:
    transformer = network(positions="alibi", kv_heads=2)
    ids_BT, lengths_B = some_ids(3, 8), torch.tensor([8, 3, 5])
    is_token_BT = torch.arange(8) < lengths_B[:, None]
    memory = transformer(ids_BT, transformer.begin(3), is_token_BT).memory
    rows_B, step_BT = torch.tensor([2, 2, 0, 1]), some_ids(4, 2, seed=8)
    features_BTD, _ = read(transformer, memory.select(rows_B), step_BT, [1, 1])
    for i, row in enumerate(rows_B.tolist()):
        known = torch.cat([ids_BT[row, : lengths_B[row]], step_BT[i]])
        torch.testing.assert_close(features_BTD[i], whole(transformer, known[None])[0, -2:], **CLOSE)


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("positions", POSITIONS)
def test_step_is_reading_on(positions: str, kv_heads: int) -> None:
    transformer = network(positions=positions, kv_heads=kv_heads)
    ids_BT, lengths_B = some_ids(3, 10), torch.tensor([4, 1, 6])
    memory = transformer(ids_BT[:, :6], transformer.begin(3, 24), torch.arange(6) < lengths_B[:, None]).memory
    keys_LBGSK, values_LBGSK = (x.clone() for x in (memory.buffer.keys_LBGSK, memory.buffer.values_LBGSK))
    for t in range(6, 10):
        with torch.no_grad():
            features_BD = transformer.step(ids_BT[:, t], keys_LBGSK, values_LBGSK, lengths_B)
        reading = transformer(ids_BT[:, t, None], memory)
        torch.testing.assert_close(features_BD, reading.features_BTD[:, 0], **CLOSE)
        memory, lengths_B = reading.memory, lengths_B + 1
    torch.testing.assert_close(keys_LBGSK, memory.buffer.keys_LBGSK, **CLOSE)


@pytest.mark.parametrize("positions", POSITIONS)
def test_one_step_never_waits_for_the_device(positions: str) -> None:
    """The meta device has no numbers, so that an attempt to read one fails."""
    transformer = network(positions=positions, kv_heads=2).to("meta")
    ids_BT, rows_B = torch.empty(3, 1, dtype=torch.int64, device="meta"), torch.empty(3, dtype=torch.int64)
    memory = transformer.begin(3)
    for _ in range(3):
        memory = transformer(ids_BT, memory).memory
    ragged = transformer(ids_BT, memory, torch.empty(3, 1, dtype=torch.bool, device="meta")).memory
    assert (memory.is_uniform, ragged.is_uniform) == (True, False)
    for _ in range(3):
        ragged = transformer(ids_BT, ragged.select(rows_B.to("meta"))).memory
    assert ragged.longest == 7


@pytest.mark.parametrize("positions", POSITIONS)
def test_nothing_may_be_read(positions: str) -> None:
    transformer = network(positions=positions)
    memory = transformer(some_ids(2, 3), transformer.begin(2)).memory
    nothing = transformer(some_ids(2, 0), memory)
    assert (nothing.features_BTD.shape, nothing.memory.lengths_B.tolist()) == ((2, 0, 32), [3, 3])
    features_BTD, _ = read(transformer, nothing.memory, some_ids(2, 2, seed=5), [2])
    expected_BTD = whole(transformer, torch.cat([some_ids(2, 3), some_ids(2, 2, seed=5)], dim=1))[:, 3:]
    torch.testing.assert_close(features_BTD, expected_BTD, **CLOSE)
    no_rows = transformer(some_ids(0, 3), transformer.begin(0), torch.ones(0, 3, dtype=torch.bool))
    assert no_rows.features_BTD.shape == (0, 3, 32)


def test_more_than_the_window_is_refused() -> None:
    transformer = network()
    with pytest.raises(ValueError, match="window of 24 tokens was given 25"):
        transformer(some_ids(1, 25))
    memory = transformer(some_ids(1, 20), transformer.begin(1)).memory
    with pytest.raises(ValueError, match="window of 24 tokens was given 25"):
        transformer(some_ids(1, 5), memory)
    assert transformer(some_ids(1, 4), memory).memory.longest == 24


def test_a_failed_reading_leaves_the_memory_as_it_was() -> None:
    transformer = network()
    memory = transformer(some_ids(1, 20), transformer.begin(1)).memory
    with pytest.raises(IndexError):
        transformer(torch.tensor([[99]]), memory)
    features_BTD, _ = read(transformer, memory, some_ids(1, 3, seed=9), [3])
    expected = whole(transformer, torch.cat([some_ids(1, 20), some_ids(1, 3, seed=9)], dim=1))[:, 20:]
    torch.testing.assert_close(features_BTD, expected, **CLOSE)


@pytest.mark.parametrize("positions", POSITIONS)
def test_rows_are_reordered_at_every_step_as_in_a_search(positions: str) -> None:
    """A copy has little space for new tokens, and grows when it is full; old caches stay valid."""
    transformer = network(positions=positions)
    ids_BT = some_ids(4, 24)
    memory, rows, old = transformer.begin(4), torch.arange(4), []
    generator = torch.Generator().manual_seed(5)
    for t in range(24):
        if t % 11:  # so that both happen: a step that selects, and several in a row that do not
            chosen = torch.randint(4, (4,), generator=generator)
            memory, rows = memory.select(chosen), rows[chosen]
        old.append((memory, rows, t))
        reading = transformer(ids_BT[rows, t : t + 1], memory)
        torch.testing.assert_close(
            reading.features_BTD[:, 0], whole(transformer, ids_BT[rows, : t + 1])[:, -1], **CLOSE
        )
        memory = reading.memory
    for before, rows, t in old[::5]:
        again, _ = read(transformer, before, ids_BT[rows, t:], [1] * (24 - t))
        torch.testing.assert_close(again, whole(transformer, ids_BT[rows])[:, t:], **CLOSE)
