"""TFLite models as graphs, for the search for causes."""
