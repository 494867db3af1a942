"""What host and workers say to each other. Standard library only, except for `numpy_dtypes`."""
