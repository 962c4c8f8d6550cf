"""Both machines against a model of an Envoy, with everything in flight in any interleaving."""

from __future__ import annotations

from collections import Counter, deque
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from controlplane.model.fleet import SyncState
from controlplane.model.resources import CLUSTER, ENDPOINT, LISTENER, ROUTE, Snapshot
from controlplane.xds.server.messages import Refusal, Request, Variant
from controlplane.xds.server.wire import Encoder
from tests.support.xds_client import Response, decode
from tests.support.xds_machine import ACK_TIMEOUT, machine_of
from tests.support.xds_model import CHILD, POISON, ModelEnvoy
from tests.support.xds_resources import simple

CONTENT = st.sampled_from(["1", "2", POISON])
GOOD = st.sampled_from(["1", "2"])


@st.composite
def worlds(draw: st.DrawFn, content: st.SearchStrategy[str] = CONTENT) -> Snapshot:
    """A closed world: every cluster has endpoints, every route points to a cluster."""
    clusters = draw(st.dictionaries(st.sampled_from("abcd"), content, min_size=1))
    names = draw(st.sets(st.sampled_from("lm")))
    return simple(
        clusters=clusters,
        endpoints={name: draw(content) for name in clusters},
        listeners={name: draw(GOOD) for name in names},
        routes={name: draw(st.sampled_from(sorted(clusters))) for name in names},
    )


class StreamModel(RuleBasedStateMachine):
    variant: ClassVar[Variant]

    def __init__(self) -> None:
        super().__init__()
        self.encoder = Encoder(on_encode=lambda _: None)
        self.to_server: deque[Request] = deque()
        self.to_client: deque[Response] = deque()
        self.envoy = ModelEnvoy(self.variant, self.to_server.append)
        self.now = 0.0
        self.was_bound_hit = False
        self.is_client_known = True
        self.world: Snapshot | None = None
        self.new_stream()

    def new_stream(self) -> None:
        self.machine = machine_of(self.variant)
        self.nonces: set[str] = set()
        self.names: dict[str, tuple[str, ...]] = {}
        self.excuses: Counter[str] = Counter()
        self.sent_under: dict[str, int] = {}
        self.refused: dict[str, set[tuple[str, tuple[bytes, ...]]]] = {}
        self.to_server.clear()
        self.to_client.clear()
        if self.world is not None:
            self.machine.on_snapshot(self.world)
        self.envoy.connect()

    @initialize(world=worlds())
    def first(self, world: Snapshot) -> None:
        self.publish(world)

    @rule(world=worlds())
    def publish(self, world: Snapshot) -> None:
        if self.world is not None and world.version == self.world.version:
            return
        for type_url, each in world.sets.items():
            if self.world is not None and self.world.sets[type_url].version != each.version:
                # Refused content may come again once something else was current (rule 6).
                self.excuse(type_url)
        self.world = world
        self.machine.on_snapshot(world)

    def excuse(self, type_url: str) -> None:
        """Let refused content of a type be sent again, also where the refusal is still under way.

        A refusal speaks of what was so when its response was written. One that comes after content or
        subscription has changed forbids nothing: the server may have to send the same again.
        """
        self.excuses[type_url] += 1
        self.refused.pop(type_url, None)

    @rule(count=st.integers(1, 4))
    def server_reads(self, count: int) -> None:
        for _ in range(min(count, len(self.to_server))):
            request = self.to_server.popleft()
            is_same = self.names.get(request.type_url, ()) == request.names
            if self.variant is Variant.DELTA:
                is_same = not (request.names or request.dropped)
            if not is_same:
                # A changed subscription asks for refused content too (rules 6 and 11).
                self.excuse(request.type_url)
            self.names[request.type_url] = request.names
            result = self.machine.on_request(request, self.now)
            assert not isinstance(result, Refusal)

    @rule(count=st.integers(1, 4))
    def server_writes(self, count: int) -> None:
        for _ in range(count):
            push = self.machine.poll(self.now)
            if push is None:
                return
            assert push.nonce not in self.nonces
            self.nonces.add(push.nonce)
            response = decode(self.encoder.encode(push, self.variant), self.variant)
            refused = self.refused.get(response.type_url, set())
            assert (response.version, response.bodies) not in refused, f"sent again: {response}"
            if response.type_url in CHILD:
                # A changed cluster needs its endpoints again, even refused ones (rule 2).
                self.excuse(CHILD[response.type_url])
            self.sent_under[response.nonce] = self.excuses[response.type_url]
            self.to_client.append(response)

    @rule(count=st.integers(1, 3), asks_before_ack=st.booleans())
    def client_reads(self, count: int, asks_before_ack: bool) -> None:  # noqa: FBT001 - drawn by hypothesis
        for _ in range(min(count, len(self.to_client))):
            response = self.to_client.popleft()
            refusals = self.envoy.nacks
            self.envoy.receive(response, asks_before_ack=asks_before_ack)
            is_excused = self.sent_under[response.nonce] != self.excuses[response.type_url]
            if self.envoy.nacks > refusals and not is_excused:
                refused = self.refused.setdefault(response.type_url, set())
                refused.add((response.version, response.bodies))

    @rule()
    def exchange(self) -> None:
        """Everything under way arrives."""
        for _ in range(200):
            self.server_reads(len(self.to_server))
            self.server_writes(50)
            if not self.to_client and not self.to_server:
                self.is_client_known = self.is_client_known or self.is_synced()
                return
            self.client_reads(len(self.to_client), asks_before_ack=False)
        pytest.fail("client and server never come to rest")

    def is_synced(self) -> bool:
        return all(status.state is SyncState.SYNCED for status in self.machine.statuses())

    @rule()
    def time_passes(self) -> None:
        self.now += ACK_TIMEOUT / 2
        self.was_bound_hit = True

    @precondition(lambda self: self.now < 100 * ACK_TIMEOUT)
    @rule()
    def reconnect(self) -> None:
        self.new_stream()
        # A SotW client cannot tell what it holds, so what vanished meanwhile goes with the first response.
        self.is_client_known = self.variant is Variant.DELTA

    @invariant()
    def make_before_break(self) -> None:
        if self.is_client_known and not self.was_bound_hit:
            assert self.envoy.dangling() == []

    def teardown(self) -> None:
        """In the end, a good world reaches the client completely, without waiting for any bound."""
        content = dict.fromkeys("abc", "good")
        last = simple(clusters=content, endpoints=content, listeners={"l": "good"}, routes={"l": "c"})
        self.publish(last)
        self.exchange()
        holds = self.envoy.holds
        assert holds[CLUSTER] == content
        assert {name: holds[ENDPOINT].get(name) for name in content} == content
        assert holds[LISTENER] == {"l": "good"}
        assert holds[ROUTE].get("l") == "c"
        assert self.envoy.warming == {CLUSTER: set(), LISTENER: set()}
        states = {status.type_url: status for status in self.machine.statuses()}
        assert {status.state for status in states.values()} == {SyncState.SYNCED}
        assert all(states[each].acked_version == last.sets[each].version for each in states)
        self.server_writes(1)
        assert not self.to_client, "nothing is left to send"
        super().teardown()


class SotwModel(StreamModel):
    variant = Variant.SOTW


class DeltaModel(StreamModel):
    variant = Variant.DELTA


LIMITS = settings(
    max_examples=200, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)

# Longer than usual, so that a failure can be shrunk.
pytestmark = [pytest.mark.fault("R16"), pytest.mark.timeout(600)]

TestSotwModel = SotwModel.TestCase
TestSotwModel.settings = LIMITS
TestDeltaModel = DeltaModel.TestCase
TestDeltaModel.settings = LIMITS
