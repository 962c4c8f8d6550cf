"""Level 2, the way in: everything Trimtab reads from the world, behind the ports of `ports`."""
