"""The text format: what is read, and that nothing on a page can do harm."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from controlplane.sources.answers import Failed, Outcome
from controlplane.sources.exposition import MAX_LINE_CHARACTERS, MAX_SERIES, Point, parse

WANTED = frozenset({"a", "b:c_total"})


def test_wanted_series_are_read_with_sorted_labels_and_others_left_out() -> None:
    body = b'# HELP a x\n# TYPE a gauge\na{z="1",b="\\"\\\\\\n"} 2.5 1700000000000\nother 7\nb:c_total 3\n'
    assert parse(body, WANTED) == (
        Point("a", (("b", '"\\\n'), ("z", "1")), 2.5),
        Point("b:c_total", (), 3.0),
    )


def test_a_counter_keeps_the_name_it_has_on_the_page() -> None:
    assert parse(b"# TYPE a counter\na 5\n", WANTED) == (Point("a", (), 5.0),)


@pytest.mark.fault("R5")
@pytest.mark.parametrize("text", ["NaN", "+Inf", "-Inf", "-5", "1e300"])
def test_odd_numbers_are_passed_on_for_the_sanitizer_to_drop(text: str) -> None:
    points = parse(f"a {text}\n".encode(), WANTED)
    assert isinstance(points, tuple)
    assert len(points) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"a\n",
        b"a one\n",
        b"a{ 1\n",
        b'a{x="1} 1\n',
        b"a{x=1} 1\n",
        b"a 1_0\n",
        b"\xff\xfe",
        b'a{x="1",x="2"} 1',
    ],
)
def test_one_malformed_line_that_matters_refuses_the_page(body: bytes) -> None:
    answer = parse(b"b:c_total 1\n" + body, WANTED)
    assert isinstance(answer, Failed)
    assert answer.outcome is Outcome.MALFORMED


def test_html_has_no_series() -> None:
    assert parse(b"<!doctype html><html><body>Sign in\na</body></html>", WANTED) == ()


def test_limits_keep_a_hostile_page_cheap() -> None:
    quotes = b'a{x="' + b'\\"' * MAX_LINE_CHARACTERS + b'"} 1\n'
    series = b"".join(b'a{x="%d"} 1\n' % number for number in range(MAX_SERIES + 1))
    started = time.process_time()
    for body in (quotes, series, b"a" * 16_000_000, b"a " * 8_000_000, b"\n" * 4_000_000):
        answer = parse(body, WANTED)
        assert isinstance(answer, Failed) or answer == ()
    assert time.process_time() - started < 5


@settings(max_examples=200)
@given(st.binary(max_size=200))
@example(b'a{="1"} 1')
@example(b"a{} ")
@example(b"a{,} 1")
@example(b'a{"x"} 1')
def test_no_body_raises(body: bytes) -> None:
    for prefix in (b"", b"a", b"a{", b'a{x="', b"a "):
        parse(prefix + body, WANTED)
