"""What a client should have, at which version, in which order. Opaque bytes; no protocol."""
