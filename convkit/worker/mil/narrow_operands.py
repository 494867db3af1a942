"""Operands of a type that an operation of ML programs lacks, such as bools that are gathered: the
operation takes them as numbers, and what it picks from them has their type again.
"""

from typing import Any

import numpy as np

# What these add up or multiply is a number in torch as well, whatever they are given.
_COUNTING = frozenset({"cumsum", "reduce_prod", "reduce_sum"})


def accept_narrow_operands() -> None:
    """Let coremltools' builder take bools and bytes where it takes other numbers; again changes
    nothing.

    coremltools 9.0 hands torch's tensors to operations as they are, and refuses those of a type
    that the operation lacks.
    """
    from coremltools.converters.mil.mil import Builder

    own = Builder._add_op  # noqa: SLF001 - where every operation is added
    if getattr(own, "accepts_narrow", False):
        return

    def added(_: type, /, operation: Any, **given: Any) -> Any:  # noqa: ANN401 - coremltools has no types
        narrow = _narrow(operation, given)
        if not narrow:
            return own(operation, **given)
        results = own(operation, **{**given, **_as_numbers(operation, narrow, given)})
        if operation.__name__ in _COUNTING:
            return results
        if isinstance(results, tuple | list):
            return type(results)(_restored(each, narrow, given) for each in results)
        return _restored(results, narrow, given)

    added.accepts_narrow = True  # type: ignore[attr-defined]  # registering twice changes nothing
    Builder._add_op = classmethod(added)  # noqa: SLF001


def _narrow(operation: Any, given: dict[str, Any]) -> dict[str, Any]:  # noqa: ANN401
    """Return the wider type of each operand whose own the operation lacks, by parameter; empty if
    none of them is computed.
    """
    from coremltools.converters.mil.mil import Var, types

    found = {}
    for name, spec in operation.input_spec.input_types.items():
        domain = operation.type_domains.get(getattr(spec, "type_domain_id", None)) or getattr(
            spec, "type_domain", ()
        )
        # What float16 holds exactly, should the operation come to compute in it.
        if _kind(given.get(name)) in {types.bool, types.int8, types.uint8} - set(domain):
            wider = next((each for each in (types.fp32, types.int32) if each in domain), None)
            if wider is not None:
                found[name] = wider
    return found if any(isinstance(given[name], Var) for name in found) else {}


def _kind(value: Any) -> Any:  # noqa: ANN401
    """Return MIL's type of an operand's elements; None for what has none."""
    from coremltools.converters.mil.mil import ListVar, types

    if isinstance(value, bool | np.ndarray | np.generic):
        return types.numpy_type_to_builtin_type(np.asarray(value).dtype)
    return None if isinstance(value, ListVar) else getattr(value, "dtype", None)


def _as_numbers(
    operation: Any,  # noqa: ANN401
    narrow: dict[str, Any],
    given: dict[str, Any],
) -> dict[str, Any]:
    from coremltools.converters.mil.mil import Builder, Var, types

    numbers = {}
    for name, wider in narrow.items():
        kind = types.int32 if operation.__name__ in _COUNTING else wider
        numbers[name] = (
            Builder.cast(
                x=given[name], dtype=types.builtin_to_string(kind), before_op=given.get("before_op")
            )
            if isinstance(given[name], Var)
            else np.asarray(given[name]).astype(types.nptype_from_builtin(kind))
        )
    return numbers


def _restored(result: Any, narrow: dict[str, Any], given: dict[str, Any]) -> Any:  # noqa: ANN401
    """Return what was picked, in the operands' type again; places and truths stay as they are."""
    from coremltools.converters.mil.mil import Builder, types

    name = next(each for each in narrow if hasattr(given[each], "dtype"))
    if result.dtype != narrow[name]:
        return result
    called, result.name = result.name, f"{result.name}_of_numbers"
    return Builder.cast(
        x=result,
        dtype=types.builtin_to_string(_kind(given[name])),
        name=called,
        before_op=given.get("before_op"),
    )
