"""What a search speaks of: causes, places, regions, and changes of a graph."""
