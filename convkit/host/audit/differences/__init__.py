"""How two runs, and two built files, differ."""
