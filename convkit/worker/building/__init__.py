"""What the build stages of all runtimes share."""
