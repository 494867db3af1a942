"""What several commands read: options, questions, and plain words for wrong options."""
