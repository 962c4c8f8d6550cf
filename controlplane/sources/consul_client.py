"""The one adapter over py-consul (1.8), which keeps that library's habits in one place.

Its habits, and what is done here: the index is a string (made an int); it raises aiohttp's and
asyncio's errors bare (translated by `consul_errors`); its own timeout is shorter than a blocking query
may rightly take (a deadline of ours is set for every call, and the library's is longer); it keeps at
most 100 connections, so that the 101st blocking query would wait for another's end (limit raised);
``CONSUL_HTTP_TOKEN`` overrides the token given at construction (ours goes with each call);
``CONSUL_HTTP_ADDR`` without a port raises `TypeError` (host and port are always given);
``txn.put`` sends no token (the request is made with the header); construction warns of deprecated
aiohttp arguments (silenced there only); and it needs a running loop (made at the first call).
"""

from __future__ import annotations

import asyncio
import base64
import json
import warnings
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import consul.aio
from consul.callback import CB

from controlplane.config import ConsulSettings
from controlplane.errors import SettingsError, SourceError, SourceMalformed, SourceUnreachable
from controlplane.sources.consul_errors import CAUGHT, SOURCE, status_of, translate

T = TypeVar("T")

CALL_SECONDS = 10.0
"""Deadline of every call that does not block on an index."""

MARGIN_SECONDS = 5.0
MAX_CONNECTIONS = 4096
DEFAULT_PORT = 8500


@dataclass(frozen=True, slots=True, kw_only=True)
class KvEntry:
    """One key. `session` holds its lock, if any; `lock_index` counts how often it was locked."""

    key: str
    value: bytes
    modify_index: int
    session: str = ""
    lock_index: int = 0


@dataclass(frozen=True, slots=True)
class Indexed(Generic[T]):
    """A value and Consul's index for it."""

    index: int
    value: T


class ConsulClient:
    """Consul's HTTP API, as far as Trimtab uses it.

    Every method raises `SourceUnreachable` or `SourceMalformed` when there is no usable answer, and has
    a deadline. Close it on the event loop that used it.
    """

    def __init__(self, *, settings: ConsulSettings) -> None:
        """Prepare; nothing is sent and no file is read yet.

        Raises:
            SettingsError: if the address is not ``host:port``.
        """
        self._settings = settings
        self._host, self._port = _split_address(settings.address)
        self._library: Any = None
        self._last_token = ""

    async def close(self) -> None:
        """Close all connections; the client may be used again after that."""
        library, self._library = self._library, None
        if library is not None:
            await library.close()

    async def list_entries(self, prefix: str, *, index: int = 0) -> Indexed[tuple[KvEntry, ...]]:
        """Read all keys under `prefix`; with an index, wait until it has passed or the wait is over."""
        kv = self._get_library().kv
        call = kv.get(prefix, recurse=True, token=self._token(), **self._blocking(index))
        return _indexed(await self._finish(call, self._deadline(index)), _entries)

    async def get_entry(self, key: str) -> KvEntry | None:
        """Read one key; `None` if it is absent."""
        answer = await self._finish(self._get_library().kv.get(key, token=self._token()), CALL_SECONDS)
        found = _indexed(answer, lambda item: _entries(None if item is None else [item])).value
        return found[0] if found else None

    async def put(self, key: str, value: bytes) -> None:
        """Write one key, whatever it held."""
        await self._finish(self._get_library().kv.put(key, value, token=self._token()), CALL_SECONDS)

    async def put_if_unchanged(self, key: str, value: bytes, *, modify_index: int) -> int | None:
        """Write one key if its `ModifyIndex` is still the given one (0: it is absent).

        Gives the new `ModifyIndex`, or `None` if the key was written since. A transaction and not
        ``PUT ?cas=``, because only the former tells the new index.
        """
        operation = {
            "Verb": "cas",
            "Key": key,
            "Value": base64.b64encode(value).decode("ascii"),
            "Index": modify_index,
        }
        library, token = self._get_library(), self._token()
        call = library.http.put(
            CB.json(),
            "/v1/txn",
            params=[("dc", self._settings.datacenter)] if self._settings.datacenter else [],
            headers=library.prepare_headers(token),
            data=json.dumps([{"KV": operation}]),
        )
        try:
            answer = await self._limit(call, CALL_SECONDS)
            return int(answer["Results"][0]["KV"]["ModifyIndex"])
        except CAUGHT as error:
            if status_of(error) == 409:  # noqa: PLR2004 - what a rolled back transaction answers
                return None
            raise self._translate(error) from None

    async def delete(self, key: str, *, modify_index: int | None = None) -> bool:
        """Delete one key; with `modify_index`, only if it is still the key's. Gives whether it did."""
        call = self._get_library().kv.delete(key, cas=modify_index, token=self._token())
        return bool(await self._finish(call, CALL_SECONDS))

    async def list_instances(
        self, service: str, *, index: int = 0
    ) -> Indexed[tuple[Mapping[str, Any], ...]]:
        """Read all instances of a service with node, service and checks, whatever their health.

        `service` must hold no ``/``: it becomes part of the path.
        """
        health = self._get_library().health
        call = health.service(service, token=self._token(), **self._blocking(index))
        return _indexed(await self._finish(call, self._deadline(index)), _instances)

    async def create_session(self, *, name: str, ttl_seconds: int, lock_delay_seconds: int = 15) -> str:
        """Create a session that ends unless it is renewed within its TTL (10 s to 24 h).

        What a session had locked when it *expired* cannot be locked again for the lock delay.
        """
        call = self._get_library().session.create(
            name, ttl=ttl_seconds, lock_delay=lock_delay_seconds, token=self._token()
        )
        return str(await self._finish(call, CALL_SECONDS))

    async def renew_session(self, session: str) -> bool:
        """Renew a session; false if it has ended."""
        call = self._get_library().session.renew(session, token=self._token())
        try:
            await self._limit(call, CALL_SECONDS)
        except CAUGHT as error:
            if status_of(error) == 404:  # noqa: PLR2004 - Consul knows no such session
                return False
            raise self._translate(error) from None
        return True

    async def destroy_session(self, session: str) -> None:
        """End a session and release what it locked."""
        await self._finish(self._get_library().session.destroy(session, token=self._token()), CALL_SECONDS)

    async def acquire(self, key: str, value: bytes, *, session: str) -> bool:
        """Lock a key for a session and write it; false if another session holds it."""
        call = self._get_library().kv.put(key, value, acquire=session, token=self._token())
        return bool(await self._finish(call, CALL_SECONDS))

    async def release(self, key: str, *, session: str) -> bool:
        """Unlock a key; false if the session does not hold it."""
        call = self._get_library().kv.put(key, None, release=session, token=self._token())
        return bool(await self._finish(call, CALL_SECONDS))

    def _get_library(self) -> Any:  # noqa: ANN401 - py-consul has no types
        if self._library is None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                self._library = consul.aio.Consul(
                    host=self._host,
                    port=self._port,
                    scheme=self._settings.scheme,
                    dc=self._settings.datacenter or None,
                    verify=True,
                    connections_limit=MAX_CONNECTIONS,
                    connections_timeout=self._deadline(1) + MARGIN_SECONDS,
                )
        return self._library

    def _token(self) -> str | None:
        """Read the token file anew, so that a rotated token is used at the next call.

        Without a token file, py-consul takes ``CONSUL_HTTP_TOKEN``.
        """
        path = self._settings.token_file
        if path is None:
            return None
        try:
            token = path.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise SourceUnreachable(SOURCE, f"cannot read the token file `{path}`") from error
        if not token.isascii() or not token.isprintable() or not token:
            raise SourceUnreachable(SOURCE, f"the token file `{path}` holds no token")
        self._last_token = token
        return token

    def _blocking(self, index: int) -> dict[str, Any]:
        if index < 1:
            return {}
        return {"index": str(index), "wait": f"{round(self._settings.wait_seconds * 1000)}ms"}

    def _deadline(self, index: int) -> float:
        """Consul adds up to a sixteenth of the wait, so that clients don't all return at once."""
        if index < 1:
            return CALL_SECONDS
        return self._settings.wait_seconds * 17 / 16 + MARGIN_SECONDS

    async def _finish(self, call: Awaitable[Any], seconds: float) -> Any:  # noqa: ANN401 - JSON
        try:
            return await self._limit(call, seconds)
        except CAUGHT as error:
            raise self._translate(error) from None

    @staticmethod
    async def _limit(call: Awaitable[Any], seconds: float) -> Any:  # noqa: ANN401 - JSON
        async with asyncio.timeout(seconds):
            return await call

    def _translate(self, error: Exception) -> SourceError:
        """Translate, to be raised ``from None``: py-consul's own text quotes whole answers."""
        environment_token = self._library.token if self._library is not None else None
        return translate(error, secrets=(self._last_token, environment_token or ""))


def _split_address(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or (":" in address and address.endswith("]")):
        host, port = address, str(DEFAULT_PORT)
    bare = host.removeprefix("[").removesuffix("]")
    is_named = bool(bare) and not set(bare) & set("/@?# \t") and (":" not in host or host.startswith("["))
    if not is_named or not port.isdecimal() or not 1 <= int(port) <= 65_535:  # noqa: PLR2004 - TCP ports
        raise SettingsError("consul.address", "must be `host:port`, without a scheme")
    return host, int(port)


def _indexed(answer: Any, read: Any) -> Indexed[Any]:  # noqa: ANN401 - JSON of py-consul
    try:
        index, value = answer
        return Indexed(int(index), read(value))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise SourceMalformed(SOURCE, "the answer has another shape than Consul's") from error


def _entries(items: Any) -> tuple[KvEntry, ...]:  # noqa: ANN401 - JSON
    return tuple(
        KvEntry(
            key=str(item["Key"]),
            value=item["Value"] or b"",
            modify_index=int(item["ModifyIndex"]),
            session=str(item.get("Session") or ""),
            lock_index=int(item.get("LockIndex") or 0),
        )
        for item in items or ()
    )


def _instances(items: Any) -> tuple[Mapping[str, Any], ...]:  # noqa: ANN401 - JSON
    for item in items or ():
        if not isinstance(item["Node"], dict) or not isinstance(item["Service"], dict):
            raise TypeError
    return tuple(items or ())
