"""Services, weights, history."""

from __future__ import annotations

from typing import Any

from controlplane.cli.figures import duration, percent, short, state, trend
from controlplane.cli.output import Cell, Column, Page, Sheet


def services_page(document: dict[str, Any]) -> Page:
    """All services, then the documents that were refused for services that have none in force."""
    page: list[Sheet | Cell | str] = [services_sheet(document["services"])]
    for orphan in document["orphans"]:
        page.extend(rejection_lines(orphan["service"], orphan["rejected"]))
    return page


def services_sheet(services: list[dict[str, Any]]) -> Sheet:
    """One row a service."""
    columns = (
        Column("service"),
        Column("version"),
        Column("hash", is_wide=True),
        Column("law"),
        Column("endpoints", is_right=True),
        Column("decided", is_right=True),
        Column("published because"),
        Column("canary"),
        Column("flags"),
    )
    return Sheet(columns, tuple(_service_row(service) for service in services))


def weights_page(document: dict[str, Any]) -> Page:
    """One row an endpoint."""
    columns = (
        Column("endpoint"),
        Column("zone"),
        Column("version", is_wide=True),
        Column("gpu", is_wide=True),
        Column("health", is_wide=True),
        Column("weight", is_right=True),
        Column("share", is_right=True),
        Column("previous", is_right=True),
        Column("heading for", is_right=True),
        Column("trend"),
        Column("state"),
        Column("reasons"),
    )
    rows = tuple(_weight_row(row) for row in document["endpoints"])
    page: list[Sheet | Cell | str] = [_weights_headline(document), Sheet(columns, rows)]
    page.extend(Cell(f"warning: {warning}", "yellow") for warning in document["warnings"])
    return page


def history_page(document: dict[str, Any]) -> Page:
    """One row a document, oldest first."""
    columns = (
        Column("version"),
        Column("hash"),
        Column("in force since"),
        Column("bytes", is_right=True),
    )
    rows = tuple(
        (found["version"], short(found["hash"]), found["accepted_at"] or "", str(found["size_bytes"]))
        for found in document["documents"]
    )
    return [Sheet(columns, rows)]


def rejection_lines(service: str, rejected: dict[str, Any] | None) -> list[Cell]:
    """Why a document was refused, one line a problem."""
    if rejected is None:
        return []
    lines = [Cell(f"{service}: revision {rejected['revision']} of `{rejected['key']}` refused", "bold red")]
    for problem in rejected["problems"]:
        got = f" (got {problem['value']})" if problem["value"] else ""
        lines.append(Cell(f"  {problem['path'] or 'document'}: {problem['reason']}{got}", "red"))
    return lines


def _service_row(service: dict[str, Any]) -> tuple[Cell | str, ...]:
    strategy = service["strategy"]
    flags = [*service["flags"], *(["rejected"] if service["is_rejected"] else [])]
    if service["freeze"]:
        flags.append(f"freeze={service['freeze']}")
    return (
        service["service"],
        strategy["version"],
        short(strategy["hash"]),
        strategy["law"],
        str(service["endpoints"]),
        duration(service["decision_age_seconds"]),
        service["publish_reason"],
        state(service["canary_phase"]),
        Cell(", ".join(flags), "yellow"),
    )


def _weights_headline(document: dict[str, Any]) -> str:
    parts = [
        f"{document['service']}: {document['law']}, version {document['strategy_version']}",
        f"decided {duration(document['decision_age_seconds'])} ago"
        if document["decision_age_seconds"] is not None
        else "not decided yet",
    ]
    if document["publish_reason"]:
        verb = "published" if document["is_published"] else "not published"
        parts.append(f"{verb}: {document['publish_reason']}")
    if document["freeze"]:
        parts.append(f"frozen: {document['freeze']}")
    return ", ".join([*parts, *document["flags"]])


def _weight_row(row: dict[str, Any]) -> tuple[Cell | str, ...]:
    return (
        row["endpoint"],
        row["zone"],
        row["version"],
        row["gpu"],
        row["health"],
        _count(row["weight"]),
        percent(row["share"]),
        _count(row["previous_weight"]),
        percent(row["proposed_share"]),
        trend(row["trend"]),
        state(row["state"]),
        "; ".join(row["reasons"]),
    )


def _count(value: int | None) -> str:
    return "" if value is None else str(value)
