"""Frozen dataclasses that are completed when they are first used behave as others do."""

import copy
import dataclasses
import importlib
import pickle
import pkgutil
import threading
from typing import Generic, TypeVar

import pytest

import convkit.host
import convkit.protocol
from convkit.protocol.json_codec import decode, encode
from convkit.protocol.values.frozen_values import FrozenValue

T = TypeVar("T")


def is_complete(kind: type) -> bool:
    return "__init__" in vars(kind)


class Pair(FrozenValue):
    """For pickle, which finds classes by name."""

    left: int
    right: tuple[int, ...] = ()


def test_a_class_is_completed_by_its_first_use_alone() -> None:
    class Value(FrozenValue):
        number: int
        names: list[str] = dataclasses.field(default_factory=list)

    assert not is_complete(Value)
    value = Value(1)
    assert is_complete(Value)
    assert value == Value(1, []) != Value(2)
    assert repr(value) == f"{Value.__qualname__}(number=1, names=[])"
    with pytest.raises(dataclasses.FrozenInstanceError):
        value.number = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del value.number  # type: ignore[misc]
    assert dataclasses.replace(value, number=3) == Value(3)


def test_asking_for_fields_completes_a_class() -> None:
    class Value(FrozenValue):
        number: int

    assert dataclasses.is_dataclass(Value)
    assert [field.name for field in dataclasses.fields(Value)] == ["number"]
    assert is_complete(Value)
    assert not dataclasses.is_dataclass(FrozenValue)


def test_patterns_find_the_fields_of_a_class() -> None:
    class Value(FrozenValue):
        number: int

    match object.__new__(Value):
        case Value(_):
            pytest.fail("it has no number")
        case found:
            assert isinstance(found, Value)
    match Value(5):
        case Value(number):
            assert number == 5


def test_classes_derived_from_values_have_all_fields() -> None:
    class Base(FrozenValue):
        first: int

    class Derived(Base):
        second: int = 2

    class Typed(FrozenValue, Generic[T]):
        item: T

    assert Derived(1) == Derived(1, 2) != Derived(1, 3)
    assert hash(Derived(1)) == hash(Derived(1, 2))
    assert Base(1) != Derived(1)
    assert decode(Typed[Base], encode(Typed(Base(1)))) == Typed(Base(1))


def test_values_that_no_call_has_made_compare_and_hash() -> None:
    made = pickle.loads(pickle.dumps(Pair(1, (2,))))
    assert made == Pair(1, (2,))
    assert hash(copy.copy(made)) == hash(made)

    class Value(FrozenValue):
        number: int

    one, other = object.__new__(Value), object.__new__(Value)
    vars(one)["number"] = vars(other)["number"] = 7
    assert one == other


def test_threads_that_use_a_class_first_all_get_whole_values() -> None:
    for _ in range(50):

        class Value(FrozenValue):
            a: int
            b: int = 2

        found: list[object] = []
        start = threading.Barrier(4)

        def make(kind: type[Value] = Value, start: threading.Barrier = start) -> None:
            start.wait()
            found.append(kind(1) == kind(1, 2))  # noqa: B023 - joined below

        threads = [threading.Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [True] * 4


def test_every_value_of_convkit_is_a_valid_dataclass() -> None:
    """A wrong order of fields raises when a class is completed, which its import no longer does."""
    for package in (convkit.protocol, convkit.host):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    own = [kind for kind in FrozenValue.__subclasses__() if kind.__module__.startswith("convkit.")]
    assert len(own) > 150
    assert all(dataclasses.is_dataclass(kind) for kind in own)
