"""Fetching a metrics page over HTTP within a time and a size."""

from __future__ import annotations

import asyncio

import aiohttp

from controlplane.config import ScrapeSettings
from controlplane.sources.answers import Failed, Outcome

_CHUNK_BYTES = 64 * 1024
_HTTP_OK = 200


class PageFetcher:
    """Fetches pages with at most `settings.concurrency` requests under way.

    The session is the caller's: it is shared, and closed by whoever made it.
    """

    def __init__(self, *, settings: ScrapeSettings, session: aiohttp.ClientSession) -> None:
        self._settings = settings
        self._session = session
        self._slots = asyncio.Semaphore(settings.concurrency)

    async def fetch(self, url: str) -> bytes | Failed:
        """Fetch one page. Redirects are not followed: a target is where discovery says it is."""
        async with self._slots:
            try:
                async with asyncio.timeout(self._settings.timeout_seconds):
                    return await self._get(url)
            except TimeoutError:
                return Failed(Outcome.TIMEOUT, f"no answer within {self._settings.timeout_seconds:g} s")
            except (aiohttp.ClientError, OSError, ValueError) as error:
                # ValueError: aiohttp's word for a URL or a header that it cannot use.
                return Failed(Outcome.UNREACHABLE, type(error).__name__)

    async def _get(self, url: str) -> bytes | Failed:
        async with self._session.get(url, allow_redirects=False) as answer:
            if answer.status != _HTTP_OK:
                return Failed(Outcome.STATUS, f"HTTP status {answer.status}")
            body = bytearray()
            async for chunk in answer.content.iter_chunked(_CHUNK_BYTES):
                body += chunk
                if len(body) > self._settings.max_bytes:
                    return Failed(Outcome.OVERSIZED, f"a page above {self._settings.max_bytes} bytes")
            return bytes(body)
