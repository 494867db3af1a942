"""What a model's code may ask the machine, and today's answers."""
