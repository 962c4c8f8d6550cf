"""Answers that no healthy Consul gives, from an agent that follows a script."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import traceback
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TypeVar

import pytest

from controlplane.config import ConsulSettings
from controlplane.errors import SettingsError, SourceError, SourceMalformed, SourceUnreachable
from controlplane.sources.consul_catalog import ConsulTopology
from controlplane.sources.consul_client import ConsulClient
from controlplane.sources.consul_kv import ConsulDocuments
from tests.support.consul_fake import Reply, fake_agent, kv
from tests.support.consul_sources import PREFIX, RETRY, consul_client, make_fuse
from tests.support.process import eventually, free_port

T = TypeVar("T")


def make_documents(client: ConsulClient) -> ConsulDocuments:
    return ConsulDocuments(client=client, prefix=PREFIX, fuse=make_fuse(), retry=RETRY)


async def soon(changes: AsyncIterator[T]) -> T:
    async with asyncio.timeout(10):
        return await anext(changes)


@pytest.mark.fault("R11")
async def test_an_index_that_goes_backwards_is_read_again_without_index() -> None:
    async with (
        fake_agent(
            Reply(kv(strategies__a="1"), index="90"),
            Reply(b"[]", index="7"),
            Reply(b"[]", index="7"),
            Reply(kv(strategies__b="1"), index="8"),
        ) as agent,
        consul_client(agent.address) as client,
        contextlib.aclosing(make_documents(client).watch()) as changes,
    ):
        assert not (await soon(changes)).is_reset
        documents = await soon(changes)
        while "b" not in documents.strategies:
            assert (dict(documents.strategies), documents.is_reset) == ({}, True)
            documents = await soon(changes)
        assert documents.is_reset, "`a` is still missing"
        assert [asked.index for asked in agent.asked[:4]] == [None, "90", None, "7"]


@pytest.mark.fault("R11")
@pytest.mark.parametrize("index", ["0", "5"])
async def test_an_index_that_never_blocks_makes_no_hot_loop(index: str) -> None:
    async with (
        fake_agent(Reply(kv(strategies__a="1"), index=index), is_holding=False) as agent,
        consul_client(agent.address) as client,
        contextlib.aclosing(make_documents(client).watch()) as changes,
    ):
        await soon(changes)
        waiting = asyncio.ensure_future(anext(changes))
        await asyncio.wait({waiting}, timeout=2.5)
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
    assert 2 <= len(agent.asked) <= 4
    assert {asked.index for asked in agent.asked[1:]} == {index if index != "0" else "1"}


@pytest.mark.fault("R10")
@pytest.mark.parametrize(
    ("reply", "error", "reason"),
    [
        (Reply(b"Permission denied", status=403), SourceUnreachable, "permission denied (HTTP 403)"),
        (Reply(b"slow down", status=429), SourceUnreachable, "too many requests (HTTP 429): slow down"),
        (Reply(b"No cluster leader", status=500), SourceUnreachable, "HTTP 500): No cluster leader"),
        (Reply(b"<html>\nsecret", status=503), SourceUnreachable, "unavailable (HTTP 503): <html>"),
        (Reply(b"", status=404, index=None), SourceMalformed, "not Consul's"),
        (Reply(b"<html>login</html>"), SourceMalformed, "not Consul's"),
        (Reply(b"[]", index=None), SourceMalformed, "not Consul's"),
        (Reply(b"[]", index="many"), SourceMalformed, "another shape"),
        (Reply(b'{"Key": 1}'), SourceMalformed, ""),
        (Reply(b'[{"Key": "t/a", "Value": "a", "ModifyIndex": 1}]'), SourceMalformed, ""),
        (Reply(b'[{"Value": "", "ModifyIndex": 1}]'), SourceMalformed, ""),
        (Reply(b"[1]"), SourceMalformed, ""),
        (Reply(b"\xff\xff"), SourceMalformed, ""),
    ],
)
async def test_each_bad_answer_is_one_error(reply: Reply, error: type[SourceError], reason: str) -> None:
    async with fake_agent(reply) as agent, consul_client(agent.address) as client:
        with pytest.raises(error) as raised:
            await client.list_entries(PREFIX)
        assert reason in str(raised.value)
        assert raised.value.__suppress_context__


@pytest.mark.fault("R10")
@pytest.mark.parametrize("reply", [Reply(b"oops", status=500), Reply(b"<html>")], ids=["500", "html"])
async def test_the_last_good_stays_over_a_bad_answer(reply: Reply) -> None:
    good = kv(strategies__a="1")
    async with (
        fake_agent(
            Reply(good, index="5"), reply, Reply(good, index="6"), Reply(kv(strategies__b="1"), index="7")
        ) as agent,
        consul_client(agent.address) as client,
    ):
        async with contextlib.aclosing(make_documents(client).watch()) as changes:
            assert set((await soon(changes)).strategies) == {"a"}
            documents = await soon(changes)
        assert (set(documents.strategies), documents.is_reset) == ({"b"}, False)
        assert [asked.index for asked in agent.asked][:4] == [None, "5", None, "6"]


async def test_a_missing_prefix_is_an_answer() -> None:
    async with (
        fake_agent(Reply(b"", status=404, index="3")) as agent,
        consul_client(agent.address) as client,
    ):
        answer = await client.list_entries(PREFIX)
        assert (answer.index, answer.value) == (3, ())
        assert await client.get_entry("t/a") is None


@pytest.mark.fault("R10")
async def test_silence_ends_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controlplane.sources.consul_client.CALL_SECONDS", 0.2)
    async with (
        fake_agent(Reply(delay_seconds=5.0)) as agent,
        consul_client(agent.address) as client,
    ):
        with pytest.raises(SourceUnreachable, match="no answer in time"):
            await client.get_entry("t/a")


@pytest.mark.fault("R10")
async def test_nobody_listens() -> None:
    async with consul_client(f"127.0.0.1:{free_port()}") as client:
        with pytest.raises(SourceUnreachable, match="cannot connect"):
            await client.put("t/a", b"1")


@pytest.mark.fault("R34")
async def test_no_token_gets_into_an_error(tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("very-secret\n")
    async with (
        fake_agent(Reply(b"token very-secret is unknown", status=403)) as agent,
        consul_client(agent.address, token_file=token_file) as client,
    ):
        with pytest.raises(SourceUnreachable) as raised:
            await client.get_entry("t/a")
        assert "token *** is unknown" in str(raised.value)
        assert "very-secret" not in "".join(traceback.format_exception(raised.value))
        assert "very-secret" not in repr(client)
        assert agent.asked[0].token == "very-secret"
        token_file.write_text("")
        with pytest.raises(SourceUnreachable, match="holds no token"):
            await client.get_entry("t/a")
        token_file.unlink()
        with pytest.raises(SourceUnreachable, match="cannot read the token file"):
            await client.get_entry("t/a")


async def test_the_environment_neither_moves_the_agent_nor_overrides_the_token_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONSUL_HTTP_ADDR", "elsewhere")
    monkeypatch.setenv("CONSUL_HTTP_TOKEN", "from-environment")
    monkeypatch.setenv("CONSUL_HTTP_SSL", "true")
    token_file = tmp_path / "token"
    token_file.write_text("from-file")
    async with (
        fake_agent(Reply(b"", status=404)) as agent,
        consul_client(agent.address, token_file=token_file) as with_file,
        consul_client(agent.address) as without_file,
    ):
        await with_file.get_entry("t/a")
        await without_file.get_entry("t/a")
        assert [asked.token for asked in agent.asked] == ["from-file", "from-environment"]


@pytest.mark.parametrize(
    "address", ["", ":8500", "http://a:1", "a:b", "a:0", "a:70000", "::1", "a b:1", "u@h:1"]
)
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(SettingsError, match=r"consul\.address"):
        ConsulClient(settings=ConsulSettings(address=address))


@pytest.mark.parametrize("address", ["localhost", "localhost:8500", "[::1]:8500", "[::1]", "10.0.0.1:1"])
def test_an_address_may_leave_out_the_port(address: str) -> None:
    ConsulClient(settings=ConsulSettings(address=address))


@pytest.mark.fault("R10")
async def test_many_services_failing_once_are_one_failure() -> None:
    async with fake_agent(Reply(b"no", status=500)) as agent, consul_client(agent.address) as client:
        source = ConsulTopology(client=client, fuse=make_fuse("catalog"), retry=RETRY)
        services = frozenset(f"s{number}" for number in range(120))
        async with contextlib.aclosing(source.watch(services)) as offers:
            waiting = asyncio.ensure_future(anext(offers))

            async def is_failing() -> bool:
                return len(agent.asked) >= 120 and source.health().consecutive_failures > 0

            await eventually(is_failing)
            assert source.health().consecutive_failures <= 2
            assert "HTTP 500" in source.health().last_error
            agent.script[:] = [Reply(b"[]", index="1")]
            async with asyncio.timeout(10):
                offer = await waiting
            assert len(offer.topology.services) == 120
            assert source.health().consecutive_failures == 0

            async def are_all_waiting() -> bool:
                return sum(asked.index is not None for asked in agent.asked) >= 120

            await eventually(are_all_waiting)  # each on a connection of its own
    gc.collect()  # an exception nobody fetched would be reported here
    assert len(asyncio.all_tasks()) == 1
