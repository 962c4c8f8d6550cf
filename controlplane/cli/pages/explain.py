"""Explanations: the arithmetic from sample to weight."""

from __future__ import annotations

from typing import Any

from controlplane.cli.figures import duration, number, percent, state
from controlplane.cli.output import Cell, Column, Page, Sheet


def explain_page(document: dict[str, Any]) -> Page:
    """One row an endpoint, one column a stage."""
    columns = (
        Column("endpoint"),
        *(Column(stage["name"], is_right=True) for stage in document["stages"]),
        Column("share", is_right=True),
        Column("weight", is_right=True),
        Column("state"),
    )
    rows = tuple(
        (
            row["endpoint"],
            *(number(value) for value in row["values"]),
            percent(row["share"]),
            "" if row["weight"] is None else str(row["weight"]),
            state(row["state"]),
        )
        for row in document["endpoints"]
    )
    page: list[Sheet | Cell | str] = [_headline(document), Sheet(columns, rows)]
    page.extend(f"{stage['name']}: {note}" for stage in document["stages"] for note in stage["notes"])
    page.extend(_warnings(document))
    return page


def explain_endpoint_page(document: dict[str, Any]) -> Page:
    """Signals, then stages with their terms, then the weight."""
    page: list[Sheet | Cell | str] = [_headline(document), _signals(document["signals"])]
    page.append(_stages(document["stages"]))
    weight = "none" if document["weight"] is None else document["weight"]
    page.append(
        f"weight {weight} ({percent(document['share']) or 'no share'}), "
        f"heading for {percent(document['proposed_share'])}, state: {document['state']}"
    )
    page.extend(_warnings(document))
    return page


def _headline(document: dict[str, Any]) -> str:
    name = document.get("endpoint") or document["service"]
    verb = "published" if document["is_published"] else "not published"
    text = f"{name}: {document['law']}, version {document['strategy_version']}, decided "
    text += f"{duration(document['decision_age_seconds'])} ago, {verb}: {document['publish_reason']}"
    return f"{text}, frozen: {document['freeze']}" if document["freeze"] else text


def _signals(signals: list[dict[str, Any]]) -> Sheet:
    columns = (
        Column("signal"),
        Column("value", is_right=True),
        Column("age", is_right=True),
        Column("source"),
        Column("query"),
        Column("dropped"),
    )
    rows = tuple(
        (
            signal["signal"],
            number(signal["value"]),
            duration(signal["age_seconds"]),
            signal["source"],
            signal["query"],
            Cell(signal["dropped"], "yellow"),
        )
        for signal in signals
    )
    return Sheet(columns, rows)


def _stages(stages: list[dict[str, Any]]) -> Sheet:
    columns = (
        Column("stage"),
        Column("before", is_right=True),
        Column("after", is_right=True),
        Column("terms"),
        Column("why"),
    )
    rows = tuple(
        (
            stage["name"],
            number(stage["before"]),
            number(stage["after"]),
            ", ".join(f"{term['name']} = {number(term['value']) or '?'}" for term in stage["terms"]),
            "; ".join(filter(None, (stage["reason"], *stage["notes"]))),
        )
        for stage in stages
    )
    return Sheet(columns, rows)


def _warnings(document: dict[str, Any]) -> list[Cell]:
    return [Cell(f"warning: {warning}", "yellow") for warning in document["warnings"]]
