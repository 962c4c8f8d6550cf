"""What the sources' answers are worth: pure functions from answers to findings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from controlplane.cli.preflight.finding import Finding, Mark
from controlplane.config import Settings
from controlplane.core.parse import parse_canary, parse_strategy
from controlplane.model.documents import Documents
from controlplane.model.health import SourceHealth
from controlplane.model.problems import Rejected
from controlplane.model.strategy import Strategy
from controlplane.model.topology import Topology
from controlplane.sources.preflight import SignalPreflight

_SHOWN = 3


def judge_documents(documents: Documents, kind: str) -> tuple[dict[str, Strategy], list[Finding]]:
    """Parse every document; gives the usable strategies that are not retired, and one finding for each
    refused document.
    """
    strategies: dict[str, Strategy] = {}
    findings: list[Finding] = []
    for service, document in sorted(documents.strategies.items()):
        strategy = parse_strategy(document.body, key=document.key)
        if isinstance(strategy, Rejected):
            findings.append(_refused(document.key, strategy))
        elif not strategy.retired:
            strategies[service] = strategy
    for document in documents.canaries.values():
        canary = parse_canary(document.body, key=document.key)
        if isinstance(canary, Rejected):
            findings.append(_refused(document.key, canary))
    for service, mode in sorted(documents.freezes.items()):
        name = "all services" if service == "*" else service
        findings.append(Finding(Mark.WARNING, "freeze", f"{name}: {mode}", "`trimtab unfreeze` ends it"))
    if strategies:
        names = _some(strategies)
        findings.insert(0, Finding(Mark.GOOD, f"documents ({kind})", f"strategies for {names}"))
    else:
        hint = "`trimtab strategy push SERVICE FILE` writes one"
        findings.insert(0, Finding(Mark.BAD, f"documents ({kind})", "no usable strategy", hint))
    return strategies, findings


def judge_topology(topology: Topology, services: Iterable[str]) -> list[Finding]:
    """Tell how many endpoints each service has, and what discovery offered that could not be taken."""
    findings = []
    for service in sorted(services):
        found = topology.get(service)
        count = len(found.endpoints) if found else 0
        hint = "" if count else "is it registered under this name, with healthy instances?"
        mark = Mark.GOOD if count else Mark.BAD
        findings.append(Finding(mark, f"endpoints of {service}", f"{count} endpoints", hint))
    return findings + [Finding(Mark.WARNING, "discovery", problem) for problem in topology.problems]


def judge_signals(survey: SignalPreflight) -> list[Finding]:
    """Tell for how many endpoints each signal resolves, and what does not join."""
    subject = f"signals of {survey.service}"
    findings = []
    for row in survey.coverage:
        text = f"{row.signal}: {row.endpoints} of {survey.endpoints} endpoints"
        if row.is_found and row.endpoints == survey.endpoints:
            findings.append(Finding(Mark.GOOD, subject, text))
        elif row.is_found:
            hint = "" if row.endpoints else "the metric is there; it has a value once requests were served"
            findings.append(Finding(Mark.WARNING, subject, text, hint))
        else:
            mark = Mark.WARNING if row.is_optional else Mark.BAD
            first = row.query.partition("\n")[0]
            findings.append(Finding(mark, subject, text, f"tried: {first}" if first else ""))
    if survey.endpoints_without_series:
        names = _some(survey.endpoints_without_series)
        hint = "`signals.join_label` names the label that joins series to endpoints"
        findings.append(Finding(Mark.BAD, subject, f"no series at all for {names}", hint))
    if survey.unmatched_series:
        text = f"{survey.unmatched_series} series join no endpoint: {_some(survey.unmatched)}"
        findings.append(Finding(Mark.WARNING, subject, text))
    return findings + [Finding(Mark.WARNING, subject, failure) for failure in survey.failures]


def judge_silence(subject: str, health: SourceHealth, hint: str) -> Finding:
    """Say why a source gave nothing in time."""
    return Finding(Mark.BAD, subject, health.last_error or "no answer in time", hint)


def document_hint(settings: Settings) -> str:
    """Say which setting names the document source."""
    if settings.sources.documents == "consul":
        return f"`consul.address` is `{settings.consul.address}`, `consul.token_file` holds a token"
    return f"`sources.directory` is `{settings.sources.directory}`"


def topology_hint(settings: Settings) -> str:
    """Say which setting names the topology source."""
    if settings.sources.topology == "consul":
        return f"`consul.address` is `{settings.consul.address}`"
    return f"`sources.endpoints_file` is `{settings.sources.endpoints_file}`"


def _refused(key: str, rejected: Rejected) -> Finding:
    return Finding(Mark.BAD, "document", f"`{key}`: {rejected}")


def _some(names: Iterable[str] | Mapping[str, object]) -> str:
    listed = sorted(names)
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return f"{', '.join(listed[:_SHOWN])}{more}"
