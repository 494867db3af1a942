"""`convkit run --repair`: chooses remedies, tries them, keeps what helps."""
