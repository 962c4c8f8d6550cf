"""How the server listens: address, keepalive, limits of the transport."""

from __future__ import annotations

import ipaddress

from controlplane.config import XdsSettings
from controlplane.errors import SettingsError

AGE_GRACE_SECONDS = 10
"""After the maximum age the client has this long to move to a new connection."""

MAX_METADATA_BYTES = 16 * 1024


def channel_options(settings: XdsSettings) -> list[tuple[str, int]]:
    """Give gRPC's options. Maximum connection age is jittered by 10 % by gRPC itself."""
    options = [
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", settings.max_request_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_metadata_size", MAX_METADATA_BYTES),
        ("grpc.keepalive_time_ms", _milliseconds(settings.keepalive_seconds)),
        ("grpc.keepalive_timeout_ms", _milliseconds(settings.keepalive_timeout_seconds)),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", _milliseconds(settings.min_ping_interval_seconds)),
    ]
    if settings.max_connection_age_seconds > 0:
        options += [
            ("grpc.max_connection_age_ms", _milliseconds(settings.max_connection_age_seconds)),
            ("grpc.max_connection_age_grace_ms", _milliseconds(AGE_GRACE_SECONDS)),
        ]
    return options


def check_plaintext(settings: XdsSettings) -> None:
    """Refuse to serve without TLS where others can listen, unless that is explicitly wanted.

    Raises:
        SettingsError: for an address that is not loopback.
    """
    if not settings.is_plaintext_allowed and not _is_loopback(settings.address):
        raise SettingsError(
            "xds.address",
            f"`{settings.address}` is not loopback: set `xds.is_plaintext_allowed` to serve without TLS",
        )


def _is_loopback(address: str) -> bool:
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return False


def target(settings: XdsSettings) -> str:
    """Give the address in gRPC's form."""
    address = settings.address.strip("[]")
    return f"[{address}]:{settings.port}" if ":" in address else f"{address}:{settings.port}"


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1000)
