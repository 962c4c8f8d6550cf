from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.sim.cache import Block, PrefixCache, chain

PARTS = st.lists(st.text(max_size=12), max_size=6)


def tokens(blocks: tuple[Block, ...]) -> int:
    return sum(block.tokens for block in blocks)


@settings(max_examples=60, deadline=None)
@given(first=PARTS, second=PARTS)
def test_blocks_are_equal_exactly_as_far_as_the_parts_are(first: list[str], second: list[str]) -> None:
    same = 0
    while same < min(len(first), len(second)) and first[same] == second[same]:
        same += 1

    left, right = chain(first), chain(second)

    assert left[:same] == right[:same]
    assert all(a.hash != b.hash for a, b in zip(left[same:], right[same:], strict=False))


def test_parts_do_not_run_into_each_other() -> None:
    assert chain(["ab", "c"])[-1].hash != chain(["a", "bc"])[-1].hash


def test_a_chain_goes_on_where_another_ended() -> None:
    whole = chain(["a", "b", "c"])

    assert chain(["c"], after=whole[1].hash) == whole[2:]


def test_four_characters_are_a_token_and_nothing_is_free() -> None:
    assert [block.tokens for block in chain(["", "abcd", "abcde"])] == [1, 1, 2]


def test_only_a_prefix_hits() -> None:
    cache = PrefixCache(capacity_tokens=100)
    cache.insert(chain(["system", "hello"]))

    assert cache.match(chain(["system", "hello", "more"])) == 4
    assert cache.match(chain(["system", "else"])) == 2
    assert cache.match(chain(["hello"])) == 0


def test_the_end_of_the_least_recently_used_conversation_goes_first() -> None:
    # given two conversations of two blocks each, which fill the cache
    old, new = chain(["a", "b"]), chain(["c", "d"])
    cache = PrefixCache(capacity_tokens=4)
    cache.insert(old)
    cache.insert(new)

    # when a block more is needed, then the end of the older one goes
    cache.insert(chain(["e"]))
    assert (cache.match(old), cache.match(new)) == (1, 2)

    # when the older one was used meanwhile, then the newer one pays
    cache.match(new)
    cache.match(old)
    cache.limit(2)
    assert (cache.match(new), cache.match(old)) == (1, 1)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.lists(st.sampled_from("abcdef"), max_size=5), st.integers(0, 12)), max_size=20)
)
def test_the_limit_holds_and_the_count_is_right(moves: list[tuple[list[str], int]]) -> None:
    cache = PrefixCache(capacity_tokens=12)
    for parts, limit in moves:
        cache.insert(chain(parts))
        cache.limit(limit)
        assert cache.tokens <= limit
        assert cache.match(chain(parts)) <= cache.tokens


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.booleans(), st.lists(st.sampled_from("ab"), min_size=1, max_size=5)),
        max_size=25,
    )
)
def test_no_block_outlives_what_comes_before_it(moves: list[tuple[bool, list[str]]]) -> None:
    cache = PrefixCache(capacity_tokens=6)
    seen = set()
    for is_insert, parts in moves:
        prompt = chain(parts)
        seen.add(prompt)
        if is_insert:
            cache.insert(prompt)
        else:
            cache.match(prompt)
        for known in seen:
            here = [block.hash in cache._blocks for block in known]
            assert here == sorted(here, reverse=True)
