from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.sim.cache import Block, chain
from controlplane.sim.engine import Engine, Fault, Job, Profile, Token

PROFILE = Profile(
    max_running=2,
    prefill_tokens_per_second=100.0,
    prefill_chunk_tokens=50,
    decode_tokens_per_second=10.0,
    batch_slowdown_ratio=0.5,
    kv_capacity_tokens=1_000,
)


def job(prompt_tokens: int = 10, output_tokens: int = 3, *, name: str = "") -> Job:
    prompt = (Block(name.encode() or b"prompt-%d" % prompt_tokens, prompt_tokens),)
    return Job(prompt=prompt, output_tokens=output_tokens)


def times(tokens: list[Token], job_id: int) -> list[float]:
    return [token.at for token in tokens if token.job_id == job_id]


def test_one_request_alone_takes_prefill_then_steps() -> None:
    engine = Engine(PROFILE)

    engine.submit(job(), 5.0)
    tokens = engine.advance(100.0)

    assert [token.at for token in tokens] == pytest.approx([5.1, 5.2, 5.3])
    assert [token.gap_seconds for token in tokens] == pytest.approx([0.1, 0.1, 0.1])
    assert tokens[-1].elapsed_seconds == pytest.approx(0.3)
    assert [token.is_last for token in tokens] == [False, False, True]
    assert engine.busy_seconds == pytest.approx(0.3)
    assert (engine.running, engine.waiting, engine.wake_at) == (0, 0, None)


def test_tokens_do_not_depend_on_how_often_time_is_told() -> None:
    def run(moments: list[float]) -> list[Token]:
        engine = Engine(PROFILE)
        engine.submit(job(120, 4, name="a"), 0.0)
        found = []
        for moment in moments:
            found += engine.advance(moment)
            if moment == 1.0:
                engine.submit(job(30, 5, name="b"), 1.0)
        return found

    assert run([1.0, 50.0]) == run([n / 8 for n in range(400)])


def test_a_fuller_batch_is_slower_for_each() -> None:
    engine = Engine(PROFILE)
    first = engine.submit(job(10, 20, name="a"), 0.0)
    engine.submit(job(10, 20, name="b"), 0.0)

    gaps = [token.gap_seconds for token in engine.advance(100.0) if token.job_id == first]

    # its own prompt, a token beside the other's prompt, then (1 + 0.5)/10 seconds a token
    assert gaps[:4] == pytest.approx([0.1, 0.2, 0.15, 0.15])


def test_a_long_prompt_comes_in_chunks_and_delays_those_who_decode() -> None:
    engine = Engine(PROFILE)
    first = engine.submit(job(10, 20, name="a"), 0.0)
    engine.advance(0.15)
    second = engine.submit(job(120, 1, name="b"), 0.15)

    tokens = engine.advance(100.0)

    gaps = [token.gap_seconds for token in tokens if token.job_id == first]
    assert gaps[:5] == pytest.approx([0.1, 0.6, 0.6, 0.3, 0.1])
    assert times(tokens, second) == pytest.approx([0.2 + 0.6 + 0.6 + 0.3])


def test_more_than_the_batch_wait_in_order() -> None:
    engine = Engine(PROFILE)
    ids = [engine.submit(job(10, 2, name=str(n)), 0.0) for n in range(4)]
    assert (engine.running, engine.waiting) == (1, 3)  # the first began at once, alone

    tokens = engine.advance(0.1)
    tokens += engine.advance(100.0)

    firsts = [token.job_id for token in tokens if token.index == 0]
    assert firsts == ids


def test_a_request_waits_for_room_in_the_kv_cache() -> None:
    engine = Engine(PROFILE)
    engine.submit(job(600, 100, name="a"), 0.0)
    engine.submit(job(600, 100, name="b"), 0.0)

    engine.advance(10.0)

    assert (engine.running, engine.waiting) == (1, 1)
    assert 0.6 < engine.kv_usage_ratio < 0.7


def test_what_can_never_fit_is_refused() -> None:
    engine = Engine(PROFILE)

    assert not engine.accepts(job(1_000, 1))
    with pytest.raises(ValueError, match="1001 tokens"):
        engine.submit(job(1_000, 1), 0.0)


def test_a_conversation_that_goes_on_computes_only_what_is_new() -> None:
    # given an answered question
    engine = Engine(PROFILE)
    turn = chain(["x" * 200, "y" * 200])
    answer = chain(["answer"], after=turn[-1].hash)
    engine.submit(Job(prompt=turn, output_tokens=1, answer=answer), 0.0)
    assert engine.advance(10.0)[0].gap_seconds == pytest.approx(1.0)

    # when the next one comes on top of it
    more = (*turn, *answer, *chain(["z" * 40], after=answer[-1].hash))
    engine.submit(Job(prompt=more, output_tokens=1), 10.0)
    token = engine.advance(20.0)[0]

    # then only its own ten tokens are computed
    assert token.cached_tokens == 102
    assert token.gap_seconds == pytest.approx(0.1)
    assert (engine.hit_tokens, engine.queried_tokens) == (102, 212)


def test_a_prompt_that_is_wholly_cached_still_computes_its_last_token() -> None:
    engine = Engine(PROFILE)
    for at in (0.0, 10.0):
        engine.submit(job(100, 1), at)
        tokens = engine.advance(at + 9.0)

    assert tokens[0].cached_tokens == 100
    assert tokens[0].gap_seconds == pytest.approx(0.01)


def test_running_requests_push_the_cache_out() -> None:
    engine = Engine(PROFILE)
    engine.submit(job(500, 1, name="old"), 0.0)
    engine.advance(10.0)
    engine.submit(job(800, 1, name="large"), 10.0)
    engine.advance(30.0)

    engine.submit(job(500, 1, name="old"), 30.0)

    assert engine.advance(40.0)[0].cached_tokens == 0


def test_a_slow_server_is_slower_by_its_factor_and_recovers_at_once() -> None:
    engine = Engine(PROFILE)
    engine.set_fault(Fault(slow_factor=4.0), 0.0)
    engine.submit(job(10, 9), 0.0)

    tokens = engine.advance(0.6)
    engine.set_fault(Fault(), 0.6)
    tokens += engine.advance(10.0)

    assert [token.at for token in tokens[:4]] == pytest.approx([0.4, 0.65, 0.75, 0.85])


def test_a_hanging_server_answers_nothing_until_it_does() -> None:
    engine = Engine(PROFILE)
    engine.submit(job(10, 2, name="a"), 0.0)
    engine.set_fault(Fault(hang=True), 0.05)
    engine.submit(job(10, 2, name="b"), 1.0)
    assert engine.advance(100.0) == []
    assert engine.wake_at is None

    engine.set_fault(Fault(), 100.0)

    assert len(engine.advance(200.0)) == 4


def test_a_cancelled_request_makes_room_wherever_it_was() -> None:
    engine = Engine(PROFILE)
    ids = [engine.submit(job(10, 100, name=str(n)), 0.0) for n in range(4)]
    engine.advance(1.0)

    engine.cancel(ids[0], 1.0)
    engine.cancel(ids[3], 1.0)
    engine.cancel(12345, 1.0)

    tokens = engine.advance(2.0)
    assert {token.job_id for token in tokens if token.at > 1.2} == {ids[1], ids[2]}
    assert engine.waiting == 0


@settings(max_examples=60, deadline=None)
@given(
    arrivals=st.lists(
        st.tuples(st.floats(0, 2), st.integers(1, 300), st.integers(1, 20), st.sampled_from("abc")),
        min_size=1,
        max_size=12,
    ),
)
def test_whatever_comes_is_answered_whole_and_in_time_order(
    arrivals: list[tuple[float, int, int, str]],
) -> None:
    engine = Engine(PROFILE)
    now, tokens, wanted = 0.0, [], {}
    for delay, prompt, output, name in arrivals:
        now += delay
        tokens += engine.advance(now)
        wanted[engine.submit(job(prompt, output, name=f"{name}{prompt}"), now)] = output
        assert 0 <= engine.kv_usage_ratio <= 1
    tokens += engine.advance(now + 10_000.0)

    assert [token.at for token in tokens] == sorted(token.at for token in tokens)
    for job_id, output in wanted.items():
        mine = [token for token in tokens if token.job_id == job_id]
        assert [token.index for token in mine] == list(range(output))
        assert [token.is_last for token in mine] == [False] * (output - 1) + [True]
        assert math.isclose(sum(t.gap_seconds for t in mine), mine[-1].elapsed_seconds, rel_tol=1e-6)
    assert (engine.running, engine.waiting) == (0, 0)
    assert engine.busy_seconds <= now + 10_000.0


def test_a_gpu_class_is_a_multiple() -> None:
    fast = Profile(speed=4.0)
    slow = Profile()

    assert slow.step_seconds(decoding=3, prompt_tokens=100) == pytest.approx(
        4 * fast.step_seconds(decoding=3, prompt_tokens=100)
    )
    assert slow.step_seconds(decoding=0, prompt_tokens=400) == pytest.approx(0.1)
