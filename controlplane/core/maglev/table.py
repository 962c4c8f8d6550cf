"""The Maglev table of one priority."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import xxhash
from numpy.typing import NDArray

from controlplane.core.maglev.fill import Fill, fill_in_turn
from controlplane.core.maglev.turns import turn_order
from controlplane.model.signals import Floats
from controlplane.model.strategy import MAX_TABLE_SIZE


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Who owns each slot. `owners` holds indexes into `keys`, shape (slots,), read-only."""

    keys: tuple[str, ...]
    owners: NDArray[np.int32]

    def __post_init__(self) -> None:
        """Freeze the array."""
        self.owners.setflags(write=False)

    @property
    def size(self) -> int:
        """Number of slots."""
        return len(self.owners)

    def owner(self, request_hash: int) -> str:
        """Tell the key of the host that a request with this hash goes to."""
        return self.keys[int(self.owners[request_hash % self.size])]

    def slots(self) -> NDArray[np.int64]:
        """Count the slots of each host, shape (keys,)."""
        return np.bincount(self.owners, minlength=len(self.keys))


def build_table(
    keys: Sequence[str], weights: Floats, table_size: int, *, fill: Fill = fill_in_turn
) -> Table:
    """Build the table that Envoy 1.40 builds for these hosts.

    `keys` are the eligible hosts of one priority in any order, and stay in that order in the result;
    `weights` are their normalised weights (`controlplane.core.maglev.weights`), shape (keys,).
    `table_size` is a prime. With a single host Envoy builds no table; the constant one returned
    here gives the same answers.

    Raises:
        ValueError: if there is no host, a key repeats (Envoy would order the two by memory address),
            shapes differ, a weight is not finite and positive, or the size is out of range.
    """
    _check(keys, weights, table_size)
    if len(keys) == 1:
        return Table(tuple(keys), np.zeros(table_size, dtype=np.int32))
    encoded = [key.encode() for key in keys]
    by_key = np.array(sorted(range(len(keys)), key=encoded.__getitem__), dtype=np.int32)
    starts = np.array([xxhash.xxh64_intdigest(encoded[i]) % table_size for i in by_key], dtype=np.int64)
    steps = np.array(
        [xxhash.xxh64_intdigest(encoded[i], 1) % (table_size - 1) + 1 for i in by_key], dtype=np.int64
    )
    order = turn_order(weights[by_key], table_size)
    return Table(tuple(keys), by_key[fill(order, starts, steps)])


def _check(keys: Sequence[str], weights: Floats, table_size: int) -> None:
    if not keys or len(set(keys)) != len(keys):
        msg = "a table needs at least one host, and each key once"
        raise ValueError(msg)
    if weights.shape != (len(keys),) or not (np.isfinite(weights) & (weights > 0)).all():
        msg = "a table needs one finite, positive weight for each key"
        raise ValueError(msg)
    if not 1 < table_size <= MAX_TABLE_SIZE:
        msg = f"table size {table_size} is not between 2 and {MAX_TABLE_SIZE}"
        raise ValueError(msg)
