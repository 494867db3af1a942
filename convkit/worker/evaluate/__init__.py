"""Task metrics: runs the user's data through the original and a built model, and scores both."""
