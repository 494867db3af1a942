"""Every metric, the limits on it, and how they are judged."""
