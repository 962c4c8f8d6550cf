"""`static`: weights from the document.

Guards act on static weights too: a change of the document arrives step by step, and no endpoint
leaves the bounds of `guards`.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Final, TypeAlias

import numpy as np
from annotated_types import Gt, Interval

from controlplane.core.strategies.base import Law, LawResult, LawView
from controlplane.model.strategy import DOCUMENT_CONFIG
from controlplane.model.topology import EndpointId

StaticWeight: TypeAlias = Annotated[float, Gt(0), Interval(le=1e9)]

MAX_SPREAD: Final = 100.0
"""Heaviest over lightest weight that a document may ask for: the range of the default clip."""

MAX_SHARE: Final = 0.9
"""Most of the listed weight that one endpoint may have beside others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticParameters:
    """Weights by endpoint."""

    __pydantic_config__: ClassVar[Any] = DOCUMENT_CONFIG
    weights: Mapping[EndpointId, StaticWeight] = field(default_factory=dict)
    """Endpoint (`ip:port`) → weight. Only ratios matter."""
    default: StaticWeight | None = None
    """Weight of endpoints that are not listed. Unset: the median of the listed ones."""

    def __post_init__(self) -> None:
        """Refuse weights that put (nearly) everything on one host.

        Raises:
            ValueError: if the spread is above `MAX_SPREAD`, or one of several listed endpoints has
                more than `MAX_SHARE` of their weight.
        """
        listed = sorted(self.weights.values())
        if not listed:
            return
        if max(listed[-1], self.unlisted) > MAX_SPREAD * min(listed[0], self.unlisted):
            raise ValueError(f"the heaviest weight is more than {MAX_SPREAD:.0f} × the lightest")
        if len(listed) > 1 and listed[-1] > MAX_SHARE * sum(listed):
            raise ValueError(f"one endpoint has more than {MAX_SHARE:.0%} of all listed weight")

    @property
    def unlisted(self) -> float:
        """Weight of endpoints that are not listed."""
        if self.default is not None:
            return self.default
        return statistics.median(self.weights.values()) if self.weights else 1.0


def weigh(view: LawView, parameters: StaticParameters) -> LawResult:
    """Look every endpoint up in the document; warn of listed endpoints that do not exist."""
    ids = view.topology.ids
    unlisted = parameters.unlisted
    raw = np.array([parameters.weights.get(each, unlisted) for each in ids], dtype=np.float64)
    absent = sorted(set(parameters.weights) - set(ids))
    warnings = (f"{len(absent)} listed endpoints do not exist: {', '.join(absent[:3])}",) if absent else ()
    return LawResult(raw, warnings=warnings)


STATIC: Final = Law(
    name="static",
    summary="weights from the document",
    parameters=StaticParameters,
    weigh=weigh,
    needs_signals=False,
)
