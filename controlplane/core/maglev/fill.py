"""Filling the table: each turn takes the next free slot of its host's permutation."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Indexes32 = NDArray[np.int32]
Indexes64 = NDArray[np.int64]


class Fill(Protocol):
    """The exchangeable part of table building: a compiled one must give the same answer."""

    def __call__(self, order: Indexes32, starts: Indexes64, steps: Indexes64) -> Indexes32:
        """Give each turn of `order` a slot; returns the owner of each slot, shape of `order`.

        Host h visits the slots ``starts[h] + i * steps[h]`` modulo the table size (a prime, the
        length of `order`), ``i = 0, 1, …``. Each of its turns takes the next one that is free.
        """
        ...


def fill_in_turn(order: Indexes32, starts: Indexes64, steps: Indexes64) -> Indexes32:
    """Fill turn by turn: the definition, as a loop."""
    size = len(order)
    owners = [-1] * size
    cursor = starts.tolist()
    stride = steps.tolist()
    for host in order.tolist():
        slot = cursor[host]
        step = stride[host]
        while owners[slot] >= 0:
            slot += step
            if slot >= size:
                slot -= size
        owners[slot] = host
        slot += step
        cursor[host] = slot if slot < size else slot - size
    return np.array(owners, dtype=np.int32)
