"""How files that are not models are compared: bytes and JSON."""
