"""Write the reference pages into a directory."""

from __future__ import annotations

import sys
from pathlib import Path

from controlplane.cli.reference import pages


def main() -> None:
    """Write every page into the directory given as the only argument."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/reference")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, "utf-8")
        sys.stderr.write(f"{folder / name}\n")


if __name__ == "__main__":
    main()
