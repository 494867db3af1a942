"""A benchmark's side in a worker: times one model, on demand, in its own process."""
