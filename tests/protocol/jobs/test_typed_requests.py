"""What a recipe says reaches a stage in typed fields, never as a bag of JSON."""

import dataclasses
import typing
from collections.abc import Iterator
from typing import Any, get_args, get_origin

from convkit.protocol.jobs.job_table import JOBS
from convkit.protocol.json_codec import Json
from convkit.protocol.messages import Source
from convkit.protocol.runtimes.runtime_registry import runtimes

UNTYPED = {
    ("Source", "overrides"),  # arguments of the user's own code
    ("Processor", "settings"),  # what a preprocessor_config.json holds: transformers' own arguments
    # Typed by the runtime: its own request and its own options, which it decodes.
    ("BuiltPart", "request"),
    ("DiagnoseRequest", "options"),
}


def untyped_fields(kind: Any) -> Iterator[tuple[str, str]]:
    """Yield the fields of a message and its parts that may hold anything: dataclass and name."""
    generic, arguments = get_origin(kind) or kind, get_args(kind)
    if dataclasses.is_dataclass(generic):
        filled = dict(zip(getattr(generic, "__parameters__", ()), arguments, strict=True))
        for name, declared in typing.get_type_hints(generic).items():
            hint = filled.get(declared, declared)
            if _holds_anything(hint):
                yield generic.__name__, name
            yield from untyped_fields(hint)
    for argument in arguments:
        yield from untyped_fields(argument)


def _holds_anything(hint: Any) -> bool:
    return hint in (Any, object, dict, list) or any(map(_holds_anything, get_args(hint)))


def test_requests_are_typed() -> None:
    found = {
        field
        for job in JOBS.values()
        for row in (runtimes().values() if job.has_options else [None])
        for field in untyped_fields(job.request_type(row))
    }
    assert found == UNTYPED


def test_a_bag_is_found_wherever_it_is() -> None:
    @dataclasses.dataclass
    class Options:
        extra: dict[str, Json]

    @dataclasses.dataclass
    class Request:
        targets: tuple[Options, ...]
        source: Source | None

    assert set(untyped_fields(list[Options])) == {("Options", "extra")}
    hints = {"targets": tuple[Options, ...], "source": Source | None}
    Request.__annotations__ = hints
    assert set(untyped_fields(Request)) == {("Options", "extra"), ("Source", "overrides")}
