"""Writes type stubs for the TensorRT bindings that this interpreter can import: `-m
tensorrt_stubs.introspect OUTPUT`.

Every name comes from the loaded extension: classes, enum members, properties, methods, functions,
constants. pybind11 writes signatures into `__doc__`, as in `method(self:
tensorrt_bindings.tensorrt.X, name: type = ...) -> type`. From these, parameters and keywords are
taken as they stand; a type that is not known becomes Any.

Where the signature says less or more than the binding does, the stub follows the binding:
- `typing.SupportsInt` becomes SupportsIndex, since a float is refused at run time;
- a `Dims` is converted from any sequence of integers, `Weights` from an array, and a setter of an
  object takes None;
- a returned object or string is null where the call failed: it is `X | Any`, so that code behind
  `is None` is read;
- a class with `__getitem__` can be iterated; a class with a buffer is one;
- an interface for Python to implement declares its callbacks, some only in the example of its
  docstring.
"""

import ast
import ctypes
import inspect
import json
import keyword
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from tensorrt_stubs.signatures import docstring_methods, overloads, signature, split

# pybind11 overloads by trying one after the other, which mypy's rules for overloads and overrides
# do not know.
HEADER = """\
# mypy: disable-error-code="override, overload-cannot-match, overload-overlap, type-arg, misc"
import builtins
import collections.abc
from typing import Any, ClassVar, Never, Self, SupportsFloat, SupportsIndex, overload

from typing_extensions import Buffer, CapsuleType

__version__: str
"""
# C++ names that pybind11 left in signatures, where Python's name is another one.
CPP_NAMES = {"IBuilder": "Builder", "IParserError": "ParserError"}
BUILTINS = {
    "bool",
    "int",
    "float",
    "str",
    "bytes",
    "list",
    "tuple",
    "dict",
    "slice",
    "object",
    "set",
    "memoryview",
}
OTHER_TYPES = {
    "typing.SupportsFloat": "SupportsFloat",
    "typing_extensions.Buffer": "Buffer",
    "typing_extensions.CapsuleType": "CapsuleType",
    "collections.abc.Sequence": "collections.abc.Sequence",
    "collections.abc.Iterator": "collections.abc.Iterator",
    "collections.abc.Iterable": "collections.abc.Iterable",
    "collections.abc.Callable": "collections.abc.Callable[..., Any]",
}
# What a callback receives, where the signature tells what it would take; a pointer comes as a
# number or as a capsule.
CALLBACK_TYPES = {
    "SupportsIndex": "builtins.int",
    "SupportsFloat": "builtins.float",
    "CapsuleType": "Any",
}
# Of the bindings' Python file, what `from tensorrt_bindings import *` brings by accident.
LEFTOVERS = {"attr", "value", "common_enter", "common_exit", "tensorrt"}
UNTYPED: list[str] = []


class Stubs:
    """The stub's lines, and the classes that a signature may name."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self.classes: dict[str, type] = {}
        for value in vars(module).values():
            if isinstance(value, type):
                self._collect(value)

    def _collect(self, cls: type) -> None:
        self.classes.setdefault(cls.__qualname__, cls)
        for value in vars(cls).values():
            if isinstance(value, type) and value.__module__ == cls.__module__:
                self._collect(value)

    def text(self) -> str:
        """Return the whole stub."""
        lines = [HEADER]
        for name, value in vars(self.module).items():
            if name.startswith("_") or name in LEFTOVERS or inspect.ismodule(value):
                continue
            if isinstance(value, type):
                lines += self.class_lines(name, name, value)
            elif type(value).__qualname__ in self.classes:
                lines.append(f"{name}: {type(value).__qualname__}")
            elif inspect.isfunction(value):
                lines.append(python_function(name, value, ""))
            elif callable(value):
                lines += self.function_lines(name, value.__doc__, name, "")
            else:
                lines.append(f"{name}: Any")
        return "\n".join(lines) + "\n"

    def class_lines(self, name: str, path: str, cls: type) -> list[str]:
        """Return a class, or for another name of a class the alias."""
        if cls.__qualname__ != path:
            return [f"{name} = {cls.__qualname__}"]
        bases = [base.__qualname__ for base in cls.__bases__ if base.__qualname__ in self.classes]
        lines = [f"class {name}({', '.join(bases)}):"]
        for member, value in vars(cls).items():
            lines += [f"    {line}" for line in self.member_lines(member, value, path)]
        declared = vars(cls)
        for method in () if "__init__" not in declared else docstring_methods(cls.__doc__):
            if method.name not in declared:
                names = [argument.arg for argument in method.args.args[1:]]
                lines.append(
                    f"    def {method.name}(self, {', '.join(f'{n}: Any' for n in names)}) ->"
                    " Any: ..."
                )
        if "__getitem__" in declared and "__iter__" not in declared:
            lines.append(
                f"    def __iter__(self) -> collections.abc.Iterator[{self.item(cls)}]: ..."
            )
        if has_buffer(cls) and "__buffer__" not in declared:
            lines.append("    def __buffer__(self, flags: builtins.int, /) -> memoryview: ...")
        return [*lines, "    ..."]

    def member_lines(self, name: str, value: Any, path: str) -> list[str]:
        """Return one member of a class."""
        where = f"{path}.{name}"
        if name in {"__doc__", "__module__"} or "pybind11" in name or name.endswith("__entries"):
            return []
        if name in {"__eq__", "__ne__"}:
            return [f"def {name}(self, other: object, /) -> builtins.bool: ..."]
        if value is None:  # __hash__ of what is not hashable
            return [f"{name}: ClassVar[None]  # type: ignore[assignment]"]
        if isinstance(value, type):
            return self.class_lines(name, where, value)
        if name == "__members__":
            return [f"__members__: ClassVar[builtins.dict[builtins.str, {path}]]"]
        if name == "__enter__":
            return ["def __enter__(self) -> Self: ..."]
        if name == "__exit__":
            return ["def __exit__(self, *exc: object) -> None: ..."]
        if isinstance(value, property):
            return self.property_lines(name, value, where)
        if type(value).__qualname__ in self.classes:
            return [f"{name}: ClassVar[{type(value).__qualname__}]"]
        if isinstance(value, staticmethod):
            return self.function_lines(name, value.__func__.__doc__, where, "@staticmethod")
        if inspect.isfunction(value):
            return [python_function(name, value, "self")]
        if callable(value):
            return self.function_lines(name, value.__doc__, where, "self")
        return [f"{name}: ClassVar[Any]"]

    def property_lines(self, name: str, value: property, where: str) -> list[str]:
        """Return a property with what it gives and what it takes."""
        getter = signature(value.fget.__doc__ or "") if value.fget else None
        setter = signature(value.fset.__doc__ or "") if value.fset else None
        given = self.returned(getter[1], where) if getter else "Any"
        if type(value).__name__ == "pybind11_static_property":
            return [f"{name}: ClassVar[{given}]"]
        lines = ["@property", f"def {name}(self) -> {given}: ..."]
        if value.fset:
            taken = (
                self.taken(setter[0][-1][1], where, setter=True)
                if setter and len(setter[0]) > 1
                else "Any"
            )
            lines += [f"@{name}.setter", f"def {name}(self, value: {taken}) -> None: ..."]
        return lines

    def function_lines(self, name: str, doc: str | None, where: str, first: str) -> list[str]:
        """Return a function with all its overloads; `first` is self, @staticmethod or nothing."""
        found = [parsed for text in overloads(doc or "") if (parsed := signature(text))]
        if not found and name == "__init__":
            return ["def __init__(self, no_constructor: Never, /) -> None: ..."]
        if not found:
            UNTYPED.append(where)
            own = "self, " if first == "self" else ""
            return [f"def {name}({own}*args: Any, **kwargs: Any) -> Any: ..."]
        lines = []
        for parameters, result in found:
            taken = parameters[1:] if first == "self" else parameters
            taken = [parameter for parameter in taken if parameter[0] != "/"]
            # Before a parameter that has no default, Python's grammar has no place for one.
            needed = max(
                (at + 1 for at, (_, _, default) in enumerate(taken) if not default), default=0
            )
            texts = [
                self.parameter(*parameter, where) + (" = ..." if at >= needed else "")
                for at, parameter in enumerate(taken)
            ]
            positional = bool(taken) and all(
                re.fullmatch(r"arg\d+", n) or keyword.iskeyword(n) for n, _, _ in taken
            )
            texts = ["self"] * (first == "self") + texts + ["/"] * positional
            lines += ["@overload"] * (len(found) > 1) + ["@staticmethod"] * (
                first == "@staticmethod"
            )
            lines.append(f"def {name}({', '.join(texts)}) -> {self.returned(result, where)}: ...")
        return lines

    def parameter(self, name: str, kind: str, default: str, where: str) -> str:
        """Return one parameter, without its default."""
        taken = self.taken(kind, where)
        if default == "None" and "Any" not in taken:
            taken += " | None"
        return f"{name}_: {taken}" if keyword.iskeyword(name) else f"{name}: {taken}"

    def taken(self, kind: str, where: str, *, setter: bool = False) -> str:
        """Return the type of an argument."""
        owner = self.classes.get(where.rpartition(".")[0])
        known = self.known(kind, where)
        if owner is not None and is_interface(owner):  # TensorRT calls, Python takes
            return CALLBACK_TYPES.get(known, known)
        if known == "Dims":
            return "Dims | collections.abc.Sequence[SupportsIndex]"
        if known == "Weights":
            return "Any"
        if known == "FallbackString":
            return "builtins.str"
        if setter and known in self.classes and not is_enum(self.classes[known]):
            return f"{known} | None"
        return known

    def returned(self, kind: str, where: str) -> str:
        """Return the type of a result."""
        known = self.known(kind, where)
        if known == "builtins.object":
            return "Any"
        nullable = known == "builtins.str" or (
            known in self.classes and not is_enum(self.classes[known])
        )
        return (
            f"{known} | Any"
            if nullable and known != "Dims" and where.rpartition(".")[2][:2] != "__"
            else known
        )

    def known(self, kind: str, where: str) -> str:
        """Translate a type of a signature; what is not known becomes Any."""
        kind = kind.strip().replace("tensorrt_bindings.tensorrt.", "")
        plain = kind.rpartition("::")[2]
        plain = CPP_NAMES.get(plain, plain) if "::" in kind else kind
        if plain in self.classes:
            return plain
        if kind == "None":
            return kind
        if kind in BUILTINS:
            return f"builtins.{kind}"
        if kind == "typing.SupportsInt":
            return "SupportsIndex"
        if kind in OTHER_TYPES:
            return OTHER_TYPES[kind]
        if generic := re.fullmatch(r"([\w.]+)\[(.*)\]", kind):
            inner = ", ".join(self.known(item, where) for item in split(generic[2]))
            return f"{self.known(generic[1], where)}[{inner}]"
        UNTYPED.append(f"{where}: {kind}")
        return "Any"

    def item(self, cls: type) -> str:
        """Return the type of what iteration over `__getitem__` gives."""
        doc = vars(cls)["__getitem__"].__doc__
        for parameters, result in filter(None, map(signature, overloads(doc))):
            if parameters[-1][1] == "typing.SupportsInt":
                return self.returned(result, f"{cls.__qualname__}.__getitem__")
        return "Any"


def python_function(name: str, function: Any, first: str) -> str:
    """Return a function of the bindings' Python file: names, no types."""
    names = [f"{parameter}: Any" for parameter in inspect.signature(function).parameters]
    return f"def {name}({', '.join([first, *names[1:]] if first else names)}) -> Any: ..."


def is_enum(cls: type) -> bool:
    """Tell pybind11's enums, which are plain classes."""
    return "__members__" in vars(cls)


def is_interface(cls: type) -> bool:
    """Tell a class that Python implements: it can be made without arguments and is named as an
    interface.
    """
    doc = (vars(cls).get("__init__").__doc__ or "") if "__init__" in vars(cls) else ""
    return cls.__name__.startswith("I") and doc.startswith("__init__(self: ")


def has_buffer(cls: type) -> bool:
    """Tell whether instances have the buffer protocol, without making one in TensorRT."""
    check = ctypes.pythonapi.PyObject_CheckBuffer
    check.argtypes, check.restype = [ctypes.py_object], ctypes.c_int
    return bool(check(cls.__new__(cls)))


def enum_values(module: ModuleType) -> dict[str, int]:
    """Return the number behind each member of each enum: `BuilderFlag.TF32`."""
    classes = Stubs(module).classes
    return {
        f"{name}.{member}": int(value)
        for name, cls in classes.items()
        if is_enum(cls)
        for member, value in cls.__members__.items()
    }


def main(output: Path) -> None:
    """Write the stub of `tensorrt`, and beside it the list of what could not be typed."""
    import tensorrt_bindings

    text = Stubs(tensorrt_bindings).text()
    ast.parse(text)
    package = output / "tensorrt"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.pyi").write_text(text)
    (output / "untyped.txt").write_text("\n".join(sorted(set(UNTYPED))) + "\n")
    (output / "values.json").write_text(json.dumps(enum_values(tensorrt_bindings)))
    (output / "release.txt").write_text(tensorrt_bindings.__version__)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
