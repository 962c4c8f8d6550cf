"""Make the Consul sources as the composition root would, with quick retries."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

from prometheus_client import CollectorRegistry

from controlplane.config import ConsulSettings, FuseSettings
from controlplane.sources.blocking_watch import Retry
from controlplane.sources.consul_client import ConsulClient
from controlplane.sources.fuse import Fuse, FuseMetrics

PREFIX = "t/"
RETRY = Retry(minimum_seconds=0.05, maximum_seconds=0.2, clock=time.monotonic, random=lambda: 0.5)


def make_fuse(name: str = "consul") -> Fuse:
    return Fuse(
        name=name,
        settings=FuseSettings(),
        clock=time.monotonic,
        metrics=FuseMetrics(CollectorRegistry()),
        random=lambda: 0.5,
    )


@contextlib.asynccontextmanager
async def consul_client(
    address: str, *, token_file: Path | None = None, wait_seconds: float = 10.0
) -> AsyncIterator[ConsulClient]:
    client = ConsulClient(
        settings=ConsulSettings(address=address, token_file=token_file, wait_seconds=wait_seconds)
    )
    try:
        yield client
    finally:
        await client.close()
