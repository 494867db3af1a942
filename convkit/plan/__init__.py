"""Pure planning: a recipe and facts give stages with keys."""
