"""Every runtime's row: what it names exists, and fits what the host and the workers ask of it."""

import dataclasses
import inspect
from typing import get_args

import pytest

from convkit.host.recipe.keys.recipe import Target
from convkit.host.recipe.keys.target_models import target_models
from convkit.host.recipe.keys.targets import BaseTarget
from convkit.protocol.jobs.job_table import JOBS
from convkit.protocol.runtimes import runtime_registry
from convkit.protocol.runtimes.runtime_registry import (
    BUILT_IN,
    BrokenRuntimeError,
    load_runtime,
    runtimes,
)

OF_A_TARGET = ("precision", "build", "verify")
# What a target of a runtime cannot do without, besides its name.
REQUIRED = {"given": {"file": "theirs.tflite"}}


def smallest(name):
    return target_models()[name].model_validate({"runtime": name, **REQUIRED.get(name, {})})


def test_the_recipes_targets_are_the_registrys():
    (union, _) = get_args(Target)
    named = {
        name
        for model in get_args(union)
        for name in get_args(model.model_fields["runtime"].annotation)
    }
    assert named == set(runtimes()) == set(BUILT_IN)


@pytest.mark.parametrize("name", BUILT_IN)
class TestEachRow:
    def test_it_goes_by_its_name(self, name):
        row = runtimes()[name]
        assert (row.name, row.package) == (name, BUILT_IN[name])
        assert row.suffix.startswith(".")

    def test_its_target_is_a_target_of_that_runtime(self, name):
        model = target_models()[name]
        assert issubclass(model, BaseTarget)
        assert get_args(model.model_fields["runtime"].annotation) == (name,)

    def test_a_target_with_nothing_but_its_runtime_gives_the_options_of_the_row(self, name):
        row = runtimes()[name]
        target = smallest(name)
        options = target.options()
        assert type(options) is row.load(row.options)
        assert dataclasses.is_dataclass(options)
        assert target.worker_precision(str) is None

    @pytest.mark.parametrize("job", OF_A_TARGET)
    def test_its_jobs_are_functions_of_a_request_and_a_context(self, name, job):
        module = JOBS[job].module_for(runtimes()[name])
        assert module is not None
        function = JOBS[job].function(runtimes()[name])
        assert list(inspect.signature(function).parameters) == ["request", "context"]

    @pytest.mark.parametrize("stage", OF_A_TARGET)
    def test_its_stages_name_packages_the_runtimes_own_first(self, name, stage):
        row, target = runtimes()[name], smallest(name)
        packages = target.packages(stage, stand_in=False)
        assert len(set(packages)) == len(packages) > 0
        assert packages[0] in row.tools or stage == "precision"

    def test_every_reference_of_the_row_can_be_loaded(self, name):
        row = runtimes()[name]
        for reference in (row.session, row.checks):
            assert reference is None or callable(row.load(reference))


def test_a_package_without_a_row_is_named():
    with pytest.raises(BrokenRuntimeError, match=r"convkit\.worker\.mil adds no runtime"):
        load_runtime("convkit.worker.mil")
    with pytest.raises(BrokenRuntimeError, match=r"no\.such\.package adds no runtime"):
        load_runtime("no.such.package")


def test_two_packages_may_not_add_one_runtime(monkeypatch):
    class Entry:
        name, value = "onnxruntime", "other.package"

    monkeypatch.setattr(runtime_registry.importlib.metadata, "entry_points", lambda **_: [Entry])
    with pytest.raises(BrokenRuntimeError, match="rename the entry point"):
        runtime_registry.runtimes.__wrapped__()
