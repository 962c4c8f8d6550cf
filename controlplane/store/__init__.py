"""Level 2: what outlives the process: the decision log and the checkpoint."""
