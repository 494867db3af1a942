"""Notes which fields of its request a stage reads, among those that it may leave unread
(`convkit.protocol.jobs.unread_fields`).

A result cannot depend on what was never read. Whatever might read a field unseen counts as reading
it: copies and pickles. What a fork of this process reads is noted in memory that they share.
"""

import contextlib
import mmap
from collections.abc import Iterator
from typing import Any, Self, SupportsIndex

from convkit.protocol.jobs.unread_fields import MAY_BE_UNREAD, MayBeUnread


class _NotedField:
    """Takes the place of a dataclass's field, whose values stay where they were: in the instances'
    own dictionaries.
    """

    def __init__(self, field: MayBeUnread) -> None:
        self._field = field
        self._given: dict[int, object] = {}  # the request's own instances, alive so that ids last
        self._noted = mmap.mmap(-1, 1)
        self.decoding = False

    @property
    def was_read(self) -> bool:
        return self._noted[0] != 0

    def __get__(self, instance: object, owner: type) -> Any:  # noqa: ANN401 - any field's value
        if instance is None:
            return self
        self.note(instance)
        try:
            return vars(instance)[self._field.name]
        except KeyError as error:
            raise AttributeError(self._field.name) from error

    def __set__(self, instance: object, value: object) -> None:
        vars(instance)[self._field.name] = value
        if self.decoding:
            self._given[id(instance)] = instance

    def note(self, instance: object) -> None:
        """Count a read, unless the instance is not the request's: one that the stage made."""
        if id(instance) in self._given:
            self._noted[0] = 1

    @contextlib.contextmanager
    def standing_in(self) -> Iterator[None]:
        owner, name = self._field.owner, self._field.name

        def reduced(instance: object, protocol: SupportsIndex) -> Any:  # noqa: ANN401 - as in object
            self.note(instance)
            return object.__reduce_ex__(instance, protocol)

        before = {each: owner.__dict__[each] for each in (name,) if each in owner.__dict__}
        setattr(owner, name, self)
        owner.__reduce_ex__ = reduced  # type: ignore[assignment,method-assign]
        try:
            yield
        finally:
            delattr(owner, name)
            del owner.__reduce_ex__
            for each, value in before.items():
                setattr(owner, each, value)


class NotedReads:
    """What a stage reads of its request while this is entered. For one thread and one request."""

    def __init__(self) -> None:
        self._fields = {name: _NotedField(field) for name, field in MAY_BE_UNREAD.items()}
        self._entered = contextlib.ExitStack()

    def __enter__(self) -> Self:
        for field in self._fields.values():
            self._entered.enter_context(field.standing_in())
        return self

    def __exit__(self, *_: object) -> None:
        self._entered.close()

    @contextlib.contextmanager
    def decoding(self) -> Iterator[None]:
        """Everything that is made in this block is the request's."""
        for field in self._fields.values():
            field.decoding = True
        try:
            yield
        finally:
            for field in self._fields.values():
                field.decoding = False

    def unread(self) -> tuple[str, ...]:
        """Return the names of the fields that the stage has not read so far."""
        return tuple(name for name, field in self._fields.items() if not field.was_read)
