"""Other ways to join the parts of a model: one mistake undone at a time."""

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from convkit.protocol.messages import Call, Carried, Flow, Loop
from convkit.worker.join.part_flow import Wiring, calls_of

# A value's shape and element type, by which two values can stand for each other.
Kinds = Mapping[str, tuple[object, ...]]
# A layer's number in a value's name: between separators (`present.0.key`), else any (`h1_out`).
_NUMBER = re.compile(r"(?<=[._])\d+(?=[._]|$)")
_ANY_NUMBER = re.compile(r"\d+")
_WORD = re.compile(r"[^\W\d_]+")


@dataclasses.dataclass(frozen=True)
class WiringChange:
    """A corrected flow, what was wrong with the recipe's, and what to write instead.

    `skipped` is a call that passes the input `passed_on[0]` on as its output `passed_on[1]`.
    `corrected` are inputs of the whole and `call.output`s that `correction` is applied to.
    """

    code: str
    flow: Flow
    text: str
    remedy: str
    skipped: str | None = None
    passed_on: tuple[str, str] = ("", "")
    corrected: tuple[str, ...] = ()
    correction: Callable[[np.ndarray], np.ndarray] = np.asarray


def changes(wiring: Wiring, kinds: Kinds) -> Iterator[WiringChange]:
    """Yield the corrections to try. `kinds` are those of the values in a run.

    Groups come first: there are few of them, and what mends one group is no other mistake.
    """
    yield from _exchanged_groups(wiring, kinds)
    yield from _own_layers(wiring, kinds)
    yield from _exchanged_inputs(wiring, kinds)
    yield from _exchanged_feeds(wiring, kinds)
    yield from _skipped_calls(wiring, kinds)
    yield from _other_values(wiring, kinds)
    yield from _other_outputs(wiring, kinds)


def _exchanged_inputs(wiring: Wiring, kinds: Kinds) -> Iterator[WiringChange]:
    for call in calls_of(wiring.flow):
        for one, other in itertools.combinations(call.inputs, 2):
            first, second = call.inputs[one], call.inputs[other]
            if first == second or kinds.get(first) != kinds.get(second):
                continue
            yield _exchange(wiring, call, one, other)


def _exchange(wiring: Wiring, call: Call, one: str, other: str) -> WiringChange:
    first, second = call.inputs[one], call.inputs[other]
    wired = {**call.inputs, one: second, other: first}
    return WiringChange(
        "C511",
        _with_call(wiring.flow, dataclasses.replace(call, inputs=wired)),
        f"inputs {one!r} and {other!r} of {call.name!r} have each other's values",
        f"In the call of {call.name}, write {one}: {second} and {other}: {first}.",
    )


def _exchanged_feeds(wiring: Wiring, kinds: Kinds) -> Iterator[WiringChange]:
    for loop in (step for step in wiring.flow.steps if isinstance(step, Loop)):
        for one, other in itertools.combinations(loop.carried, 2):
            if one.value == other.value or kinds.get(one.value) != kinds.get(other.value):
                continue
            mended = {
                one: dataclasses.replace(one, value=other.value),
                other: dataclasses.replace(other, value=one.value),
            }
            carried = tuple(mended.get(each, each) for each in loop.carried)
            yield WiringChange(
                "C513",
                _with_loop(wiring.flow, loop, dataclasses.replace(loop, carried=carried)),
                f"{one.value!r} and {other.value!r} are swapped in the next pass",
                f"Under feeds, write {_feed(mended[one])} and {_feed(mended[other])}.",
            )


def _exchanged_groups(wiring: Wiring, kinds: Kinds) -> Iterator[WiringChange]:
    """Yield exchanges of all tensors of two layers, or of all keys and values: of a call's inputs,
    or of a loop's feeds.
    """
    for call in calls_of(wiring.flow):
        for groups, moved in _other_groups(call.inputs.values(), kinds):
            wired = {name: moved.get(value, value) for name, value in call.inputs.items()}
            yield WiringChange(
                "C511",
                _with_call(wiring.flow, dataclasses.replace(call, inputs=wired)),
                f"{call.name!r} gets the values of {groups} swapped",
                f"In the call of {call.name}, swap the values of {groups}.",
            )
    for loop in (step for step in wiring.flow.steps if isinstance(step, Loop)):
        for groups, moved in _other_groups((each.value for each in loop.carried), kinds):
            carried = tuple(
                dataclasses.replace(each, value=moved.get(each.value, each.value))
                for each in loop.carried
            )
            yield WiringChange(
                "C513",
                _with_loop(wiring.flow, loop, dataclasses.replace(loop, carried=carried)),
                f"{groups} are swapped in the next pass",
                f"Under feeds, swap {groups}.",
            )


def _other_groups(values: Iterable[str], kinds: Kinds) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield pairs of layers, and of words in values' names (`key`, `value`), with the value that
    takes each one's place; only where such a value of the same kind exists for all.
    """
    given = tuple(dict.fromkeys(values))
    numbers = {each: [number] for each in given if (number := _layer_number(each))}
    words = {each: [*_WORD.finditer(each, each.find(".") + 1)] for each in given}
    for places, ordered in ((numbers, int), (words, str)):
        found = {place[0] for each in places.values() for place in each}
        for one, other in itertools.combinations(sorted(found, key=ordered), 2):
            swapped = {one: other, other: one}
            moved = {
                value: value[: place.start()] + swapped[place[0]] + value[place.end() :]
                for value, each in places.items()
                for place in each
                if place[0] in swapped
            }
            if len(moved) > 2 and all(kinds.get(a) == kinds.get(b) for a, b in moved.items()):
                groups = f"layers {one} and {other}" if ordered is int else f"{one!r} and {other!r}"
                yield groups, moved


def _own_layers(wiring: Wiring, kinds: Kinds) -> Iterator[WiringChange]:
    """Yield for each call, and each loop's feeds, that every layer gets its own values."""
    for call in calls_of(wiring.flow):
        moved = {name: _of_layer(value, name, kinds) for name, value in call.inputs.items()}
        wrong = [name for name, value in moved.items() if value != call.inputs[name]]
        if len(wrong) == 2 and moved[wrong[0]] == call.inputs[wrong[1]]:
            yield _exchange(wiring, call, *wrong)
        elif wrong:
            yield WiringChange(
                "C511",
                _with_call(wiring.flow, dataclasses.replace(call, inputs=moved)),
                f"layers of {call.name!r} get values of other layers, such as"
                f" {_first_moved(call.inputs, moved)}",
                f"In the call of {call.name}, give every layer its own values.",
            )
    for loop in (step for step in wiring.flow.steps if isinstance(step, Loop)):
        fed = {f"{each.call}.{each.input}": each.value for each in loop.carried}
        mended = {name: _of_layer(value, name, kinds) for name, value in fed.items()}
        if mended != fed:
            carried = tuple(
                dataclasses.replace(each, value=mended[f"{each.call}.{each.input}"])
                for each in loop.carried
            )
            yield WiringChange(
                "C513",
                _with_loop(wiring.flow, loop, dataclasses.replace(loop, carried=carried)),
                f"layers feed other layers in the next pass, such as {_first_moved(fed, mended)}",
                "Under feeds, let every layer feed itself.",
            )


def _of_layer(value: str, name: str, kinds: Kinds) -> str:
    """Return the value with the number of the input's layer, if there is one of its kind."""
    wanted, given = _layer_number(name), _layer_number(value)
    if wanted is None or given is None:
        return value
    other = value[: given.start()] + wanted[0] + value[given.end() :]
    return other if kinds.get(other) == kinds.get(value) else value


def _layer_number(value: str) -> re.Match[str] | None:
    """Return the number of a layer in the name of an input, or of `call.output` behind the call."""
    return _NUMBER.search(value) or _ANY_NUMBER.search(value, value.find(".") + 1)


def _first_moved(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    name = next(name for name in before if before[name] != after[name])
    return f"{name!r}, which gets {before[name]!r} instead of {after[name]!r}"


def other_feeds(wiring: Wiring, kinds: Kinds) -> Iterator[WiringChange]:
    """Yield feeds that a loop lacks, that it should not have, or that are of another value."""
    for loop in (step for step in wiring.flow.steps if isinstance(step, Loop)):
        made = [
            f"{call.name}.{spec.name}" for call in loop.calls
            for spec in wiring.parts[call.part].outputs
        ]  # fmt: skip
        for call in loop.calls:
            for name in (spec.name for spec in wiring.parts[call.part].inputs):
                now = next(
                    (e for e in loop.carried if (e.call, e.input) == (call.name, name)), None
                )
                kind = kinds.get(now.value if now is not None else call.inputs.get(name, ""))
                rest = tuple(each for each in loop.carried if each is not now)
                place = f"{call.name}.{name}"
                for value in made:
                    if kind is None or kinds.get(value) != kind or (now and now.value == value):
                        continue
                    carried = (*rest, Carried(value, call.name, name))
                    yield WiringChange(
                        "C541",
                        _with_loop(wiring.flow, loop, dataclasses.replace(loop, carried=carried)),
                        f"{place!r} gets {now.value!r} of the previous pass instead of {value!r}"
                        if now is not None
                        else f"nothing carries {value!r} to {place!r} in the next pass, which gets"
                        f" {call.inputs[name]!r} in every pass",
                        f"Under feeds, write {value}: {place}.",
                    )
                if now is not None and name in call.inputs:
                    yield WiringChange(
                        "C541",
                        _with_loop(wiring.flow, loop, dataclasses.replace(loop, carried=rest)),
                        f"{place!r} gets {now.value!r} of the previous pass instead of"
                        f" {call.inputs[name]!r} in every pass",
                        f"Remove {now.value}: {place} from feeds.",
                    )


def _feed(carried: Carried) -> str:
    return f"{carried.value}: {carried.call}.{carried.input}"


def _other_values(wiring: Wiring, kinds: Kinds) -> Iterator[WiringChange]:
    known = [spec.name for spec in wiring.contract.inputs]
    for call in calls_of(wiring.flow):
        for name, value in call.inputs.items():
            for other in known:
                if other != value and kinds.get(other) == kinds.get(value):
                    wired = {**call.inputs, name: other}
                    yield WiringChange(
                        "C511",
                        _with_call(wiring.flow, dataclasses.replace(call, inputs=wired)),
                        f"input {name!r} of {call.name!r} gets {value!r} instead of {other!r}",
                        f"In the call of {call.name}, write {name}: {other}.",
                    )
        known += [f"{call.name}.{spec.name}" for spec in wiring.parts[call.part].outputs]


def _skipped_calls(wiring: Wiring, kinds: Kinds) -> Iterator[WiringChange]:
    for call in calls_of(wiring.flow):
        outputs = wiring.parts[call.part].outputs
        for name, value in call.inputs.items() if len(outputs) == 1 else ():
            returned = f"{call.name}.{outputs[0].name}"
            if kinds.get(value) == kinds.get(returned):
                yield WiringChange(
                    "C512",
                    wiring.flow,
                    f"{call.name!r} changes {value!r}, and another part does the same",
                    f"Remove the call of {call.name}, and pass {value} on in place of {returned}.",
                    skipped=call.name,
                    passed_on=(name, outputs[0].name),
                )


def _other_outputs(wiring: Wiring, kinds: Kinds) -> Iterator[WiringChange]:
    for output, value in wiring.flow.outputs.items():
        for other in kinds:
            if other != value and "." in other and kinds[other] == kinds.get(value):
                yield WiringChange(
                    "C511",
                    dataclasses.replace(
                        wiring.flow, outputs={**wiring.flow.outputs, output: other}
                    ),
                    f"output {output!r} is {value!r} instead of {other!r}",
                    f"At the end of `join`, write return: {{{output}: {other}}}.",
                )


def _with_call(flow: Flow, call: Call) -> Flow:
    def replaced(calls: tuple[Call, ...]) -> tuple[Call, ...]:
        return tuple(call if each.name == call.name else each for each in calls)

    return _mapped(
        flow,
        lambda step: (
            replaced((step,))[0]
            if isinstance(step, Call)
            else dataclasses.replace(step, calls=replaced(step.calls))
        ),
    )


def _with_loop(flow: Flow, old: Loop, new: Loop) -> Flow:
    return _mapped(flow, lambda step: new if step is old else step)


def _mapped(flow: Flow, change: Callable[[Call | Loop], Call | Loop]) -> Flow:
    return dataclasses.replace(flow, steps=tuple(map(change, flow.steps)))
