"""Documents and endpoints from files: watched, read, written."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TypeVar

import pytest
import yaml
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from controlplane.errors import DocumentConflict, SourceMalformed, SourceUnreachable
from controlplane.model.documents import MAX_DOCUMENT_BYTES, Documents
from controlplane.model.health import FuseState
from controlplane.sources.file_store import DirectoryDocumentStore, DirectoryStatusSink
from controlplane.sources.file_topology import FileTopology
from controlplane.sources.files import DirectoryDocuments
from tests.support.consul_sources import make_fuse
from tests.support.process import eventually

T = TypeVar("T")


def put(path: Path, text: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)


def make_documents(root: Path) -> DirectoryDocuments:
    return DirectoryDocuments(root=root, fuse=make_fuse("files"))


async def soon(changes: AsyncIterator[T]) -> T:
    async with asyncio.timeout(4):  # less than the rescan: the kernel must have woken us
        return await anext(changes)


async def read_once(root: Path) -> Documents:
    async with contextlib.aclosing(make_documents(root).watch()) as changes:
        return await soon(changes)


async def test_all_kinds_and_spellings_are_read(tmp_path: Path) -> None:
    put(tmp_path / "strategies/chat.json", '{"a": 1}')
    put(tmp_path / "strategies/embed.yaml", "a: no\n")
    put(tmp_path / "canaries/chat.yml", "steps: [1, 5]\n")
    put(tmp_path / "control/freeze", "hold\n")
    put(tmp_path / "control/freeze.d/embed", "equal")
    put(tmp_path / "strategies/.chat.json.swp", "x")
    put(tmp_path / "strategies/README.md", "x")
    put(tmp_path / "other/chat.json", "{}")
    documents = await read_once(tmp_path)
    assert {name: found.body for name, found in documents.strategies.items()} == {
        "chat": b'{"a": 1}',
        "embed": b'{"a": "no"}',
    }
    assert documents.canaries["chat"].body == b'{"steps": [1, 5]}'
    assert documents.freezes == {"*": "hold", "embed": "equal"}
    assert documents.strategies["chat"].key == str(tmp_path / "strategies/chat.json")


@pytest.mark.fault("R13")
async def test_broken_yaml_and_oversized_files_are_delivered_for_the_parser_to_refuse(
    tmp_path: Path,
) -> None:
    put(tmp_path / "strategies/broken.yaml", "a: [")
    put(tmp_path / "strategies/repeated.yaml", "a: 1\na: 2")
    put(tmp_path / "strategies/huge.yaml", b"a" * (MAX_DOCUMENT_BYTES + 100))
    with capture_logs() as events:
        documents = await read_once(tmp_path)
    assert documents.strategies["broken"].body == b"a: ["
    assert documents.strategies["repeated"].body == b"a: 1\na: 2"
    assert len(documents.strategies["huge"].body) == MAX_DOCUMENT_BYTES + 1
    reasons = [event["reason"] for event in events if event["event"] == "file_problem"]
    assert len(reasons) == 2
    assert "the key `a` is repeated at line 2" in reasons[1]


async def test_of_two_files_for_one_service_json_counts_and_it_is_said(tmp_path: Path) -> None:
    put(tmp_path / "strategies/chat.yaml", "a: 1")
    put(tmp_path / "strategies/chat.json", "{}")
    with capture_logs() as events:
        documents = await read_once(tmp_path)
    assert documents.strategies["chat"].body == b"{}"
    assert "chat.yaml` is not used" in events[0]["reason"]


async def test_edits_replacements_and_deletions_are_seen_at_once(tmp_path: Path) -> None:
    put(tmp_path / "strategies/chat.json", "1")
    async with contextlib.aclosing(make_documents(tmp_path).watch()) as changes:
        first = await soon(changes)
        put(tmp_path / "strategies/chat.json", "2")
        second = await soon(changes)
        assert second.strategies["chat"].body == b"2"
        assert second.strategies["chat"].revision != first.strategies["chat"].revision
        put(tmp_path / "strategies/.new", "3")
        (tmp_path / "strategies/.new").replace(tmp_path / "strategies/chat.json")
        assert (await soon(changes)).strategies["chat"].body == b"3"
        started = time.monotonic()
        (tmp_path / "strategies/chat.json").unlink()
        documents = await soon(changes)
        assert time.monotonic() - started < 1.5
        assert (dict(documents.strategies), documents.is_reset) == ({}, False)


async def test_a_config_map_is_swapped_as_a_whole(tmp_path: Path) -> None:
    folder = tmp_path / "strategies"
    for version in ("1", "2"):
        put(folder / f"..{version}/chat.json", version)
        put(folder / f"..{version}/embed.yaml", version)
    (folder / "..data").symlink_to("..1")
    for name in ("chat.json", "embed.yaml"):
        (folder / name).symlink_to(f"..data/{name}")
    async with contextlib.aclosing(make_documents(tmp_path).watch()) as changes:
        assert (await soon(changes)).strategies["chat"].body == b"1"
        (folder / "..tmp").symlink_to("..2")
        (folder / "..tmp").replace(folder / "..data")
        documents = await soon(changes)
        assert {found.body for found in documents.strategies.values()} == {b"2"}


async def test_status_and_rewrites_of_the_same_yield_nothing(tmp_path: Path) -> None:
    put(tmp_path / "strategies/chat.json", "1")
    sink = DirectoryStatusSink(root=tmp_path, registry=CollectorRegistry())
    async with contextlib.aclosing(make_documents(tmp_path).watch()) as changes:
        await soon(changes)
        await sink.write("chat", {"version": "1"})
        put(tmp_path / "strategies/chat.json", "1")
        waiting = asyncio.ensure_future(anext(changes))
        done, _ = await asyncio.wait({waiting}, timeout=0.6)
        assert not done
        put(tmp_path / "strategies/chat.json", "2")
        async with asyncio.timeout(4):
            await waiting


@pytest.mark.fault("R10")
async def test_a_directory_that_is_missing_or_goes_is_trouble_and_no_deletion(tmp_path: Path) -> None:
    root = tmp_path / "trimtab.d"
    source = make_documents(root)
    async with contextlib.aclosing(source.watch()) as changes:
        waiting = asyncio.ensure_future(anext(changes))

        async def is_failing() -> bool:
            return "there is no directory" in source.health().last_error

        await eventually(is_failing)
        put(root / "strategies/chat.json", "1")
        async with asyncio.timeout(4):
            assert (await waiting).strategies["chat"].body == b"1"

        waiting = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0)
        root.rename(tmp_path / "away")

        async def is_failing_again() -> bool:
            return source.health().consecutive_failures > 0

        await eventually(is_failing_again)
        assert not waiting.done()
        (root / "strategies").mkdir(parents=True)
        put(root / "strategies/chat.json", "2")
        async with asyncio.timeout(8):
            assert (await waiting).strategies["chat"].body == b"2"
    assert source.health().state is FuseState.NORMAL


@pytest.mark.fault("R11")
async def test_a_folder_that_goes_as_a_whole_is_a_reset(tmp_path: Path) -> None:
    put(tmp_path / "strategies/chat.json", "1")
    async with contextlib.aclosing(make_documents(tmp_path).watch()) as changes:
        await soon(changes)
        shutil.move(tmp_path / "strategies", tmp_path / ".away")
        documents = await soon(changes)
        assert (dict(documents.strategies), documents.is_reset) == ({}, True)
        shutil.move(tmp_path / ".away", tmp_path / "strategies")
        documents = await soon(changes)
        assert (set(documents.strategies), documents.is_reset) == ({"chat"}, False)


async def test_a_pipe_or_a_dangling_link_is_no_document(tmp_path: Path) -> None:
    put(tmp_path / "strategies/chat.json", "1")
    os.mkfifo(tmp_path / "strategies/pipe.json")
    (tmp_path / "strategies/link.json").symlink_to("nowhere")
    assert set((await read_once(tmp_path)).strategies) == {"chat"}


async def test_no_task_is_left_behind(tmp_path: Path) -> None:
    put(tmp_path / "strategies/chat.json", "1")
    changes = make_documents(tmp_path).watch()
    await soon(changes)
    waiting = asyncio.ensure_future(anext(changes))
    await asyncio.sleep(0.05)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await changes.aclose()
    assert len(asyncio.all_tasks()) == 1


async def test_store_compares_and_sets_and_keeps_the_format(tmp_path: Path) -> None:
    store = DirectoryDocumentStore(root=tmp_path / "new")
    assert await store.read("strategies", "chat") is None
    first = await store.write("strategies", "chat", b'{"a": 1}', expected_revision=0)
    assert (tmp_path / "new/strategies/chat.json").read_bytes() == b'{"a": 1}'
    with pytest.raises(DocumentConflict):
        await store.write("strategies", "chat", b"2", expected_revision=0)
    document = await store.read("strategies", "chat")
    assert document is not None
    assert document.revision == first
    await store.delete("strategies", "chat", expected_revision=first)
    assert await store.read("strategies", "chat") is None

    put(tmp_path / "new/canaries/chat.yml", "steps: [1]  # comment\n")
    document = await store.read("canaries", "chat")
    assert document is not None
    assert document.body == b'{"steps": [1]}'
    revision = await store.write(
        "canaries", "chat", b'{"steps": [1, 5], "on": "no"}', expected_revision=document.revision
    )
    assert yaml.safe_load((tmp_path / "new/canaries/chat.yml").read_text()) == {
        "steps": [1, 5],
        "on": "no",
    }
    document = await store.read("canaries", "chat")
    assert document is not None
    assert (document.revision, json.loads(document.body)) == (revision, {"steps": [1, 5], "on": "no"})
    seen = await read_once(tmp_path / "new")
    assert seen.canaries["chat"] == document


async def test_of_many_writers_one_wins(tmp_path: Path) -> None:
    store = DirectoryDocumentStore(root=tmp_path)
    results = await asyncio.gather(
        *(store.write("strategies", "chat", b"%d" % n, expected_revision=0) for n in range(8)),
        return_exceptions=True,
    )
    assert sum(isinstance(result, int) for result in results) == 1
    assert sum(isinstance(result, DocumentConflict) for result in results) == 7
    assert [path.name for path in (tmp_path / "strategies").iterdir()] == ["chat.json"]


async def test_store_names_what_it_cannot_do(tmp_path: Path) -> None:
    store = DirectoryDocumentStore(root=tmp_path / "file")
    put(tmp_path / "file", "x")
    with pytest.raises(SourceUnreachable, match="cannot write"):
        await store.write("strategies", "chat", b"1", expected_revision=0)
    with pytest.raises(ValueError, match="not a service name"):
        await store.read("strategies", "../../etc/passwd")
    put(tmp_path / "d/strategies/chat.yaml", "a: [")
    with pytest.raises(SourceMalformed, match="not YAML"):
        await DirectoryDocumentStore(root=tmp_path / "d").read("strategies", "chat")


async def test_switches_are_files(tmp_path: Path) -> None:
    store = DirectoryDocumentStore(root=tmp_path)
    await store.write("control/freeze", "*", b"equal", expected_revision=0)
    await store.write("control/freeze", "chat", b"hold", expected_revision=0)
    assert (await read_once(tmp_path)).freezes == {"*": "equal", "chat": "hold"}


async def test_status_failure_is_counted_and_never_raised(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    sink = DirectoryStatusSink(root=tmp_path, registry=registry)
    await sink.write("../escape", {})
    put(tmp_path / "status", "a file in the way")
    await sink.write("chat", {"a": 1})
    assert registry.get_sample_value("trimtab_status_write_failures_total") == 2
    (tmp_path / "status").unlink()
    await sink.write("chat", {"a": 1})
    assert json.loads((tmp_path / "status/chat.json").read_text()) == {"a": 1}


ENDPOINTS = """
services:
  chat:
    endpoints:
      - 10.0.0.1:8000
      - {address: 10.0.0.2, port: 8000, zone: b, drain: true}
      - gpu-3:8000
  embed: ["[::1]:9000"]
"""


async def test_endpoints_are_watched_and_a_bad_file_keeps_the_last_good(tmp_path: Path) -> None:
    file = tmp_path / "endpoints.yaml"
    source = FileTopology(file=file, fuse=make_fuse("endpoints"))
    async with contextlib.aclosing(source.watch(frozenset({"chat", "unknown"}))) as offers:
        waiting = asyncio.ensure_future(anext(offers))

        async def is_waiting() -> bool:
            return "there is no file" in source.health().last_error

        await eventually(is_waiting)
        put(file, ENDPOINTS)
        async with asyncio.timeout(4):
            topology = (await waiting).topology
        assert [service.service for service in topology.services] == ["chat", "unknown"]
        assert [service.ids for service in topology.services] == [("10.0.0.1:8000", "10.0.0.2:8000"), ()]
        assert "chat: endpoint 2: `gpu-3` is not an IP address" in topology.problems[0]

        waiting = asyncio.ensure_future(anext(offers))
        put(file, "services: [")

        async def is_refused() -> bool:
            return "not YAML" in source.health().last_error

        await eventually(is_refused)
        assert not waiting.done()
        put(file, ENDPOINTS.replace("10.0.0.1", "10.0.0.9"))
        async with asyncio.timeout(4):
            assert (await waiting).topology.services[0].ids == ("10.0.0.2:8000", "10.0.0.9:8000")
    async with contextlib.aclosing(source.watch(frozenset({"embed"}))) as offers:
        assert (await soon(offers)).topology.services[0].ids == ("[::1]:9000",)
