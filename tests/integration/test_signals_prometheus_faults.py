"""What a Prometheus, or whatever stands in front of it, can do wrong (R4, R5, R6)."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from controlplane.config import PrometheusSettings
from controlplane.errors import SourceError, SourceMalformed, SourceUnreachable
from controlplane.model.strategy import SignalsSpec
from controlplane.sources.prometheus import PrometheusSignals
from controlplane.sources.prometheus_api import MAX_ANSWER_BYTES
from controlplane.sources.signal_metrics import SignalMetrics
from tests.support.fake_prometheus import Answer, FakePrometheus, fake_prometheus, success, vector
from tests.support.process import free_port
from tests.support.signal_requests import ages, signal_request, values

HOST = "10.0.0.1:8000"
REQUEST = signal_request([HOST])
VALUE, STAMP = {"trimtab_part": "value"}, {"trimtab_part": "timestamp"}


@contextlib.asynccontextmanager
async def reading(
    answer: Answer, *, timeout_seconds: float = 2.0, token_file: Path | None = None
) -> AsyncIterator[tuple[FakePrometheus, PrometheusSignals, CollectorRegistry]]:
    registry = CollectorRegistry()
    async with fake_prometheus(answer) as fake:
        source = PrometheusSignals(
            settings=PrometheusSettings(
                url=fake.url, timeout_seconds=timeout_seconds, bearer_token_file=token_file
            ),
            clock=time.monotonic,
            metrics=SignalMetrics(registry),
        )
        try:
            yield fake, source, registry
        finally:
            source.close()


def rows(value: str, *, stamp: str = "990", label: str = "instance") -> web.Response:
    return vector(({label: HOST, **VALUE}, value), ({label: HOST, **STAMP}, stamp))


async def html(_: web.Request) -> web.Response:
    return web.Response(text="<html>Sign in, please: secret-cookie</html>", content_type="text/html")


async def server_error(_: web.Request) -> web.Response:
    return web.Response(status=503, text="secret backend 10.1.2.3")


async def redirect(_: web.Request) -> web.Response:
    return web.Response(status=302, headers={"Location": "http://127.0.0.1:1/login"})


async def scalar(_: web.Request) -> web.Response:
    return success({"resultType": "scalar", "result": [1000.0, "1"]})


async def no_data(_: web.Request) -> web.Response:
    return web.json_response({"status": "success"})


async def nested(_: web.Request) -> web.Response:
    return web.Response(text="[" * 200_000, content_type="application/json")


async def null(_: web.Request) -> web.Response:
    return web.Response(text="null", content_type="application/json")


async def number_value(_: web.Request) -> web.Response:
    return success({"result": [{"metric": {}, "value": [1000, 5]}]})


async def odd_row(_: web.Request) -> web.Response:
    return success({"result": [{"metric": [], "value": "x"}]})


async def endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    with contextlib.suppress(ConnectionResetError):
        for _ in range(MAX_ANSWER_BYTES // 65536 + 4):
            await response.write(b" " * 65536)
    return response


@pytest.mark.fault("R4")
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (html, "not JSON"),
        (server_error, "HTTP Status Code 503"),
        (redirect, "HTTP Status Code 302"),
        (scalar, "not a vector of samples"),
        (no_data, "not Prometheus's"),
        (nested, "not Prometheus's"),
        (null, "not Prometheus's"),
        (number_value, "not a vector of samples"),
        (odd_row, "not a vector of samples"),
        (endless, "above 16777216 bytes"),
    ],
)
async def test_an_answer_that_is_not_prometheuss_is_malformed_and_never_repeated(
    answer: Answer, reason: str
) -> None:
    async with reading(answer, timeout_seconds=10.0) as (fake, source, _):
        with pytest.raises(SourceMalformed) as raised:
            await source.read(REQUEST)
        assert reason in raised.value.reason
        assert "secret" not in str(raised.value)
        assert len(fake.queries) == len(set(fake.queries))  # nothing was tried twice


@pytest.mark.fault("R4")
async def test_a_silent_prometheus_costs_one_deadline_and_no_more() -> None:
    async def silent(_: web.Request) -> web.Response:
        await asyncio.sleep(60)
        raise web.HTTPNotFound

    async with reading(silent, timeout_seconds=0.5) as (_, source, _registry):
        for _ in range(2):
            started = time.monotonic()
            with pytest.raises(SourceUnreachable):
                await source.read(REQUEST)
            assert time.monotonic() - started < 0.9


@pytest.mark.fault("R4")
async def test_an_answer_that_drips_does_not_hold_its_thread() -> None:
    async def drip(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        with contextlib.suppress(ConnectionResetError):
            for _ in range(600):
                await response.write(b" ")
                await asyncio.sleep(0.05)
        return response

    async with reading(drip, timeout_seconds=0.5) as (fake, source, _):
        with pytest.raises(SourceUnreachable):
            await source.read(REQUEST)

        async def works(_: web.Request) -> web.Response:
            return rows("1")

        # The threads are free again at their own deadline, which is about now.
        fake.answer = works
        await asyncio.sleep(0.3)
        assert values(await source.read(REQUEST))["running", HOST] == 1


@pytest.mark.fault("R4")
async def test_nobody_listening_is_unreachable_at_once() -> None:
    settings = PrometheusSettings(url=f"http://user:secret@127.0.0.1:{free_port()}")
    source = PrometheusSignals(
        settings=settings, clock=time.monotonic, metrics=SignalMetrics(CollectorRegistry())
    )
    started = time.monotonic()
    with pytest.raises(SourceUnreachable) as raised:
        await source.read(REQUEST)
    source.close()
    assert time.monotonic() - started < 1
    assert "secret" not in str(raised.value)


@pytest.mark.fault("R6")
async def test_queries_that_fail_leave_the_others_alone() -> None:
    async def partly(request: web.Request) -> web.Response:
        is_bad = "num_requests_waiting" in request.query["query"]
        return await server_error(request) if is_bad else rows("7")

    async with reading(partly) as (_, source, registry):
        readings = await source.read(REQUEST)
    assert readings.failures == ("waiting: HTTP Status Code 503",)
    assert values(readings)["running", HOST] == 7
    assert "waiting" in readings.unresolved
    labels = {"source": "prometheus", "outcome": "status"}
    assert registry.get_sample_value("trimtab_signal_requests_total", labels) == 1


@pytest.mark.fault("R4")
async def test_slow_queries_count_as_failed_and_quick_ones_are_used() -> None:
    async def partly(request: web.Request) -> web.Response:
        if "num_requests_waiting" in request.query["query"]:
            await asyncio.sleep(5)
        return rows("7")

    async with reading(partly, timeout_seconds=0.6) as (_, source, _registry):
        started = time.monotonic()
        readings = await source.read(REQUEST)
        assert time.monotonic() - started < 1
    assert len(readings.failures) == 1
    assert readings.failures[0].startswith("waiting: no answer")
    assert values(readings)["running", HOST] == 7


@pytest.mark.fault("R5")
@pytest.mark.parametrize("text", ["NaN", "+Inf", "-Inf", "-3", "1e300"])
async def test_odd_numbers_go_on_to_the_sanitizer_except_where_nan_means_idle(text: str) -> None:
    async def odd(_: web.Request) -> web.Response:
        return rows(text)

    async with reading(odd) as (_, source, _registry):
        readings = await source.read(REQUEST)
    found = values(readings)
    expected = float(text.replace("+", ""))
    assert found["running", HOST] == expected or math.isnan(expected)
    assert ("ttft_p90_seconds", HOST) in found or text == "NaN"
    assert "ttft_p90_seconds" not in readings.unresolved


@pytest.mark.fault("R5")
async def test_ages_are_by_the_servers_clock_and_a_future_sample_is_negative() -> None:
    async def ahead(request: web.Request) -> web.Response:
        is_running = "num_requests_running" in request.query["query"]
        return rows("1", stamp="1030.5" if is_running else "940")

    async with reading(ahead) as (_, source, _registry):
        readings = await source.read(REQUEST)
    assert ages(readings)["running", HOST] == pytest.approx(-30.5)
    assert ages(readings)["waiting", HOST] == pytest.approx(60)


async def test_a_value_without_a_live_sample_is_not_used() -> None:
    async def undated(_: web.Request) -> web.Response:
        return vector(({"instance": HOST, **VALUE}, "1"))

    async with reading(undated) as (_, source, _registry):
        assert (await source.read(REQUEST)).samples == ()


async def test_a_repeated_custom_series_is_passed_on_twice_for_the_sanitizer_to_count() -> None:
    async def twice(request: web.Request) -> web.Response:
        if "mine" not in request.query["query"]:
            return vector()
        return vector(({"instance": HOST, "a": "1"}, "1"), ({"instance": HOST, "a": "2"}, "2"))

    spec = SignalsSpec(custom={"own": "sum by (instance, a) (mine)"})
    async with reading(twice) as (_, source, _registry):
        readings = await source.read(signal_request([HOST], spec))
    assert [sample.value for sample in readings.samples] == [1, 2]


async def test_the_bearer_token_is_read_anew_each_time_and_a_missing_file_is_an_error(
    tmp_path: Path,
) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("first\n")

    async def works(_: web.Request) -> web.Response:
        return rows("1")

    async with reading(works, token_file=token_file) as (fake, source, _):
        await source.read(REQUEST)
        assert fake.headers["Authorization"] == "Bearer first"
        token_file.write_text("second")
        await source.read(REQUEST)
        assert fake.headers["Authorization"] == "Bearer second"
        token_file.unlink()
        with pytest.raises(SourceError) as raised:
            await source.read(REQUEST)
        assert "second" not in str(raised.value)


async def test_a_strategy_with_impossible_labels_asks_nothing_and_blames_itself() -> None:
    spec = SignalsSpec(selector={"a-b": "x"})
    async with reading(server_error) as (fake, source, _):
        readings = await source.read(signal_request([HOST], spec))
        assert fake.queries == []
    assert readings.samples == ()
    assert readings.failures[0].startswith("signals.selector.a-b: is not a usable PromQL label name")
