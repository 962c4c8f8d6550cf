"""Endpoints from a file, YAML or JSON, watched.

::

    services:
      chat:
        endpoints:
          - 10.0.0.1:8000
          - {address: 10.0.0.2, port: 8000, zone: b, version: "2", drain: true, labels: {tier: gold}}

One bad endpoint is a problem and its neighbours stay. A file that is bad as a whole, or in which what
stands for a service is no list of endpoints, is not taken: the last good one stays, and health says
why.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

from controlplane.errors import SourceMalformed, SourceUnreachable
from controlplane.model.documents import TopologyOffer
from controlplane.model.health import SourceHealth
from controlplane.model.topology import Endpoint, Health, ServiceName
from controlplane.sources.endpoints import RESERVED, Found, build_topology, make_endpoint, shorten
from controlplane.sources.file_watch import SOURCE, Loaded, WatchedPath, read_capped, watch_loaded
from controlplane.sources.fuse import Fuse
from controlplane.sources.yaml_json import load, load_json

MAX_FILE_BYTES = 8 * 1024 * 1024

_FIELDS = RESERVED | {"address", "port", "drain", "labels"}


class FileTopology:
    """Endpoints from a file; a `TopologySource`."""

    def __init__(self, *, file: Path, fuse: Fuse) -> None:
        """Watch `file`. `fuse` is this source's own."""
        self._file = file
        self._fuse = fuse
        self._raw = b""
        self._found: Mapping[ServiceName, Found] = {}

    async def watch(self, services: frozenset[ServiceName]) -> AsyncGenerator[TopologyOffer, None]:
        """Yield the endpoints of these services once the file can be read, then after every change."""

        def load_offer() -> Loaded[TopologyOffer]:
            found = self._load()
            topology = build_topology({service: found.get(service, Found()) for service in services})
            return Loaded(content=TopologyOffer(topology=topology), identity=topology)

        path = WatchedPath(folder=self._file.parent, is_recursive=False)
        async with contextlib.aclosing(watch_loaded(load_offer, path=path, fuse=self._fuse)) as offers:
            async for offer in offers:
                yield offer

    def health(self) -> SourceHealth:
        """Tell how the source is doing."""
        return self._fuse.health()

    def _load(self) -> Mapping[ServiceName, Found]:
        raw = read_capped(self._file, MAX_FILE_BYTES)
        if raw is None:
            raise SourceUnreachable(SOURCE, f"there is no file `{self._file}`")
        if len(raw) > MAX_FILE_BYTES:
            raise SourceMalformed(SOURCE, f"`{self._file}` is larger than {MAX_FILE_BYTES} bytes")
        if raw != self._raw:
            try:
                self._found = parse_endpoints(raw, is_json=self._file.suffix == ".json")
            except ValueError as error:
                raise SourceMalformed(SOURCE, f"`{self._file}`: {error}") from error
            self._raw = raw
        return self._found


def parse_endpoints(text: bytes, *, is_json: bool) -> Mapping[ServiceName, Found]:
    """Read the endpoint file.

    Raises:
        ValueError: with a reason for people, if the file as a whole is not to be used.
    """
    tree = _mapping(load_json(text) if is_json else load(text), "the file", {"services"})
    services = _mapping(tree.get("services"), "`services`")
    return {name: _parse_service(name, body) for name, body in services.items()}


def _parse_service(name: str, body: object) -> Found:
    where = f"service `{shorten(name)}`"
    listed = body if isinstance(body, list) else _mapping(body, where, {"endpoints"}).get("endpoints")
    if not isinstance(listed, list):
        raise ValueError(f"{where} has no list of endpoints")  # noqa: TRY004 - a fault of the file
    endpoints, problems = [], []
    for number, entry in enumerate(listed):
        try:
            endpoints.append(_parse_endpoint(entry))
        except ValueError as error:
            problems.append(f"endpoint {number}: {error}")
    return Found(endpoints=tuple(endpoints), problems=tuple(problems))


def _parse_endpoint(entry: object) -> Endpoint:
    if isinstance(entry, str):
        host, number = _split(entry)
        return make_endpoint(address=host, port=number, facts={})
    fields = _mapping(entry, "the entry", _FIELDS)
    address, port, drain = fields.get("address"), fields.get("port"), fields.get("drain", False)
    if not isinstance(address, str):
        raise ValueError("`address` is missing")  # noqa: TRY004 - a fault of the file
    if type(port) is not int:
        raise ValueError("`port` is not a whole number")
    if not isinstance(drain, bool):
        raise ValueError("`drain` is not true or false")  # noqa: TRY004 - a fault of the file
    labels = _mapping(fields.get("labels", {}), "`labels`")
    reserved = sorted(RESERVED & labels.keys())
    if reserved:
        raise ValueError(f"`{reserved[0]}` is a field of its own, not a label")
    named = {name: value for name, value in fields.items() if name in RESERVED}
    facts = {name: _text(name, value) for name, value in (labels | named).items()}
    health = Health.DRAINING if drain else Health.HEALTHY
    return make_endpoint(address=address, port=port, facts=facts, health=health)


def _split(text: str) -> tuple[str, int]:
    address, colon, port = text.rpartition(":")
    is_bracketed = address.startswith("[") and address.endswith("]")
    if not colon or not port.isascii() or not port.isdecimal() or (":" in address and not is_bracketed):
        raise ValueError(f"`{shorten(text)}` is not `address:port`")
    return (address[1:-1] if is_bracketed else address), int(port)


def _text(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    raise ValueError(f"`{shorten(name)}` is not a text (write it in quotes)")


def _mapping(value: object, what: str, allowed: frozenset[str] | set[str] | None = None) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is not a mapping")  # noqa: TRY004 - a fault of the file
    unknown = sorted(value.keys() - allowed) if allowed is not None else []
    if unknown:
        raise ValueError(f"{what} has an unknown field `{shorten(unknown[0])}`")
    return value
