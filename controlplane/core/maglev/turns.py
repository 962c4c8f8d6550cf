"""Whose turn it is: the order in which hosts take slots.

Envoy counts rounds ``t = 1, 2, …``; in each, every host in key order takes one slot if
``t * w >= due``, and its `due` then grows by the largest weight. Here the rounds are not walked.
A host's k-th turn (from 0) is due at ``S_k``, the k-fold *sequential* float sum of the largest weight
(``k * wmax`` has other last bits), so it comes in the first round with ``t * w >= S_k``, but at
most one turn a round. Sorting all turns by (round, host) gives the order.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controlplane.model.signals import Floats

_SPARE = 3
"""Turns beyond the estimate per host, and rounds beyond the estimate: rounding moves each by one."""


def turn_order(weights: Floats, table_size: int) -> NDArray[np.int32]:
    """List the host of each turn until the table is full, shape (table_size,).

    `weights` are normalised and positive, in key order, shape (hosts,).
    """
    heaviest = weights.max()
    ratios = weights / heaviest
    rounds = int(np.ceil(table_size / ratios.sum())) + _SPARE
    turns = (rounds * ratios).astype(np.int64) + _SPARE
    host = np.repeat(np.arange(len(weights)), turns)
    ordinal = np.arange(len(host)) - np.repeat(np.cumsum(turns) - turns, turns)
    due = np.concatenate(([0.0], np.cumsum(np.full(int(turns.max()), heaviest))))[ordinal]
    earliest = _first_round(due, weights[host], rounds)
    # One turn a round: round_k = max(round_{k-1} + 1, earliest_k). Subtracting k makes that a running
    # maximum; a block per host, higher than all before it, restarts the maximum at each host.
    block = host * np.int64(2 * (rounds + int(turns.max())))
    taken = np.maximum.accumulate(earliest - ordinal + block) - block + ordinal
    by_turn = np.sort(taken * len(weights) + host)[:table_size] % len(weights)
    return by_turn.astype(np.int32)


def _first_round(due: Floats, weights: Floats, rounds: int) -> NDArray[np.int64]:
    """Find the first ``t >= 1`` with ``t * w >= due``, judged by the float product as Envoy does.

    Rounds that cannot matter are cut at `rounds + 1`.
    """
    guess = np.ceil(due / weights)
    guess -= (guess - 1) * weights >= due
    guess += guess * weights < due
    return np.clip(guess, 1, rounds + 1).astype(np.int64)
