"""The number of threads follows the time that steps take."""

from __future__ import annotations

import sys

import pytest

from chainrule.system import threads
from chainrule.system.threads import ThreadChoice, paying_threads


def run(choice: ThreadChoice, steps: int, seconds: dict[int, float]) -> list[int]:
    used = []
    for _ in range(steps):
        used.append(choice.threads)
        choice.step_took(seconds[choice.threads])
    return used


def test_all_threads_are_used_where_they_are_faster() -> None:
    used = run(ThreadChoice(2, lambda threads: None), 1000, {2: 0.06, 1: 0.1})
    assert used[:5] == [2] * 5
    assert used.count(1) < 40  # trials of five steps, every ten seconds


def test_one_thread_is_used_where_two_wait_for_each_other() -> None:
    used = run(ThreadChoice(2, lambda threads: None), 1000, {2: 1.0, 1: 0.1})
    assert used[10:].count(2) <= 12  # a trial of one slow step, every ten seconds


def test_a_machine_that_becomes_busy_or_quiet_is_noticed() -> None:
    choice = ThreadChoice(2, lambda threads: None)
    assert run(choice, 50, {2: 0.06, 1: 0.1})[-1] == 2
    assert run(choice, 20, {2: 1.0, 1: 0.1})[-1] == 1  # at once: a step takes far longer than usual
    assert run(choice, 300, {2: 0.06, 1: 0.1})[-1] == 2  # within ten seconds


def test_the_libraries_are_told() -> None:
    told: list[int] = []
    choice = ThreadChoice(2, told.append)
    run(choice, 12, {2: 1.0, 1: 0.1})
    assert told == [1] and choice.threads == 1


class Library:
    """A library of matrix products, as threadpoolctl describes one."""

    num_threads = 4

    def set_num_threads(self, threads: int) -> None:
        self.num_threads = threads


@pytest.mark.parametrize("fast", [1, 4])
def test_products_use_the_number_that_pays_and_then_all_again(fast: int, monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library()
    monkeypatch.setattr(threads, "_libraries", lambda: ([library], 4))
    monkeypatch.setattr(threads, "_seconds_of_products", lambda tried: abs(tried - fast))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with paying_threads():
        assert library.num_threads == fast
        assert ThreadChoice().threads == fast
    assert library.num_threads == 4
    with paying_threads(on=False):
        assert library.num_threads == 4


def test_the_products_of_numpy_are_found() -> None:
    (found, *_), most = threads._libraries()
    assert found.user_api == "blas" and most == found.num_threads
