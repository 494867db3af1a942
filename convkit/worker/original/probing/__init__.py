"""What the original does when it is run: what it accepts, what it depends on."""
