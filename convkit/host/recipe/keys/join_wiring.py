"""Resolves `join:`: which value each input of each call gets, and what is wrong with the wiring.

Reads plain values, like `consistency`.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from convkit.host.recipe.checks.names_axes_and_sizes import KeyPath, RecipeFault, mapping, perhaps
from convkit.host.recipe.keys.call_steps import tensors_by_name
from convkit.protocol.messages import Call, Carried, Flow, Loop

Tensor = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Resolved:
    """The flow that `join` describes, as far as it is well-formed, and its faults."""

    flow: Flow
    faults: tuple[RecipeFault, ...]


def resolve_join(recipe: Mapping[str, Any]) -> Resolved:
    """Return the flow of a recipe with parts, and every fault with its place."""
    resolver = _Resolver(recipe)
    steps = resolver.steps()
    outputs = resolver.outputs()
    return Resolved(Flow(tuple(steps), outputs), tuple(resolver.faults))


class _Resolver:
    """Walks the join in its order; `known` are the values that exist so far."""

    def __init__(self, recipe: Mapping[str, Any]) -> None:
        self._recipe = recipe
        self._parts = {
            str(name): {
                kind: tensors_by_name(mapping(part), kind) for kind in ("inputs", "outputs")
            }
            for name, part in mapping(recipe.get("parts")).items()
        }
        join = recipe.get("join")
        self._entries = join if isinstance(join, list | tuple) else ()
        self._inputs = tensors_by_name(recipe, "inputs")
        self._known: dict[str, Tensor] = dict(self._inputs)
        self._calls: dict[str, str] = {}
        self._later = {name for entry in self._entries for name in _names(mapping(entry))}
        self._used: set[str] = set()
        self.faults: list[RecipeFault] = []

    def steps(self) -> list[Call | Loop]:
        steps: list[Call | Loop] = []
        for number, entry in enumerate(self._entries):
            if not isinstance(entry, dict):
                continue  # reported where the entry itself is checked
            path: KeyPath = ("join", number)
            if sum(key in entry for key in ("call", "loop", "return")) != 1:
                self._fault(
                    path, "write `call: PART`, `loop: AXIS` with `calls`, or at the end `return`"
                )
            elif "return" in entry:
                if number < len(self._entries) - 1:
                    self._fault((*path, "return"), "belongs at the end of `join`")
            elif "call" in entry:
                for key in ("feeds", "calls"):
                    if key in entry:
                        self._fault((*path, key), "belongs to a loop; remove it, or write `loop`")
                call = self._call(entry, path, {})
                steps += [call] if call is not None else []
            else:
                steps += self._loop(entry, path)
        called = set(self._calls.values())
        for part in self._parts:
            if part not in called:
                self._fault(("parts", part), "is never called; add it to `join`, or remove it")
        return steps

    def _loop(self, entry: Mapping[str, Any], path: KeyPath) -> list[Call | Loop]:
        for key in ("as", "inputs"):
            if key in entry:
                self._fault((*path, key), "belongs to a call; move it to an item of `calls`")
        axis = str(entry["loop"])
        self._check_axis(axis, (*path, "loop"))
        listed = entry.get("calls")
        calls = list(listed) if isinstance(listed, list | tuple) else []
        if not calls:
            self._fault((*path, "calls"), "a loop needs at least one call")
        pairs = self._feed_pairs(mapping(entry.get("feeds")), calls, (*path, "feeds"))
        fed = {(call, name): value for value, call, name, _ in pairs}
        found = [
            call
            for number, each in enumerate(calls)
            if isinstance(each, dict)
            and (call := self._call(each, (*path, "calls", number), fed)) is not None
        ]
        carried = []
        for value, into, name, key in pairs:
            place = (*path, "feeds", key)
            self._used.add(value)
            fed_call = next((each for each in found if each.name == into), None)
            part = self._parts[fed_call.part] if fed_call is not None else {}
            spec = part.get("inputs", {}).get(name)
            if spec is None:
                self._fault(place, f"{into}.{name} is not an input of a call in this loop")
                continue
            self._check_types(value, spec, place)
            carried.append(Carried(value, into, name))
        return [Loop(axis, tuple(carried), tuple(found))]

    def _check_axis(self, axis: str, path: KeyPath) -> None:
        axes = mapping(self._recipe.get("axes"))
        if axis not in axes:
            self._fault(path, f"the axis {axis!r} is not declared{perhaps(axis, map(str, axes))}")
        elif not any(axis in each["shape"] for each in self._inputs.values()):
            self._fault(
                path,
                f"no input of the whole has the axis {axis!r}, so nothing says how often to repeat",
            )
        elif mapping(axes[axis]).get("min", 1) == 0:
            self._fault(path, f"axes.{axis}.min is 0; a loop runs at least once")

    def _feed_pairs(
        self, feeds: Mapping[str, Any], calls: Sequence[object], path: KeyPath
    ) -> list[tuple[str, str, str, str]]:
        """Return value, call, input and key of each feed, with patterns expanded."""
        outputs = []
        for entry in map(mapping, calls):
            part = self._parts.get(str(entry.get("call")), {})
            name = str(entry.get("as", entry.get("call")))
            outputs += [f"{name}.{output}" for output in part.get("outputs", {})]
        pairs = []
        for value, targets in feeds.items():
            found = [
                (one, other.partition(".")[0], other.partition(".")[2], value)
                for target in (targets if isinstance(targets, list | tuple) else (targets,))
                for one, other in _expanded(str(value), str(target), outputs)
                if "." in other
            ]
            if not found:
                guess = perhaps(value, outputs)
                self._fault(
                    (*path, value),
                    f"write {{call.output: call.input}}, of calls in this loop{guess};"
                    f" outputs: {', '.join(outputs) or 'none'}",
                )
            pairs += found
        return pairs

    def _call(
        self, entry: Mapping[str, Any], path: KeyPath, fed: Mapping[tuple[str, str], str]
    ) -> Call | None:
        part, name = str(entry.get("call")), str(entry.get("as", entry.get("call")))
        if part not in self._parts:
            known = ", ".join(self._parts)
            self._fault(
                (*path, "call"),
                f"there is no part {part!r}{perhaps(part, self._parts)}; parts: {known}",
            )
            return None
        if name in self._calls:
            self._fault(
                path, f"{name!r} is already called above; name this call: `as: another-name`"
            )
            return None
        inputs = self._parts[part]["inputs"]
        wired: dict[str, str] = {}
        for key, value in mapping(entry.get("inputs")).items():
            place = (*path, "inputs", key)
            pairs = list(_expanded(str(key), str(value), list(inputs)))
            if not pairs:
                listing = ", ".join(inputs)
                guess = perhaps(str(key), inputs)
                self._fault(place, f"{part!r} has no such input{guess}; inputs: {listing}")
            for one, other in pairs:
                if self._is_there(other, place):
                    wired[one] = other
                    self._check_types(other, inputs[one], place)
        self._add_defaults(name, wired, inputs, fed, path)
        self._used |= set(wired.values())
        self._calls[name] = part
        outputs = self._parts[part]["outputs"]
        self._known |= {f"{name}.{output}": spec for output, spec in outputs.items()}
        return Call(part, name, wired)

    def _add_defaults(
        self,
        name: str,
        wired: dict[str, str],
        inputs: Mapping[str, Tensor],
        fed: Mapping[tuple[str, str], str],
        path: KeyPath,
    ) -> None:
        """Wire what is not listed to the whole's input of its name, unless a loop feeds it."""
        broken = {fault.path[-1] for fault in self.faults if fault.path[: len(path)] == path}
        for each, spec in inputs.items():
            if each in wired or each in broken:
                continue
            if each in self._inputs:
                wired[each] = each
                self._check_types(each, spec, (*path, "call"))
            elif (name, each) not in fed:
                self._fault(
                    path, f"nothing feeds input {each!r} of {name!r}; write it under `inputs`"
                )

    def _is_there(self, value: str, place: KeyPath) -> bool:
        if value in self._known:
            return True
        call = value.partition(".")[0]
        if call in self._later and call not in self._calls:
            self._fault(
                place,
                f"{value!r} does not exist yet: {call!r} is called later. Calls cannot form a"
                " cycle; within a loop, write it under `feeds`",
            )
        else:
            self._fault(place, f"there is no value {value!r}{perhaps(value, self._known)}")
        return False

    def _check_types(self, value: str, wanted: Tensor, place: KeyPath) -> None:
        """Compare a value's element type and fixed sizes with those of what gets it. Axes may have
        other names there, and caches grow.
        """
        found = self._known[value]
        if found.get("dtype") != wanted.get("dtype"):
            message = (
                f"{value!r} is {found.get('dtype')}, and {wanted.get('name')!r} is"
                f" {wanted.get('dtype')}; no element type is converted between parts"
            )
            self._fault(place, message)
            return
        one, other = list(found["shape"]), list(wanted["shape"])
        fixed = [
            (a, b)
            for a, b in zip(one, other, strict=False)
            if isinstance(a, int) and isinstance(b, int)
        ]
        if len(one) != len(other) or any(a != b for a, b in fixed):
            self._fault(
                place,
                f"{value!r} has the shape {_listed(one)}, and {wanted.get('name')!r}"
                f" {_listed(other)}",
            )

    def outputs(self) -> dict[str, str]:
        """Return the value of each output of the whole, and report outputs that nothing uses."""
        chosen = {}
        returned = {
            name: (("join", number, "return", name), value)
            for number, entry in enumerate(self._entries)
            for name, value in mapping(mapping(entry).get("return")).items()
        }
        wanted = tensors_by_name(self._recipe, "outputs")
        for name, (place, _) in returned.items():
            if name not in wanted:
                self._fault(place, f"is not an output{perhaps(name, wanted)}")
        for number, (name, spec) in enumerate(wanted.items()):
            path: KeyPath = ("outputs", number)
            value: object = self._of_its_name(name)
            if name in returned:
                path, value = returned[name]
            if value is None:
                self._fault(
                    path, f"which value is it? End `join` with `return: {{{name}: call.output}}`"
                )
            elif value in self._inputs:
                self._fault(path, f"{value!r} is an input; write call.output")
            elif self._is_there(str(value), path):
                chosen[name] = str(value)
                self._used.add(str(value))
                self._check_types(str(value), spec, path)
        self._report_unused()
        return chosen

    def _of_its_name(self, name: str) -> str | None:
        """Return the only value of a call that has an output's name."""
        found = [
            value
            for value in self._known
            if value not in self._inputs and value.partition(".")[2] == name
        ]
        return found[0] if len(found) == 1 else None

    def _report_unused(self) -> None:
        for name, part in self._calls.items():
            outputs = [f"{name}.{output}" for output in self._parts[part]["outputs"]]
            if outputs and not self._used & set(outputs):
                message = f"nothing uses what {name!r} returns ({', '.join(outputs)})"
                self._fault(("parts", part), f"{message}; use it in `join`, or remove the call")
        for number, name in enumerate(self._inputs):
            if name not in self._used:
                self._fault(("inputs", number), f"no call in `join` uses {name!r}; remove it")

    def _fault(self, path: KeyPath, message: str) -> None:
        self.faults.append(RecipeFault(path, message))


def _expanded(pattern: str, target: str, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the pairs that match a pattern with * and its target."""
    if "*" not in pattern:
        if pattern in names:
            yield pattern, target
        return
    match = re.compile(re.escape(pattern).replace(r"\*", "(.+)"))
    for name in names:
        if found := match.fullmatch(name):
            yield name, target.replace("*", found[1])


def _names(entry: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of an entry's calls."""
    if "call" in entry:
        yield str(entry.get("as", entry["call"]))
    calls = entry.get("calls")
    for call in calls if isinstance(calls, list | tuple) else ():
        yield str(mapping(call).get("as", mapping(call).get("call")))


def _listed(shape: Sequence[object]) -> str:
    return f"[{', '.join(map(str, shape))}]"
