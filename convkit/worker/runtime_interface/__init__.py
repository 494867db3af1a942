"""What every runtime implements, and what all of them share."""
