"""From a torch module to an ML program, by coremltools."""
