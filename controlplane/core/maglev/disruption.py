"""What a new table would do to the keys of the old one: exact, not estimated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from controlplane.core.maglev.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Moves:
    """Slots that change hands. A slot is one `table_size`-th of all keys.

    `by_pair` maps (source key, target key) to slots, largest first.
    """

    table_size: int
    moved_slots: int
    by_pair: Mapping[tuple[str, str], int]

    @property
    def share(self) -> float:
        """Share of all keys that move, 0 to 1."""
        return self.moved_slots / self.table_size


def moves(before: Table, after: Table) -> Moves:
    """Compare two tables slot by slot; their hosts may differ.

    Raises:
        ValueError: if the sizes differ (every slot then means other keys).
    """
    if before.size != after.size:
        msg = f"tables of {before.size} and {after.size} slots cannot be compared"
        raise ValueError(msg)
    number = {key: index for index, key in enumerate(dict.fromkeys(before.keys + after.keys))}
    names = tuple(number)
    source = _renumber(before, number)
    target = _renumber(after, number)
    is_moved = source != target
    pairs = source[is_moved] * len(number) + target[is_moved]
    found, slots = np.unique(pairs, return_counts=True)
    largest_first = np.argsort(-slots, kind="stable")
    return Moves(
        table_size=before.size,
        moved_slots=len(pairs),
        by_pair={
            (names[pair // len(number)], names[pair % len(number)]): count
            for pair, count in zip(
                found[largest_first].tolist(), slots[largest_first].tolist(), strict=True
            )
        },
    )


def moved_share(before: Table, after: Table) -> float:
    """Give only the share of keys that move, 0 to 1, for tables over the same keys in the same order.

    Faster than `moves`, for searches that build many tables.

    Raises:
        ValueError: if the keys or the sizes differ.
    """
    if before.keys != after.keys or before.size != after.size:
        msg = "`moved_share` compares tables over the same keys and size"
        raise ValueError(msg)
    return float(np.count_nonzero(before.owners != after.owners)) / before.size


def slots_by_host(table: Table) -> dict[str, int]:
    """Count the slots of each host, in the order of the table's keys, zeros included."""
    return dict(zip(table.keys, table.slots().tolist(), strict=True))


def _renumber(table: Table, number: Mapping[str, int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    renumbered: np.ndarray[tuple[int], np.dtype[np.int64]] = np.array(
        [number[key] for key in table.keys], dtype=np.int64
    )[table.owners]
    return renumbered
