"""Envoy 1.40's Maglev, bit for bit: which host gets a key, now and after a change of weights.

The way from a request to a host, one module each::

    request_hash  request + hash policies → 64-bit hash
    hosts         endpoints, health and weights → hosts as Envoy sees them
    weights       hosts of one priority → normalised doubles, in Envoy's order of operations
    table         keys + normalised weights → the table (`turns` orders, `fill` fills)
    priorities    health counts → load by priority, panic
    pick          hash → host, retries and canary split included
    disruption    two tables → which share of keys moves, from where to where

Everything here is checked slot by slot against the real Envoy in `tests/integration`.
"""

from controlplane.core.maglev.disruption import Moves, moves, slots_by_host
from controlplane.core.maglev.hosts import EdsHealth, Host, hosts_of
from controlplane.core.maglev.pick import Balancer, build_balancer, canary_cluster
from controlplane.core.maglev.request_hash import Request, request_hash
from controlplane.core.maglev.table import Table, build_table

__all__ = [
    "Balancer",
    "EdsHealth",
    "Host",
    "Moves",
    "Request",
    "Table",
    "build_balancer",
    "build_table",
    "canary_cluster",
    "hosts_of",
    "moves",
    "request_hash",
    "slots_by_host",
]
