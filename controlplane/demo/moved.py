"""How many keys moved between Envoy's hosts, by the table Trimtab predicts for it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from controlplane.core.maglev import Table, build_table, moves
from controlplane.model.strategy import DEFAULT_TABLE_SIZE


class MovedKeys:
    """Adds up what share of keys each change of weights moved."""

    def __init__(self) -> None:
        self._weights: dict[str, int] = {}
        self._table: Table | None = None
        self.total_ratio = 0.0
        """Sum of the shares moved by all changes seen so far."""
        self.changes = 0

    def see(self, weights: Mapping[str, int]) -> None:
        """Take in the weights Envoy has now (host → weight)."""
        if not weights or weights == self._weights:
            return
        table = _table(weights)
        if self._table is not None:
            self.total_ratio += moves(self._table, table).share
            self.changes += 1
        self._weights, self._table = dict(weights), table


def _table(weights: Mapping[str, int]) -> Table:
    keys = sorted(weights)
    shares = np.array([weights[key] for key in keys], dtype=np.float64) / sum(weights.values())
    return build_table(keys, shares, DEFAULT_TABLE_SIZE)
