"""Drafts a recipe as `convkit init` does. If only running the model shows its inputs, it runs in an
environment that can.
"""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path

from convkit.host.draft.encoder_and_decoder import draft_joined
from convkit.host.draft.exported_onnx_folder import Halves, onnx_model
from convkit.host.draft.file_inspection import survey_model, survey_source
from convkit.host.draft.model_origins import factory_call
from convkit.host.draft.model_tools import ModelTool, find_model_tools
from convkit.host.draft.recipe_draft import draft_recipe, needs_survey
from convkit.host.draft.surveyed_model import guesses_of
from convkit.host.draft.target_names import asked_targets
from convkit.host.facts.planning_facts import ToolchainKind
from convkit.host.home import Home
from convkit.host.plan.stage_requests import source_of
from convkit.host.processes.request_locations import Locations
from convkit.host.recipe.reading.loading import LoadedRecipe, parse_recipe
from convkit.host.toolchain.versions.stage_requirements import EnvironmentSpec, environment_spec
from convkit.protocol.errors import RecipeError, UsageError
from convkit.protocol.messages import SurveyModelRequest, SurveyResult

# How long a model is run at different sizes, in seconds of work.
_SURVEY_SECONDS = 60.0


@dataclasses.dataclass(frozen=True)
class Drafting:
    """What to draft: a model as for `draft_recipe`, for a recipe at `destination`. `example`
    is `file.py:callable`, which returns one call's inputs; their values are written to
    `example_file` if `keeps_example`. `packages` are further ones that the model's code needs, as
    `PACKAGE==VERSION`, `targets` names as for `asked_targets`.
    """

    model: str
    destination: Path
    task: str | None = None
    example: str | None = None
    packages: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    keeps_example: bool = False

    @property
    def example_file(self) -> Path:
        """The file beside the recipe that holds the example's values."""
        return self.destination.with_suffix(".example.npz")


@dataclasses.dataclass(frozen=True)
class Draft:
    """A recipe's text, and a sentence on which of its sizes and values are guesses, if any are."""

    text: str
    guesses: str | None = None


def draft(
    drafting: Drafting,
    home: Home,
    progress: Callable[[str], None],
    *,
    toolchain: ToolchainKind = "isolated",
) -> str:
    """Return a recipe's text. Raises as `draft_with_guesses`."""
    return draft_with_guesses(drafting, home, progress, toolchain=toolchain).text


def draft_with_guesses(
    drafting: Drafting,
    home: Home,
    progress: Callable[[str], None],
    *,
    toolchain: ToolchainKind = "isolated",
) -> Draft:
    """Return a recipe's text, and what of it is guessed. Raises UsageError for what is not a
    model, or a target that there is not or that the model cannot have, ModelFileError for a model
    that does not load or run.
    """
    asked_targets(drafting.targets)  # a wrong name is said before the model is run
    found = _drafted(drafting, home, progress, toolchain)
    if drafting.targets:
        _check(found.text, drafting)
    return found


def _check(text: str, drafting: Drafting) -> None:
    """Raise UsageError for targets that the drafted recipe cannot have."""
    try:
        parse_recipe(text, drafting.destination)
    except RecipeError as error:
        wrong = [each for each in error.problems if each.key.startswith("targets.")]
        if not wrong:
            raise
        said = "; ".join(f"{each.key.split('.')[1]}: {each.message}" for each in wrong)
        raise UsageError(f"--target {said}") from error


def _drafted(
    drafting: Drafting, home: Home, progress: Callable[[str], None], toolchain: ToolchainKind
) -> Draft:
    found = _onnx_model(drafting)
    if isinstance(found, Halves):
        surveys = (
            survey_model(found.encoder, home, progress, toolchain=toolchain),
            survey_model(found.decoder, home, progress, toolchain=toolchain),
        )
        joined = draft_joined(
            Path(drafting.model),
            found,
            surveys,
            destination=drafting.destination,
            task=drafting.task,
            targets=drafting.targets,
        )
        return Draft(joined)
    if found is not None:
        drafting = dataclasses.replace(drafting, model=str(found))
    survey = None
    tools = _tools(drafting, home, progress, toolchain)
    wanted = drafting.example is not None or needs_survey(
        drafting.model, destination=drafting.destination, task=drafting.task
    )
    if wanted:
        survey = _survey(drafting, tools, home, progress, toolchain)
    example = drafting.example_file if drafting.keeps_example else None
    text = draft_recipe(
        drafting.model,
        destination=drafting.destination,
        task=drafting.task,
        survey=survey,
        tools=tools,
        targets=drafting.targets,
        example=example if example is not None and example.is_file() else None,
    )
    return Draft(text, guesses_of(survey) if survey is not None else None)


def _tools(
    drafting: Drafting, home: Home, progress: Callable[[str], None], toolchain: ToolchainKind
) -> dict[str, ModelTool]:
    """Return the packages that the model's own code needs."""
    named = (drafting.model, drafting.example or "")
    calls = [call for text in named if (call := factory_call(text)) is not None]

    def spec_with(tools: Mapping[str, ModelTool]) -> EnvironmentSpec:
        return environment_spec(_guess(drafting, tools).recipe, "export", None, None)

    if drafting.model.endswith(".onnx") or not (calls or drafting.packages):
        return {}
    spec_with({})  # what is no model is refused first
    return find_model_tools(calls, drafting.packages, spec_with, home.root, toolchain, progress)


def _guess(drafting: Drafting, tools: Mapping[str, ModelTool]) -> LoadedRecipe:
    """Return a recipe that says where the model is and what its environment needs."""
    text = draft_recipe(
        drafting.model, destination=drafting.destination, task=drafting.task, tools=tools
    )
    return parse_recipe(text, drafting.destination)


def _onnx_model(drafting: Drafting) -> Path | Halves | None:
    """Return what a folder of ONNX files holds; None for any other model."""
    folder = Path(drafting.model)
    return onnx_model(folder) if folder.is_dir() and drafting.example is None else None


def _survey(
    drafting: Drafting,
    tools: Mapping[str, ModelTool],
    home: Home,
    progress: Callable[[str], None],
    toolchain: ToolchainKind,
) -> SurveyResult:
    if drafting.model.endswith(".onnx"):
        return survey_model(Path(drafting.model), home, progress, toolchain=toolchain)
    loaded = _guess(drafting, tools)
    recipe = loaded.recipe
    progress("finding the model and its tools")
    source = source_of(recipe.model, Locations(loaded, home, {}, ()))
    # The guess has a task, too; the checkpoint knows better.
    source = dataclasses.replace(source, task=drafting.task, overrides={})
    request = SurveyModelRequest(
        source,
        _SURVEY_SECONDS,
        example=_absolute(drafting.example) if drafting.example is not None else None,
        small=recipe.model.config is not None,
    )
    # With a runtime, which proves another exporter's graph where onnx's own evaluator cannot.
    proving = recipe.export.model_copy(update={"exporter": "auto"})
    spec = environment_spec(recipe.model_copy(update={"export": proving}), "export", None, None)
    kept = drafting.example_file if drafting.keeps_example and drafting.example else None
    if kept is not None:
        kept.unlink(missing_ok=True)  # of an earlier draft
    return survey_source(
        drafting.model, request, spec, home, progress, toolchain=toolchain, example_to=kept
    )


def _absolute(call: str) -> str:
    file, _, name = call.rpartition(":")
    return f"{Path(file).resolve()}:{name}"
