"""Run the command line with ``python -m controlplane``."""

from controlplane.cli.main import main

if __name__ == "__main__":
    main()
