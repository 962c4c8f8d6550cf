"""`trimtab sim-server`: simulated model servers."""

from __future__ import annotations

from typing import Annotated

import typer

from controlplane.cli.exits import ExitCode, fail


def sim_server(
    ports: Annotated[
        str, typer.Option("--ports", help="One server each, `9001,9002`; 0: a free port.")
    ] = "9001",
    address: Annotated[str, typer.Option("--address", help="Where they listen.")] = "127.0.0.1",
    speed: Annotated[
        str, typer.Option("--speed", help="GPU class of each, in multiples of the slowest.")
    ] = "1",
    server_version: Annotated[
        str, typer.Option("--server-version", help="Version that each says it has.")
    ] = "v1",
    model: Annotated[str, typer.Option("--model", help="Model name.")] = "sim",
    seed: Annotated[int, typer.Option("--seed", help="Makes a run repeatable.")] = 0,
) -> None:
    """Run servers that speak OpenAI's API and vLLM's metrics. Lists repeat from their start."""
    from controlplane.config import LogSettings
    from controlplane.ops.logging import configure_logging
    from controlplane.sim import command
    from controlplane.sim.fleet import SimOptions

    options = SimOptions(
        ports=tuple(int(each) for each in _numbers(ports, "--ports")),
        address=address,
        speeds=tuple(_numbers(speed, "--speed")),
        versions=tuple(part.strip() for part in server_version.split(",")),
        model=model,
        seed=seed,
    )
    configure_logging(LogSettings())
    try:
        command.run(options)
    except OSError as error:
        fail(ExitCode.FAILED, f"cannot listen: {error.strerror or error}")


def _numbers(text: str, flag: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"`{text}` is not a list of numbers", param_hint=flag) from None
