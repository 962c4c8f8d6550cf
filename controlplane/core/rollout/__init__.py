"""The canary state machine: one pure step a tick.

::

    idle ──► starting ──► progressing(0..n) ──► promoting ──► promoted
      ▲          │            │    ▲               │             │
      │          │            ▼    │               │             │
      │          │           paused (document, gate, no data)    │
      │          └────────────┴────┬───────────────┴─────────────┘
      │  `retry` rises             ▼   breach, no data too long, canary gone, abort
      └── rolled_back ◄── rolling_back

`failed_config` is an `idle` with a document that cannot run. What holds in every tick:

- weight rises only on a passing verdict after the hold; lost data, errors and pauses keep it;
- a breach takes it to 0 in the same tick, whatever the phase, and quarantines the document;
- a canary without a healthy endpoint has weight 0, and is never promoted.

A promoted document is no longer judged: its baseline may be long gone. It ends when people abort or
remove it, or when the canary has no healthy endpoint left and the baseline has.
"""

from controlplane.core.rollout.events import Event
from controlplane.core.rollout.identity import hash_of
from controlplane.core.rollout.machine import step
from controlplane.core.rollout.tick import ACKED_RATIO, parts_of

__all__ = ["ACKED_RATIO", "Event", "hash_of", "parts_of", "step"]
