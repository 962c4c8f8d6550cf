"""The 64-bit hash of a request, as Envoy's route makes it from its hash policies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import xxhash

from controlplane.model.strategy import HashPolicy

_MASK = 2**64 - 1
_QUOTED = 2
"""Least length of a value in quotes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What hash policies may look at.

    `headers` are (name, value) lines as sent, pseudo headers (``:path``, ``:authority``) included;
    names in any case. `source_ip` is the client's address without port, empty if not known.
    """

    headers: tuple[tuple[str, str], ...] = ()
    source_ip: str = ""

    def values(self, name: str) -> list[str]:
        """Give the values of a header, one per line, blanks around them trimmed as Envoy's codec does."""
        wanted = name.lower()
        return [value.strip(" \t") for header, value in self.headers if header.lower() == wanted]


def request_hash(policies: Sequence[HashPolicy], request: Request) -> int | None:
    """Combine the policies' hashes; `None` if Envoy would pick at random or by a cookie it makes up.

    Policies without a value are skipped. A later hash joins by ``rotl64(acc, 1) XOR new``. A
    `terminal` policy ends the list as soon as there is any hash.
    """
    combined: int | None = None
    for policy in policies:
        value = _policy_hash(policy, request)
        if value is None and policy.kind == "cookie" and policy.ttl_seconds is not None:
            return None
        if value is not None:
            combined = value if combined is None else _rotate_left(combined) ^ value
        if policy.terminal and combined is not None:
            break
    return combined


def hash_values(values: Sequence[str]) -> int | None:
    """Hash a header: one line by itself, several lines sorted and chained through the seed."""
    if not values:
        return None
    if len(values) == 1:
        return xxhash.xxh64_intdigest(values[0].encode())
    chained = 0
    for value in sorted(value.encode() for value in values):
        chained = xxhash.xxh64_intdigest(value, chained)
    return chained


def _policy_hash(policy: HashPolicy, request: Request) -> int | None:
    if policy.kind == "header":
        return hash_values(request.values(policy.name))
    if policy.kind == "source_ip":
        return hash_values([request.source_ip] if request.source_ip else [])
    value = _cookie(policy.name, request) if policy.kind == "cookie" else _parameter(policy.name, request)
    return None if value is None else hash_values([value])


def _cookie(name: str, request: Request) -> str | None:
    """Find a cookie; one pair of quotes around its value is taken off. An empty one counts as absent."""
    for line in request.values("cookie"):
        for pair in line.split(";"):
            key, equals, value = pair.strip(" \t").partition("=")
            if equals and key == name:
                is_quoted = len(value) >= _QUOTED and value[0] == value[-1] == '"'
                return (value[1:-1] if is_quoted else value) or None
    return None


def _parameter(name: str, request: Request) -> str | None:
    """Find a query parameter: the first of its name, not URL-decoded."""
    for path in request.values(":path"):
        for pair in path.partition("#")[0].partition("?")[2].split("&"):
            key, _, value = pair.partition("=")
            if key == name:
                return value
    return None


def _rotate_left(value: int) -> int:
    return ((value << 1) | (value >> 63)) & _MASK
