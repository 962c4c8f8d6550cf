"""What can go wrong between Trimtab and Consul, as one of two errors, without secrets in the text."""

from __future__ import annotations

import re

import aiohttp
import consul

from controlplane.errors import SourceError, SourceMalformed, SourceUnreachable

SOURCE = "consul"
DETAIL_CHARACTERS = 120

_STATUS = re.compile(r"\A(\d{3})\b")
_MEANING = {
    400: "bad request",
    401: "ACLs are disabled",
    403: "permission denied",
    404: "not found",
    409: "conflict",
    413: "value too large",
    429: "too many requests",
    500: "internal error",
    503: "unavailable",
}
_WRONG_SHAPE = (ValueError, TypeError, KeyError, AttributeError)
"""What py-consul lets through when an answer is JSON of another shape, or not base64, or not UTF-8."""

CAUGHT = (consul.ConsulException, aiohttp.ClientError, TimeoutError, OSError, *_WRONG_SHAPE)
"""Everything a call of py-consul may raise because of its peer."""


def status_of(error: Exception) -> int | None:
    """Find the HTTP status behind one of py-consul's exceptions; `None` if there was none.

    py-consul keeps the status only in the type or at the beginning of the text.
    """
    if isinstance(error, consul.ACLPermissionDenied):
        return 403
    if isinstance(error, consul.ACLDisabled):
        return 401
    if isinstance(error, consul.NotFound):
        return 404
    if isinstance(error, consul.Timeout):
        return 599
    if isinstance(error, consul.ConsulException) and (match := _STATUS.match(str(error))):
        return int(match.group(1))
    return None


def translate(error: Exception, *, secrets: tuple[str, ...] = ()) -> SourceError:
    """Turn what py-consul raised into one of Trimtab's errors.

    An error status is `SourceUnreachable` (Consul gives no answer now) and an answer that is not
    Consul's own is `SourceMalformed`. The first line of an error page is quoted with every string of
    `secrets` struck out; an answer with a good status is never quoted, as it holds documents.
    """
    status = status_of(error)
    if status is not None:
        meaning = _MEANING.get(status, "error")
        detail = _detail(str(error).removeprefix(str(status)), secrets)
        return SourceUnreachable(SOURCE, f"{meaning} (HTTP {status}){detail}")
    if isinstance(error, TimeoutError):
        return SourceUnreachable(SOURCE, "no answer in time")
    if isinstance(error, aiohttp.ClientConnectorError):
        return SourceUnreachable(SOURCE, f"cannot connect: {error.os_error.strerror or 'no route'}")
    if isinstance(error, aiohttp.ClientError | OSError):
        return SourceUnreachable(SOURCE, f"connection lost ({type(error).__name__})")
    return SourceMalformed(SOURCE, f"the answer is not Consul's ({type(error).__name__})")


def _detail(text: str, secrets: tuple[str, ...]) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    for secret in secrets:
        if secret:
            line = line.replace(secret, "***")
    line = "".join(character if character.isprintable() else " " for character in line)
    return f": {line[:DETAIL_CHARACTERS]}" if line else ""
