"""What the server counts. No label is chosen by a client, so the number of series is fixed."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from controlplane.model.resources import CLUSTER, ENDPOINT, EXTENSION, LISTENER, ROUTE, RUNTIME, SECRET
from controlplane.xds.server.messages import Answer, Refusal, Variant

SHORT_NAMES = {
    CLUSTER: "cds",
    ENDPOINT: "eds",
    LISTENER: "lds",
    ROUTE: "rds",
    SECRET: "sds",
    RUNTIME: "rtds",
    EXTENSION: "ecds",
}

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


def short_name(type_url: str) -> str:
    """Give a type's label value: ``cds``, ``eds``…, ``other`` for what Trimtab does not know."""
    return SHORT_NAMES.get(type_url, "other")


class ServerMetrics:
    """The series of the xDS server."""

    def __init__(self, *, registry: CollectorRegistry) -> None:
        self._streams = Gauge("trimtab_xds_streams", "Open xDS streams.", ["variant"], registry=registry)
        self._rejected = Counter(
            "trimtab_xds_rejected_streams",
            "Streams ended by the server, by reason.",
            ["reason"],
            registry=registry,
        )
        self._pushes = Counter("trimtab_xds_pushes", "Responses sent.", ["type"], registry=registry)
        self._push_bytes = Counter(
            "trimtab_xds_push_bytes", "Bytes of responses sent.", ["type"], registry=registry
        )
        self._encodes = Counter(
            "trimtab_xds_encodes", "Responses encoded; streams share them.", ["type"], registry=registry
        )
        self._acks = Counter("trimtab_xds_acks", "Responses accepted.", ["type"], registry=registry)
        self._nacks = Counter("trimtab_xds_nacks", "Responses refused.", ["type"], registry=registry)
        self._ack_seconds = Histogram(
            "trimtab_xds_ack_seconds",
            "From sending a response to its ACK.",
            ["type"],
            buckets=_BUCKETS,
            registry=registry,
        )
        self._unknown_types = Counter(
            "trimtab_xds_unknown_type_requests",
            "Requests for a type Trimtab does not know.",
            registry=registry,
        )

    def stream_opened(self, variant: Variant) -> None:
        """Count a stream in."""
        self._streams.labels(variant.value).inc()

    def stream_closed(self, variant: Variant) -> None:
        """Count a stream out."""
        self._streams.labels(variant.value).dec()

    def stream_rejected(self, refusal: Refusal) -> None:
        """Count a stream that the server ended."""
        self._rejected.labels(refusal.reason).inc()

    def pushed(self, type_url: str, size_bytes: int) -> None:
        """Count a response."""
        self._pushes.labels(short_name(type_url)).inc()
        self._push_bytes.labels(short_name(type_url)).inc(size_bytes)

    def encoded(self, type_url: str) -> None:
        """Count an encoding."""
        self._encodes.labels(short_name(type_url)).inc()

    def answered(self, answer: Answer) -> None:
        """Count an ACK with its delay, or a NACK."""
        name = short_name(answer.type_url)
        if answer.error is not None:
            self._nacks.labels(name).inc()
            return
        self._acks.labels(name).inc()
        self._ack_seconds.labels(name).observe(answer.delay_seconds)

    def unknown_type_requested(self) -> None:
        """Count a request for an unknown type."""
        self._unknown_types.inc()
