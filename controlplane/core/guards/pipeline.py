"""The guards in order.

`merit` ends with the shares that the next decision starts from; `delivery` shapes what is sent now
(a warming endpoint has its full merit and less delivery). A further guard, such as a budget for
moved keys, is one more function in `delivery`.
"""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.core.guards.context import Guard, GuardContext
from controlplane.core.guards.emergency import emergency
from controlplane.core.guards.evidence import fill, hold
from controlplane.core.guards.limits import clip, dead_band, floor, panic, slow_start, step
from controlplane.core.guards.smoothing import smooth
from controlplane.model.decision import Stage
from controlplane.model.signals import Floats


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Two rows of guards."""

    merit: tuple[Guard, ...] = (fill, hold, emergency, smooth, clip, step)
    delivery: tuple[Guard, ...] = (slow_start, floor, panic, dead_band)

    def then(self, guard: Guard) -> Pipeline:
        """Give a pipeline with one more guard at the end."""
        return Pipeline(self.merit, (*self.delivery, guard))


def run(guards: tuple[Guard, ...], context: GuardContext, shares: Floats) -> tuple[Stage, ...]:
    """Apply guards one after the other; each stage's values are the next one's input. Values are frozen."""
    stages: list[Stage] = []
    for guard in guards:
        stage = guard(context, shares)
        shares = stage.values
        shares.setflags(write=False)
        stages.append(stage)
    return tuple(stages)
