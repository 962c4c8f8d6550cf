"""Level 4: the command line. Parses, calls, prints."""
