"""Settings: defaults, a TOML file, ``TRIMTAB_*`` variables and flags, merged and validated once.

A setting's dotted key (``xds.port``) is its TOML table and name, and its variable is
``TRIMTAB_XDS__PORT``. Later sources win: defaults, file, environment, flags.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from annotated_types import Interval, Len

from controlplane.errors import SettingsError

_CONFIG: Mapping[str, Any] = {
    "extra": "forbid",
    "use_attribute_docstrings": True,
    "allow_inf_nan": False,
    "hide_input_in_errors": True,
}

Port: TypeAlias = Annotated[int, Interval(ge=0, le=65_535)]
Seconds: TypeAlias = Annotated[float, Interval(ge=0.001, le=86_400)]
Positive: TypeAlias = Annotated[int, Interval(ge=1, le=1_000_000_000)]

ENV_PREFIX = "TRIMTAB_"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSettings:
    """Where each kind of input comes from."""

    __pydantic_config__: ClassVar[Any] = _CONFIG
    documents: Literal["directory", "consul"] = "directory"
    """Strategies and canaries: a watched directory, or Consul KV."""
    topology: Literal["file", "consul"] = "file"
    """Endpoints: a watched file, or the Consul catalog."""
    signals: Literal["scrape", "prometheus"] = "scrape"
    """Metrics: scraped from the endpoints directly, or read from Prometheus."""
    directory: Path = Path("trimtab.d")
    """Document directory: `strategies/<service>.json|yaml`, `canaries/…`, `control/freeze`."""
    endpoints_file: Path = Path("endpoints.yaml")
    """Endpoint file, YAML or JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsulSettings:
    """The Consul agent."""

    __pydantic_config__: ClassVar[Any] = _CONFIG
    address: str = "127.0.0.1:8500"
    """`host:port` of the agent's HTTP API."""
    scheme: Literal["http", "https"] = "http"
    datacenter: str = ""
    token_file: Path | None = None
    """File with the ACL token; read again at each retry."""
    prefix: Annotated[str, Len(1, 256)] = "trimtab/v1/"
    """KV prefix of all keys."""
    wait_seconds: Annotated[float, Interval(ge=1, le=600)] = 55.0
    """`wait` of blocking queries."""
    retry_min_seconds: Seconds = 1.0
    retry_max_seconds: Seconds = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusSettings:
    """The Prometheus server."""

    __pydantic_config__: ClassVar[Any] = _CONFIG
    url: str = "http://127.0.0.1:9090"
    timeout_seconds: Seconds = 5.0
    """Deadline of one query."""
    concurrency: Annotated[int, Interval(ge=1, le=64)] = 4
    """Queries under way at once."""
    bearer_token_file: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrapeSettings:
    """Direct scraping of the endpoints' own metrics."""

    __pydantic_config__: ClassVar[Any] = _CONFIG
    timeout_seconds: Seconds = 2.0
    concurrency: Annotated[int, Interval(ge=1, le=1024)] = 64
    max_bytes: Positive = 16 * 1024 * 1024
    """Largest answer read from one endpoint."""
    envoy_urls: tuple[str, ...] = ()
    """`/stats/prometheus` of Envoys, for request and error counts by endpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FuseSettings:
    """When a source counts as degraded, and how it is retried then."""

    __pydantic_config__: ClassVar[Any] = _CONFIG
    degraded_after_seconds: Seconds = 30.0
    degraded_after_failures: Annotated[int, Interval(ge=1, le=1000)] = 5
    retry_min_seconds: Seconds = 5.0
    retry_max_seconds: Seconds = 60.0
    jitter_ratio: Annotated[float, Interval(ge=0, le=1)] = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class XdsSettings:
    """The gRPC server for Envoy."""

    __pydantic_config__: ClassVar[Any] = _CONFIG
    address: str = "127.0.0.1"
    port: Port = 18_000
    """0 picks a free port."""
    is_plaintext_allowed: bool = False
    """Serve without TLS on an address that is not loopback."""
    max_streams: Positive = 10_000
    max_streams_per_node: Positive = 16
    max_resource_names: Positive = 20_000
    """Names one stream may subscribe to per type."""
    max_request_bytes: Positive = 4 * 1024 * 1024
    max_resource_bytes: Positive = 3 * 1024 * 1024
    """Largest encoded resource; above it the snapshot is refused."""
    write_timeout_seconds: Seconds = 30.0
    """A client that does not read for this long is cut off."""
    first_request_timeout_seconds: Seconds = 30.0
    """A stream on which no request comes for this long is ended."""
    requests_per_second: Positive = 200
    """Requests read from one stream, on average; a faster client is read more slowly."""
    request_burst: Positive = 4_000
    """Requests read from one stream at once, such as the subscriptions of a starting Envoy."""
    ack_timeout_seconds: Seconds = 10.0
    """Routes wait this long for the ACKs of the clusters and endpoints before them."""
    keepalive_seconds: Seconds = 30.0
    keepalive_timeout_seconds: Seconds = 10.0
    min_ping_interval_seconds: Seconds = 15.0
    """A client that pings a quiet stream more often loses its connection. Envoy usually pings every 30 s,
    gRPC's own default allows one ping in 300 s."""
    max_connection_age_seconds: Annotated[float, Interval(ge=0, le=604_800)] = 0.0
    """0: connections are never aged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSettings:
    """The listener that Envoy opens for requests."""

    __pydantic_config__: ClassVar[Any] = _CONFIG
    name: Annotated[str, Len(1, 128)] = "trimtab"
    address: str = "0.0.0.0"  # noqa: S104 - a gateway listens for others; sidecars set 127.0.0.1
    port: Annotated[int, Interval(ge=1, le=65_535)] = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminSettings:
    """The HTTP port for metrics, health and the CLI."""

    __pydantic_config__: ClassVar[Any] = _CONFIG
    address: str = "127.0.0.1"
    port: Port = 18_001
    """0 picks a free port."""
    allowed_hosts: tuple[Annotated[str, Len(1, 253)], ...] = ()
    """Names besides the server's own addresses under which it may be asked (the `Host` header)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """The decision log and the checkpoint."""

    __pydantic_config__: ClassVar[Any] = _CONFIG
    directory: Path = Path("trimtab-state")
    max_log_bytes: Annotated[int, Interval(ge=65_536)] = 64 * 1024 * 1024
    """A log file above this size is rotated."""
    max_log_files: Annotated[int, Interval(ge=1, le=10_000)] = 8
    ring_records: Annotated[int, Interval(ge=1, le=1_000_000)] = 1_000
    """Records kept in memory while the disk refuses writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """The tick."""

    __pydantic_config__: ClassVar[Any] = _CONFIG
    interval_seconds: Annotated[float, Interval(ge=0.1, le=3600)] = 5.0
    """Time between two decisions when nothing else asks for one."""
    topology_hold_seconds: Annotated[float, Interval(ge=0, le=86_400)] = 30.0
    """A sudden loss of more than half of a service's endpoints is held this long."""
    shutdown_grace_seconds: Seconds = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """Log output, on standard error."""

    __pydantic_config__: ClassVar[Any] = _CONFIG
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "json", "console"] = "auto"
    """`auto`: console on a terminal, JSON otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of `trimtab serve`."""

    __pydantic_config__: ClassVar[Any] = _CONFIG
    sources: SourceSettings = field(default_factory=SourceSettings)
    consul: ConsulSettings = field(default_factory=ConsulSettings)
    prometheus: PrometheusSettings = field(default_factory=PrometheusSettings)
    scrape: ScrapeSettings = field(default_factory=ScrapeSettings)
    fuse: FuseSettings = field(default_factory=FuseSettings)
    xds: XdsSettings = field(default_factory=XdsSettings)
    listener: ListenerSettings = field(default_factory=ListenerSettings)
    admin: AdminSettings = field(default_factory=AdminSettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    loop: LoopSettings = field(default_factory=LoopSettings)
    log: LogSettings = field(default_factory=LogSettings)


def load(
    *,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Settings:
    """Merge the four layers and validate them once.

    `flags` maps dotted keys (``xds.port``) to values. `environment` is usually ``os.environ``.

    Raises:
        SettingsError: names the dotted key and the reason; values are not repeated, as one may be
            a secret.
    """
    merged: dict[str, Any] = _read_toml(file) if file else {}
    for name, value in sorted((environment or {}).items()):
        if name.startswith(ENV_PREFIX) and "__" in name:
            _set(merged, name.removeprefix(ENV_PREFIX).lower().split("__"), _from_text(value))
    for key, value in (flags or {}).items():
        _set(merged, key.split("."), value)
    return _validate(merged)


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise SettingsError("--config", f"cannot read `{file}`: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError("--config", f"`{file}` is not TOML: {error}") from error


def _set(tree: dict[str, Any], path: list[str], value: Any) -> None:  # noqa: ANN401 - any TOML value
    for part in path[:-1]:
        branch = tree.setdefault(part, {})
        if not isinstance(branch, dict):
            raise SettingsError(".".join(path), f"`{part}` is a value, not a table")
        tree = branch
    tree[path[-1]] = value


def _from_text(text: str) -> Any:  # noqa: ANN401 - any TOML value
    """Read a variable as a TOML value if it is a list, else leave the text to the validator."""
    if text.startswith("["):
        try:
            return tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            return text
    return text


def _validate(merged: Mapping[str, Any]) -> Settings:
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415 - `--help` must not pay for it

    try:
        return TypeAdapter(Settings).validate_python(merged)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise SettingsError(key, first["msg"]) from error
