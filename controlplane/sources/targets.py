"""What direct scraping remembers of one service: its endpoints' windows, and its Envoys'."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from controlplane.model.signals import SignalRequest
from controlplane.model.topology import EndpointId
from controlplane.sources import catalogue
from controlplane.sources.assembly import Cell
from controlplane.sources.evaluation import Evaluation
from controlplane.sources.exposition import Point
from controlplane.sources.measures import Entry, has_value_gaps
from controlplane.sources.window import LeafIndex, Window


@dataclass(frozen=True, slots=True)
class Reading:
    """One target's values at the time of its last good scrape.

    `values` are in the order of the entries; `None`: no such metric, NaN: nothing to measure.
    """

    at_seconds: float
    values: tuple[float | None, ...]


@dataclass(slots=True)
class _Target:
    url: str
    window: Window
    reading: Reading | None = None
    is_failing: bool = False


@dataclass(frozen=True, slots=True)
class _Shape:
    """What a strategy must not change without the windows starting over."""

    engine: str
    window_seconds: float
    selector: tuple[tuple[str, str], ...]


@dataclass(slots=True)
class ServiceTargets:
    """The windows of one service. Endpoints that are gone are forgotten with the next request."""

    _shape: _Shape
    _entries: tuple[Entry, ...]
    _index: LeafIndex
    _envoy_entries: tuple[Entry, ...]
    _envoy_index: LeafIndex
    read_at_seconds: float = 0.0
    _targets: dict[EndpointId, _Target] = field(default_factory=dict)
    _envoys: dict[tuple[str, EndpointId], _Target] = field(default_factory=dict)

    @classmethod
    def of(cls, request: SignalRequest) -> ServiceTargets:
        """Start without any history."""
        own = catalogue.entries(request.spec.engine)
        engine = tuple(entry for entry in own if entry.group != "envoy")
        envoy = tuple(entry for entry in own if entry.group == "envoy")
        return cls(_shape(request), engine, _index(engine), envoy, _index(envoy))

    @property
    def metrics(self) -> frozenset[str]:
        """Names of the metrics to read from an endpoint's page."""
        return self._index.metrics

    @property
    def envoy_metrics(self) -> frozenset[str]:
        """Names of the metrics to read from an Envoy's page."""
        return self._envoy_index.metrics

    def fits(self, request: SignalRequest) -> bool:
        """Tell whether the windows still serve this strategy."""
        return self._shape == _shape(request)

    def follow(self, request: SignalRequest, envoy_urls: Sequence[str]) -> list[tuple[EndpointId, str]]:
        """Forget endpoints that are gone, and list what to scrape: those that failed last come last."""
        wanted = dict(zip(request.endpoints, request.metrics_urls, strict=True))
        span = self._shape.window_seconds
        for endpoint, url in wanted.items():
            if endpoint not in self._targets or self._targets[endpoint].url != url:
                self._targets[endpoint] = _Target(url, Window(self._index, span_seconds=span))
        self._targets = {endpoint: self._targets[endpoint] for endpoint in wanted}
        self._envoys = {
            (url, endpoint): target
            for (url, endpoint), target in self._envoys.items()
            if endpoint in wanted and url in envoy_urls
        }
        return sorted(wanted.items(), key=lambda item: self._targets[item[0]].is_failing)

    def observe(self, endpoint: EndpointId, at_seconds: float, points: Iterable[Point]) -> None:
        """Take in an endpoint's page."""
        selector = self._shape.selector
        target = self._targets.get(endpoint)
        if target is None:  # gone since the scrape began
            return
        target.window.observe(at_seconds, (point for point in points if _is_selected(point, selector)))
        target.reading = _evaluate(target.window, self._entries, at_seconds)
        target.is_failing = False

    def fail(self, endpoint: EndpointId) -> None:
        """Note that an endpoint gave no page."""
        if endpoint in self._targets:
            self._targets[endpoint].is_failing = True

    def observe_envoy(self, url: str, at_seconds: float, points: Iterable[Point]) -> None:
        """Take in an Envoy's page: what it counted for each of this service's endpoints."""
        by_endpoint: dict[EndpointId, list[Point]] = {}
        for point in points:
            endpoint = dict(point.labels).get(catalogue.ENVOY_ENDPOINT_LABEL, "")
            if endpoint in self._targets:
                by_endpoint.setdefault(endpoint, []).append(point)
        for endpoint, own in by_endpoint.items():
            window = Window(self._envoy_index, span_seconds=self._shape.window_seconds)
            target = self._envoys.setdefault((url, endpoint), _Target(url, window))
            target.window.observe(at_seconds, own)
            target.reading = _evaluate(target.window, self._envoy_entries, at_seconds)

    def answers(self, now: float) -> Iterator[tuple[Entry, list[Cell]]]:
        """Give, for every way to read a signal and in order of preference, the endpoints' values.

        Values are as old as their scrape.
        """
        envoys = [(endpoint, target.reading) for (_, endpoint), target in self._envoys.items()]
        for place, entry in enumerate(self._envoy_entries):
            yield entry, self._summed(envoys, place, now)
        own = [(endpoint, target.reading) for endpoint, target in self._targets.items()]
        for place, entry in enumerate(self._entries):
            yield (
                entry,
                [
                    Cell(endpoint, value, now - reading.at_seconds)
                    for endpoint, reading in own
                    if reading is not None and (value := reading.values[place]) is not None
                ],
            )

    def _summed(
        self, envoys: Iterable[tuple[EndpointId, Reading | None]], place: int, now: float
    ) -> list[Cell]:
        """Sum over Envoys. One that fell silent still counts until its window has passed."""
        sums: dict[EndpointId, tuple[float, float]] = {}
        for endpoint, reading in envoys:
            if reading is None or now - reading.at_seconds > self._shape.window_seconds:
                continue
            value = reading.values[place]
            if value is not None:
                total, newest = sums.get(endpoint, (0.0, -math.inf))
                sums[endpoint] = (total + value, max(newest, reading.at_seconds))
        return [Cell(endpoint, total, now - newest) for endpoint, (total, newest) in sums.items()]


def is_gap(entry: Entry, value: float) -> bool:
    """Tell whether a value is NaN because nothing happened in the window."""
    return math.isnan(value) and any(has_value_gaps(measure.expression) for measure in entry.measures)


def _shape(request: SignalRequest) -> _Shape:
    spec = request.spec
    return _Shape(spec.engine, spec.window_seconds, tuple(sorted(spec.selector.items())))


def _index(entries: Iterable[Entry]) -> LeafIndex:
    return LeafIndex(measure.expression for entry in entries for measure in entry.measures)


def _is_selected(point: Point, selector: Iterable[tuple[str, str]]) -> bool:
    """Apply the strategy's selector to labels that the page has.

    Others (``job``, ``cluster``) are attached by Prometheus when it scrapes.
    """
    labels = dict(point.labels)
    return all(labels.get(name, value) == value for name, value in selector)


def _evaluate(window: Window, entries: Iterable[Entry], at_seconds: float) -> Reading:
    evaluation = Evaluation(window, now=at_seconds)
    return Reading(at_seconds, tuple(_first_value(entry, evaluation) for entry in entries))


def _first_value(entry: Entry, evaluation: Evaluation) -> float | None:
    for measure in entry.measures:
        value = evaluation.value(measure.expression)
        if value is not None:
            return value * measure.scale
    return None
