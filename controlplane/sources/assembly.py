"""Putting one service's readings together from the answers to many questions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from controlplane.model.signals import Provenance, Readings, Sample, SignalRequest
from controlplane.model.topology import EndpointId
from controlplane.sources import catalogue

MAX_UNMATCHED_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Cell:
    """One endpoint's value of one signal, and how old its sample is."""

    endpoint: EndpointId
    value: float
    age_seconds: float


class Assembly:
    """Collects answers in order of preference.

    For each endpoint the first answer that has a value for a signal wins. Two values *within* one
    answer both go on: that is the strategy's mistake, and `core.sanitize` drops and counts it.
    """

    def __init__(self, request: SignalRequest) -> None:
        self._request = request
        self._samples: list[Sample] = []
        self._taken: set[tuple[EndpointId, str]] = set()
        self._resolved: set[str] = set()
        self._provenance: list[Provenance] = []
        self._unmatched: set[str] = set()
        self._failures: list[str] = []

    def add(self, signal: str, cells: Iterable[Cell]) -> None:
        """Add the values of one answer."""
        fresh = [cell for cell in cells if (cell.endpoint, signal) not in self._taken]
        self._samples += [Sample(cell.endpoint, signal, cell.value, cell.age_seconds) for cell in fresh]
        self._taken.update((cell.endpoint, signal) for cell in fresh)
        if fresh:
            self._resolved.add(signal)

    def resolve(self, signal: str) -> None:
        """Say that the signal exists, although there was nothing to measure."""
        self._resolved.add(signal)

    def explain(self, provenance: Provenance) -> None:
        """Say where a signal's values come from."""
        self._provenance.append(provenance)

    def fail(self, failure: str) -> None:
        """Note an endpoint or a query without an answer."""
        self._failures.append(failure)

    def unmatched(self, join_values: Iterable[str]) -> None:
        """Note series that describe no known endpoint."""
        self._unmatched.update(join_values)

    def readings(self, read_at_seconds: float) -> Readings:
        """Finish. `read_at_seconds` is monotonic."""
        spec = self._request.spec
        expected = dict.fromkeys((*catalogue.signals(spec.engine), *sorted(spec.custom)))
        return Readings(
            service=self._request.service,
            read_at_seconds=read_at_seconds,
            samples=tuple(self._samples),
            provenance=tuple(self._provenance),
            unresolved=tuple(signal for signal in expected if signal not in self._resolved),
            unmatched_series=len(self._unmatched),
            failures=tuple(self._failures),
            unmatched=tuple(sorted(self._unmatched)[:MAX_UNMATCHED_SHOWN]),
        )
