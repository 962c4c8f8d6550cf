"""Level 3: what operators see: admin API, metrics, health, logs."""
