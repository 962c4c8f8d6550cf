"""What a load saw, in figures. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One finished request, good or bad. Times are seconds of the load's clock."""

    session: str
    turn: int
    """Of the conversation, from 0."""
    began_at: float
    first_token_at: float | None
    ended_at: float
    status: int
    """HTTP status; 0 if there was no answer at all."""
    error: str = ""
    """``http``, ``timeout``, ``connection``, ``truncated`` or ``dropped``; empty for a good answer."""
    server: str = ""
    version: str = ""
    cache_hit_ratio: float = 0.0
    """Share of the prompt that the server had in its cache."""

    @property
    def is_good(self) -> bool:
        """Tell if the whole answer came."""
        return not self.error


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Figures of a span of time. Quantiles are of good answers, NaN without any."""

    since: float
    until: float
    requests: int
    errors: int
    p50_seconds: float
    p99_seconds: float
    """Of whole answers."""
    ttft_p50_seconds: float
    ttft_p99_seconds: float
    """Of the time to the first token."""
    cache_hit_ratio: float
    """Cached share of the prompt, averaged over good answers; 0 without any."""
    requests_by_server: Mapping[str, int]
    """Good answers only."""

    def share(self, server: str) -> float:
        """Give a server's share of the good answers, 0 to 1."""
        total = sum(self.requests_by_server.values())
        return self.requests_by_server.get(server, 0) / total if total else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport(Slice):
    """Figures of everything that ended in a span of time, and of equal slices of it."""

    errors_by_kind: Mapping[str, int]
    moved_sessions: int
    """Sessions that were answered by more than one server."""
    flipped_sessions: int
    """Sessions that were answered by more than one version."""
    slices: tuple[Slice, ...]
    """In order; empty unless slices were asked for."""


def summarise(
    answers: Iterable[Answer],
    *,
    since: float = -math.inf,
    until: float = math.inf,
    slice_seconds: float | None = None,
) -> LoadReport:
    """Sum up the answers that ended in ``[since, until)``; the span is what they cover where it is open.

    Raises:
        ValueError: if `slice_seconds` is not positive.
    """
    if slice_seconds is not None and not slice_seconds > 0:
        raise ValueError("slice_seconds must be positive")
    found = [answer for answer in answers if since <= answer.ended_at < until]
    if math.isinf(since):
        since = min((answer.began_at for answer in found), default=0.0)
    if math.isinf(until):
        until = max((answer.ended_at for answer in found), default=since)
    good = [answer for answer in found if answer.is_good]
    total = _slice(found, since, until)
    return LoadReport(
        since=since,
        until=until,
        requests=total.requests,
        errors=total.errors,
        p50_seconds=total.p50_seconds,
        p99_seconds=total.p99_seconds,
        ttft_p50_seconds=total.ttft_p50_seconds,
        ttft_p99_seconds=total.ttft_p99_seconds,
        cache_hit_ratio=total.cache_hit_ratio,
        requests_by_server=total.requests_by_server,
        errors_by_kind=Counter(answer.error for answer in found if answer.error),
        moved_sessions=_with_several((answer.session, answer.server) for answer in good),
        flipped_sessions=_with_several((answer.session, answer.version) for answer in good),
        slices=_slices(found, since, until, slice_seconds) if slice_seconds else (),
    )


def quantile(values: Sequence[float], q: float) -> float:
    """Give the nearest-rank quantile: the least value that at least `q` of all do not exceed.

    NaN of nothing.
    """
    if not values:
        return math.nan
    return sorted(values)[max(0, math.ceil(q * len(values)) - 1)]


def _slice(found: Sequence[Answer], since: float, until: float) -> Slice:
    good = [answer for answer in found if answer.is_good]
    whole = [answer.ended_at - answer.began_at for answer in good]
    first = [
        answer.first_token_at - answer.began_at for answer in good if answer.first_token_at is not None
    ]
    return Slice(
        since=since,
        until=until,
        requests=len(found),
        errors=len(found) - len(good),
        p50_seconds=quantile(whole, 0.5),
        p99_seconds=quantile(whole, 0.99),
        ttft_p50_seconds=quantile(first, 0.5),
        ttft_p99_seconds=quantile(first, 0.99),
        cache_hit_ratio=sum(answer.cache_hit_ratio for answer in good) / len(good) if good else 0.0,
        requests_by_server=Counter(answer.server for answer in good),
    )


def _slices(
    found: Sequence[Answer],
    since: float,
    until: float,
    slice_seconds: float,
) -> tuple[Slice, ...]:
    count = max(1, math.ceil((until - since) / slice_seconds))
    members: list[list[Answer]] = [[] for _ in range(count)]
    for answer in found:
        members[min(count - 1, int((answer.ended_at - since) / slice_seconds))].append(answer)
    return tuple(
        _slice(inside, since + index * slice_seconds, min(until, since + (index + 1) * slice_seconds))
        for index, inside in enumerate(members)
    )


def _with_several(pairs: Iterable[tuple[str, str]]) -> int:
    seen: dict[str, set[str]] = {}
    for session, value in pairs:
        seen.setdefault(session, set()).add(value)
    return sum(len(values) > 1 for values in seen.values())
