"""Signals from Prometheus: one instant query per way to read a signal, for the whole service."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import structlog

from controlplane.config import PrometheusSettings
from controlplane.errors import SourceMalformed, SourceUnreachable
from controlplane.model.problems import Rejected
from controlplane.model.signals import Provenance, Readings, SignalRequest
from controlplane.sources.answers import Failed, Outcome
from controlplane.sources.assembly import Assembly, Cell
from controlplane.sources.joins import join_for
from controlplane.sources.prometheus_api import PrometheusApi, Row
from controlplane.sources.promql import TIMESTAMP_PART, VALUE_PART, Query, plan
from controlplane.sources.signal_metrics import SignalMetrics

_SOURCE = "prometheus"


class PrometheusSignals:
    """Reads signals from a Prometheus server.

    Implements `controlplane.sources.ports.SignalSource`. Queries run on threads of its own (the
    client library is synchronous); a read as a whole ends within the settings' timeout, and queries
    that have no answer by then count as failed. `close` it at the end.
    """

    def __init__(
        self,
        *,
        settings: PrometheusSettings,
        clock: Callable[[], float],
        metrics: SignalMetrics,
    ) -> None:
        """`clock` gives monotonic seconds."""
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._api = PrometheusApi(settings=settings, clock=clock)
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._threads = ThreadPoolExecutor(settings.concurrency, thread_name_prefix="prometheus")
        self._log = structlog.get_logger().bind(source=_SOURCE)

    async def read(self, request: SignalRequest) -> Readings:
        """Read every signal of one service.

        Ages are Prometheus's evaluation time less the sample's timestamp: this machine's wall clock
        has no part in them. An answer without a series is no failure, so a service that Prometheus
        knows nothing of gives readings without samples.

        Raises:
            SourceUnreachable: if no query was answered.
            SourceMalformed: if answers came and none was usable.
        """
        assembly = Assembly(request)
        queries = plan(request.spec)
        if isinstance(queries, Rejected):
            # The strategy's mistake: Prometheus is well, so its fuse must not hear of it.
            assembly.fail(str(queries))
            return assembly.readings(self._clock())
        with self._metrics.seconds.labels(source=_SOURCE).time():
            answers = await self._ask_all(queries)
        self._raise_if_nothing(answers)
        for query, answer in zip(queries, answers, strict=True):
            assembly.explain(Provenance(query.signal, _SOURCE, query.text))
            if isinstance(answer, Failed):
                self._log.debug(
                    "query_failed", service=request.service, signal=query.signal, reason=answer.reason
                )
                assembly.fail(f"{query.signal}: {answer.reason}")
            else:
                _take(assembly, request, query, answer)
        return assembly.readings(self._clock())

    def close(self) -> None:
        """Let the threads go; queries under way end at their own timeout."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _ask_all(self, queries: Sequence[Query]) -> list[tuple[Row, ...] | Failed]:
        late = Failed(Outcome.TIMEOUT, "no answer before the deadline")
        answers: list[tuple[Row, ...] | Failed] = [late] * len(queries)

        async def ask(place: int, query: Query) -> None:
            async with self._slots:
                loop = asyncio.get_running_loop()
                answers[place] = await loop.run_in_executor(
                    self._threads, self._api.query, query.text, query.join_label
                )

        try:
            async with asyncio.timeout(self._settings.timeout_seconds), asyncio.TaskGroup() as group:
                for place, query in enumerate(queries):
                    group.create_task(ask(place, query))
        except TimeoutError:
            self._log.warning("read_deadline", missing=sum(answer is late for answer in answers))
        for answer in answers:
            outcome = answer.outcome if isinstance(answer, Failed) else Outcome.OK
            self._metrics.requests.labels(source=_SOURCE, outcome=outcome.value).inc()
        return answers

    def _raise_if_nothing(self, answers: Sequence[tuple[Row, ...] | Failed]) -> None:
        failed = [answer for answer in answers if isinstance(answer, Failed)]
        if len(failed) < len(answers):
            return
        reasons = ", ".join(sorted({answer.reason for answer in failed}))
        silent = {Outcome.TIMEOUT, Outcome.UNREACHABLE}
        if all(answer.outcome in silent for answer in failed):
            raise SourceUnreachable(_SOURCE, reasons)
        raise SourceMalformed(_SOURCE, reasons)


@dataclass(frozen=True, slots=True)
class _Value:
    join_value: str
    value: float
    age_seconds: float


def _take(assembly: Assembly, request: SignalRequest, query: Query, answer: Sequence[Row]) -> None:
    """Add one query's answer: join its rows to endpoints, leave out what cannot be dated."""
    join = join_for(query.group, request)
    values = _dated(query, answer)
    cells = [
        Cell(endpoint, value.value, value.age_seconds)
        for value in values
        for endpoint in join.match(value.join_value)
    ]
    if cells:
        assembly.resolve(query.signal)
    if query.has_value_gaps:
        cells = [cell for cell in cells if not math.isnan(cell.value)]
    assembly.add(query.signal, cells)
    # Envoy and DCGM show the endpoints of every service; only here a stranger is worth a word.
    if query.group in {"engine", None}:
        assembly.unmatched(value.join_value for value in values if not join.match(value.join_value))


def _dated(query: Query, answer: Sequence[Row]) -> list[_Value]:
    """Bring each value together with its timestamp.

    A value without one is a rate that outlived its series: the target is gone, or its scrape fails.
    """
    if not query.is_timestamped:
        return [_Value(row.join_value, row.value, 0.0) for row in answer]
    stamps = {row.join_value: row.value for row in answer if row.part == TIMESTAMP_PART}
    return [
        _Value(row.join_value, row.value, row.evaluated_at - stamps[row.join_value])
        for row in answer
        if row.part == VALUE_PART and row.join_value in stamps
    ]
