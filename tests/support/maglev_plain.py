"""Envoy's Maglev as a plain loop over rounds, written from its description: the independent oracle."""

from __future__ import annotations

from collections.abc import Sequence

import xxhash


def plain_owners(keys: Sequence[str], weights: Sequence[float], table_size: int) -> list[int]:
    """Fill the table round by round; the result indexes `keys`."""
    if len(keys) == 1:
        return [0] * table_size
    hosts = sorted(range(len(keys)), key=lambda index: keys[index].encode())
    slot = {h: xxhash.xxh64_intdigest(keys[h].encode(), 0) % table_size for h in hosts}
    step = {h: xxhash.xxh64_intdigest(keys[h].encode(), 1) % (table_size - 1) + 1 for h in hosts}
    due = dict.fromkeys(hosts, 0.0)
    heaviest = max(weights)
    owners: list[int | None] = [None] * table_size
    filled, t = 0, 0
    while filled < table_size:
        t += 1
        for host in hosts:
            if filled == table_size:
                break
            if t * weights[host] < due[host]:
                continue
            due[host] += heaviest
            while owners[slot[host]] is not None:
                slot[host] = (slot[host] + step[host]) % table_size
            owners[slot[host]] = host
            slot[host] = (slot[host] + step[host]) % table_size
            filled += 1
    return [owner for owner in owners if owner is not None]
