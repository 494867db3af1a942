"""Pure planning: turns a recipe and facts into stages with keys."""
