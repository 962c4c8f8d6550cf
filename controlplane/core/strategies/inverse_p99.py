"""`inverse_p99`: weight by tail latency, in steps or continuously.

Weights that follow latency feed back on themselves: more traffic makes a host slower, which takes
traffic away again. In a queue of utilisation ρ, latency goes like 1/(1-ρ), so a relative change of
load appears ρ/(1-ρ) times as large in latency. With exponent g, smoothing gain α and answers that
arrive d updates late, the share's deviation x follows

    x[k+1] = (1-α)·x[k] - α·g·ρ/(1-ρ)·x[k-d]

which without delay is stable for α < 2(1-ρ)/(1-ρ+g·ρ), that is 2(1-ρ) for g = 1. The law computes
the largest root for the strategy's own gain and warns when it is not inside the unit circle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Literal

import numpy as np
from annotated_types import Gt, Interval, Len, Lt

from controlplane.core.strategies.base import Law, LawResult, LawView
from controlplane.model.signals import Floats, Signal
from controlplane.model.strategy import DOCUMENT_CONFIG, Guards, Seconds

DELAY_UPDATES: Final = 2
"""Updates until a new weight shows in the latency: one to publish, one to measure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyStep:
    """One row of the table: a latency below the limit gives this weight."""

    __pydantic_config__: ClassVar[Any] = DOCUMENT_CONFIG
    below_seconds: Seconds
    weight: Annotated[float, Gt(0), Interval(le=1000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class InverseP99Parameters:
    """How latency becomes weight."""

    __pydantic_config__: ClassVar[Any] = DOCUMENT_CONFIG
    mode: Literal["steps", "continuous"] = "steps"
    """`steps` looks the latency up in a table; `continuous` takes 1/latency to the `exponent`."""
    steps: Annotated[tuple[LatencyStep, ...], Len(1, 32)] = (
        LatencyStep(below_seconds=0.05, weight=1.0),
        LatencyStep(below_seconds=0.2, weight=0.7),
    )
    """Rows with rising limits."""
    otherwise: Annotated[float, Gt(0), Interval(le=1000)] = 0.3
    """Weight above the last limit."""
    exponent: Annotated[float, Gt(0), Interval(le=4)] = 1.0
    """Exponent of the continuous mode; below 1 is calmer."""
    assumed_utilization: Annotated[float, Gt(0), Lt(1)] = 0.8
    """Utilisation for which the stability of the continuous mode is judged."""

    def __post_init__(self) -> None:
        """Check that the limits rise.

        Raises:
            ValueError: if they do not.
        """
        limits = [step.below_seconds for step in self.steps]
        if limits != sorted(set(limits)):
            raise ValueError("the limits of `steps` do not rise")


def weigh(view: LawView, parameters: InverseP99Parameters) -> LawResult:
    """Weigh by p99 latency; endpoints below `min_samples` have no opinion."""
    latency = view.column(Signal.LATENCY_P99_SECONDS)
    samples = view.column(Signal.WINDOW_REQUESTS)
    # An unknown number of samples is no reason to distrust a quantile: own PromQL may have no count.
    trusted = np.where(samples < view.guards.min_samples, np.nan, latency)
    terms = {"p99_seconds": latency, "window_requests": samples}
    if parameters.mode == "steps":
        return LawResult(_look_up(trusted, parameters), terms)
    raw = np.maximum(trusted, 1e-6) ** -parameters.exponent
    return LawResult(raw, terms, _stability_warnings(view.guards, parameters))


def _look_up(latency: Floats, parameters: InverseP99Parameters) -> Floats:
    limits = np.array([step.below_seconds for step in parameters.steps])
    weights = np.array([*(step.weight for step in parameters.steps), parameters.otherwise])
    rows = np.searchsorted(limits, latency, side="right")
    return np.where(np.isnan(latency), np.nan, weights[rows])


def is_stable(gain: float, feedback: float, delay: int = DELAY_UPDATES) -> bool:
    """Tell whether x[k+1] = (1-gain)·x[k] - gain·feedback·x[k-delay] dies out.

    True if every root of z^(delay+1) - (1-gain)·z^delay + gain·feedback lies inside the unit circle.
    """
    polynomial = np.zeros(delay + 2)
    polynomial[0] = 1.0
    polynomial[1] -= 1.0 - gain
    polynomial[-1] += gain * feedback
    return bool(np.abs(np.roots(polynomial)).max() < 1.0)


def _stability_warnings(guards: Guards, parameters: InverseP99Parameters) -> tuple[str, ...]:
    load = parameters.assumed_utilization
    feedback = parameters.exponent * load / (1.0 - load)
    tau = max(guards.tau_down_seconds, 1e-9)
    if is_stable(-float(np.expm1(-guards.interval_seconds / tau)), feedback):
        return ()
    enough = next(
        tau * factor
        for factor in np.geomspace(1.1, 1e15, 400)
        if is_stable(-float(np.expm1(-guards.interval_seconds / (tau * factor))), feedback)
    )
    warning = (
        f"weights that follow latency are unstable at {load:.0%} utilisation: raise "
        f"`guards.tau_down_seconds` to {enough:.0f} or lower `parameters.exponent`"
    )
    return (warning,)


INVERSE_P99: Final = Law(
    name="inverse_p99",
    summary="weight by tail latency, in steps or continuously",
    parameters=InverseP99Parameters,
    weigh=weigh,
    signals=(Signal.LATENCY_P99_SECONDS,),
)
