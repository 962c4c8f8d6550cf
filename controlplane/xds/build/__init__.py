"""The only place that knows `envoy_data_plane`: plans become encoded resources."""

from controlplane.xds.build.snapshot import SnapshotBuilder

__all__ = ["SnapshotBuilder"]
