"""Generates a standalone C++17 header from a contract. It includes no library, so it works with any
runtime. Pure.
"""

import json
import keyword
import re
from collections.abc import Iterable

from convkit.protocol.contract import Contract, Dimension, DType, TensorSpec
from convkit.worker.bindings.cpp_program import PROGRAM
from convkit.worker.bindings.cpp_self_check import INCLUDES, READING

# ONNX's numbers of element types (TensorProto.DataType); onnxruntime's ONNXTensorElementDataType
# has the same.
ONNX_TYPES: dict[DType, int] = {
    "float32": 1,
    "uint8": 2,
    "int8": 3,
    "uint16": 4,
    "int16": 5,
    "int32": 6,
    "int64": 7,
    "string": 8,
    "bool": 9,
    "float16": 10,
    "float64": 11,
    "uint32": 12,
    "uint64": 13,
    "bfloat16": 16,
    "float8e4m3fn": 17,
    "float8e5m2": 19,
    "uint4": 21,
    "int4": 22,
}

_HEADER = """\
// Written by convkit from the model's contract; do not edit. C++17, and no other header than the standard library's.
//
// Bind by name or by these orders, never by the order in which a runtime happens to list its tensors:
//
//   onnxruntime   session.Run(options, convkit::inputs::names.data(), values, convkit::inputs::count,
//                             convkit::outputs::names.data(), convkit::outputs::count);
//   TensorRT      context->setTensorAddress(convkit::inputs::names[convkit::inputs::INDEX], address);
//
// `convkit::mismatch(inputs, outputs)` says in words where a session's own names differ from these.
// `convkit::self_check(folder, run)` runs the golden cases beside the model: does this machine compute what was verified?
#ifndef CONVKIT_BINDINGS_HPP
#define CONVKIT_BINDINGS_HPP

INCLUDES
namespace convkit {

// ONNX's numbers; the same as onnxruntime's ONNXTensorElementDataType.
enum class ElementType : std::int32_t {
"""

_TYPES = """\
};

// An axis whose size varies: each size from `min` to `max` is served.
struct Axis {
  const char* name;
  std::int64_t min;
  std::int64_t max;
};

// One tensor. A dimension of -1 varies; `dimensions` says by which axis, or by which arithmetic over axes.
struct Tensor {
  const char* name;
  ElementType type;
  std::size_t rank;
  const std::int64_t* shape;
  const char* const* dimensions;
};

"""

_FOOTER = """\
// Returns the place of a name in `names`, or `names.size()` where there is none.
template <typename Names>
constexpr std::size_t find(const Names& names, std::string_view name) {
  std::size_t place = 0;
  for (const auto& candidate : names) {
    if (std::string_view(candidate) == name) {
      return place;
    }
    ++place;
  }
  return place;
}

namespace detail {

template <typename Declared, typename Found>
std::string difference(const char* side, const Declared& declared, const Found& found, bool ordered) {
  std::string listed;
  std::size_t count = 0;
  bool same = true;
  for (const auto& name : found) {
    const std::string_view text(name);
    same = same && find(declared, text) < declared.size();
    if (ordered) {
      same = same && count < declared.size() && std::string_view(declared[count]) == text;
    }
    listed += (count++ == 0 ? "" : ", ") + std::string(text);
  }
  if (same && count == declared.size()) {
    return "";
  }
  std::string wanted;
  for (const auto& name : declared) {
    wanted += (wanted.empty() ? "" : ", ") + std::string(name);
  }
  return std::string(side) + ": declared " + wanted + "; the session has " + listed + ". ";
}

}  // namespace detail

// Says in words where a session's names differ from the contract's; an empty text where they do not. A TensorRT engine
// lists its tensors in its own order: pass `ordered = false` there, and bind by name.
template <typename Inputs, typename Outputs>
std::string mismatch(const Inputs& session_inputs, const Outputs& session_outputs, bool ordered = true) {
  return detail::difference("inputs", inputs::names, session_inputs, ordered) +
         detail::difference("outputs", outputs::names, session_outputs, ordered);
}

}  // namespace convkit
"""


# C++17's reserved words that might be the name of a tensor or axis (Python has its own list), and
# the names that the header itself uses.
_CPP = (
    "alignas alignof and asm auto bool break case catch char class const continue default delete do"
    " double else enum explicit export extern false float for friend goto if inline int long"
    " mutable namespace new not operator or private protected public register return short signed"
    " sizeof static struct switch template this throw true try typedef typeid typename union"
    " unsigned using virtual void volatile while xor count names tensors detail"
)
_RESERVED = frozenset(_CPP.split())


def cpp_bindings(contract: Contract) -> str:
    """Return a contract's header."""
    axes = identifiers(axis.name for axis in contract.axes)
    text = _HEADER.replace("INCLUDES\n", INCLUDES + "\n") + "".join(
        f"  {name} = {number},\n" for name, number in ONNX_TYPES.items()
    ).replace("  bool = ", "  boolean = ")
    text += _TYPES + "namespace axes {\n\n"
    for axis in contract.axes:
        sizes = f"{_quoted(axis.name)}, {axis.min}, {axis.max}"
        text += f"inline constexpr Axis {axes[axis.name]}{{{sizes}}};\n"
    text += "\n}  // namespace axes\n\n"
    text += _side("inputs", contract.inputs) + _side("outputs", contract.outputs)
    return f"{text}{_FOOTER}{READING}\n#endif  // CONVKIT_BINDINGS_HPP\n{PROGRAM}"


def _side(side: str, specs: tuple[TensorSpec, ...]) -> str:
    words = identifiers(spec.name for spec in specs)
    text = f"namespace {side} {{\n\ninline constexpr std::size_t count = {len(specs)};\n\n"
    text += "// The place of each in the declared order.\n"
    for place, spec in enumerate(specs):
        text += f"inline constexpr std::size_t {words[spec.name]} = {place};\n"
    names = ", ".join(_quoted(spec.name) for spec in specs)
    text += (
        f"\ninline constexpr std::array<const char*, count> names{{{names}}};\n\nnamespace detail"
        " {\n\n"
    )
    for place, spec in enumerate(specs):
        text += _dimensions(place, spec.shape)
    text += "\n}  // namespace detail\n\ninline constexpr std::array<Tensor, count> tensors{\n"
    for place, spec in enumerate(specs):
        kind = "boolean" if spec.dtype == "bool" else spec.dtype
        parts = f"{_quoted(spec.name)}, ElementType::{kind}, {len(spec.shape)}"
        text += f"    Tensor{{{parts}, detail::shape_{place}, detail::dimensions_{place}}},\n"
    return text + f"}};\n\n}}  // namespace {side}\n\n"


def _dimensions(place: int, shape: tuple[Dimension, ...]) -> str:
    """Return a shape's two arrays. C++ has no empty arrays: a scalar's have an unused element."""
    sizes = ", ".join(str(size) if isinstance(size, int) else "-1" for size in shape) or "0"
    words = ", ".join(_quoted(str(size)) for size in shape) or '""'
    return (
        f"inline constexpr std::int64_t shape_{place}[] = {{{sizes}}};\n"
        f"inline constexpr const char* dimensions_{place}[] = {{{words}}};\n"
    )


def _quoted(text: str) -> str:
    """Return a C++ string literal. JSON's escapes are valid in C++, except beyond ASCII."""
    return json.dumps(text, ensure_ascii=False)


def identifiers(names: Iterable[str]) -> dict[str, str]:
    """Return a distinct C++ and Python identifier for each name: `input.1` becomes `input_1`."""
    found: dict[str, str] = {}
    for name in names:
        word = re.sub(r"_+", "_", re.sub(r"[^A-Za-z0-9]", "_", name)).strip("_") or "tensor"
        word = f"t{word}" if word[0].isdigit() else word
        word = f"{word}_" if word in _RESERVED or keyword.iskeyword(word) else word
        while word in found.values():
            word += "_"
        found[name] = word
    return found
