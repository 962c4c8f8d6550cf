"""Filling the table: each turn takes the next free slot of its host's permutation."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

_SORTED_AT_ONCE = 32_768
"""Size of the matrix (hosts, free slots) sorted for the late turns: about the best on a 2-core server."""

_LATE_PART = 16
"""At least this many slots for each late turn: with fewer, walking is cheaper than sorting."""

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
    """Fill turn by turn, in two parts that together are the definition.

    While most slots are free, walking a permutation finds one within a few steps. The last E turns
    would walk ``size / E`` slots each, most of all the work, so for them the E free slots are put in
    the order of each host's permutation instead, and only those are looked at. (Filling blocks of
    turns at once with numpy, to a fixed point, was tried: right, but no faster than this loop.)
    """
    late = _late_turns(len(starts), size=len(order))
    owners, cursors = _walk(order[: len(order) - late], starts, steps, size=len(order))
    _fill_late(owners, order[len(order) - late :], cursors, steps)
    return owners


def _late_turns(hosts: int, *, size: int) -> int:
    """Choose how many free slots to sort for each of the hosts that still have a turn."""
    return min(max(_SORTED_AT_ONCE // hosts, math.isqrt(_SORTED_AT_ONCE)), size // _LATE_PART)


def _walk(
    order: Indexes32, starts: Indexes64, steps: Indexes64, *, size: int
) -> tuple[Indexes32, Indexes64]:
    """Take slots by walking; returns the owners (-1: free) and where each host stands."""
    owners = [-1] * size
    cursors = starts.tolist()
    strides = steps.tolist()
    for host in order.tolist():
        slot = cursors[host]
        stride = strides[host]
        while owners[slot] >= 0:
            slot += stride
            if slot >= size:
                slot -= size
        owners[slot] = host
        slot += stride
        cursors[host] = slot if slot < size else slot - size
    return np.array(owners, dtype=np.int32), np.array(cursors, dtype=np.int64)


def _fill_late(owners: Indexes32, order: Indexes32, cursors: Indexes64, steps: Indexes64) -> None:
    """Take the slots that are left, in place; there are as many as turns in `order`.

    A host meets slot s after ``(s - cursor) / step`` more steps, a division modulo the (prime) size.
    """
    size = len(owners)
    free = np.flatnonzero(owners < 0)
    hosts, turns = np.unique(order, return_inverse=True)
    inverses = np.array([pow(step, -1, size) for step in steps[hosts].tolist()], dtype=np.int64)
    distances = (free - cursors[hosts, np.newaxis]) % size * inverses[:, np.newaxis] % size
    by_distance = np.sort(distances * len(free) + np.arange(len(free)), axis=1) % len(free)
    ahead = [iter(row) for row in by_distance.tolist()]
    takers = [-1] * len(free)
    for turn in turns.tolist():
        for candidate in ahead[turn]:
            if takers[candidate] < 0:
                takers[candidate] = turn
                break
    owners[free] = hosts[takers]
