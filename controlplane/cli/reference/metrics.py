"""`metrics.md`, from the source: every instrument is declared with a literal name, text and labels.

Reading the declarations needs no running control plane, and cannot miss a room that the settings at
hand do not use.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import controlplane
from controlplane.cli.reference.markdown import code, page, table

_KINDS = {
    "Counter": "counter",
    "Gauge": "gauge",
    "Histogram": "histogram",
    "Summary": "summary",
    "Info": "info",
    "CounterMetricFamily": "counter",
    "GaugeMetricFamily": "gauge",
    "InfoMetricFamily": "info",
    "_single": "gauge",
}
_SUFFIXES = {"counter": "_total", "info": "_info"}

_PREFIXES = ("trimtab_", "scheduler_")
_SIMULATOR = "sim"
"""Its metrics are vLLM's, not Trimtab's."""

_INTRODUCTION = """
`/metrics` of the admin port, in Prometheus's text format or OpenMetrics. Beside these there are
`process_*` and `python_*`. Ratios are 0 to 1. No series is labelled by node.
"""


@dataclass(frozen=True, slots=True)
class Declared:
    """One metric as it is exposed."""

    name: str
    kind: str
    labels: tuple[str, ...]
    text: str


def metrics_page() -> str:
    """Describe every metric."""
    rows = [
        (code(each.name), each.kind, ", ".join(code(label) for label in each.labels), each.text)
        for each in declared_metrics()
    ]
    return page("Metrics", _INTRODUCTION, table(("name", "type", "labels", "meaning"), rows))


def declared_metrics() -> tuple[Declared, ...]:
    """Find all metrics, sorted by name, each once."""
    root = Path(controlplane.__file__).parent
    found: dict[str, Declared] = {}
    for path in sorted(root.rglob("*.py")):
        if path.relative_to(root).parts[0] != _SIMULATOR:
            found |= {each.name: each for each in _declarations(ast.parse(path.read_text("utf-8")))}
    return tuple(found[name] for name in sorted(found))


def _declarations(tree: ast.Module) -> Iterator[Declared]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        called = getattr(function, "id", None) or getattr(function, "attr", "")
        texts = [each.value for each in node.args[:2] if isinstance(each, ast.Constant)]
        if called in _KINDS and len(texts) == 2 and str(texts[0]).startswith(_PREFIXES):  # noqa: PLR2004
            kind = _KINDS[called]
            name = str(texts[0])
            suffix = _SUFFIXES.get(kind, "")
            yield Declared(name.removesuffix(suffix) + suffix, kind, _labels(node), str(texts[1]))


def _labels(call: ast.Call) -> tuple[str, ...]:
    named = [each.value for each in call.keywords if each.arg in {"labels", "labelnames"}]
    for node in [*call.args[2:3], *named]:
        if isinstance(node, ast.List | ast.Tuple):
            return tuple(str(each.value) for each in node.elts if isinstance(each, ast.Constant))
    return ()
