"""The HTTP face of one simulated server: OpenAI's API, vLLM's metrics, and a switch for faults."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from dataclasses import asdict
from typing import Any

import numpy as np
from aiohttp import web
from pydantic import TypeAdapter

from controlplane.sim.answer import Answer
from controlplane.sim.conductor import Conductor
from controlplane.sim.engine import Engine, Fault, Job, Profile
from controlplane.sim.exposition import Exposition
from controlplane.sim.ledger import Ledger
from controlplane.sim.openai import (
    MAX_ANSWER_TOKENS,
    AnswerFormat,
    Question,
    answer_blocks,
    answer_words,
    read_question,
)

SESSION_HEADER = "x-session-id"

_MAX_BODY_BYTES = 4 * 1024 * 1024
_STOP_SECONDS = 0.1

_FAULT = TypeAdapter(Fault)


class SimServer:
    """One simulated model server on one port.

    Each answer bears ``x-served-by`` (the server's ``address:port``), ``x-version`` and
    ``x-cache-hit`` (the share of the prompt's tokens that were in the cache, 0 to 1).
    """

    def __init__(
        self,
        *,
        profile: Profile,
        address: str = "127.0.0.1",
        port: int = 0,
        version: str = "",
        model: str = "sim",
        seed: int = 0,
    ) -> None:
        """Listen on `address` and `port` (0: any free one) once started.

        `seed` decides which requests an `error_ratio` hits, and how long answers are.
        """
        self.engine = Engine(profile)
        self.address = address
        self.port = port
        self.version = version
        self._model = model
        self._random = np.random.default_rng(seed)
        self._exposition = Exposition(self.engine, model=model)
        self._ledger = Ledger()
        self._started_at = 0.0
        self._conductor: Conductor | None = None
        self._runner: web.AppRunner | None = None

    @property
    def name(self) -> str:
        """``address:port``, which is also its endpoint id."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{host}:{self.port}"

    @property
    def is_cold(self) -> bool:
        """Tell if the model is still loading."""
        return self._up_seconds() < self.engine.profile.cold_start_seconds

    async def start(self) -> None:
        """Listen. A server that was stopped starts with the cache it had.

        Raises:
            OSError: if the port is taken.
        """
        app = web.Application(client_max_size=_MAX_BODY_BYTES)
        app.add_routes(
            [
                web.post("/v1/chat/completions", self._complete),
                web.post("/v1/completions", self._complete),
                web.get("/v1/models", self._models),
                web.get("/health", self._health),
                web.get("/metrics", self._metrics),
                web.get("/sim/state", self._state),
                web.post("/sim/fault", self._change_fault),
            ],
        )
        self._conductor = Conductor(self.engine)
        self._started_at = asyncio.get_running_loop().time()
        runner = web.AppRunner(
            app,
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=_STOP_SECONDS,
        )
        await runner.setup()
        self._runner = runner
        try:
            await web.TCPSite(runner, self.address, self.port, reuse_address=True).start()
        except OSError:
            await self.stop()
            raise
        self.port = runner.addresses[0][1]

    async def stop(self) -> None:
        """Stop listening and break off what is under way, as a crash would. Twice does no harm."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()
        if self._conductor is not None:
            self._conductor.stop()

    def set_fault(self, fault: Fault) -> None:
        """Change what is wrong with the server. It must have been started.

        Raises:
            RuntimeError: if it was not.
        """
        self._playing().set_fault(fault)

    def state(self) -> dict[str, Any]:
        """What ``GET /sim/state`` answers."""
        engine, up_seconds = self.engine, self._up_seconds()
        return {
            "name": self.name,
            "version": self.version,
            "model": self._model,
            "speed": engine.profile.speed,
            "is_cold": self.is_cold,
            "up_seconds": up_seconds,
            "busy_seconds": engine.busy_seconds,
            "busy_ratio": engine.busy_seconds / up_seconds if up_seconds else 0.0,
            "requests": self._ledger.requests,
            "errors": self._ledger.errors,
            "running": engine.running,
            "waiting": engine.waiting,
            "kv_usage_ratio": engine.kv_usage_ratio,
            "cache_hit_tokens": engine.hit_tokens,
            "cache_queried_tokens": engine.queried_tokens,
            "sessions": dict(self._ledger.sessions),
            "fault": asdict(engine.fault),
        }

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        self._ledger.count(request.headers.get(SESSION_HEADER, ""))
        if self.is_cold:
            return self._refuse(503, "the model is loading")
        if self._random.random() < self.engine.fault.error_ratio:
            return self._refuse(500, "simulated failure")
        if self.engine.is_full:
            return self._refuse(503, "the queue is full")
        try:
            question = read_question(await request.read(), is_chat=request.path.startswith("/v1/chat"))
        except ValueError as error:
            return self._refuse(400, f"not a completion request: {error}")
        words, finish_reason = self._make_up(question)
        job = Job(prompt=question.prompt, output_tokens=len(words), answer=answer_blocks(question, words))
        if not self.engine.accepts(job):
            return self._refuse(400, f"{job.total_tokens} tokens do not fit the KV cache")
        style = AnswerFormat(
            id=f"cmpl-{self._ledger.requests}",
            model=self._model,
            created=int(time.time()),
            question=question,
        )
        answer = Answer(
            request=request,
            style=style,
            words=words,
            finish_reason=finish_reason,
            headers=self._headers(),
        )
        return await self._play(job, answer)

    async def _play(self, job: Job, answer: Answer) -> web.StreamResponse:
        is_complete = False
        try:
            async with aclosing(self._playing().play(job)) as due:
                async for tokens in due:
                    for token in tokens:
                        self._exposition.token(token, prompt_tokens=job.prompt_tokens)
                    if tokens[-1].is_last:
                        self._exposition.finished(tokens[-1], reason=answer.finish_reason)
                        is_complete = True
                    await answer.send(tokens)
            return await answer.finish()
        finally:
            if not is_complete:
                self._exposition.aborted()

    def _make_up(self, question: Question) -> tuple[tuple[str, ...], str]:
        """Give an answer and why it ends."""
        limit = question.max_tokens or MAX_ANSWER_TOKENS
        if question.is_exact:
            return answer_words(question, limit), "length"
        mean = self.engine.profile.mean_answer_tokens
        length = max(1, int(self._random.integers(mean // 2, mean + mean // 2 + 1)))
        return answer_words(question, min(length, limit)), "length" if length > limit else "stop"

    def _refuse(self, status: int, message: str) -> web.Response:
        self._ledger.errors += 1
        return self._error(status, message)

    def _error(self, status: int, message: str) -> web.Response:
        content = {"error": {"message": message, "type": "simulated", "code": status}}
        return web.json_response(content, status=status, headers=self._headers())

    def _headers(self) -> dict[str, str]:
        return {"x-served-by": self.name, "x-version": self.version}

    def _playing(self) -> Conductor:
        if self._conductor is None:
            raise RuntimeError("the server was not started")
        return self._conductor

    def _up_seconds(self) -> float:
        return asyncio.get_running_loop().time() - self._started_at

    async def _models(self, _request: web.Request) -> web.Response:
        model = {"id": self._model, "object": "model", "created": 0, "owned_by": "trimtab"}
        return web.json_response({"object": "list", "data": [model]}, headers=self._headers())

    async def _health(self, _request: web.Request) -> web.Response:
        return web.Response(status=503 if self.is_cold else 200, headers=self._headers())

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=self._exposition.render(), content_type="text/plain", charset="utf-8")

    async def _state(self, _request: web.Request) -> web.Response:
        return web.json_response(self.state())

    async def _change_fault(self, request: web.Request) -> web.Response:
        try:
            fault = _FAULT.validate_json(await request.read())
        except ValueError as error:
            return self._error(400, f"not a fault: {error}")
        self.set_fault(fault)
        return web.json_response(asdict(fault))
