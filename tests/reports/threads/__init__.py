"""The reports, one module per tracker. Each is modeled on what its thread says; no code is copied."""
