"""Canary documents: made from flags, and edited with compare-and-set."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import typer

from controlplane.cli.documents import parse_canary, pretty
from controlplane.cli.exits import ExitCode, fail
from controlplane.model.problems import Rejected

if TYPE_CHECKING:
    from controlplane.config import Settings
    from controlplane.model.rollout import CanarySpec

_ENDED = frozenset({"promoted", "aborted"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryFlags:
    """The flags of `trimtab canary start`, as given."""

    canary: list[str]
    baseline: list[str] = field(default_factory=list)
    steps: str = "10,50"
    hold_seconds: float = 60.0
    metrics: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Changed:
    """What an edit did."""

    revision: int
    is_written: bool


def document_of(flags: CanaryFlags) -> bytes:
    """Write flags as a document.

    Raises:
        typer.BadParameter: if a flag cannot be read. Whether the values make sense is the parser's job.
    """
    content: dict[str, Any] = {
        "schema": 1,
        "canary": _selector(flags.canary, "--canary"),
        "baseline": _selector(flags.baseline, "--baseline"),
        "steps": [
            {"weight_percent": _number(step, "--steps"), "hold_seconds": flags.hold_seconds}
            for step in flags.steps.split(",")
        ],
    }
    if flags.metrics:
        content["analysis"] = {"metrics": [_metric(text) for text in flags.metrics]}
    return json.dumps(content, indent=2).encode() + b"\n"


async def start_canary(settings: Settings, service: str, body: bytes, *, is_replacing: bool) -> int:
    """Write a canary document; gives its revision.

    A document that is there and still to run is only replaced if that is wanted; else the command
    ends with code 5.

    Raises:
        DocumentConflict: if somebody else wrote it in between.
        SourceError: if the store gives no usable answer.
    """
    from controlplane.cli.stores import CANARIES, open_store
    from controlplane.core import parse

    async with open_store(settings) as store:
        found = await store.read(CANARIES, service)
        if found is not None and not is_replacing:
            spec = parse.parse_canary(found.body, key=found.key)
            if not isinstance(spec, Rejected) and spec.desired not in _ENDED:
                fail(
                    ExitCode.INVALID,
                    f"`{found.key}` (revision {found.revision}) is still to run",
                    hint="`--replace` writes over it; `trimtab canary abort` ends it",
                )
        return await store.write(CANARIES, service, body, expected_revision=found.revision if found else 0)


async def change(
    settings: Settings, service: str, make: Callable[[CanarySpec], Mapping[str, Any]]
) -> Changed | None:
    """Set fields of the stored canary document; `None` if there is none.

    Other fields stay as they were written. Nothing is written if nothing changes.

    Raises:
        DocumentConflict: if somebody else wrote it in between.
        SourceError: if the store gives no usable answer.
    """
    from controlplane.cli.stores import CANARIES, open_store

    async with open_store(settings) as store:
        found = await store.read(CANARIES, service)
        if found is None:
            return None
        spec = parse_canary(found.body, key=found.key)
        fields = make(spec)
        if all(getattr(spec, name) == value for name, value in fields.items()):
            return Changed(found.revision, is_written=False)
        body = pretty(json.dumps(json.loads(found.body) | dict(fields)).encode())
        revision = await store.write(CANARIES, service, body, expected_revision=found.revision)
        return Changed(revision, is_written=True)


def _selector(pairs: list[str], flag: str) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"`{pair}` is not `name=value`", param_hint=flag)
        found[name] = value
    return found


def _metric(text: str) -> dict[str, Any]:
    """Read ``ttft_p90_seconds<=1.5,2x``: an absolute limit, a multiple of the baseline, or both."""
    signal, sign, limits = text.partition("<=")
    if not sign or not signal or not limits:
        raise typer.BadParameter(f"`{text}` is not `signal<=limit`", param_hint="--metric")
    found: dict[str, Any] = {"signal": signal.strip()}
    for limit in limits.split(","):
        is_ratio = limit.strip().endswith(("x", "×"))
        key = "max_ratio_to_baseline" if is_ratio else "max_value"
        if key in found:
            raise typer.BadParameter(f"`{text}` has two limits of one kind", param_hint="--metric")
        found[key] = _number(limit.strip().rstrip("x×"), "--metric")
    return found


def _number(text: str, flag: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"`{text}` is not a number", param_hint=flag) from None
