"""Requests and answers in the format of OpenAI's API, as far as the simulation cares."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from annotated_types import Interval, Len
from pydantic import TypeAdapter

from controlplane.sim.cache import Block, chain

MAX_ANSWER_TOKENS = 4_096
_CHUNK_CHARACTERS = 256
"""A completion's prompt has no messages: it is cut into pieces of this length instead."""

_WORDS = (
    "lift",
    "drag",
    "trim",
    "keel",
    "stern",
    "helm",
    "wake",
    "tide",
    "sail",
    "knot",
    "bow",
    "mast",
    "hull",
)

_AnswerTokens: TypeAlias = Annotated[int, Interval(ge=1, le=MAX_ANSWER_TOKENS)]


@dataclass(frozen=True, slots=True)
class _Part:
    text: str = ""


@dataclass(frozen=True, slots=True)
class _Message:
    role: str
    content: str | tuple[_Part, ...] | None = None

    def text(self) -> str:
        if self.content is None or isinstance(self.content, str):
            return self.content or ""
        return "".join(part.text for part in self.content)


@dataclass(frozen=True, slots=True)
class _StreamOptions:
    include_usage: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    max_tokens: _AnswerTokens | None = None
    max_completion_tokens: _AnswerTokens | None = None
    stream: bool = False
    stream_options: _StreamOptions | None = None
    ignore_eos: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _ChatRequest(_Request):
    messages: Annotated[tuple[_Message, ...], Len(1, 10_000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _CompletionRequest(_Request):
    prompt: Annotated[str, Len(1)]


_CHAT = TypeAdapter(_ChatRequest)
_COMPLETION = TypeAdapter(_CompletionRequest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A request."""

    prompt: tuple[Block, ...]
    max_tokens: int | None
    """Most tokens of the answer, if the request says so."""
    is_exact: bool
    """The answer has `max_tokens` tokens, not fewer (vLLM's `ignore_eos`)."""
    is_chat: bool
    is_streamed: bool
    includes_usage: bool
    """The stream ends in a chunk with token counts."""

    @property
    def prompt_tokens(self) -> int:
        """Length of the prompt."""
        return sum(block.tokens for block in self.prompt)


def read_question(body: bytes, *, is_chat: bool) -> Question:
    """Read a request of ``/v1/chat/completions`` or ``/v1/completions``. Unknown fields are ignored.

    Raises:
        ValueError: if it is not one; the message says where.
    """
    request: _Request
    if is_chat:
        request = chat = _CHAT.validate_json(body)
        prompt = chain(_message_key(message.role, message.text()) for message in chat.messages)
    else:
        request = completion = _COMPLETION.validate_json(body)
        text = completion.prompt
        prompt = chain(text[at : at + _CHUNK_CHARACTERS] for at in range(0, len(text), _CHUNK_CHARACTERS))
    max_tokens = request.max_completion_tokens or request.max_tokens
    return Question(
        prompt=prompt,
        max_tokens=max_tokens,
        is_exact=request.ignore_eos and max_tokens is not None,
        is_chat=is_chat,
        is_streamed=request.stream,
        includes_usage=bool(request.stream_options and request.stream_options.include_usage),
    )


def answer_words(question: Question, tokens: int) -> tuple[str, ...]:
    """Make up an answer, one word a token: the same prompt gets the same words."""
    seed = zlib.crc32(question.prompt[-1].hash)
    return tuple(f"{_WORDS[(seed + index * 7) % len(_WORDS)]} " for index in range(tokens))


def answer_blocks(question: Question, words: Sequence[str]) -> tuple[Block, ...]:
    """What the cache knows of a conversation that goes on with this answer; nothing for a completion."""
    if not question.is_chat:
        return ()
    key = _message_key("assistant", "".join(words))
    return chain([key], after=question.prompt[-1].hash)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFormat:
    """Writes one answer."""

    id: str
    model: str
    created: int
    """Unix time in seconds."""
    question: Question

    def chunk(self, text: str, *, finish_reason: str | None = None) -> bytes:
        """Write one server-sent event with a piece of the answer."""
        piece = {"delta": {"content": text} if text else {}} if self.question.is_chat else {"text": text}
        kind = "chat.completion.chunk" if self.question.is_chat else "text_completion"
        return self._event(kind, [{"index": 0, **piece, "finish_reason": finish_reason}])

    def usage_chunk(self, tokens: int) -> bytes:
        """Write the event with token counts."""
        kind = "chat.completion.chunk" if self.question.is_chat else "text_completion"
        return self._event(kind, [], usage=self._usage(tokens))

    def whole(self, text: str, *, tokens: int, finish_reason: str) -> dict[str, Any]:
        """Write an answer that is not streamed."""
        piece: dict[str, Any]
        if self.question.is_chat:
            piece = {"message": {"role": "assistant", "content": text}}
        else:
            piece = {"text": text}
        kind = "chat.completion" if self.question.is_chat else "text_completion"
        choice = {"index": 0, **piece, "finish_reason": finish_reason}
        return {**self._head(kind), "choices": [choice], "usage": self._usage(tokens)}

    def _event(self, kind: str, choices: list[dict[str, Any]], **more: object) -> bytes:
        content = {**self._head(kind), "choices": choices, **more}
        return b"data: %b\n\n" % json.dumps(content, separators=(",", ":")).encode()

    def _head(self, kind: str) -> Mapping[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    def _usage(self, tokens: int) -> dict[str, int]:
        prompt = self.question.prompt_tokens
        return {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens}


DONE = b"data: [DONE]\n\n"


def _message_key(role: str, text: str) -> str:
    return f"{role}\n{text}"
