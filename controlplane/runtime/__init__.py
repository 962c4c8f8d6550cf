"""Level 3: clock, tick loop and supervision."""
