"""Canaries."""

from __future__ import annotations

from typing import Any

from controlplane.cli.figures import duration, number, state
from controlplane.cli.output import Cell, Column, Page, Sheet
from controlplane.cli.pages.services import rejection_lines


def canaries_page(document: dict[str, Any]) -> Page:
    """One row a canary."""
    columns = (
        Column("service"),
        Column("phase"),
        Column("step"),
        Column("set weight", is_right=True),
        Column("actual weight", is_right=True),
        Column("verdict"),
        Column("for", is_right=True),
        Column("reason"),
    )
    shown = [found for found in document["canaries"] if found["phase"]]
    page: list[Sheet | Cell | str] = [Sheet(columns, tuple(_row(found) for found in shown))]
    for found in document["canaries"]:
        page.extend(rejection_lines(found["service"], found["rejected"]))
    return page


def canary_page(document: dict[str, Any]) -> Page:
    """One canary as a tree: phase, weights, steps, both subsets with their figures."""
    refused = rejection_lines(document["service"], document["rejected"])
    if not document["phase"]:
        return refused
    phase = state(document["phase"])
    lines: list[Sheet | Cell | str] = [
        Cell(
            f"{document['service']}: {phase.text}, {document['reason'] or 'no reason given'}", phase.style
        ),
        f"├─ desired {document['desired']}, retry {document['retry']}, document {document['hash'][:12]}",
        (
            f"├─ SetWeight {_percent(document['set_weight_percent'])}, "
            f"ActualWeight {_percent(document['actual_weight_percent']) or 'unknown'}"
        ),
        _verdict(document),
        "├─ steps",
        *_steps(document),
        *_subset("├─ canary", "│  ", document["canary"]),
        *_subset("└─ baseline", "   ", document["baseline"]),
    ]
    return [*lines, *refused]


def _row(found: dict[str, Any]) -> tuple[Cell | str, ...]:
    return (
        found["service"],
        state(found["phase"]),
        f"{found['step_index'] + 1}/{len(found['steps'])}",
        _percent(found["set_weight_percent"]),
        _percent(found["actual_weight_percent"]),
        state(found["verdict"]),
        duration(found["in_phase_for_seconds"]),
        found["reason"],
    )


def _verdict(document: dict[str, Any]) -> Cell:
    limits = document["limits"]
    verdict = state(document["verdict"])
    text = (
        f"├─ verdict {verdict.text or 'none yet'}, failures {document['consecutive_failures']} of "
        f"{limits['consecutive_failures']} in a row, {document['total_failures']} of "
        f"{limits['total_failures']} in all"
    )
    if document["no_data_for_seconds"] is not None:
        text += f", no data for {duration(document['no_data_for_seconds'])}"
        text += f" of {duration(limits['no_data_deadline_seconds'])}"
    return Cell(text, verdict.style)


def _steps(document: dict[str, Any]) -> list[Cell]:
    steps = document["steps"]
    lines = []
    for index, step in enumerate(steps):
        branch = "└─" if index == len(steps) - 1 else "├─"
        mark, style = _step_mark(document, index)
        text = f"│  {branch} {mark} {_percent(step['weight_percent'])} for {duration(step['hold_seconds'])}"
        lines.append(Cell(f"{text}, then a gate" if step["gate"] else text, style))
    return lines


def _step_mark(document: dict[str, Any], index: int) -> tuple[str, str]:
    """Done, under way, or to come."""
    if document["phase"] == "promoted" or index < document["step_index"]:
        return "√", "green"
    if index == document["step_index"] and document["phase"] in {"starting", "progressing", "paused"}:
        return "▸", "cyan"
    return "·", "dim"


def _subset(name: str, indent: str, found: dict[str, Any]) -> list[str]:
    selector = ", ".join(f"{key}={value}" for key, value in found["selector"].items()) or "the rest"
    count = "?" if found["endpoints"] is None else f"{found['healthy']} of {found['endpoints']}"
    requests = number(found["window_requests"]) or "unknown"
    lines = [f"{name} ({selector}): {count} endpoints healthy, {requests} requests in the window"]
    lines += [
        f"{indent}   {figure} {number(value) or 'unknown'}" for figure, value in found["figures"].items()
    ]
    return lines


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}%"
