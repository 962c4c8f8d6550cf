"""The xDS protocol over `grpc.aio`: wire, SotW and delta machines, streams, limits."""

from controlplane.xds.server.messages import Node
from controlplane.xds.server.server import XdsServer

__all__ = ["Node", "XdsServer"]
