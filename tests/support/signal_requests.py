"""Short ways to write signal requests and to read readings in tests."""

from __future__ import annotations

from collections.abc import Sequence

from controlplane.model.signals import Readings, SignalRequest
from controlplane.model.strategy import SignalsSpec


def signal_request(
    endpoints: Sequence[str],
    spec: SignalsSpec | None = None,
    *,
    urls: Sequence[str] = (),
    join_values: Sequence[str] = (),
    service: str = "chat",
) -> SignalRequest:
    """Ask for one service's signals; without urls, scraping has nowhere to go."""
    return SignalRequest(
        service,
        tuple(endpoints),
        tuple(urls) or ("",) * len(endpoints),
        spec or SignalsSpec(),
        tuple(join_values),
    )


def values(readings: Readings) -> dict[tuple[str, str], float]:
    """Values by (signal, endpoint)."""
    return {(sample.signal, sample.endpoint): sample.value for sample in readings.samples}


def ages(readings: Readings) -> dict[tuple[str, str], float]:
    """Ages in seconds by (signal, endpoint)."""
    return {(sample.signal, sample.endpoint): sample.age_seconds for sample in readings.samples}
