from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.sim.openai import AnswerFormat, answer_blocks, answer_words, read_question


def question(*, is_chat: bool = True, **fields: Any) -> Any:
    if is_chat:
        fields.setdefault("messages", [{"role": "user", "content": "hello"}])
    return read_question(json.dumps(fields).encode(), is_chat=is_chat)


def test_a_chat_request_is_read() -> None:
    found = question(max_tokens=7, stream=True, ignore_eos=True, stream_options={"include_usage": True})

    assert (found.max_tokens, found.is_streamed, found.is_exact, found.includes_usage) == (
        7,
        True,
        True,
        True,
    )
    assert found.prompt_tokens == 3


def test_unknown_fields_and_the_newer_name_are_understood() -> None:
    assert question(max_completion_tokens=5, temperature=0.3, tools=[{"x": 1}]).max_tokens == 5


def test_content_in_parts_is_the_same_prompt() -> None:
    parts = [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]

    assert question(messages=[{"role": "user", "content": parts}]).prompt == question().prompt


def test_the_role_is_part_of_the_prefix() -> None:
    other = question(messages=[{"role": "system", "content": "hello"}])

    assert other.prompt[0].hash != question().prompt[0].hash


def test_a_completion_that_grows_keeps_its_prefix() -> None:
    first = question(is_chat=False, prompt="x" * 600).prompt
    second = question(is_chat=False, prompt="x" * 600 + "y").prompt

    assert [block.tokens for block in first] == [64, 64, 22]
    assert first[:2] == second[:2]


def test_an_answer_sent_back_hits_the_cache() -> None:
    asked = question()
    words = answer_words(asked, 5)
    went_on = question(
        messages=[
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": "".join(words)},
            {"role": "user", "content": "and?"},
        ]
    )

    assert went_on.prompt[:2] == (*asked.prompt, *answer_blocks(asked, words))
    assert answer_blocks(question(is_chat=False, prompt="x"), words) == ()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"messages": []}',
        b'{"messages": [{"content": "no role"}]}',
        b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": 0}',
        b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": 1e9}',
        b'{"messages": ' + b"[" * 5_000,
        b"\xff\xfe",
    ],
)
def test_what_is_no_request_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"validation error|JSON"):
        read_question(body, is_chat=True)


@settings(max_examples=60, deadline=None)
@given(body=st.binary(max_size=60), is_chat=st.booleans())
def test_any_bytes_are_read_or_refused(body: bytes, is_chat: bool) -> None:  # noqa: FBT001 - hypothesis gives it by name
    try:
        read_question(body, is_chat=is_chat)
    except ValueError:
        return


def test_chunks_are_what_clients_expect() -> None:
    style = AnswerFormat(id="x", model="m", created=1, question=question())

    chunk = json.loads(style.chunk("word ", finish_reason="stop").removeprefix(b"data: "))
    usage = json.loads(style.usage_chunk(2).removeprefix(b"data: "))

    assert chunk["object"] == "chat.completion.chunk"
    assert chunk["choices"] == [{"index": 0, "delta": {"content": "word "}, "finish_reason": "stop"}]
    assert usage["choices"] == []
    assert usage["usage"] == {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
