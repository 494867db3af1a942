"""How far two tensors differ, and the limits that this is held to."""
