"""What the protocol machines take and give: requests without their encoding, responses without bytes."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from controlplane.xds.cache.watch import Parcel


class Variant(enum.StrEnum):
    """The two forms of the protocol."""

    SOTW = "sotw"
    DELTA = "delta"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Who is asking, as it says itself."""

    id: str = ""
    cluster: str = ""
    region: str = ""
    zone: str = ""
    sub_zone: str = ""
    user_agent: str = ""
    """Such as ``envoy 1.40.0``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request of either variant. `error` is the message of a NACK, `None` when it is none."""

    type_url: str
    nonce: str = ""
    error: str | None = None
    names: tuple[str, ...] = ()
    """SotW: the complete list. Delta: the names to add."""
    dropped: tuple[str, ...] = ()
    """Delta: the names to remove."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Delta: name → version that the client holds from an earlier stream."""


@dataclass(frozen=True, slots=True)
class Push:
    """One response to be written: what to say, and the nonce that its answer will carry."""

    parcel: Parcel
    nonce: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The client's verdict on one push."""

    type_url: str
    version: str
    delay_seconds: float
    """From sending to the answer."""
    error: str | None = None
    """The message of a NACK."""


class RefusalCode(enum.StrEnum):
    """gRPC status with which a stream is ended."""

    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    UNAVAILABLE = "UNAVAILABLE"


@dataclass(frozen=True, slots=True)
class Refusal:
    """The stream must end. `reason` is a fixed word for metrics, `detail` is for the client."""

    code: RefusalCode
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class Limits:
    """What one stream may ask for."""

    names_per_type: int
    types: int = 32
    name_characters: int = 4096
