"""The user's own translations of torch's operators to ONNX."""

from collections.abc import Mapping
from pathlib import Path

from convkit.protocol.messages import Translation
from convkit.worker.exporters.export_job import Translations
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.loading.python_factory import named_callable
from convkit.worker.runtime_interface.registered_operators import in_use, unusable


def load_translations() -> Translations:
    """Call the functions that this stage's custom operators name, and return what they return.

    Each returns a mapping from torch's operators to functions, as the `custom_translation_table` of
    torch.onnx.export, or None; for TorchScript's exporter, it calls
    torch.onnx.register_custom_op_symbolic itself. Raises StageFailedError with E322.
    """
    found: dict[object, object] = {}
    for translation in in_use().translations:
        found |= _returned(translation)
    return found  # type: ignore[return-value]  # checked by _returned


def _returned(translation: Translation) -> Mapping[object, object]:
    what = f"{Path(translation.path).name}:{translation.function}"
    try:
        file = Path(translation.path).resolve()
        register = named_callable(file, translation.function, "custom_ops", reuse=True)
    except StageFailedError as error:
        raise unusable(what, str(error).removeprefix("custom_ops: ")) from error
    try:
        table = register()
    except Exception as error:
        raise unusable(what, f"it raised {type(error).__name__}: {error}") from error
    if table is None:
        return {}
    if not isinstance(table, Mapping):
        raise unusable(
            what,
            f"it returned a {type(table).__name__}; return a mapping from torch's operators to"
            " functions, or None",
        )
    for operator, function in table.items():
        if not callable(operator) or not callable(function):
            raise unusable(
                what,
                f"it maps {operator!r} to {function!r}; map an operator, such as"
                " torch.ops.mylib.scale.default, to a function",
            )
    return table
