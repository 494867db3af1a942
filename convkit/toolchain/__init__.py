"""The stages' tools: which packages each needs, which releases serve, where they are installed."""
