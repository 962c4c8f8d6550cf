"""`equal`: the same weight for every endpoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from controlplane.core.strategies.base import Law, LawResult, LawView
from controlplane.model.strategy import DOCUMENT_CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualParameters:
    """`equal` has no parameters."""

    __pydantic_config__: ClassVar[Any] = DOCUMENT_CONFIG


def weigh(view: LawView, _parameters: EqualParameters) -> LawResult:
    """Give every endpoint 1."""
    return LawResult(np.ones(len(view.topology.endpoints)))


EQUAL: Final = Law(
    name="equal",
    summary="the same weight for every endpoint",
    parameters=EqualParameters,
    weigh=weigh,
    needs_signals=False,
)
