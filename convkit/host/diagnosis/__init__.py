"""Commands that look into one run, recipe or file: `diagnose`, `view`, a preview of precision."""
