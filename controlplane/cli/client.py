"""A client of the admin API, on `http.client`: it costs 40 ms of start-up where aiohttp costs 200."""

from __future__ import annotations

import http.client
import json
import time
from http import HTTPStatus
from typing import Any, Final, NoReturn
from urllib.parse import quote, urlsplit

from controlplane.errors import AdminError

MAX_ANSWER_BYTES: Final = 256 * 1024 * 1024
_CHUNK_BYTES: Final = 256 * 1024


class AdminClient:
    """Reads the admin API of one running control plane. Every call has its own connection."""

    def __init__(self, *, address: str, timeout_seconds: float) -> None:
        """Read from `address` (``http://host:port``); a whole answer may take `timeout_seconds`.

        Raises:
            AdminError: if the address is not a URL of that form.
        """
        self.address = address.rstrip("/")
        self._timeout_seconds = timeout_seconds
        parts = urlsplit(address if "://" in address else f"http://{address}")
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in {"http", "https"} or not parts.hostname or port == -1:
            raise AdminError(address, "not an address such as `http://127.0.0.1:18001`")
        self._is_tls = parts.scheme == "https"
        self._host, self._port = parts.hostname, port

    def get(self, *segments: str, query: str = "") -> dict[str, Any]:
        """Read one document; each segment becomes one part of the path.

        Raises:
            AdminError: if there is no answer, no JSON in it, or a status other than 200; 404 included.
            TimeoutError: if the answer is not complete in time.
        """
        status, body = self._exchange("/" + "/".join(quote(part, safe="") for part in segments) + query)
        document = self._parse(status, body)
        if status != HTTPStatus.OK:
            reason = str(document.get("error") or document.get("reason") or f"HTTP {status}")
            raise AdminError(self.address, reason, status=status)
        return document

    def _exchange(self, target: str) -> tuple[int, bytes]:
        deadline = time.monotonic() + self._timeout_seconds
        kind = http.client.HTTPSConnection if self._is_tls else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=self._timeout_seconds)
        try:
            connection.request("GET", target, headers={"Accept": "application/json"})
            socket = connection.sock
            answer = connection.getresponse()
            body = bytearray()
            while chunk := answer.read1(_CHUNK_BYTES):
                body += chunk
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    self._time_out()
                if len(body) > MAX_ANSWER_BYTES:
                    raise AdminError(self.address, "the answer is too large", status=answer.status)
                socket.settimeout(remaining)
        except TimeoutError:
            self._time_out()
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise AdminError(self.address, f"no answer: {reason}") from error
        finally:
            connection.close()
        return answer.status, bytes(body)

    def _parse(self, status: int, body: bytes) -> dict[str, Any]:
        try:
            document = json.loads(body)
        except ValueError as error:
            raise AdminError(self.address, "the answer is not Trimtab's", status=status) from error
        if not isinstance(document, dict):
            raise AdminError(self.address, "the answer is not Trimtab's", status=status)
        return document

    def _time_out(self) -> NoReturn:
        raise TimeoutError(
            f"{self.address}: no complete answer within {self._timeout_seconds:g} s"
        ) from None
