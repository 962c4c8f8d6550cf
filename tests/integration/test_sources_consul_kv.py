"""Documents in a real Consul's KV."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from controlplane.errors import DocumentConflict, SourceUnreachable
from controlplane.model.documents import Documents
from controlplane.model.health import FuseState
from controlplane.sources.consul_client import ConsulClient
from controlplane.sources.consul_kv import ConsulDocuments, ConsulDocumentStore, ConsulStatusSink
from tests.support.consul_server import ConsulServer, consul_server
from tests.support.consul_sources import PREFIX, RETRY, consul_client, make_fuse
from tests.support.process import eventually

pytestmark = pytest.mark.consul


@pytest.fixture
async def consul() -> AsyncIterator[ConsulServer]:
    async with consul_server() as server:
        yield server


@pytest.fixture
async def client(consul: ConsulServer) -> AsyncIterator[ConsulClient]:
    async with consul_client(consul.address) as made:
        yield made


def make_documents(client: ConsulClient) -> ConsulDocuments:
    return ConsulDocuments(client=client, prefix=PREFIX, fuse=make_fuse(), retry=RETRY)


async def soon(changes: AsyncIterator[Documents], seconds: float = 5.0) -> Documents:
    async with asyncio.timeout(seconds):
        return await anext(changes)


async def test_push_change_and_delete_are_seen_within_a_second(
    consul: ConsulServer, client: ConsulClient
) -> None:
    async with contextlib.aclosing(make_documents(client).watch()) as changes:
        assert await soon(changes) == Documents()

        started = time.monotonic()
        await consul.put("t/strategies/chat", '{"version": "1.0.0"}')
        documents = await soon(changes)
        assert time.monotonic() - started < 1.0
        assert documents.strategies["chat"].body == b'{"version": "1.0.0"}'
        assert documents.strategies["chat"].key == "t/strategies/chat"
        assert documents.strategies["chat"].revision > 0

        await consul.put("t/canaries/chat", "{}")
        await consul.put("t/control/freeze", "equal")
        await consul.put("t/control/freeze/chat", "hodl")
        documents = await soon(changes)
        assert list(documents.canaries) == ["chat"]
        assert documents.freezes == {"*": "equal", "chat": "hold"}

        await consul.delete("t/strategies/chat")
        documents = await soon(changes)
        assert not documents.strategies
        assert not documents.is_reset


async def test_strange_names_and_oversized_values_are_delivered_for_the_parser_to_refuse(
    consul: ConsulServer, client: ConsulClient
) -> None:
    await consul.put("t/strategies/a/b", "{}")
    await consul.put("t/strategies/", "")
    await consul.put("t/strategies/empty", "")
    await consul.put("t/strategies/huge", b"x" * 400_000)
    await consul.put("t/strategies/binary", b"\xff\xfe")
    await consul.put("t/other", "1")
    await consul.put("tt/strategies/elsewhere", "{}")
    async with contextlib.aclosing(make_documents(client).watch()) as changes:
        documents = await soon(changes)
    assert {name: len(document.body) for name, document in documents.strategies.items()} == {
        "a/b": 2,
        "empty": 0,
        "huge": 400_000,
        "binary": 2,
    }


async def test_what_moves_the_index_but_no_document_yields_nothing(
    consul: ConsulServer, client: ConsulClient
) -> None:
    await consul.put("t/strategies/chat", "{}")
    async with contextlib.aclosing(make_documents(client).watch()) as changes:
        await soon(changes)
        await consul.put("t/status/chat", '{"phase": 1}')
        await consul.put("t/leader", "me")
        await consul.put("elsewhere", "1")
        await consul.put("t/strategies/chat", "{}")
        waiting = asyncio.ensure_future(anext(changes))
        done, _ = await asyncio.wait({waiting}, timeout=1.5)
        assert not done
        await consul.put("t/strategies/chat", "{ }")
        async with asyncio.timeout(5):
            assert (await waiting).strategies["chat"].body == b"{ }"


async def test_edits_in_a_row_are_taken_together(consul: ConsulServer, client: ConsulClient) -> None:
    async with contextlib.aclosing(make_documents(client).watch()) as changes:
        await soon(changes)
        for number in range(20):
            await consul.put(f"t/strategies/s{number}", "{}")
        seen = 0
        yields = 0
        while seen < 20:
            seen = len((await soon(changes)).strategies)
            yields += 1
    assert yields <= 3


@pytest.mark.fault("R11")
async def test_a_store_that_restarts_empty_is_a_reset_until_everything_is_back(
    consul: ConsulServer, client: ConsulClient
) -> None:
    for name in ("a", "b"):
        await consul.put(f"t/strategies/{name}", "{}")
    source = make_documents(client)
    async with contextlib.aclosing(source.watch()) as changes:
        assert set((await soon(changes)).strategies) == {"a", "b"}

        await consul.kill()
        waiting = asyncio.ensure_future(anext(changes))

        async def is_failing() -> bool:
            return source.health().consecutive_failures > 0

        await eventually(is_failing)
        assert "cannot connect" in source.health().last_error
        await consul.start()
        async with asyncio.timeout(10):
            documents = await waiting
        assert documents.is_reset
        assert not documents.strategies
        assert source.health().state is FuseState.NORMAL

        await consul.put("t/strategies/a", "{}")
        documents = await soon(changes)
        assert set(documents.strategies) == {"a"}
        assert documents.is_reset

        await consul.put("t/strategies/b", "{}")
        assert not (await soon(changes)).is_reset
        await consul.delete("t/strategies/a")
        documents = await soon(changes)
        assert (set(documents.strategies), documents.is_reset) == ({"b"}, False)


@pytest.mark.fault("R10")
async def test_a_store_that_restarts_with_its_data_yields_nothing(tmp_path: Path) -> None:
    async with consul_server(data_directory=tmp_path) as consul, consul_client(consul.address) as client:
        await consul.put("t/strategies/a", "{}")
        source = make_documents(client)
        async with contextlib.aclosing(source.watch()) as changes:
            await soon(changes)
            waiting = asyncio.ensure_future(anext(changes))
            await consul.kill()

            async def is_failing() -> bool:
                return source.health().consecutive_failures > 0

            await eventually(is_failing)
            await consul.start()

            async def is_well() -> bool:
                return source.health().consecutive_failures == 0

            await eventually(is_well)
            await consul.put("t/strategies/b", "{}")
            async with asyncio.timeout(5):
                documents = await waiting
            assert (set(documents.strategies), documents.is_reset) == ({"a", "b"}, False)


async def test_store_writes_only_over_the_revision_it_was_told(client: ConsulClient) -> None:
    store = ConsulDocumentStore(client=client, prefix=PREFIX)
    assert await store.read("strategies", "chat") is None
    first = await store.write("strategies", "chat", b"1", expected_revision=0)
    with pytest.raises(DocumentConflict) as conflict:
        await store.write("strategies", "chat", b"2", expected_revision=0)
    assert conflict.value.key == "t/strategies/chat"
    second = await store.write("strategies", "chat", b"2", expected_revision=first)
    assert second > first
    with pytest.raises(DocumentConflict):
        await store.write("strategies", "chat", b"3", expected_revision=first)
    document = await store.read("strategies", "chat")
    assert document is not None
    assert (document.body, document.revision) == (b"2", second)
    with pytest.raises(DocumentConflict):
        await store.delete("strategies", "chat", expected_revision=first)
    await store.delete("strategies", "chat", expected_revision=second)
    assert await store.read("strategies", "chat") is None


async def test_store_keeps_the_switches(consul: ConsulServer, client: ConsulClient) -> None:
    store = ConsulDocumentStore(client=client, prefix="/t")
    await store.write("control/freeze", "*", b"hold", expected_revision=0)
    await store.write("control/freeze", "chat", b"equal", expected_revision=0)
    assert await consul.api("GET", "kv/t/?keys") == ["t/control/freeze", "t/control/freeze/chat"]


@pytest.mark.parametrize(("kind", "service"), [("strategies", "../x"), ("status", "a"), ("canaries", "*")])
async def test_store_refuses_names_that_leave_their_folder(
    client: ConsulClient, kind: str, service: str
) -> None:
    store = ConsulDocumentStore(client=client, prefix=PREFIX)
    with pytest.raises(ValueError, match=r"is not a service name|no kind"):
        await store.read(kind, service)


async def test_status_is_written_when_it_changed_and_after_a_restart_only_then(
    consul: ConsulServer, client: ConsulClient
) -> None:
    def make_sink() -> ConsulStatusSink:
        return ConsulStatusSink(client=client, prefix=PREFIX, registry=CollectorRegistry())

    async def modify_index() -> int:
        return int((await consul.api("GET", "kv/t/status/chat"))[0]["ModifyIndex"])

    sink = make_sink()
    await sink.write("chat", {"version": "1.0.0", "problems": []})
    assert await consul.api("GET", "kv/t/status/chat?raw") == '{"problems": [], "version": "1.0.0"}'
    before = await modify_index()
    await sink.write("chat", {"problems": [], "version": "1.0.0"})
    await make_sink().write("chat", {"problems": [], "version": "1.0.0"})
    assert await modify_index() == before
    await sink.write("chat", {"problems": [], "version": "1.1.0"})
    assert await modify_index() > before


@pytest.mark.fault("R10")
async def test_status_that_cannot_be_written_is_counted_and_tried_again(
    consul: ConsulServer, client: ConsulClient
) -> None:
    registry = CollectorRegistry()
    sink = ConsulStatusSink(client=client, prefix=PREFIX, registry=registry)
    await consul.kill()
    await sink.write("chat", {"a": 1})
    assert registry.get_sample_value("trimtab_status_write_failures_total") == 1
    await consul.start()
    await sink.write("chat", {"a": 1})
    assert await consul.api("GET", "kv/t/status/chat?raw") == '{"a": 1}'


async def test_sessions_lock_one_holder(client: ConsulClient) -> None:
    first = await client.create_session(name="one", ttl_seconds=10)
    second = await client.create_session(name="two", ttl_seconds=10)
    assert await client.acquire("t/leader", b"one", session=first)
    assert not await client.acquire("t/leader", b"two", session=second)
    entry = await client.get_entry("t/leader")
    assert entry is not None
    assert (entry.value, entry.session, entry.lock_index) == (b"one", first, 1)
    assert await client.renew_session(first)
    assert await client.release("t/leader", session=first)
    assert await client.acquire("t/leader", b"two", session=second)
    await client.destroy_session(second)
    assert not await client.renew_session(second)


async def test_a_token_is_read_again_from_its_file(tmp_path: Path) -> None:
    config = tmp_path / "acl.json"
    config.write_text(
        '{"acl": {"enabled": true, "default_policy": "deny", "tokens": {"master": "root-token"}}}'
    )
    token_file = tmp_path / "token"
    token_file.write_text("wrong-token\n")
    async with (
        consul_server(config_file=config, token="root-token") as consul,  # noqa: S106 - made up
        consul_client(consul.address, token_file=token_file) as client,
    ):
        await consul.put("t/strategies/a", "{}")
        with pytest.raises(SourceUnreachable, match="permission denied") as denied:
            await client.get_entry("t/strategies/a")
        assert "wrong-token" not in str(denied.value)
        source = make_documents(client)
        async with contextlib.aclosing(source.watch()) as changes:
            waiting = asyncio.ensure_future(anext(changes))

            async def is_denied() -> bool:
                return "403" in source.health().last_error

            await eventually(is_denied)
            token_file.write_text("root-token\n")
            async with asyncio.timeout(5):
                assert list((await waiting).strategies) == ["a"]
        store = ConsulDocumentStore(client=client, prefix=PREFIX)
        assert await store.write("strategies", "b", b"{}", expected_revision=0) > 0
