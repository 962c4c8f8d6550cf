"""Reads a streamed answer of OpenAI's chat API."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus

import aiohttp

_PREFIX = b"data: "


@dataclass(slots=True)
class Transcript:
    """What has come so far."""

    first_token_at: float | None = None
    pieces: list[str] = field(default_factory=list)
    is_complete: bool = False

    @property
    def text(self) -> str:
        """The answer."""
        return "".join(self.pieces)


async def read_stream(
    response: aiohttp.ClientResponse,
    transcript: Transcript,
    *,
    clock: Callable[[], float],
) -> str:
    """Read an answer to its end into `transcript`; give what was wrong with it, empty for nothing.

    Raises:
        TimeoutError: at the request's deadline.
        aiohttp.ClientError: if the connection broke; what came before it is in the transcript.
    """
    if response.status != HTTPStatus.OK:
        await response.read()
        return "http"
    async for line in response.content:
        if line.startswith(_PREFIX) and not _take(line[len(_PREFIX) :].strip(), transcript, clock):
            return "truncated"
    return "" if transcript.is_complete else "truncated"


def _take(event: bytes, transcript: Transcript, clock: Callable[[], float]) -> bool:
    """Take one event in; tell if it was one."""
    if event == b"[DONE]":
        transcript.is_complete = True
        return True
    try:
        choices = json.loads(event)["choices"]
        piece = choices[0]["delta"].get("content") if choices else None
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        return False
    if piece:
        if transcript.first_token_at is None:
            transcript.first_token_at = clock()
        transcript.pieces.append(str(piece))
    return True
