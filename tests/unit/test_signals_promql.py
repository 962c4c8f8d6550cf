"""PromQL: what is rendered, and that no document can break out of it."""

from __future__ import annotations

import ast
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from controlplane.model.problems import Rejected
from controlplane.model.signals import Signal
from controlplane.model.strategy import Engine, SignalsSpec
from controlplane.sources.promql import Query, duration, plan, quote


def queries(spec: SignalsSpec) -> dict[str, Query]:
    planned = plan(spec)
    assert not isinstance(planned, Rejected), str(planned)
    return {query.signal: query for query in reversed(planned)}


def value_part(query: Query) -> str:
    matched = re.match(r'label_replace\((.*?), "trimtab_part", "value"', query.text)
    assert matched is not None
    return matched[1]


@pytest.mark.parametrize(
    ("engine", "signal", "expected"),
    [
        ("vllm", Signal.RUNNING, '(sum by (instance) (vllm:num_requests_running{job="llm"}))'),
        (
            "vllm",
            Signal.KV_USAGE_RATIO,
            (
                '(max by (instance) (vllm:kv_cache_usage_perc{job="llm"}))'
                ' or (max by (instance) (vllm:gpu_cache_usage_perc{job="llm"}))'
            ),
        ),
        (
            "vllm",
            Signal.GOOD_REQUESTS_PER_SECOND,
            (
                "(sum by (instance) (rate(vllm:request_success_total"
                '{finished_reason!="abort",finished_reason!="error",job="llm"}[30000ms])))'
            ),
        ),
        (
            "sglang",
            Signal.RUNNING,
            '(sum by (instance) (max by (instance, dp_rank) (sglang:num_running_reqs{job="llm"})))',
        ),
        (
            "triton",
            Signal.TTFT_P90_SECONDS,
            (
                "((histogram_quantile(0.9, sum by (instance, le) (rate("
                'nv_inference_first_response_histogram_ms_bucket{job="llm"}[30000ms])))) * 0.001)'
            ),
        ),
        (
            "tgi",
            Signal.WINDOW_REQUESTS,
            '(sum by (instance) (increase(tgi_request_duration_count{job="llm"}[30000ms])))',
        ),
        (
            "vllm",
            Signal.ERRORS_PER_SECOND,
            "(sum by (envoy_endpoint_address) (rate(envoy_cluster_endpoint_rq_error[30000ms])))",
        ),
    ],
)
def test_one_query_of_each_kind(engine: Engine, signal: str, expected: str) -> None:
    spec = SignalsSpec(engine=engine, window_seconds=30, selector={"job": "llm"})
    assert value_part(queries(spec)[signal]) == expected


def test_timestamps_of_a_histogram_are_those_of_its_count() -> None:
    text = queries(SignalsSpec())[Signal.TTFT_P90_SECONDS].text
    assert "timestamp(vllm:time_to_first_token_seconds_count)" in text
    assert "timestamp(vllm:time_to_first_token_seconds_bucket" not in text


def test_the_selector_reaches_the_engine_and_not_its_neighbours() -> None:
    for query in queries(SignalsSpec(selector={"job": "llm"})).values():
        assert ('job="llm"' in query.text) is (query.group == "engine")


NASTY = st.text(st.sampled_from("\\\"'`\n\r\t\x00{}()#,=~ax☃")) | st.text(
    st.characters(exclude_categories=["Cs"])
)


@given(NASTY)
@example("\\")
def test_a_quoted_value_reads_back_as_itself(value: str) -> None:
    quoted = quote(value)
    assert "\n" not in quoted
    # Python's literals have the same escapes as Go's for what `quote` writes; the raw newline-like
    # characters that Python alone minds do not concern PromQL.
    assert ast.literal_eval(quoted) == value


@given(NASTY | st.text(max_size=40))
def test_no_label_value_ends_its_string_early(value: str) -> None:
    planned = plan(SignalsSpec(selector={"job": value}))
    if isinstance(planned, Rejected):
        assert planned.problems[0].path == "signals.selector.job"
        return
    # Outside of string literals nothing of the value may be left.
    for query in planned:
        outside = re.sub(r'"(?:[^"\\]|\\.)*"', '""', query.text, flags=re.DOTALL)
        assert re.fullmatch(r"[-a-zA-Z0-9_:{}()\[\]=!,.+*/ \"]*", outside)


@given(st.text(max_size=20))
def test_a_join_label_is_a_label_name_or_refused(name: str) -> None:
    planned = plan(SignalsSpec(join_label=name or "x"))
    is_name = bool(re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", name or "x", flags=re.ASCII))
    assert isinstance(planned, Rejected) is (not is_name)


@pytest.mark.parametrize("name", ["le", "__name__", "trimtab_part", "a-b", "a b", 'a"', "1a", "ä", "a\n"])
def test_label_names_that_would_break_a_query_are_refused_with_their_path(name: str) -> None:
    rejected = plan(SignalsSpec(join_label=name, selector={name: "x"}))
    assert isinstance(rejected, Rejected)
    assert [problem.path for problem in rejected.problems] == [
        "signals.join_label",
        f"signals.selector.{name}",
    ]


@pytest.mark.parametrize("text", ["up", " up ", 'up{job="a"}', 'a:b{x="}",y=~"\\\\d+"}', "up{}"])
def test_a_bare_selector_is_asked_for_its_timestamps(text: str) -> None:
    query = queries(SignalsSpec(custom={"mine": text}))["mine"]
    assert query.is_timestamped
    assert f"timestamp({text.strip()})" in query.text


@pytest.mark.parametrize(
    "text",
    ["sum by (instance) (up)", "up) or (down", "up # note", "up[5m]", "1", "up offset 5m", "up or up", "{"],
)
def test_any_other_custom_query_is_sent_as_it_is(text: str) -> None:
    query = queries(SignalsSpec(custom={"mine": text}))["mine"]
    assert query.text == text
    assert not query.is_timestamped


def test_a_custom_query_replaces_the_catalogues_signal() -> None:
    planned = plan(SignalsSpec(custom={"running": "mine"}))
    assert not isinstance(planned, Rejected)
    assert [query.group for query in planned if query.signal == "running"] == [None]


@pytest.mark.parametrize(("seconds", "text"), [(60, "60000ms"), (1.5, "1500ms"), (0.0001, "1ms")])
def test_durations_are_whole_milliseconds(seconds: float, text: str) -> None:
    assert duration(seconds) == text
