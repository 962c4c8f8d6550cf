"""Endpoints from Consul's health API: one blocking query for each service.

All instances are read and not only the passing ones. An instance whose checks all pass is healthy; one
in maintenance (of its own or of its node) is draining, which Envoy counts neither for nor against the
health of the service; every other is unhealthy and stays in the offer, so that Envoy's panic mode
works when Consul's view of the world breaks and every check fails at once.

A service's ``Meta`` gives zone, region, version, gpu, hash_key and metrics_url; other entries and tags
are labels (a tag ``a=b`` is the label `a`, any other the label of its own name with the value
``true``; ``Meta`` wins).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import structlog

from controlplane.errors import SourceMalformed
from controlplane.model.documents import TopologyOffer
from controlplane.model.health import SourceHealth
from controlplane.model.topology import Endpoint, Health, ServiceName
from controlplane.sources.blocking import Answer, Change
from controlplane.sources.blocking_watch import BlockingWatch, Retry
from controlplane.sources.consul_client import ConsulClient
from controlplane.sources.consul_errors import SOURCE
from controlplane.sources.endpoints import Found, build_topology, make_endpoint, shorten
from controlplane.sources.fuse import Fuse
from controlplane.sources.layout import is_service_name

_MAINTENANCE = ("_node_maintenance", "_service_maintenance:")


class ConsulTopology:
    """Endpoints from the Consul catalog; a `TopologySource`."""

    def __init__(self, *, client: ConsulClient, fuse: Fuse, retry: Retry) -> None:
        """Read with `client`. `fuse` is this source's own."""
        self._client = client
        self._fuse = fuse
        self._retry = retry
        self._log = structlog.get_logger().bind(source=fuse.name)

    async def watch(self, services: frozenset[ServiceName]) -> AsyncGenerator[TopologyOffer, None]:
        """Yield the endpoints of these services once all are known, then after every change.

        `TopologyOffer.is_reset` is set while what any service has is what was found after Consul had
        started over, and nothing has changed since. Closing the generator and watching another set
        is cheap.
        """
        asked = frozenset(service for service in services if is_service_name(service))
        found: dict[ServiceName, Found] = {
            service: Found(problems=("is not a name that Consul can have",)) for service in services - asked
        }
        resets: set[ServiceName] = set()
        async with contextlib.aclosing(self._changes(asked)) as batches:
            async for batch in batches:
                for service, change in batch.items():
                    found[service] = change.content
                    (resets.add if change.is_reset else resets.discard)(service)
                    if change.is_reset:
                        self._log.warning("catalog_reset", service=service)
                if len(found) == len(services):
                    yield TopologyOffer(topology=build_topology(found), is_reset=bool(resets))

    def health(self) -> SourceHealth:
        """Tell how the source is doing."""
        return self._fuse.health()

    async def _changes(
        self, services: frozenset[ServiceName]
    ) -> AsyncGenerator[dict[ServiceName, Change[Found]], None]:
        """Merge the watches of all services; changes that come together are yielded together.

        The first batch is empty when there is nothing to ask for.
        """
        outcomes = SharedOutcomes(fuse=self._fuse)
        watches = {
            service: BlockingWatch(
                read=partial(self._read, service), outcomes=outcomes.of(service), retry=self._retry
            ).changes()
            for service in sorted(services)
        }
        steps = {_next(watch): service for service, watch in watches.items()}
        if not steps:
            self._fuse.record_success()
            yield {}
        try:
            while True:
                if not steps:
                    await asyncio.get_running_loop().create_future()  # nothing can ever change
                done, _ = await asyncio.wait(steps, return_when=asyncio.FIRST_COMPLETED)
                batch = {steps.pop(step): step.result() for step in done}
                steps |= {_next(watches[service]): service for service in batch}
                yield batch
        finally:
            for step in steps:
                step.cancel()
            if steps:
                await asyncio.wait(steps)
            for watch in watches.values():
                await watch.aclose()

    async def _read(self, service: ServiceName, index: int) -> Answer[Found]:
        answer = await self._client.list_instances(service, index=index)
        found = read_instances(answer.value)
        return Answer(
            index=answer.index,
            content=found,
            identity=(frozenset(found.endpoints), found.problems),
            is_empty=not found.endpoints,
        )


@dataclass(slots=True)
class SharedOutcomes:
    """One fuse for many watches: it counts failures of the worst, and success only when all are well.

    A hundred services that fail once, because Consul restarts, are one failure and not a hundred; one
    service that is denied keeps the source from counting as well.
    """

    fuse: Fuse
    _failures: dict[ServiceName, int] = field(default_factory=dict)
    _counted: int = 0

    def of(self, service: ServiceName) -> ServiceOutcomes:
        """Give the outcomes of one service's watch."""
        return ServiceOutcomes(service, self)

    def succeed(self, service: ServiceName) -> None:
        """Say that a service's query was answered."""
        self._failures.pop(service, None)
        if not self._failures:
            self._counted = 0
            self.fuse.record_success()

    def fail(self, service: ServiceName, error: str) -> None:
        """Say that a service's query failed."""
        self._failures[service] = self._failures.get(service, 0) + 1
        if self._failures[service] > self._counted:
            self._counted = self._failures[service]
            self.fuse.record_failure(f"service `{service}`: {error}")


@dataclass(frozen=True, slots=True)
class ServiceOutcomes:
    """The outcomes of one service's watch."""

    service: ServiceName
    shared: SharedOutcomes

    def record_success(self) -> None:
        """Say that an answer came."""
        self.shared.succeed(self.service)

    def record_failure(self, error: str) -> None:
        """Say that no usable answer came."""
        self.shared.fail(self.service, error)


def read_instances(instances: tuple[Mapping[str, Any], ...]) -> Found:
    """Read Consul's instances of one service; each that cannot be taken becomes a problem.

    Raises:
        SourceMalformed: if an instance is not in Consul's format.
    """
    endpoints, problems = [], []
    for instance in instances:
        try:
            endpoints.append(_read_instance(instance))
        except ValueError as error:
            identity = instance["Service"].get("ID", "")
            problems.append(f"instance `{shorten(identity)}`: {error}")
        except (TypeError, KeyError, AttributeError) as error:
            raise SourceMalformed(SOURCE, "an instance has another shape than Consul's") from error
    return Found(endpoints=tuple(endpoints), problems=tuple(sorted(problems)))


def _read_instance(instance: Mapping[str, Any]) -> Endpoint:
    service = instance["Service"]
    facts = dict(_tag_facts(service.get("Tags") or ()))
    facts |= {str(name): str(value) for name, value in (service.get("Meta") or {}).items()}
    return make_endpoint(
        address=service["Address"] or instance["Node"]["Address"],
        port=int(service["Port"]),
        facts=facts,
        health=_health(instance.get("Checks") or ()),
    )


def _tag_facts(tags: Iterable[str]) -> Mapping[str, str]:
    return {
        name: value if equals else "true" for name, equals, value in (tag.partition("=") for tag in tags)
    }


def _health(checks: Iterable[Mapping[str, Any]]) -> Health:
    failing = [check for check in checks if check["Status"] != "passing"]
    if any(str(check["CheckID"]).startswith(_MAINTENANCE) for check in failing):
        return Health.DRAINING
    return Health.UNHEALTHY if failing else Health.HEALTHY


def _next(watch: AsyncIterator[Change[Found]]) -> asyncio.Task[Change[Found]]:
    return asyncio.ensure_future(anext(watch))
