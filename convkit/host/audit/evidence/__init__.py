"""Evidence: a run in one file, for somebody who has neither its home nor convkit."""
