"""Bytes: the compiled slice, decoding, encoding once, and small parts of the server."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from grpc_tools import protoc  # type: ignore[import-untyped]  # has no stubs
from hypothesis import given
from hypothesis import strategies as st

from controlplane.model.resources import CLUSTER, ENDPOINT
from controlplane.xds.cache.snapshots import SnapshotCache
from controlplane.xds.cache.watch import Parcel
from controlplane.xds.server import discovery_pb2 as pb
from controlplane.xds.server.hold import Hold
from controlplane.xds.server.messages import Push, Variant
from controlplane.xds.server.pace import TokenBucket
from controlplane.xds.server.services import METHODS
from controlplane.xds.server.wire import Encoder, decode_delta, decode_sotw
from tests.support.xds_resources import resource, simple

ROOT = Path(__file__).parents[2]


def without_version(text: str) -> str:
    """Drop the compiler's version from a generated module."""
    text = re.sub(r"# Protobuf Python Version: .*", "", text)
    return re.sub(r"Domain\.PUBLIC,\s+\d+,\s+\d+,\s+\d+,", "Domain.PUBLIC,", text)


def test_the_compiled_slice_is_current(tmp_path: Path) -> None:
    arguments = ["protoc", f"-I{ROOT / 'protos'}", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}"]
    assert protoc.main([*arguments, "discovery.proto"]) == 0
    for name in ("discovery_pb2.py", "discovery_pb2.pyi"):
        committed = (ROOT / "controlplane/xds/server" / name).read_text()
        assert without_version((tmp_path / name).read_text()) == without_version(committed)


def test_node_extensions_are_skipped_quickly() -> None:
    extensions = (b"\x4a" + bytes([100]) + b"\x0a\x62" + b"x" * 98) * 600
    node = pb.Node(id="n", cluster="c", user_agent_name="envoy").SerializeToString()
    node += pb.Node(
        user_agent_build_version=pb.BuildVersion(
            version=pb.SemanticVersion(major_number=1, minor_number=40, patch=0)
        )
    ).SerializeToString()
    body = b"\x0a" + _length(len(node) + len(extensions)) + node + extensions
    body += pb.DeltaDiscoveryRequest(type_url=CLUSTER).SerializeToString()
    started = time.perf_counter()
    decoded = decode_delta(body)
    assert time.perf_counter() - started < 0.01
    assert decoded is not None
    request, who = decoded
    assert request.type_url == CLUSTER
    assert who is not None
    assert (who.id, who.user_agent) == ("n", "envoy 1.40.0")


def _length(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


@given(st.binary(max_size=200))
@pytest.mark.fault("R23")
def test_any_bytes_decode_or_are_refused(body: bytes) -> None:
    for decode in (decode_sotw, decode_delta):
        decoded = decode(body)
        assert decoded is None or isinstance(decoded[0].type_url, str)


def test_a_present_but_empty_error_is_a_nack() -> None:
    empty = pb.DiscoveryRequest(error_detail=pb.Status()).SerializeToString()
    none = pb.DiscoveryRequest().SerializeToString()
    decoded, plain = decode_sotw(empty), decode_sotw(none)
    assert decoded is not None
    assert plain is not None
    assert (decoded[0].error, plain[0].error) == ("", None)


def test_a_response_is_encoded_once_and_differs_in_its_nonce_only() -> None:
    encoded: list[str] = []
    encoder = Encoder(on_encode=encoded.append)
    resources = tuple(simple(clusters={"a": 1, "b": 2}).sets[CLUSTER].resources.values())
    parcel = Parcel(CLUSTER, "v1", resources, is_full=True)

    for number in range(10):
        body = encoder.encode(Push(parcel, f"n{number}"), Variant.SOTW)
        assert pb.DiscoveryResponse.FromString(body) == pb.DiscoveryResponse(
            version_info="v1", resources=[b"a=1", b"b=2"], type_url=CLUSTER, nonce=f"n{number}"
        )
    assert encoded == [CLUSTER]


def test_different_content_of_the_same_version_is_not_confused() -> None:
    encoder = Encoder(on_encode=lambda _: None)
    parcels = [
        Parcel(ENDPOINT, "v1", (resource("a", 1),)),
        Parcel(ENDPOINT, "v1", (resource("b", 1),)),
        Parcel(ENDPOINT, "v1", (resource("a", 1),), ("b",)),
        Parcel(ENDPOINT, "v1", (), ("a", "b")),
        Parcel(ENDPOINT, "v1", (resource("a", 2),)),
    ]
    for variant in Variant:
        bodies = {encoder.encode(Push(parcel, "n"), variant) for parcel in parcels}
        assert len(bodies) == len(parcels)


def test_the_encoder_forgets_the_oldest() -> None:
    encoded: list[str] = []
    encoder = Encoder(on_encode=encoded.append, max_entries=100, max_bytes=5_000)
    for number in range(50):
        parcel = Parcel(ENDPOINT, str(number), (resource("a", "x" * 1000),))
        encoder.encode(Push(parcel, "n"), Variant.SOTW)
        encoder.encode(Push(parcel, "m"), Variant.SOTW)
    assert len(encoded) == 50
    assert encoder.held_bytes <= 5_000


def test_a_missing_endpoint_resource_is_an_empty_assignment_in_sotw() -> None:
    push = Push(Parcel(ENDPOINT, "v", (), ("gone",)), "n")
    body = Encoder(on_encode=lambda _: None).encode(push, Variant.SOTW)
    (packed,) = pb.DiscoveryResponse.FromString(body).resources
    message = pb.Any.FromString(packed)
    assert message.type_url == ENDPOINT
    assert message.value == pb.ClusterLoadAssignment(cluster_name="gone").SerializeToString()


def test_every_service_has_both_variants() -> None:
    assert len(METHODS) == 16
    assert "/envoy.service.cluster.v3.ClusterDiscoveryService/DeltaClusters" in METHODS
    assert "/envoy.service.runtime.v3.RuntimeDiscoveryService/StreamRuntime" in METHODS


def test_the_cache_tells_whether_content_changed() -> None:
    cache = SnapshotCache()
    assert cache.get("") is None
    assert cache.put(simple(clusters={"a": 1}), group="")
    assert not cache.put(simple(clusters={"a": 1}), group="")
    assert cache.put(simple(clusters={"a": 1}), group="other")
    assert cache.put(simple(clusters={"a": 2}), group="")


def test_a_hold_waits_once() -> None:
    hold = Hold(limit_seconds=10)
    assert hold.until(0, is_blocked=False) is None
    assert hold.until(1, is_blocked=True) == 11
    assert hold.until(5, is_blocked=True) == 11
    assert hold.until(11, is_blocked=True) is None
    assert hold.until(12, is_blocked=True) is None
    assert hold.until(13, is_blocked=False) is None
    assert hold.until(14, is_blocked=True) == 24


def test_a_bucket_slows_down_and_recovers() -> None:
    bucket = TokenBucket(rate=10, burst=2, now=0)
    assert [bucket.take(0), bucket.take(0)] == [0, 0]
    assert bucket.take(0) == pytest.approx(0.1)
    assert bucket.take(0) == pytest.approx(0.2)
    assert bucket.take(100) == 0
