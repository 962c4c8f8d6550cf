"""The reference pages, generated from what they describe: `python -m controlplane.cli.reference DIR`."""

from controlplane.cli.reference.pages import pages

__all__ = ["pages"]
