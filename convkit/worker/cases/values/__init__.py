"""Draws the values of inputs: numbers, masks, pictures, sounds."""
