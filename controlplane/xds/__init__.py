"""Level 2, the way out: plans become resources, resources reach Envoy."""
