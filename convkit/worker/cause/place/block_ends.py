"""Values of the original that everything after them depends on: the ends of blocks in a row."""

from collections.abc import Collection, Sequence

from convkit.worker.cause.recording.recorded_call import Recording

# How many of them are tried beyond the first values of all.
_MOST = 16


def bridges(recording: Recording, lost: Sequence[int]) -> list[int]:
    """Return those of the lost values (in order) after which no earlier lost one is read.

    If a graph lacks a whole block, its last value is the one to put in place of the block's input,
    however many operations lie between. The last ones come first: they are past the block.
    """
    last_read: dict[int, int] = {}
    for operation in recording.operations:
        if operation.index in recording.needed:
            last_read.update(dict.fromkeys(operation.inputs, operation.index))
    found, open_until = [], -1
    for value in lost:
        producer = recording.values[value].producer
        if producer is not None and open_until <= producer:
            found.append(value)
        open_until = max(open_until, last_read.get(value, -1))
    return found[-_MOST:]


def nearest_known(recording: Recording, value: int, known: Collection[int]) -> list[int]:
    """Return the known values that a value is computed from without another known one between, the
    latest first.
    """
    operations = recording.closure([value], known)
    read = {each for index in operations for each in recording.operations[index].inputs}
    return sorted(read.intersection(known), reverse=True)
