"""Read strategy and canary documents: bytes to values, or all the reasons why not. Never raises.

Only JSON is read here. Files may be YAML; their source turns them into JSON first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from controlplane.core.canonical import document_hash, to_json
from controlplane.core.schema import json_schema
from controlplane.core.strategies import BUILTIN, Registry
from controlplane.core.untrusted import read_object
from controlplane.core.validation import shorten, validate
from controlplane.model.problems import Problem, Rejected
from controlplane.model.rollout import CanarySpec
from controlplane.model.strategy import Strategy

__all__ = [
    "document_hash",
    "json_schema",
    "parse_canary",
    "parse_strategy",
    "strategy_from_mapping",
    "to_json",
]

SEMVER: Final = re.compile(
    r"(0|[1-9]\d{0,9})\.(0|[1-9]\d{0,9})\.(0|[1-9]\d{0,9})"
    r"(?:-(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?"
    r"(?:\+[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*)?",
    re.ASCII,
)
"""Semantic versioning 2.0.0 (semver.org), with a bound on each number."""

MAX_VERSION_LENGTH: Final = 64

MAX_WEIGHT_SPREAD: Final = 1000.0
"""Heaviest over lightest weight. Beyond it Envoy's main thread needs 60 ms and more per Maglev
rebuild at 1,000 hosts, because the light hosts set the pace of filling the table."""


def parse_strategy(body: bytes, *, key: str, registry: Registry = BUILTIN) -> Strategy | Rejected:
    """Read a strategy document.

    The law must be in `registry`, and its parameters fit; dangerous documents are refused like
    malformed ones. `key` names the document in the problem that concerns it as a whole.
    """
    document = read_object(body)
    if isinstance(document, Rejected):
        return _named(document, key)
    return strategy_from_mapping(document, registry=registry)


def strategy_from_mapping(
    document: Mapping[str, Any], *, registry: Registry = BUILTIN
) -> Strategy | Rejected:
    """Read a strategy from plain JSON values, such as a document that was already parsed."""
    strategy = validate(Strategy, document)
    if isinstance(strategy, Rejected):
        return strategy
    problems = (*_policy(strategy), *_law_problems(strategy, registry))
    return Rejected(problems) if problems else strategy


def parse_canary(body: bytes, *, key: str) -> CanarySpec | Rejected:
    """Read a canary document. `key` names it in the problem that concerns it as a whole."""
    document = read_object(body)
    if isinstance(document, Rejected):
        return _named(document, key)
    spec = validate(CanarySpec, document)
    if isinstance(spec, CanarySpec) and dict(spec.canary) == dict(spec.baseline):
        return Rejected((Problem("baseline", "selects the same endpoints as `canary`"),))
    return spec


def _named(rejected: Rejected, key: str) -> Rejected:
    """Put the document's key into problems that have no path of their own."""
    return Rejected(
        tuple(
            problem if problem.path else Problem("", f"`{key}` {problem.reason}", problem.value)
            for problem in rejected.problems
        ),
    )


def _policy(strategy: Strategy) -> Iterator[Problem]:
    """What is well formed and still refused."""
    if len(strategy.version) > MAX_VERSION_LENGTH or not SEMVER.fullmatch(strategy.version):
        yield Problem("version", "is not a semantic version such as 1.4.2", shorten(strategy.version))
    guards = strategy.guards
    lightest = min(guards.floor_ratio, guards.clip_min_ratio)
    if guards.clip_max_ratio > MAX_WEIGHT_SPREAD * lightest:
        yield Problem(
            "guards.clip_max_ratio",
            f"is more than {MAX_WEIGHT_SPREAD:.0f} × the least weight, which stalls Envoy at each change",
            shorten(guards.clip_max_ratio),
        )
    if strategy.signals.join == "label" and not strategy.signals.join_endpoint_label:
        yield Problem("signals.join_endpoint_label", 'is needed when `join` is "label"')


def _law_problems(strategy: Strategy, registry: Registry) -> tuple[Problem, ...]:
    law = registry.get(strategy.law)
    if law is None:
        known = ", ".join(registry.names)
        return (Problem("law", f"is not a known law: {known}", shorten(strategy.law)),)
    parameters = law.read_parameters(strategy.parameters)
    return parameters.problems if isinstance(parameters, Rejected) else ()
