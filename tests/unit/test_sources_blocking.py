"""Consul's blocking queries: index rules, pace, debounce, and their driver on a scripted peer."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.errors import SourceUnreachable
from controlplane.sources.blocking import (
    BURST,
    DEBOUNCE_LIMIT_SECONDS,
    DEBOUNCE_QUIET_SECONDS,
    Answer,
    BlockingMachine,
    Change,
    Debounce,
    Pace,
)
from controlplane.sources.blocking_watch import BlockingWatch, Retry

Keys = frozenset[str]


def answer(index: int, *keys: str) -> Answer[Keys]:
    content = frozenset(keys)
    return Answer(index=index, content=content, identity=content, is_empty=not content)


def change(*keys: str, is_reset: bool = False) -> Change[Keys]:
    return Change(content=frozenset(keys), identity=frozenset(keys), is_reset=is_reset)


def fresh() -> BlockingMachine[Keys]:
    return BlockingMachine()


def debounced() -> Debounce[Keys]:
    return Debounce()


def after(*answers: Answer[Keys]) -> BlockingMachine[Keys]:
    machine = fresh()
    for one in answers:
        machine, _ = machine.on_answer(one)
    return machine


def test_first_answer_is_a_change_even_if_nothing_is_there() -> None:
    machine, found = fresh().on_answer(answer(7))
    assert found == change()
    assert machine.request_index == 7


def test_an_index_that_moved_alone_changes_nothing() -> None:
    machine, found = after(answer(7, "a")).on_answer(answer(9, "a"))
    assert found is None
    assert (machine.request_index, machine.unchanged) == (9, 1)


def test_absence_is_a_change_and_no_reset() -> None:
    _, found = after(answer(7, "a")).on_answer(answer(9))
    assert found == change()


@pytest.mark.parametrize("index", [0, -5])
def test_an_index_below_one_becomes_one(index: int) -> None:
    assert after(answer(index, "a")).request_index == 1


@pytest.mark.fault("R11")
def test_backwards_restarts_without_index_and_marks_a_reset() -> None:
    machine, found = after(answer(9, "a", "b")).on_answer(answer(3))
    assert found is None
    assert machine.request_index == 0

    machine, found = machine.on_answer(answer(3))

    assert found == change(is_reset=True)
    assert machine.request_index == 3
    assert machine.on_answer(answer(4, "a"))[1] == change("a")


@pytest.mark.fault("R11")
def test_backwards_with_the_same_content_is_no_change() -> None:
    machine, _ = after(answer(9, "a")).on_answer(answer(3, "a"))
    machine, found = machine.on_answer(answer(3, "a"))
    assert found is None
    assert machine.on_answer(answer(4))[1] == change()


@pytest.mark.fault("R11")
@pytest.mark.parametrize("index", [2, 9, 1000])
def test_a_store_that_is_empty_after_lost_contact_is_a_reset_at_any_index(index: int) -> None:
    machine = after(answer(9, "a")).on_failure()
    assert machine.request_index == 0
    assert machine.on_answer(answer(index))[1] == change(is_reset=True)


def test_a_deletion_of_one_of_two_while_out_of_contact_is_believed() -> None:
    machine = after(answer(9, "a", "b")).on_failure()
    assert machine.on_answer(answer(12, "a"))[1] == change("a")


ANSWERS = st.builds(
    lambda index, keys: answer(index, *keys),
    st.integers(-2, 12),
    st.frozensets(st.sampled_from("abc"), max_size=3),
)


@settings(max_examples=150)
@given(steps=st.lists(st.one_of(st.none(), ANSWERS), max_size=30))
def test_every_change_differs_and_a_fall_of_the_index_never_deletes(
    steps: list[Answer[Keys] | None],
) -> None:
    machine = fresh()
    delivered: Keys | None = None
    for step in steps:
        before = machine
        if step is None:
            machine = machine.on_failure()
            assert machine.request_index == 0
            continue
        machine, found = machine.on_answer(step)
        index = max(1, step.index)
        assert machine.request_index in {0, index}
        if machine.request_index == 0:
            assert index < before.request_index
            assert found is None
        if found is not None:
            assert found.content == step.content != delivered
            fell = before.is_resetting or index < before.seen_index
            assert found.is_reset or not fell
            delivered = found.content


@settings(max_examples=100)
@given(
    pauses=st.lists(st.floats(0, 2), min_size=1, max_size=60),
    unchanged=st.lists(st.integers(0, 100), min_size=60, max_size=60),
)
def test_pace_never_exceeds_burst_plus_one_a_second(pauses: list[float], unchanged: list[int]) -> None:
    now, pace, asked = 0.0, Pace(updated_seconds=0.0), []
    for pause, streak in zip(pauses, unchanged, strict=False):
        now += pause
        pace, wait = pace.take(now, streak)
        now += wait
        asked.append(now)
    for first in asked:
        for span in (0.5, 1.0, 5.0):
            assert sum(first <= at < first + span - 1e-6 for at in asked) <= BURST + span + 1e-6


def test_pace_slows_down_while_nothing_changes() -> None:
    pace, waits = Pace(updated_seconds=0.0), []
    now = 0.0
    for streak in range(10):
        pace, wait = pace.take(now, streak)
        now += wait
        waits.append(wait)
    assert waits[:3] == [0.0, 0.0, 1.0]
    assert waits[-1] == 4.0


@settings(max_examples=100)
@given(gaps=st.lists(st.floats(0.0, 0.3), min_size=1, max_size=30))
def test_debounce_waits_for_quiet_but_not_longer_than_its_limit(gaps: list[float]) -> None:
    debounce = debounced().on_change(0.0, change("a"))
    assert debounce.due_seconds == 0.0
    debounce, first = debounce.deliver()
    assert first == change("a")

    now = 10.0
    debounce = debounce.on_change(now, change("b", is_reset=True))
    for number, gap in enumerate(gaps):
        due = debounce.due_seconds
        assert due is not None
        assert due <= min(now + DEBOUNCE_QUIET_SECONDS, 10.0 + DEBOUNCE_LIMIT_SECONDS)
        now += gap
        debounce = debounce.on_change(now, change(f"c{number}"))
    debounce, ready = debounce.deliver()
    assert ready == change(f"c{len(gaps) - 1}", is_reset=True)
    assert debounce.due_seconds is None


def test_an_edit_taken_back_while_it_waits_is_not_delivered() -> None:
    debounce, _ = debounced().on_change(0.0, change("a")).deliver()
    debounce = debounce.on_change(1.0, change("b")).on_change(1.05, change("a"))
    assert debounce.deliver()[1] is None


class Outcomes:
    def __init__(self) -> None:
        self.seen: list[str] = []

    def record_success(self) -> None:
        self.seen.append("ok")

    def record_failure(self, error: str) -> None:
        self.seen.append(error)


def make_watch(
    read: Callable[[int], Awaitable[Answer[Keys]]], outcomes: Outcomes | None = None
) -> BlockingWatch[Keys]:
    retry = Retry(minimum_seconds=0.01, maximum_seconds=0.02, clock=time.monotonic, random=lambda: 0.5)
    return BlockingWatch(read=read, outcomes=outcomes or Outcomes(), retry=retry)


async def test_driver_yields_changes_and_retries_without_index() -> None:
    script: list[Answer[Keys] | SourceUnreachable] = [
        answer(5, "a"),
        SourceUnreachable("consul", "refused"),
        answer(6, "a", "b"),
    ]
    asked: list[int] = []
    outcomes = Outcomes()

    async def read(index: int) -> Answer[Keys]:
        asked.append(index)
        if not script:
            await asyncio.get_running_loop().create_future()
        step = script.pop(0)
        if isinstance(step, SourceUnreachable):
            raise step
        return step

    async with contextlib.aclosing(make_watch(read, outcomes).changes()) as changes:
        assert await anext(changes) == change("a")
        assert await anext(changes) == change("a", "b")
    assert asked[:3] == [0, 5, 0]
    assert outcomes.seen == ["ok", "refused", "ok"]


async def test_driver_raises_what_is_no_trouble_of_the_peer() -> None:
    async def read(_index: int) -> Answer[Keys]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await anext(make_watch(read).changes())


async def test_closing_the_generator_cancels_the_query() -> None:
    cancelled = asyncio.Event()

    async def read(index: int) -> Answer[Keys]:
        if index == 0:
            return answer(5, "a")
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            cancelled.set()
        raise AssertionError

    changes = make_watch(read).changes()
    await anext(changes)
    waiting = asyncio.ensure_future(anext(changes))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert cancelled.is_set()
    assert len(asyncio.all_tasks()) == 1
