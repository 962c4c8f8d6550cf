"""Guards: limits between what the law wants and what Envoy gets."""

from controlplane.core.guards.context import Guard, GuardContext, Outage
from controlplane.core.guards.pipeline import Pipeline, run
from controlplane.core.guards.publication import Occasion, Verdict, judge, moved_share
from controlplane.core.guards.quantise import quantise

__all__ = [
    "Guard",
    "GuardContext",
    "Occasion",
    "Outage",
    "Pipeline",
    "Verdict",
    "judge",
    "moved_share",
    "quantise",
    "run",
]
