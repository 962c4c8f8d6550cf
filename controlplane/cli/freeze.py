"""`trimtab freeze` and `unfreeze`: the kill switch."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from controlplane.cli.options import ConfigOption, OptionalService, load_settings

if TYPE_CHECKING:
    from controlplane.config import Settings

_ALL = "*"


def freeze(
    service: OptionalService = None,
    equal: Annotated[
        bool, typer.Option("--equal", help="Equal weights, instead of the last good ones.")
    ] = False,
    config: ConfigOption = None,
) -> None:
    """Hold the weights of one service, or of all, whatever its strategy says."""
    mode = "equal" if equal else "hold"
    revision = asyncio.run(_set(load_settings(config), service or _ALL, mode))
    typer.echo(f"{service or 'all services'}: `{mode}` written as revision {revision}")


def unfreeze(service: OptionalService = None, config: ConfigOption = None) -> None:
    """End a freeze. Without a service: the one for all; those of single services stay."""
    was_set = asyncio.run(_clear(load_settings(config), service or _ALL))
    typer.echo(f"{service or 'all services'}: {'freeze ended' if was_set else 'not frozen'}")


async def _set(settings: Settings, service: str, mode: str) -> int:
    from controlplane.cli.stores import FREEZE, open_store

    async with open_store(settings) as store:
        found = await store.read(FREEZE, service)
        revision = found.revision if found else 0
        return await store.write(FREEZE, service, mode.encode(), expected_revision=revision)


async def _clear(settings: Settings, service: str) -> bool:
    from controlplane.cli.stores import FREEZE, open_store

    async with open_store(settings) as store:
        found = await store.read(FREEZE, service)
        if found is None:
            return False
        await store.delete(FREEZE, service, expected_revision=found.revision)
        return True
