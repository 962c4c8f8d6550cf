"""Level 0: the frozen values that rooms hand to each other. No behaviour beyond checking at birth."""
