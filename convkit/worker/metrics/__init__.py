"""How far two tensors differ, and the limits on their difference."""
