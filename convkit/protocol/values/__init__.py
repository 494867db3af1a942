"""Values that both processes hold: frozen dataclasses, and what two of them share."""
