"""Rendering PromQL: one instant query per way to read a signal, for the whole service at once.

An instant vector hides how old a sample is (it may be five minutes), so each query asks for the
values *and* the samples' own timestamps, told apart by an extra label::

    label_replace(<values by instance>, "trimtab_part", "value", …)
    or label_replace(min by (instance) (timestamp(<the raw series>)), "trimtab_part", "timestamp", …)

Aliases are joined with ``or`` after aggregation: for each endpoint the first that exists wins.
Names are validated and values escaped; nothing from a strategy document reaches a query as it is,
except a custom query, which is the document's own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import assert_never

from controlplane.model.problems import Problem, Rejected
from controlplane.model.strategy import SignalsSpec
from controlplane.sources import catalogue
from controlplane.sources.measures import (
    Difference,
    Entry,
    Expression,
    Gauge,
    Group,
    Increase,
    Leaf,
    Matcher,
    Measure,
    Quantile,
    Rate,
    Ratio,
    Series,
    Sum,
    has_value_gaps,
    leaves,
)

PART_LABEL = "trimtab_part"
VALUE_PART = "value"
TIMESTAMP_PART = "timestamp"

_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*\Z")
_RESERVED = frozenset({PART_LABEL, "le", "__name__"})
_BARE_SELECTOR = re.compile(
    r"""\s*[a-zA-Z_:][a-zA-Z0-9_:]*\s*(\{(?:[^{}"'`#\\]|"(?:[^"\\\n]|\\.)*")*\})?\s*\Z"""
)
_OPERATORS = frozenset({"sum", "min", "max", "avg", "group", "count", "stddev", "stdvar", "nan", "inf"})


@dataclass(frozen=True, slots=True)
class Query:
    """One query, with what is needed to read its answer.

    `join_label` names the endpoint in each row. `is_timestamped` says that rows come in two parts;
    without it the evaluation time is all that is known of a row's age. `has_value_gaps` marks
    queries whose NaN means "nothing happened".
    """

    signal: str
    group: Group | None
    """`None` for a custom query."""
    join_label: str
    text: str
    is_timestamped: bool = True
    has_value_gaps: bool = False


@dataclass(frozen=True, slots=True)
class _Context:
    join_label: str
    selector: str
    window: str


def plan(spec: SignalsSpec) -> tuple[Query, ...] | Rejected:
    """Render every query of a service, in order of preference within each signal.

    A custom query replaces the catalogue's signal of the same name. Rejected if a label name in the
    document is not a PromQL label name, or a value is not Unicode text.
    """
    if problems := _problems(spec):
        return Rejected(tuple(problems))
    own = tuple(_custom(name, text, spec.join_label) for name, text in sorted(spec.custom.items()))
    found = [entry for entry in catalogue.entries(spec.engine) if entry.signal not in spec.custom]
    return (*(_render(entry, spec) for entry in found), *own)


def quote(value: str) -> str:
    """Write a PromQL string literal (double-quoted, with Go's escapes)."""
    plain = value.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(_escape_control(character) for character in plain) + '"'


def duration(seconds: float) -> str:
    """Write a PromQL duration, in whole milliseconds and at least one."""
    return f"{max(1, round(seconds * 1000))}ms"


def join_label(group: Group, spec: SignalsSpec) -> str:
    """Name the label that says which endpoint a group's series describe."""
    return catalogue.ENVOY_ENDPOINT_LABEL if group == "envoy" else spec.join_label


def _problems(spec: SignalsSpec) -> list[Problem]:
    names = [("signals.join_label", spec.join_label)]
    names += [(f"signals.selector.{name}", name) for name in spec.selector]
    problems = [
        Problem(path, "is not a usable PromQL label name", name[:64])
        for path, name in names
        if not _LABEL_NAME.match(name) or name in _RESERVED
    ]
    texts = [(f"signals.selector.{name}", value) for name, value in spec.selector.items()]
    texts += [(f"signals.custom.{name}", text) for name, text in spec.custom.items()]
    return problems + [
        Problem(path, "is not Unicode text") for path, text in texts if not _is_unicode(text)
    ]


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _escape_control(character: str) -> str:
    if character == "\n":
        return "\\n"
    return f"\\x{ord(character):02x}" if character < " " or character == "\x7f" else character


def _custom(signal: str, text: str, label: str) -> Query:
    """Ask for timestamps only where that is certainly safe: a selector and nothing else.

    ``timestamp()`` of any other expression is the evaluation time, and pasting free text into a
    larger query could change its meaning.
    """
    matched = _BARE_SELECTOR.match(text)
    is_selector = matched is not None and text.strip().lower() not in _OPERATORS
    if not is_selector:
        return Query(signal, None, label, text, is_timestamped=False)
    return Query(signal, None, label, _two_parts(text.strip(), f"timestamp({text.strip()})"))


def _render(entry: Entry, spec: SignalsSpec) -> Query:
    label = join_label(entry.group, spec)
    matchers = [Matcher(name, value) for name, value in sorted(spec.selector.items())]
    selector = _matchers(tuple(matchers)) if entry.group == "engine" else ""
    context = _Context(label, selector, duration(spec.window_seconds))
    values = " or ".join(f"({_measure(measure, context)})" for measure in entry.measures)
    # Many Envoys see one endpoint: the newest of them tells its age. Elsewhere a value is as old as
    # its oldest part.
    oldest = "max" if entry.group == "envoy" else "min"
    stamps = " or ".join(
        f"{oldest} by ({label}) (timestamp({_selector(_raw(next(leaves(measure.expression))), context)}))"
        for measure in entry.measures
    )
    has_gaps = any(has_value_gaps(measure.expression) for measure in entry.measures)
    return Query(entry.signal, entry.group, label, _two_parts(values, stamps), has_value_gaps=has_gaps)


def _two_parts(values: str, stamps: str) -> str:
    return " or ".join(
        f'label_replace({text}, "{PART_LABEL}", "{part}", "{PART_LABEL}", "")'
        for text, part in ((values, VALUE_PART), (stamps, TIMESTAMP_PART))
    )


def _measure(measure: Measure, context: _Context) -> str:
    text = _expression(measure.expression, context)
    return text if measure.scale == 1.0 else f"({text}) * {measure.scale!r}"


def _expression(expression: Expression, context: _Context) -> str:
    match expression:
        case Sum(terms):
            return "(" + " + ".join(_expression(term, context) for term in terms) + ")"
        case Difference(left, right):
            taken = _expression(right, context)
            whole = _expression(left, context)
            return f"({whole} - ({taken} or {whole} * 0))"
        case Ratio(top, bottom):
            return f"{_expression(top, context)} / {_expression(bottom, context)}"
        case Gauge() | Rate() | Increase() | Quantile():
            return _leaf(expression, context)
        case _:
            assert_never(expression)


def _leaf(leaf: Leaf, context: _Context) -> str:
    match leaf:
        case Gauge(series):
            return _merge(series, _selector(series, context), context)
        case Rate(series):
            return _merge(series, f"rate({_selector(series, context)}[{context.window}])", context)
        case Increase(series):
            return _merge(series, f"increase({_selector(series, context)}[{context.window}])", context)
        case Quantile(series, quantile):
            buckets = Series(f"{series.metric}_bucket", series.matchers)
            rates = f"rate({_selector(buckets, context)}[{context.window}])"
            return f"histogram_quantile({quantile!r}, sum by ({context.join_label}, le) ({rates}))"
        case _:
            assert_never(leaf)


def _merge(series: Series, vector: str, context: _Context) -> str:
    label = context.join_label
    if series.shards:
        vector = f"max by ({', '.join((label, *series.shards))}) ({vector})"
    return f"{series.merge} by ({label}) ({vector})"


def _raw(leaf: Leaf) -> Series:
    """Choose the series whose timestamps stand for a leaf: one per histogram, not one per bucket."""
    if isinstance(leaf, Quantile):
        return Series(f"{leaf.series.metric}_count", leaf.series.matchers)
    return leaf.series


def _selector(series: Series, context: _Context) -> str:
    conditions = ",".join(part for part in (_matchers(series.matchers), context.selector) if part)
    return f"{series.metric}{{{conditions}}}" if conditions else series.metric


def _matchers(matchers: tuple[Matcher, ...]) -> str:
    return ",".join(
        f"{matcher.label}{'=' if matcher.is_equal else '!='}{quote(matcher.value)}" for matcher in matchers
    )
