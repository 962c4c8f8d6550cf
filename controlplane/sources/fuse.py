"""The fuse of a source: normal, degraded, and how often to try while degraded.

`FuseMachine` is the pure rule; `Fuse` holds one, reads the clock, logs and counts. A source is never
cut off: a degraded source is still tried, only less often, and its last good values stay in use.

Time without success counts from the first failure of a run and not from the last success, because a
blocking query is rightly silent for a minute while nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from controlplane.config import FuseSettings
from controlplane.model.health import FuseState, SourceHealth

MAX_ERROR_CHARACTERS = 500
"""A longer error text is cut: health is shown in tables and on metrics pages."""


def backoff_seconds(
    attempt: int, *, minimum_seconds: float, maximum_seconds: float, jitter_ratio: float, draw: float
) -> float:
    """Compute a jittered exponential delay: ``minimum × 2^attempt``, at most the maximum.

    `attempt` counts from 0. `draw` is uniform in [0, 1); the delay is spread evenly over
    ``± jitter_ratio`` so that many replicas don't retry in step, and never leaves
    ``[0, maximum_seconds]``.
    """
    doublings = min(attempt, 32)  # 2^32 seconds is far above any maximum, and no float overflows
    delay = min(maximum_seconds, minimum_seconds * 2.0**doublings)
    return min(maximum_seconds, delay * (1.0 + jitter_ratio * (2.0 * draw - 1.0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class FuseMachine:
    """One source's fuse at one moment. Times are monotonic seconds.

    `since_seconds` is when the present state began; `failing_since_seconds` when the present run of
    failures began (`None`: the last answer was good). `retry_at_seconds` is when the next try is due.
    """

    settings: FuseSettings
    since_seconds: float
    state: FuseState = FuseState.NORMAL
    last_success_seconds: float | None = None
    failing_since_seconds: float | None = None
    failures: int = 0
    degraded_at_failures: int = 0
    retry_at_seconds: float = 0.0
    last_error: str = ""

    def on_success(self, now: float) -> FuseMachine:
        """Return to normal. `last_error` stays, for people; the count of failures does not."""
        is_recovery = self.state is FuseState.DEGRADED
        return replace(
            self,
            state=FuseState.NORMAL,
            since_seconds=now if is_recovery else self.since_seconds,
            last_success_seconds=now,
            failing_since_seconds=None,
            failures=0,
            degraded_at_failures=0,
            retry_at_seconds=now,
        )

    def on_failure(self, now: float, error: str, *, draw: float) -> FuseMachine:
        """Count a failure, degrade if it was one too many, and set when to try next.

        `draw` is uniform in [0, 1), for the jitter. While normal the next try is due at once: the
        caller's own pace decides.
        """
        since = now if self.failing_since_seconds is None else self.failing_since_seconds
        failed = replace(
            self,
            failing_since_seconds=since,
            failures=self.failures + 1,
            last_error=error[:MAX_ERROR_CHARACTERS],
        ).check(now)
        return replace(failed, retry_at_seconds=now + failed.delay_seconds(draw))

    def check(self, now: float) -> FuseMachine:
        """Degrade if failures have gone on for too long; change nothing otherwise.

        A source that has never succeeded counts as failing since it was made.
        """
        if self.state is FuseState.DEGRADED or not self._is_blown(now):
            return self
        return replace(
            self, state=FuseState.DEGRADED, since_seconds=now, degraded_at_failures=self.failures
        )

    def delay_seconds(self, draw: float) -> float:
        """Compute the delay after the latest failure: 0 while normal, else the jittered backoff."""
        if self.state is FuseState.NORMAL:
            return 0.0
        return backoff_seconds(
            self.failures - self.degraded_at_failures,
            minimum_seconds=self.settings.retry_min_seconds,
            maximum_seconds=self.settings.retry_max_seconds,
            jitter_ratio=self.settings.jitter_ratio,
            draw=draw,
        )

    def health(self, name: str) -> SourceHealth:
        """Give the state as others see it, under the source's `name`."""
        return SourceHealth(
            name=name,
            state=self.state,
            since_seconds=self.since_seconds,
            last_success_seconds=self.last_success_seconds,
            consecutive_failures=self.failures,
            last_error=self.last_error,
        )

    def _is_blown(self, now: float) -> bool:
        if self.failures >= self.settings.degraded_after_failures:
            return True
        since = self.failing_since_seconds
        if since is None and self.last_success_seconds is None:
            since = self.since_seconds
        return since is not None and now - since >= self.settings.degraded_after_seconds


class FuseMetrics:
    """The metrics of all fuses of a process; made once per registry, as a name registers only once."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register the metrics on `registry`."""
        self.degraded = Gauge(
            "trimtab_source_degraded",
            "1 while only the cached values of this source are used.",
            ("source",),
            registry=registry,
        )
        self.failures = Counter(
            "trimtab_source_failures",
            "Tries to read this source that gave no usable answer.",
            ("source",),
            registry=registry,
        )
        self.age = Gauge(
            "trimtab_source_age_seconds",
            "Time since this source's last good answer, or since the start if there was none.",
            ("source",),
            registry=registry,
        )


class Fuse:
    """The fuse of one source, with its alerts: the log events ``source_degraded`` and
    ``source_recovered``, and the metrics of `FuseMetrics`.

    Used from one event loop; nothing here blocks.
    """

    def __init__(
        self,
        *,
        name: str,
        settings: FuseSettings,
        clock: Callable[[], float],
        metrics: FuseMetrics,
        random: Callable[[], float],
    ) -> None:
        """Start in the normal state.

        `clock` gives monotonic seconds, `random` a uniform draw in [0, 1) (``random.Random().random``).
        """
        self._name = name
        self._clock = clock
        self._random = random
        self._failures_total = metrics.failures.labels(source=name)
        self._degraded = metrics.degraded.labels(source=name)
        self._degraded.set(0)
        self._machine = FuseMachine(settings=settings, since_seconds=clock())
        self._started_seconds = self._machine.since_seconds
        metrics.age.labels(source=name).set_function(self.age_seconds)
        self._log = structlog.get_logger().bind(source=name)

    @property
    def name(self) -> str:
        """The source's name, as in logs, metrics and health."""
        return self._name

    @property
    def is_degraded(self) -> bool:
        """Whether only cached values should be used now."""
        return self.health().state is FuseState.DEGRADED

    def record_success(self) -> None:
        """Say that the source gave a usable answer just now."""
        self._become(self._machine.on_success(self._clock()))

    def record_failure(self, error: str) -> None:
        """Say that a try gave no usable answer. `error` must hold no secret: it is logged and shown."""
        self._failures_total.inc()
        self._become(self._machine.on_failure(self._clock(), error, draw=self._random()))

    def may_try(self) -> bool:
        """Tell whether the next try is due: always while normal, after the backoff while degraded."""
        return self.delay_seconds() <= 0.0

    def delay_seconds(self) -> float:
        """Tell how long to wait before the next try; 0 when it is due."""
        return max(0.0, self._machine.retry_at_seconds - self._clock())

    def age_seconds(self) -> float:
        """Tell the time since the last good answer, or since the start if there was none."""
        last = self._machine.last_success_seconds
        return self._clock() - (self._started_seconds if last is None else last)

    def health(self) -> SourceHealth:
        """Give the source's health now."""
        self._become(self._machine.check(self._clock()))
        return self._machine.health(self._name)

    def _become(self, after: FuseMachine) -> None:
        before, self._machine = self._machine, after
        if before.state is after.state:
            return
        if after.state is FuseState.DEGRADED:
            self._degraded.set(1)
            self._log.warning(
                "source_degraded",
                start=after.since_seconds,
                error=after.last_error or "no answer yet",
                failures=after.failures,
            )
            return
        self._degraded.set(0)
        self._log.info(
            "source_recovered",
            start=before.since_seconds,
            end=after.since_seconds,
            error=before.last_error,
            failures=before.failures,
        )
