"""The strategy document: everything a platform engineer says about one service.

These dataclasses *are* the document format: `core.parse` validates JSON against them with pydantic
(constraints come from `annotated_types`, text for the published JSON Schema from the docstrings
below each field), and the rest of the program reads the same objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from annotated_types import Ge, Gt, Interval, Len, Lt

from controlplane.model.checks import check_text

DOCUMENT_CONFIG: Mapping[str, Any] = MappingProxyType(
    {"extra": "forbid", "use_attribute_docstrings": True, "allow_inf_nan": False},
)
"""Pydantic's settings for every document class: unknown fields refused, NaN and Inf refused."""

Seconds: TypeAlias = Annotated[float, Interval(ge=0.001, le=86_400)]
"""A time that must not be 0: Envoy refuses most zero durations, and counts in milliseconds."""
Ratio: TypeAlias = Annotated[float, Interval(ge=0, le=1)]
Count: TypeAlias = Annotated[int, Interval(ge=1, le=4_294_967_295)]
Json: TypeAlias = str | int | float | bool | list[Any] | dict[str, Any] | None
Engine: TypeAlias = Literal["vllm", "sglang", "tgi", "triton"]

DEFAULT_TABLE_SIZE = 65_537
MAX_TABLE_SIZE = 5_000_011
"""Envoy's own upper bound for Maglev's `table_size` (its `maglev.v3` proto)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalsSpec:
    """Which metrics describe this service's endpoints, and how series join to endpoints."""

    __pydantic_config__: ClassVar[Any] = DOCUMENT_CONFIG
    engine: Engine = "vllm"
    """Serving engine: decides the metric names (each with aliases, newest first)."""
    window_seconds: Annotated[float, Interval(ge=1, le=3600)] = 60.0
    """Window of rates and histogram quantiles."""
    stale_after_seconds: Seconds = 60.0
    """A sample older than this (by its own timestamp) counts as unknown."""
    join_label: Annotated[str, Len(1, 256)] = "instance"
    """Label whose value names the endpoint."""
    join: Literal["id", "address", "label"] = "id"
    """What the join label's value is matched with: `ip:port`, the address alone, or the endpoint
    label named by `join_endpoint_label`."""
    join_endpoint_label: str = ""
    """Endpoint label (from discovery) that equals the join label's value, for `join = "label"`."""
    selector: Mapping[str, str] = field(default_factory=dict)
    """Further label matchers for every query, such as `{"job": "vllm"}`."""
    custom: Mapping[str, Annotated[str, Len(1, 4096)]] = field(default_factory=dict)
    """Own signals: name → PromQL that returns one series per endpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guards:
    """Limits between what the law wants and what Envoy gets, in the order they act."""

    __pydantic_config__: ClassVar[Any] = DOCUMENT_CONFIG
    hold_seconds: Annotated[float, Interval(ge=0, le=86_400)] = 300.0
    """Without fresh signals, keep the last weights this long."""
    fade_seconds: Seconds = 600.0
    """After that, fade linearly to equal weights over this time."""
    emergency_error_ratio: Annotated[float, Gt(0), Interval(le=1)] = 0.5
    """An endpoint failing at least this share of requests skips smoothing and step limit."""
    tau_down_seconds: Annotated[float, Interval(ge=0, le=86_400)] = 10.0
    """Time constant of smoothing when a weight falls (0: none)."""
    tau_up_seconds: Annotated[float, Interval(ge=0, le=86_400)] = 60.0
    """Time constant of smoothing when a weight rises (0: none)."""
    clip_min_ratio: Annotated[float, Gt(0), Interval(le=1)] = 0.1
    """Lower bound of a weight, as a multiple of the mean."""
    clip_max_ratio: Annotated[float, Ge(1), Interval(le=1000)] = 10.0
    """Upper bound of a weight, as a multiple of the mean."""
    step_down_ratio: Annotated[float, Gt(0), Interval(le=1)] = 0.2
    """Most a weight may fall in one decision."""
    step_up_ratio: Annotated[float, Gt(0), Interval(le=100)] = 0.1
    """Most a weight may rise in one decision."""
    slow_start_seconds: Annotated[float, Interval(ge=0, le=86_400)] = 60.0
    """A new endpoint's weight grows over this time (0: at once)."""
    slow_start_aggression: Annotated[float, Gt(0), Interval(le=10)] = 1.0
    """Shape of the growth: factor = max(0.1, (age / slow_start_seconds)^(1/aggression))."""
    floor_ratio: Annotated[float, Gt(0), Lt(1)] = 0.1
    """Least share of an endpoint, as a multiple of 1/N: a recovered host must get samples."""
    panic_ratio: Annotated[float, Interval(ge=0, le=1)] = 0.5
    """Below this share of healthy endpoints: equal weights over all."""
    dead_band_ratio: Annotated[float, Interval(ge=0, lt=1)] = 0.1
    """An endpoint whose share differs from the published one by less than this part of it keeps it:
    noise must not move conversations. Only for laws that read signals."""
    hysteresis_ratio: Annotated[float, Interval(ge=0, lt=1)] = 0.015
    """Publish only when at least this share of traffic would move (half the sum of share changes)."""
    hysteresis_endpoint_ratio: Annotated[float, Gt(0), Interval(le=1000)] = 0.25
    """Or when one endpoint's share would change by this much of itself: in a large fleet, one bad
    host never moves `hysteresis_ratio` of the traffic."""
    min_samples: Annotated[int, Interval(ge=1, le=1_000_000)] = 20
    """Requests in the window before an endpoint's latency or error ratio counts."""
    interval_seconds: Annotated[float, Interval(ge=0.1, le=3600)] = 5.0
    """Least time between two weight publications of this service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """What the service promises. Shown beside weights, and the default limits of a canary."""

    __pydantic_config__: ClassVar[Any] = DOCUMENT_CONFIG
    ttft_p90_seconds: Seconds | None = None
    latency_p99_seconds: Seconds | None = None
    error_ratio: Ratio | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HashPolicy:
    """One source of a request's hash: what keeps a conversation on its host."""

    __pydantic_config__: ClassVar[Any] = DOCUMENT_CONFIG
    kind: Literal["header", "cookie", "query_parameter", "source_ip"]
    name: Annotated[str, Len(0, 256)] = ""
    """Header, cookie or parameter name (unused by `source_ip`)."""
    ttl_seconds: Annotated[float, Interval(ge=0, le=31_536_000)] | None = None
    """Cookie only: Envoy makes the cookie when it is absent (0: session cookie)."""
    path: str = ""
    """Cookie only: path of a cookie that Envoy makes."""
    terminal: bool = False
    """Stop at this policy when it (or one before it) gave a hash."""

    def __post_init__(self) -> None:
        """Check that the kind and the other fields fit.

        Raises:
            ValueError: if a name is missing, a field belongs to another kind, or a text has control
                characters.
        """
        check_text(name=self.name, path=self.path)
        if (self.kind == "source_ip") != (not self.name):
            msg = f"`{self.kind}` {'takes no name' if self.name else 'needs a name'}"
            raise ValueError(msg)
        if self.kind != "cookie" and (self.ttl_seconds is not None or self.path):
            msg = "`ttl_seconds` and `path` belong to a cookie"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class Maglev:
    """Envoy's consistent-hash table."""

    __pydantic_config__: ClassVar[Any] = DOCUMENT_CONFIG
    table_size: Annotated[int, Interval(ge=2, le=MAX_TABLE_SIZE)] = DEFAULT_TABLE_SIZE
    """Slots; a prime. At least 100 × the number of endpoints keeps weights exact."""

    def __post_init__(self) -> None:
        """Check that the size is prime: Envoy refuses the cluster otherwise.

        Raises:
            ValueError: if it is not.
        """
        size = self.table_size
        if size < 2 or any(size % d == 0 for d in range(2, int(size**0.5) + 1)):  # noqa: PLR2004
            msg = f"table_size {size} is not prime"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class Locality:
    """How zones enter the balance."""

    __pydantic_config__: ClassVar[Any] = DOCUMENT_CONFIG
    weights: Mapping[str, Count] = field(default_factory=dict)
    """Zone → weight. When given, every zone with endpoints needs one, and each zone gets that share
    of traffic whatever its endpoints' weights; when empty, zones are only labels."""
    priorities: Mapping[str, Annotated[int, Interval(ge=0, le=127)]] = field(default_factory=dict)
    """Zone → Envoy priority (0 first). Zones not named have priority 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Retries, as Envoy's `RetryPolicy` has them."""

    __pydantic_config__: ClassVar[Any] = DOCUMENT_CONFIG
    attempts: Annotated[int, Interval(ge=0, le=10)] = 1
    on: tuple[str, ...] = ("connect-failure", "refused-stream", "reset-before-request")
    """Envoy's `retry_on` conditions. The defaults never repeat work that a model may have begun."""

    def __post_init__(self) -> None:
        """Check the conditions.

        Raises:
            ValueError: if one has control characters.
        """
        check_text(on="".join(self.on))


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """How requests reach the service. Defaults suit streaming answers."""

    __pydantic_config__: ClassVar[Any] = DOCUMENT_CONFIG
    domains: tuple[Annotated[str, Len(1, 253)], ...] = ()
    """Host names (Envoy's domain patterns). Empty: the service's own name, with any port."""
    prefix: Annotated[str, Len(1, 1024)] = "/"
    """Path prefix."""
    timeout_seconds: Annotated[float, Interval(ge=0, le=86_400)] = 0.0
    """Whole-response timeout; 0 (off) by default, because a streamed answer has no natural length."""
    idle_timeout_seconds: Annotated[float, Interval(ge=0, le=86_400)] = 300.0
    """Longest silence in a stream: first token included."""
    retry: Retry = field(default_factory=Retry)

    def __post_init__(self) -> None:
        """Check what Envoy would refuse every service's routes for.

        Raises:
            ValueError: if a domain comes twice (in any case), or a text has control characters.
        """
        check_text(prefix=self.prefix, domains="".join(self.domains))
        names = [domain.lower() for domain in self.domains]
        if len(set(names)) < len(names):
            msg = "`domains` has one twice: upper and lower case are the same"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Circuit breakers, sized for model servers: few connections, long answers."""

    __pydantic_config__: ClassVar[Any] = DOCUMENT_CONFIG
    max_connections: Count = 100_000
    max_pending_requests: Count = 100_000
    max_requests: Count = 100_000
    max_retries: Count = 100
    connect_timeout_seconds: Seconds = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OutlierDetection:
    """Envoy's passive health checks. Off unless the document has this section."""

    __pydantic_config__: ClassVar[Any] = DOCUMENT_CONFIG
    consecutive_5xx: Annotated[int, Interval(ge=1, le=100_000)] = 5
    interval_seconds: Seconds = 10.0
    base_ejection_seconds: Seconds = 30.0
    max_ejection_percent: Annotated[int, Interval(ge=0, le=100)] = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheck:
    """Envoy's active HTTP health checks. Off unless the document has this section."""

    __pydantic_config__: ClassVar[Any] = DOCUMENT_CONFIG
    path: Annotated[str, Len(1, 1024)] = "/health"
    interval_seconds: Seconds = 5.0
    timeout_seconds: Seconds = 2.0
    unhealthy_threshold: Annotated[int, Interval(ge=1, le=100)] = 3
    healthy_threshold: Annotated[int, Interval(ge=1, le=100)] = 2

    def __post_init__(self) -> None:
        """Check the path.

        Raises:
            ValueError: if it has control characters.
        """
        check_text(path=self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """One service's strategy: law, signals, guards, routing, limits. One document, one swap."""

    __pydantic_config__: ClassVar[Any] = DOCUMENT_CONFIG
    schema: Literal[1]
    """Document format."""
    version: str
    """Semantic version of this content. The same version with other content is refused."""
    law: Annotated[str, Len(1, 64)] = "capacity"
    """Weight law, by name."""
    parameters: Mapping[str, Json] = field(default_factory=dict)
    """The law's own parameters."""
    signals: SignalsSpec = field(default_factory=SignalsSpec)
    guards: Guards = field(default_factory=Guards)
    slo: Slo = field(default_factory=Slo)
    hash_policy: Annotated[tuple[HashPolicy, ...], Len(0, 16)] = (
        HashPolicy(kind="header", name="x-session-id"),
    )
    """Tried in order; hashes of all that have a value combine. Empty: hosts are picked at random."""
    maglev: Maglev = field(default_factory=Maglev)
    locality: Locality = field(default_factory=Locality)
    routing: Routing = field(default_factory=Routing)
    limits: Limits = field(default_factory=Limits)
    outlier_detection: OutlierDetection | None = None
    health_check: HealthCheck | None = None
    upstream_protocol: Literal["http1", "http2"] = "http1"
    description: Annotated[str, Len(0, 4096)] = ""
    """Free text for people."""
    retired: bool = False
    """Take the service out of Envoy, in make-before-break order. Deleting the document does not."""
