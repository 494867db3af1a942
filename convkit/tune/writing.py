"""Adds a candidate to a recipe's text, as a target. Pure."""

from convkit.recipe.changes import Content, changed
from convkit.recipe.editing import edited
from convkit.recipe.loading import LoadedRecipe, parse_recipe
from convkit.record.tune import Candidate


def with_candidate(loaded: LoadedRecipe, candidate: Candidate) -> str:
    """Return the recipe's text with a candidate among its targets; unchanged if it is there.

    A candidate that differs in its number of threads is the target itself: threads belong to where
    a model is served. Raises EditError if the text cannot be edited, RecipeError if the result is
    no recipe.
    """
    content: Content = loaded.document.content
    if candidate.target in content["targets"].values():
        return loaded.text
    wanted = changed(content, {f"targets.{candidate.name}": candidate.target})
    text = edited(loaded.text, wanted)
    parse_recipe(text, loaded.path)
    return text
