"""A transformers architecture by its configuration, with seeded random weights."""

from convkit.protocol.messages import Source
from convkit.protocol.spelling import suggestion
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.loading.loaded_model import LoadedModel
from convkit.worker.original.loading.model_facts import model_facts
from convkit.worker.original.loading.transformers_folder import load_arguments
from convkit.worker.original.loading.transformers_tasks import auto_class
from convkit.worker.original.loading.weight_seeding import seeded


def load(source: Source) -> LoadedModel:
    """Build the model without network access. `dtype: stored` means float32, since there is no
    checkpoint.
    """
    from transformers import CONFIG_MAPPING, AutoConfig

    architecture = source.identifier
    assert architecture is not None
    if architecture not in CONFIG_MAPPING:
        import transformers

        raise StageFailedError(
            f"model.config.architecture: transformers {transformers.__version__} has no"
            f" {architecture!r}{suggestion(architecture, CONFIG_MAPPING)}"
        )
    defaults = AutoConfig.for_model(architecture)
    for name in source.overrides:
        # transformers silently accepts any key, so a misspelled one would have no effect.
        if not hasattr(defaults, name):
            raise StageFailedError(
                f"model.config.overrides.{name}: {architecture} has no such"
                f" key{suggestion(name, defaults.to_dict())}"
            )
    arguments = load_arguments(source)
    model_class = auto_class(source.task, architecture)
    try:
        config = AutoConfig.for_model(architecture, **source.overrides)
        # Of an architecture with several classes, transformers looks for the one named here.
        config.architectures = config.architectures or []
        for name, value in arguments.items():
            if value == "auto":
                import torch

                arguments[name] = torch.float32
        with seeded(source.seed):
            module = model_class.from_config(config, **arguments)
    except Exception as error:
        overrides = " with these overrides" if source.overrides else ""
        fix = " Add that package under tools." if isinstance(error, ImportError) else ""
        raise StageFailedError(
            f"model.config: transformers could not build {architecture} for model.task"
            f" {source.task or 'feature-extraction'}{overrides}: {type(error).__name__}:"
            f" {' '.join(str(error).split())}{fix}"
        ) from error
    return LoadedModel(
        module=module,
        description=f"{architecture} with random weights of seed {source.seed}",
        config=module.config,
        facts=model_facts(module, module.config),
    )
