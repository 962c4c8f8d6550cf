"""One Prometheus query, synchronously: for a worker thread, never for the event loop.

prometheus-api-client 0.7.2 has no default timeout, retries so that one second becomes ten, and reads
answers of any size. All three are set right here, in the session that it is given.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, LifoQueue
from typing import Any

import requests
from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException
from requests.auth import AuthBase
from urllib3.exceptions import HTTPError
from urllib3.util import Retry

from controlplane.config import PrometheusSettings
from controlplane.sources.answers import Failed, Outcome
from controlplane.sources.promql import PART_LABEL

MAX_ANSWER_BYTES = 16 * 1024 * 1024
_CHUNK_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Row:
    """One row of an instant query. `evaluated_at` is Prometheus's clock, in Unix seconds."""

    join_value: str
    part: str
    value: float
    evaluated_at: float


class PrometheusApi:
    """Instant queries. Safe to call from several threads: each call has a client to itself."""

    def __init__(self, *, settings: PrometheusSettings, clock: Callable[[], float]) -> None:
        """`clock` gives monotonic seconds."""
        self._settings = settings
        self._clock = clock
        self._idle: LifoQueue[PrometheusConnect] = LifoQueue()

    def query(self, text: str, join_label: str) -> tuple[Row, ...] | Failed:
        """Evaluate `text` now, within the timeout, and read each row's `join_label`."""
        try:
            client = self._idle.get_nowait()
        except Empty:
            client = self._client()
        try:
            return rows(client.custom_query(text), join_label)
        except _EXPECTED as error:
            return _explained(error)
        finally:
            self._idle.put(client)

    def _client(self) -> PrometheusConnect:
        timeout = self._settings.timeout_seconds
        token_file = self._settings.bearer_token_file
        return PrometheusConnect(
            url=self._settings.url.rstrip("/"),
            session=_BoundedSession(timeout, self._clock),
            timeout=timeout,
            retry=Retry(total=0),
            auth=_BearerFile(token_file) if token_file else None,
        )


def rows(result: object, join_label: str) -> tuple[Row, ...] | Failed:
    """Read the ``result`` of an instant query; anything but a vector is malformed.

    A scalar arrives as a bare ``[time, "value"]``, NaN and Inf as text.
    """
    if not isinstance(result, list):
        return Failed(Outcome.MALFORMED, "a result that is not a vector")
    try:
        return tuple(_row(row["metric"], row["value"], join_label) for row in result)
    except (KeyError, TypeError, ValueError):
        return Failed(Outcome.MALFORMED, "a result that is not a vector of samples")


def _row(metric: Mapping[str, Any], value: list[Any], join_label: str) -> Row:
    evaluated_at, text = value
    if not isinstance(text, str) or not math.isfinite(evaluated_at):
        raise ValueError(text)
    return Row(str(metric.get(join_label, "")), str(metric.get(PART_LABEL, "")), float(text), evaluated_at)


class _Oversized(requests.exceptions.RequestException):
    """The answer is larger than any Prometheus has reason to send."""


_EXPECTED = (
    PrometheusApiClientException,
    requests.exceptions.RequestException,
    HTTPError,
    OSError,
    # What the client does with JSON of another shape.
    KeyError,
    TypeError,
    RecursionError,
)


def _explained(error: BaseException) -> Failed:
    """Say what went wrong without repeating the answer, which may be anything of any length."""
    match error:
        case PrometheusApiClientException():
            return Failed(Outcome.STATUS, str(error).partition(" (")[0])
        case _Oversized():
            return Failed(Outcome.OVERSIZED, f"an answer above {MAX_ANSWER_BYTES} bytes")
        case requests.exceptions.JSONDecodeError():
            return Failed(Outcome.MALFORMED, "an answer that is not JSON (a proxy's login page?)")
        case KeyError() | TypeError() | RecursionError():
            return Failed(Outcome.MALFORMED, "an answer that is not Prometheus's")
        case requests.exceptions.Timeout() | TimeoutError():
            return Failed(Outcome.TIMEOUT, "no answer in time")
        case _:
            return Failed(Outcome.UNREACHABLE, type(error).__name__)


class _BearerFile(AuthBase):
    """Sends the token in a file, read anew each time: tokens rotate."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._path.read_text('utf-8').strip()}"
        return request


class _BoundedSession(requests.Session):
    """Reads each answer within a time and a size.

    `requests` bounds only the wait for each single piece of an answer, so that one byte a second
    would hold a thread for ever. Redirects are not followed: they only lead to login pages.
    """

    def __init__(self, timeout_seconds: float, clock: Callable[[], float]) -> None:
        super().__init__()
        self._clock = clock
        self._timeout_seconds = timeout_seconds

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:  # noqa: ANN401 - requests' own signature
        started = self._clock()
        kwargs |= {"stream": True, "allow_redirects": False}
        response = super().send(request, **kwargs)
        try:
            body = self._read(response, until=started + self._timeout_seconds)
        finally:
            response.close()
        response.raw = io.BytesIO(body)
        return response

    def _read(self, response: requests.Response, *, until: float) -> bytes:
        body = bytearray()
        while chunk := response.raw.read1(_CHUNK_BYTES, decode_content=True):
            body += chunk
            if len(body) > MAX_ANSWER_BYTES:
                raise _Oversized
            if self._clock() > until:
                raise requests.exceptions.ReadTimeout
        return bytes(body)
