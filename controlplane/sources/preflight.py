"""What `trimtab check` says about signals: which resolve, where, and what does not join."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass

from controlplane.model.signals import Readings, SignalRequest
from controlplane.model.topology import EndpointId
from controlplane.sources import catalogue
from controlplane.sources.ports import SignalSource


@dataclass(frozen=True, slots=True)
class SignalCoverage:
    """One signal. `query` is the first way to read it (several are joined by new lines).

    `is_found` without endpoints means that the metric exists and had nothing to measure (no request
    in the window). `is_optional` signals come from beside the engine: Envoy, DCGM.
    """

    signal: str
    endpoints: int
    is_found: bool
    is_optional: bool
    query: str


@dataclass(frozen=True, slots=True)
class SignalPreflight:
    """The state of one service's signals."""

    service: str
    endpoints: int
    coverage: tuple[SignalCoverage, ...]
    endpoints_without_series: tuple[EndpointId, ...]
    """Endpoints for which no signal at all has a value."""
    unmatched_series: int
    unmatched: tuple[str, ...]
    """Some join labels' values that name no endpoint."""
    failures: tuple[str, ...]

    @property
    def is_usable(self) -> bool:
        """Whether every endpoint has something, and every signal that is not optional is found."""
        found = all(row.is_found or row.is_optional for row in self.coverage)
        return found and not self.endpoints_without_series


def survey(request: SignalRequest, readings: Readings) -> SignalPreflight:
    """Count what one read found."""
    seen: dict[str, set[EndpointId]] = defaultdict(set)
    for sample in readings.samples:
        seen[sample.signal].add(sample.endpoint)
    queries: dict[str, list[str]] = defaultdict(list)
    for provenance in readings.provenance:
        queries[provenance.signal].append(provenance.query)
    spec = request.spec
    expected = dict.fromkeys((*catalogue.signals(spec.engine), *sorted(spec.custom)))
    described = set().union(*seen.values())
    return SignalPreflight(
        service=request.service,
        endpoints=len(request.endpoints),
        coverage=tuple(
            SignalCoverage(
                signal=signal,
                endpoints=len(seen[signal] & set(request.endpoints)),
                is_found=signal not in readings.unresolved,
                is_optional=signal not in spec.custom and catalogue.is_optional(spec.engine, signal),
                query="\n".join(queries[signal]),
            )
            for signal in expected
        ),
        endpoints_without_series=tuple(sorted(set(request.endpoints) - described)),
        unmatched_series=readings.unmatched_series,
        unmatched=readings.unmatched,
        failures=readings.failures,
    )


async def inspect(
    source: SignalSource, request: SignalRequest, *, pause_seconds: float = 0.0
) -> SignalPreflight:
    """Read a service's signals and survey them.

    With a pause the read is done twice: a scraping source has rates only from the second one on.

    Raises:
        SourceError: if nothing usable was read at all.
    """
    readings = await source.read(request)
    if pause_seconds > 0:
        await asyncio.sleep(pause_seconds)
        readings = await source.read(request)
    return survey(request, readings)
