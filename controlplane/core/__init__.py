"""Level 1: pure decisions. Data and `now` in, data out; no I/O, clock, async, protobuf or randomness."""
