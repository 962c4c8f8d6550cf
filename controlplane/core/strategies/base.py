"""What a weight law is: a pure function from signals to raw figures, with its parameters' type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np

from controlplane.core.validation import validate
from controlplane.model.problems import Rejected
from controlplane.model.signals import Floats, SignalTable
from controlplane.model.strategy import Guards
from controlplane.model.topology import ServiceTopology

P = TypeVar("P")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LawView:
    """Everything a law may look at.

    The table's endpoints are the topology's, in the same order. `guards` are there for
    `min_samples` and for judging the loop's gain; a law never applies a guard itself.
    """

    table: SignalTable
    topology: ServiceTopology
    guards: Guards
    window_seconds: float
    """Window of rates and quantiles: turns a rate into a number of samples."""

    def column(self, signal: str) -> Floats:
        """Values of one signal, shape (endpoints,), NaN where unknown."""
        return self.table.column(signal)


@dataclass(frozen=True, slots=True, eq=False)
class LawResult:
    """A law's opinion. Only the ratios of `raw` matter; NaN means no opinion, 0 the least weight.

    `terms` are the named intermediate columns of the arithmetic, each of shape (endpoints,), in the
    order in which they are explained.
    """

    raw: Floats
    terms: Mapping[str, Floats] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Law(Generic[P]):
    """A weight law under its name.

    `parameters` is a frozen dataclass; pydantic validates the document's `parameters` against it.
    `signals` names what the law reads. A law without `needs_signals` has an opinion whatever the
    state of the metrics, so that their loss changes nothing for it.
    """

    name: str
    summary: str
    parameters: type[P]
    weigh: Callable[[LawView, P], LawResult]
    signals: tuple[str, ...] = ()
    needs_signals: bool = True

    def read_parameters(self, document: Mapping[str, Any]) -> P | Rejected:
        """Validate a document's `parameters`; problems have paths that begin with ``parameters``."""
        return validate(self.parameters, document, prefix="parameters")

    def opine(self, view: LawView, document: Mapping[str, Any]) -> LawResult:
        """Apply the law with the document's `parameters`.

        Overflow and division by zero are no errors here: what is not finite in the end is no opinion.

        Raises:
            ValueError: if the parameters are refused (`core.parse` lets no such document through) or
                the law's figures have the wrong shape.
        """
        parameters = self.read_parameters(document)
        if isinstance(parameters, Rejected):
            raise ValueError(f"law `{self.name}`: {parameters}")  # noqa: TRY004 - the value is at fault
        with np.errstate(all="ignore"):
            result = self.weigh(view, parameters)
        count = len(view.topology.endpoints)
        if result.raw.shape != (count,) or any(term.shape != (count,) for term in result.terms.values()):
            raise ValueError(f"law `{self.name}` gave figures for another number of endpoints than {count}")
        return result
