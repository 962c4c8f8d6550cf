"""The fleet."""

from __future__ import annotations

from typing import Any

from controlplane.cli.figures import duration, short, state
from controlplane.cli.output import Cell, Column, Page, Sheet
from controlplane.cli.pages.services import services_sheet

_TYPES = ("Cluster", "ClusterLoadAssignment", "Listener", "RouteConfiguration")
_TITLES = {"ClusterLoadAssignment": "Endpoints", "RouteConfiguration": "Routes"}


def status_page(document: dict[str, Any]) -> Page:
    """Readiness, sources, services, nodes."""
    page: list[Sheet | Cell | str] = [_headline(document)]
    if document["store_degraded"]:
        page.append(Cell(f"state directory refuses writes: {document['store_degraded']}", "bold red"))
    page.append(_sources(document["sources"]))
    page.append(services_sheet(document["services"]))
    page.append(_nodes(document["nodes"]))
    page.extend(_nacks(document["nodes"]))
    return page


def node_page(document: dict[str, Any]) -> Page:
    """One node, type by type; a node with several streams has a table for each."""
    page: list[Sheet | Cell | str] = []
    for node in document["connections"]:
        about = ", ".join(filter(None, (node["user_agent"], node["variant"], node["peer"])))
        page.append(f"{node['node_id']}: {about}")
        page.append(_types(node["types"]))
        page.extend(_nacks([node]))
    return page


def _headline(document: dict[str, Any]) -> Cell:
    tick = duration(document["last_tick_age_seconds"]) or "never"
    text = f"trimtab {document['trimtab_version']}, {len(document['nodes'])} nodes, last tick {tick}"
    text += f"{' ago' if tick != 'never' else ''}"
    if document["is_ready"]:
        return Cell(f"ready: {text}", "green")
    return Cell(f"not ready: {document['not_ready_reason']}: {text}", "bold red")


def _sources(sources: list[dict[str, Any]]) -> Sheet:
    columns = (
        Column("source"),
        Column("state"),
        Column("last answer", is_right=True),
        Column("failures", is_right=True),
        Column("last error"),
    )
    rows = tuple(
        (
            source["name"],
            state(source["state"]),
            duration(source["last_success_age_seconds"]),
            str(source["consecutive_failures"]),
            source["last_error"],
        )
        for source in sources
    )
    return Sheet(columns, rows)


def _nodes(nodes: list[dict[str, Any]]) -> Sheet:
    found = {status["type"] for node in nodes for status in node["types"]}
    types = [*(name for name in _TYPES if name in found), *sorted(found - set(_TYPES))]
    columns = (
        Column("node"),
        Column("group", is_wide=True),
        Column("version"),
        Column("variant", is_wide=True),
        Column("peer", is_wide=True),
        Column("connected", is_right=True, is_wide=True),
        Column("last contact", is_right=True),
        Column("state"),
        *(Column(_TITLES.get(name, f"{name}s")) for name in types),
    )
    return Sheet(columns, tuple(_node_row(node, types) for node in nodes))


def _node_row(node: dict[str, Any], types: list[str]) -> tuple[Cell | str, ...]:
    by_type = {status["type"]: status for status in node["types"]}
    cells = [by_type.get(name) for name in types]
    return (
        node["node_id"],
        node["group"],
        node["user_agent"],
        node["variant"],
        node["peer"],
        duration(node["connected_for_seconds"]),
        duration(node["last_contact_age_seconds"]),
        state(node["state"]),
        *(_type_cell(status) for status in cells),
    )


def _type_cell(status: dict[str, Any] | None) -> Cell:
    if status is None:
        return Cell("")
    known = state(status["state"])
    return Cell(f"{known.text} {duration(status['age_seconds'])}", known.style)


def _types(types: list[dict[str, Any]]) -> Sheet:
    columns = (
        Column("type"),
        Column("state"),
        Column("for", is_right=True),
        Column("intended"),
        Column("sent"),
        Column("acked"),
        Column("nacked"),
        Column("type URL", is_wide=True),
    )
    versions = ("intended_version", "sent_version", "acked_version", "nacked_version")
    rows = tuple(
        (
            status["type"],
            state(status["state"]),
            duration(status["age_seconds"]),
            *(short(status[version]) for version in versions),
            status["type_url"],
        )
        for status in types
    )
    return Sheet(columns, rows)


def _nacks(nodes: list[dict[str, Any]]) -> list[Cell]:
    return [
        Cell(f"{node['node_id']} refused {status['type']}: {status['nack_message']}", "red")
        for node in nodes
        for status in node["types"]
        if status["nack_message"]
    ]
