"""Run every benchmark and print its table."""
