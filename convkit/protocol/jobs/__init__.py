"""The jobs of workers, and what a worker imports before it gets one."""
