"""Write a document with compare-and-set, then wait until the control plane says what it made of it."""

from __future__ import annotations

import difflib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from controlplane.cli.client import AdminClient
from controlplane.cli.documents import pretty
from controlplane.cli.exits import ExitCode, fail, say
from controlplane.cli.semver import is_downgrade
from controlplane.cli.stores import STRATEGIES, EditableStore
from controlplane.errors import AdminError
from controlplane.model.problems import Rejected

if TYPE_CHECKING:
    from controlplane.model.documents import RawDocument
    from controlplane.model.strategy import Strategy

POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class PushOptions:
    """What a push may do."""

    is_dry_run: bool = False
    expected_revision: int | None = None
    """Revision the caller had in mind; `None`: the one that is found."""
    is_downgrade_allowed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """What a push did. `revision` is 0 if nothing was written."""

    service: str
    version: str
    hash: str
    revision: int
    is_written: bool
    difference: str
    """Unified diff from the old document to the new one; empty if they are equal."""


async def push_strategy(
    store: EditableStore, service: str, body: bytes, strategy: Strategy, options: PushOptions
) -> Pushed:
    """Write a validated strategy unless the same content is there already.

    Ends the command with code 5 if the version was used for other content, or is lower.

    Raises:
        DocumentConflict: if the document is not at the expected revision.
        SourceError: if the store gives no usable answer.
    """
    from controlplane.core.parse import document_hash

    found = await store.read(STRATEGIES, service)
    expected = options.expected_revision
    if expected is None:
        expected = found.revision if found else 0
    digest = document_hash(strategy)
    is_equal = _check_versions(service, found, strategy, digest, options)
    difference = _difference(found, body)
    revision = found.revision if found else 0
    is_written = not is_equal and not options.is_dry_run
    if is_written:
        revision = await store.write(STRATEGIES, service, body, expected_revision=expected)
    return Pushed(
        service=service,
        version=strategy.version,
        hash=digest,
        revision=revision,
        is_written=is_written,
        difference=difference,
    )


def await_verdict(client: AdminClient, pushed: Pushed, *, timeout_seconds: float, is_retired: bool) -> None:
    """Wait until the control plane runs the pushed strategy.

    A retired service is waited for until it is gone. Ends the command with code 5 if the control plane
    refuses the document, 3 if there is no control plane to ask.

    Raises:
        TimeoutError: if neither happens in time. The document stays written.
    """
    deadline = time.monotonic() + timeout_seconds
    while True:
        status = _ask(client, pushed.service)
        strategy = (status or {}).get("strategy")
        if is_retired and strategy is None:
            return
        if strategy is not None and strategy["hash"] == pushed.hash and not is_retired:
            return
        _stop_if_refused((status or {}).get("rejected"), pushed)
        if time.monotonic() >= deadline:
            raise TimeoutError(
                f"revision {pushed.revision} is written, but not in force after {timeout_seconds:g} s"
            )
        time.sleep(POLL_SECONDS)


def _check_versions(
    service: str, found: RawDocument | None, new: Strategy, digest: str, options: PushOptions
) -> bool:
    """Tell if the stored document says the same; refuse what would break the order of versions."""
    from controlplane.core import parse

    old = parse.parse_strategy(found.body, key=found.key) if found else None
    if old is None or isinstance(old, Rejected):
        return False  # nothing there, or nothing worth keeping
    if parse.document_hash(old) == digest:
        return True
    if old.version == new.version:
        fail(
            ExitCode.INVALID,
            f"version {new.version} of `{service}` is stored with other content",
            hint="raise `version`",
        )
    if is_downgrade(old.version, new.version) and not options.is_downgrade_allowed:
        fail(
            ExitCode.INVALID,
            f"version {new.version} of `{service}` is lower than the stored {old.version}",
            hint="`--allow-downgrade` pushes it all the same",
        )
    return False


def _difference(found: RawDocument | None, body: bytes) -> str:
    old = pretty(found.body).decode("utf-8", "replace").splitlines() if found else []
    new = pretty(body).decode("utf-8", "replace").splitlines()
    return "\n".join(difflib.unified_diff(old, new, "stored", "pushed", lineterm=""))


def _ask(client: AdminClient, service: str) -> dict[str, Any] | None:
    try:
        return client.get("v1", "services", service)
    except AdminError as error:
        if error.status is not None:
            return None  # it knows no such service yet, or is busy starting
        say("the document is written, but there is no control plane to ask; `--no-wait` does not ask")
        raise


def _stop_if_refused(rejected: dict[str, Any] | None, pushed: Pushed) -> None:
    if rejected is None or rejected["revision"] != pushed.revision:
        return
    say(f"error: the control plane refused revision {pushed.revision} of `{pushed.service}`")
    for problem in rejected["problems"]:
        got = f" (got {problem['value']})" if problem["value"] else ""
        say(f"  {problem['path'] or 'document'}: {problem['reason']}{got}")
    raise typer.Exit(ExitCode.INVALID)
