"""Frozen dataclasses that cost nothing until they are used.

The `dataclasses` module writes and compiles six functions for each class: a third of a millisecond,
for hundreds of messages of which a command uses a few. A `FrozenValue` gets them when it is first
created, compared or asked for its fields.
"""

import dataclasses
import threading
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from typing import dataclass_transform

    @dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
    class FrozenValue:
        """A class whose subclasses are frozen dataclasses, without a decorator."""

        __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

else:
    _COMPLETING = threading.RLock()

    def _completed(kind: type) -> type:
        """Return a class after making it the dataclass that it is declared to be."""
        with _COMPLETING:  # another thread sees the stubs below until a method is there
            if "__dataclass_params__" not in vars(kind):
                dataclasses.dataclass(frozen=True)(kind)
        return kind

    class _Attribute:
        """What `dataclasses` sets on a class: whoever asks for it completes the class."""

        def __set_name__(self, owner: type, name: str) -> None:
            self._name = name

        def __get__(self, instance: object, owner: type) -> object:
            if owner is FrozenValue:
                raise AttributeError(f"{owner.__name__} has no {self._name}")
            return getattr(_completed(owner), self._name)

    class FrozenValue:
        """A class whose subclasses are frozen dataclasses, without a decorator.

        What is defined here is replaced in each class by what `dataclasses` generates.
        """

        __dataclass_fields__ = _Attribute()
        __match_args__ = _Attribute()

        def __init_subclass__(cls) -> None:
            super().__init_subclass__()
            if any(
                base is not FrozenValue and issubclass(base, FrozenValue) for base in cls.__bases__
            ):
                _completed(cls)  # otherwise its base's methods would be found, not those below

        def __init__(self, *values: object, **named: object) -> None:
            _completed(type(self)).__init__(self, *values, **named)

        def __eq__(self, other: object) -> bool:
            return _completed(type(self)).__eq__(self, other)

        def __hash__(self) -> int:
            return _completed(type(self)).__hash__(self)

        def __repr__(self) -> str:
            return _completed(type(self)).__repr__(self)

        def __setattr__(self, name: str, value: object) -> None:
            _completed(type(self)).__setattr__(self, name, value)

        def __delattr__(self, name: str) -> None:
            _completed(type(self)).__delattr__(self, name)
