"""What people report in public trackers, as small models of our own: `python -m reports`."""
