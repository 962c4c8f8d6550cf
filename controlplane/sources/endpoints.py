"""From untrusted entries to endpoints: good ones kept, bad ones named, order irrelevant."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from controlplane.model.topology import Endpoint, Health, ServiceName, ServiceTopology, Topology

RESERVED = frozenset({"zone", "region", "version", "gpu", "hash_key", "metrics_url"})
"""Facts with a field of their own; every other fact is a label."""

MAX_FACT_CHARACTERS = 1024
MAX_PROBLEM_TEXT = 120


@dataclass(frozen=True, slots=True)
class Found:
    """What discovery says of one service: endpoints in any order, and what could not be taken."""

    endpoints: tuple[Endpoint, ...] = ()
    problems: tuple[str, ...] = ()


def make_endpoint(
    *, address: str, port: int, facts: Mapping[str, str], health: Health = Health.HEALTHY
) -> Endpoint:
    """Make an endpoint from an address and its facts (`RESERVED` names become fields, the rest labels).

    Raises:
        ValueError: with a reason for people: the address is a name and not an IP literal or cannot be
            connected to, the port is out of range, or a fact is too long.
    """
    literal = _literal(address)
    long = sorted(name for name, value in facts.items() if len(name) + len(value) > MAX_FACT_CHARACTERS)
    if long:
        raise ValueError(f"`{shorten(long[0])}` is longer than {MAX_FACT_CHARACTERS} characters")
    return Endpoint(
        address=literal,
        port=port,
        zone=facts.get("zone", ""),
        region=facts.get("region", ""),
        version=facts.get("version", ""),
        gpu=facts.get("gpu", ""),
        hash_key=facts.get("hash_key", ""),
        metrics_url=facts.get("metrics_url", ""),
        health=health,
        labels=tuple(
            sorted((name, value) for name, value in facts.items() if name and name not in RESERVED)
        ),
    )


def build_topology(found: Mapping[ServiceName, Found]) -> Topology:
    """Put services together, the same for every order of entries.

    Of endpoints with one address, or with one Maglev key, one is kept (the lowest by id and facts) and
    the others are problems: Envoy would drop a repeated address silently, and would order equal keys
    by chance.
    """
    services, problems = [], []
    for service in sorted(found):
        topology, repeated = _build_service(service, found[service].endpoints)
        services.append(topology)
        problems += sorted(f"{service}: {problem}" for problem in (*found[service].problems, *repeated))
    return Topology(services=tuple(services), problems=tuple(problems))


def shorten(text: object) -> str:
    """Cut a text of unknown length for a message."""
    line = "".join(character if character.isprintable() else "?" for character in str(text)[:1000])
    return line if len(line) <= MAX_PROBLEM_TEXT else f"{line[:MAX_PROBLEM_TEXT]}…"


def _build_service(
    service: ServiceName, endpoints: Iterable[Endpoint]
) -> tuple[ServiceTopology, list[str]]:
    by_id: dict[str, Endpoint] = {}
    keys: dict[str, str] = {}
    problems = []
    for endpoint in sorted(endpoints, key=_order):
        if endpoint.id in by_id:
            problems.append(f"{endpoint.id} is there more than once")
            continue
        owner = keys.setdefault(endpoint.maglev_key, endpoint.id)
        if owner != endpoint.id:
            problems.append(f"{endpoint.id} has the hash key of {owner}")
            continue
        by_id[endpoint.id] = endpoint
    return ServiceTopology(service, tuple(by_id[name] for name in sorted(by_id))), problems


def _order(endpoint: Endpoint) -> tuple[str, bool, str]:
    """Sort by id, healthy first, then by everything: any total order that ignores arrival will do."""
    return endpoint.id, endpoint.health is not Health.HEALTHY, repr(endpoint)


def _literal(address: str) -> str:
    try:
        ip = ipaddress.ip_address(address)
    except ValueError as error:
        raise ValueError(f"`{shorten(address)}` is not an IP address (Envoy takes no names)") from error
    if ip.is_unspecified or ip.is_multicast or "%" in address:
        raise ValueError(f"`{shorten(address)}` cannot be connected to")
    return str(ip)
