"""One answer on its way to the client, streamed or whole."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from aiohttp import web

from controlplane.sim.engine import Token
from controlplane.sim.openai import DONE, AnswerFormat

_WRITE_TIMEOUT_SECONDS = 30.0


class Answer:
    """Sends tokens as they come. Headers go out with the first one, as with vLLM."""

    def __init__(
        self,
        *,
        request: web.Request,
        style: AnswerFormat,
        words: Sequence[str],
        finish_reason: str,
        headers: Mapping[str, str],
    ) -> None:
        """Answer `request` with `words`, one a token."""
        self._request = request
        self._style = style
        self._words = words
        self.finish_reason = finish_reason
        """Why the answer ends: ``stop`` or ``length``."""
        self._headers = dict(headers)
        self._stream: web.StreamResponse | None = None

    async def send(self, tokens: Sequence[Token]) -> None:
        """Pass on what is due: all of it in one write.

        Raises:
            TimeoutError: if the client does not read.
            ConnectionError: if it is gone.
        """
        question = self._style.question
        hit_ratio = tokens[0].cached_tokens / question.prompt_tokens
        self._headers["x-cache-hit"] = f"{hit_ratio:.4f}"
        if not question.is_streamed:
            return
        events = [
            self._style.chunk(
                self._words[token.index],
                finish_reason=self.finish_reason if token.is_last else None,
            )
            for token in tokens
        ]
        if tokens[-1].is_last:
            if question.includes_usage:
                events.append(self._style.usage_chunk(len(self._words)))
            events.append(DONE)
        async with asyncio.timeout(_WRITE_TIMEOUT_SECONDS):
            stream = await self._prepared()
            await stream.write(b"".join(events))

    async def finish(self) -> web.StreamResponse:
        """End the answer; give what the framework wants back.

        Raises:
            TimeoutError: if the client does not read.
            ConnectionError: if it is gone.
        """
        if self._stream is not None:
            async with asyncio.timeout(_WRITE_TIMEOUT_SECONDS):
                await self._stream.write_eof()
            return self._stream
        content = self._style.whole(
            "".join(self._words),
            tokens=len(self._words),
            finish_reason=self.finish_reason,
        )
        return web.json_response(content, headers=self._headers)

    async def _prepared(self) -> web.StreamResponse:
        if self._stream is None:
            headers = {**self._headers, "content-type": "text/event-stream", "cache-control": "no-store"}
            self._stream = web.StreamResponse(headers=headers)
            await self._stream.prepare(self._request)
        return self._stream
