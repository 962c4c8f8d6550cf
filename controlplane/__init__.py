"""Trimtab: an Envoy xDS control plane that steers Maglev weights from live metrics."""

__version__ = "0.1.0"
