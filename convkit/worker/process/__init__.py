"""A worker's process: its start, its jobs, the files it opens."""
