"""Malformed recipes: a change to a good one, where the problem is, and what must be said of it."""

import dataclasses

GOOD = """\
schema: 1
name: small
description: a small recipe
model:
  config:
    architecture: bert
    overrides: {num_hidden_layers: 1}
tools:
  python: "3.11"
  torch: "==2.13.*"
export: {exporter: torch, opset: 18}
axes:
  batch: {min: 1, typical: 2, max: 4}
  sequence: {min: 2, typical: 8, max: 16}
inputs:
  - {name: ids, dtype: int64, shape: [batch, sequence], sample: token_ids}
  - {name: mask, dtype: int64, shape: [batch, sequence], sample: padding_mask}
  - {name: kinds, dtype: int64, shape: [batch, sequence], sample: {integers: [0, 2]}}
outputs:
  - {name: hidden, dtype: float32, shape: [batch, sequence, 8]}
verify:
  seed: 0
  tolerance: {max_abs: 1e-4, cosine: 0.999}
targets:
  ort-cpu:
    runtime: onnxruntime
    device: cpu
    precision: float32
    versions: ["==1.21.*", "==1.31.*"]
track: {experiment: convkit/small}
"""


@dataclasses.dataclass(frozen=True)
class Malformed:
    """`old` in the good recipe becomes `new`; the only problem stands where `at` begins, in the
    changed text.
    """

    old: str
    new: str
    at: str
    key: str
    says: str

    @property
    def text(self) -> str:
        """The whole recipe."""
        assert GOOD.count(self.old) >= 1, self.old
        return GOOD.replace(self.old, self.new, 1)

    @property
    def place(self) -> tuple[int, int]:
        """Line and column, from 1."""
        before = self.text[: self.text.index(self.at)]
        return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


M = Malformed
CONFIG = "  config:\n    architecture: bert\n    overrides: {num_hidden_layers: 1}\n"

UNKNOWN_AND_MISSING_KEYS = (
    M(
        "name: small",
        "nmae: small",
        "nmae",
        "nmae",
        "is not a key of a recipe; perhaps you meant 'name'",
    ),
    M("name: small\n", "", "schema", "name", "is missing; write name: bert"),
    M(
        "schema: 1\n",
        "",
        "name: small",
        "schema",
        "is missing; write schema: 1 (version of this format)",
    ),
    M("targets:", "tragets:", "tragets", "tragets", "perhaps you meant 'targets'"),
    M(
        "  config:\n",
        "  confg:\n",
        "confg",
        "model.confg",
        "is not a key of model; perhaps you meant 'config'",
    ),
    M(
        "opset: 18",
        "opsett: 18",
        "opsett",
        "export.opsett",
        "perhaps you meant 'opset' (keys: exporter, opset, inp",
    ),
    M(
        "track: {",
        "opset: 17\ntrack: {",
        "opset: 17",
        "opset",
        "belongs under export or targets.<name>.export",
    ),
    M(
        "track: {",
        "budget: 9\ntrack: {",
        "budget",
        "budget",
        "is not a key of a recipe; it belongs under verify (keys",
    ),
    M(
        "track: {",
        "zzz: 9\ntrack: {",
        "zzz",
        "zzz",
        "(keys: schema, name, description, model, original, tools, export, axes",
    ),
    M(
        "    device: cpu",
        "    devise: cpu",
        "devise",
        "targets.ort-cpu.devise",
        "perhaps you meant 'device'",
    ),
    M(
        "    runtime: onnxruntime\n",
        "",
        "ort-cpu",
        "targets.ort-cpu.runtime",
        "is missing; write one of runtime: onnxruntime",
    ),
    M(
        "max: 4",
        "maximum: 4",
        "maximum",
        "axes.batch.maximum",
        "perhaps you meant 'max' (keys: min, typical, max)",
    ),
    M("max: 4", "mox: 4", "mox", "axes.batch.mox", "perhaps you meant 'max'"),
    M(
        ", dtype: float32",
        "",
        "{name: hidden",
        "outputs[0].dtype",
        "is missing; write dtype: int64 (element type)",
    ),
)

PRECISIONS = (
    M(
        "precision: float32",
        "precision: {quantize: int8}",
        "int8}",
        "targets.ort-cpu.precision.quantize",
        "write one of dynamic-int8, static-int8, int4-weights",
    ),
    M(
        "precision: float32",
        "precision: {quantize: dynamic-int8, calibration: {method: entropy}}",
        "calibration",
        "targets.ort-cpu.precision.calibration",
        "dynamic-int8 needs no calibration; remove it",
    ),
    M(
        "precision: float32",
        "precision: {quantize: static-int8, block_size: 32}",
        "32}",
        "targets.ort-cpu.precision.block_size",
        "static-int8 does not use blocks; remove it",
    ),
    M(
        "precision: float32",
        "precision: {quantize: dynamic-int8, format: qdq}",
        "qdq}",
        "targets.ort-cpu.precision.format",
        "write operators, or remove it",
    ),
    M(
        "precision: float32",
        "precision: {quantize: static-int8, calibration: {percentile: 99.9}}",
        "99.9}",
        "targets.ort-cpu.precision.calibration.percentile",
        "requires method: percentile",
    ),
    M(
        "precision: float32",
        "precision: {quantize: static-int8, calibration: {file: data.npy}}",
        "data.npy}",
        "targets.ort-cpu.precision.calibration.file",
        "write a path that ends in .npz",
    ),
    M(
        "precision: float32",
        "precision: {default: float16, quantize: dynamic-int8}",
        "default",
        "targets.ort-cpu.precision.default",
        "is not a key of targets.ort-cpu.precision",
    ),
    M(
        "precision: float32",
        "precision: fp16",
        "fp16",
        "targets.ort-cpu.precision",
        "found 'fp16'; write float32, float16, bfloat16, {default: float16",
    ),
    M(
        "precision: float32",
        "precision: 16",
        "16\n",
        "targets.ort-cpu.precision",
        "found 16; write float32, float16, bfloat16, {def",
    ),
    M(
        "precision: float32",
        "precision: [float16]",
        "precision",
        "targets.ort-cpu.precision",
        "found [float16]; write float32, float16",
    ),
    M(
        "precision: float32",
        "precision:",
        "precision",
        "targets.ort-cpu.precision",
        "found nothing; write float32, float16, bfloat16, {def",
    ),
    M(
        "precision: float32",
        "precision: {keep_float32: [encoder]}",
        "precision",
        "targets.ort-cpu.precision.default",
        "is missing; write default: float16 or bfloat16",
    ),
    M(
        "precision: float32",
        "precision: {default: float32}",
        "float32}",
        "targets.ort-cpu.precision.default",
        "found 'float32'; write one of float16, bfloat16",
    ),
    M(
        "precision: float32",
        "precision: {default: float16, keep: [encoder]}",
        "keep",
        "targets.ort-cpu.precision.keep",
        "(keys: keep_float32, default, saturate)",
    ),
    M(
        "precision: float32",
        "precision: {default: float16, keep_float32: encoder}",
        "encoder}",
        "targets.ort-cpu.precision.keep_float32",
        "found 'encoder'; write auto, or a list of module paths such as",
    ),
    M(
        "precision: float32",
        "precision: {default: float16, keep_float32: [a, a..b]}",
        "a..b",
        "targets.ort-cpu.precision.keep_float32[1]",
        "found 'a..b'; write a dotted module path",
    ),
    M(
        "precision: float32",
        "precision: {default: float16, keep_float32: [a**]}",
        "a**",
        "targets.ort-cpu.precision.keep_float32[0]",
        "** any number of segments",
    ),
    M(
        "precision: float32",
        "precision: {default: float16, keep_float32: [a, a]}",
        "a]}",
        "targets.ort-cpu.precision.keep_float32[1]",
        "is listed twice",
    ),
    M(
        "precision: float32",
        "precision: {default: float16, saturate: 1}",
        "1}\n    versions",
        "targets.ort-cpu.precision.saturate",
        "found 1; write true or false",
    ),
    M(
        "precision: float32",
        "precision: float16\n    artifact: optimized",
        "optimized",
        "targets.ort-cpu.artifact",
        "verified by simulating the graph it is built from",
    ),
)

WRONG_VALUES = (
    M(
        "precision: float32",
        "precision: float31",
        "float31",
        "targets.ort-cpu.precision",
        "'float31'; write float32",
    ),
    M(
        "device: cpu",
        "device: gpu",
        "gpu",
        "targets.ort-cpu.device",
        "'gpu'; write one of cpu, cuda",
    ),
    M(
        "device: cpu",
        "device: [cpu]",
        "device",
        "targets.ort-cpu.device",
        "found [cpu]; write one of cpu, cuda",
    ),
    M(
        "onnxruntime\n",
        "onnxrt\n",
        "onnxrt\n",
        "targets.ort-cpu.runtime",
        "perhaps you meant 'onnxruntime'",
    ),
    M(
        "exporter: torch",
        "exporter: torchscrpt",
        "torchscrpt",
        "export.exporter",
        "perhaps you meant 'torchscript'",
    ),
    M(
        "exporter: torch",
        "exporter: 1",
        "1, opset",
        "export.exporter",
        "found 1; write one of torch, optimum, torchscr",
    ),
    M("dtype: int64", "dtype: i64", "i64", "inputs[0].dtype", "perhaps you meant 'int64'"),
    M("schema: 1", "schema: 2", "2\n", "schema", "found 2; write 1"),
    M("schema: 1", "schema: true", "true", "schema", "found true; write schema: 1"),
    M("schema: 1", "schema: 1.0", "1.0", "schema", "found 1.0; write schema: 1"),
    M("schema: 1", 'schema: "1"', '"1"', "schema", "found '1'; write schema: 1"),
    M("name: small", "name: 2024", "2024", "name", 'found 2024; write it in quotes: "2024"'),
    M("name: small", "name: true", "true", "name", 'found true; write it in quotes: "true"'),
    M("name: small", "name: [a, b]", "name", "name", "found [a, b]; write text"),
    M("name: small", "name:", "name", "name", "found nothing; write text"),
    M("name: small", "name: a/b", "a/b", "name", "letters, digits, '.', '_' and '-'"),
    M("name: small", "name: ''", "''", "name", "found ''; write letters"),
    M("name: small", f"name: {'x' * 101}", "xxx", "name", "write at most 100 characters"),
    M('"3.11"', "3.10", "3.10", "tools.python", 'found 3.10; write it in quotes: "3.10"'),
    M('"3.11"', '"311"', '"311"', "tools.python", "a Python version in quotes"),
    M(
        'torch: "==2.13.*"',
        "torch: 2.13",
        "2.13",
        "tools.torch",
        "found 2.13; write a version specifier in quotes",
    ),
    M('torch: "==2.13.*"', 'torch: "2.13"', '"2.13"', "tools.torch", 'write "==2.13"'),
    M(
        'torch: "==2.13.*"',
        "torch: '^2.13'",
        "'^2",
        "tools.torch",
        "not a version specifier (PEP 440); write one such",
    ),
    M(
        'torch: "==2.13.*"',
        'torch: ""',
        '""',
        "tools.torch",
        'write the allowed versions, such as "==2.13.*"',
    ),
    M(
        'torch: "==2.13.*"',
        'to rch: "==2"',
        '"==2"',
        "tools.to rch",
        "write a package's name as on the index",
    ),
    M(
        'torch: "==2.13.*"',
        'a.b: ">1"\n  A-b: ">1"',
        '">1"\ne',
        "tools.A-b",
        "is the same package as 'a.b'; write it once",
    ),
    M("opset: 18", "opset: 18.5", "18.5", "export.opset", "found 18.5; write an integer"),
    M(
        "opset: 18",
        "opset: '18'",
        "'18'",
        "export.opset",
        "found '18'; write an integer without quotes: 18",
    ),
    M("opset: 18", "opset: 5", "5}", "export.opset", "found 5; write a number of at least 11"),
    M("opset: 18", "opset: 99", "99", "export.opset", "found 99; write a number of at most 26"),
    M("opset: 18", "opset: yes", "yes", "export.opset", "found 'yes'; write an integer"),
    M("seed: 0", "seed: 1e3", "1e3", "verify.seed", "found 1e3; write an integer"),
    M("seed: 0", "seed: -1", "-1", "verify.seed", "found -1; write a number of at least 0"),
    M("seed: 0", "seed: true", "true", "verify.seed", "found true; write an integer"),
    M("seed: 0", "budget: 0", "0\n  tol", "verify.budget", "found 0; write a number above 0"),
    M(
        "max_abs: 1e-4",
        "max_abs: '1e-4'",
        "'1e-4'",
        "verify.tolerance.max_abs",
        "a number without quotes: 1e-4",
    ),
    M(
        "max_abs: 1e-4",
        "max_abs: 1_000",
        "1_000",
        "verify.tolerance.max_abs",
        "found '1_000'; write a number: 1000",
    ),
    M(
        "max_abs: 1e-4",
        "max_abs: -1.5",
        "-1.5",
        "verify.tolerance.max_abs",
        "found -1.5; write a number of at least 0",
    ),
    M(
        "max_abs: 1e-4",
        "max_abs: .nan",
        ".nan",
        "verify.tolerance.max_abs",
        "found .nan; write a finite number",
    ),
    M(
        "max_abs: 1e-4",
        "max_abs: 1e999",
        "1e999",
        "verify.tolerance.max_abs",
        "does not fit into a float64",
    ),
    M(
        "cosine: 0.999",
        "cosine: 1.5",
        "1.5",
        "verify.tolerance.cosine",
        "write a number of at most 1",
    ),
    M(
        "{max_abs: 1e-4, cosine: 0.999}",
        "{}",
        "tolerance",
        "verify.tolerance",
        "has no limit, so it cannot fail",
    ),
    M(
        "{max_abs: 1e-4, cosine: 0.999}",
        "{rms: }",
        "tolerance",
        "verify.tolerance",
        "has no limit, so it cannot fail",
    ),
    M(
        "{max_abs: 1e-4, cosine: 0.999}",
        "1e-4",
        "1e-4",
        "verify.tolerance",
        "write a mapping of keys: max_abs, max_rel",
    ),
    M(
        "  config:",
        "  allow_pickle: yes\n  config:",
        "yes",
        "model.allow_pickle",
        "write true or false",
    ),
    M(
        "{min: 2, typical: 8, max: 16}",
        "{min: 9, typical: 8, max: 16}",
        "sequence",
        "axes.sequence",
        "min <= typical <= ",
    ),
    M(
        "{min: 2, typical: 8, max: 16}",
        "8",
        "8\ninputs",
        "axes.sequence",
        "found 8; write a mapping of keys: min, typical",
    ),
    M(
        "min: 2",
        "min: -1",
        "-1, typical: 8",
        "axes.sequence.min",
        "found -1; write a number of at least 0",
    ),
    M(
        '"==1.31.*"]',
        "1.31]",
        "1.31",
        "targets.ort-cpu.versions[1]",
        "found 1.31; write a version specifier in quotes",
    ),
    M(
        '"==1.31.*"]',
        '"== 1.21.*"]',
        '"== 1.21.*"',
        "targets.ort-cpu.versions[1]",
        "already in this list",
    ),
    M(
        '["==1.21.*", "==1.31.*"]',
        '"==1.31.*"',
        '"==1.31.*"',
        "targets.ort-cpu.versions",
        "write a list, such as [==1.31.",
    ),
    M(
        "track: {experiment: convkit/small}",
        "track:",
        "track",
        "track",
        "mapping of keys: experiment, or remove the key",
    ),
    M(
        "track: {experiment: convkit/small}",
        "track: x",
        "x\n",
        "track",
        "found 'x'; write a mapping of keys: experiment",
    ),
    M(
        "  ort-cpu:\n",
        "  ort cpu:\n",
        "ort cpu",
        "targets.ort cpu",
        "found 'ort cpu'; write letters, digits",
    ),
    M(
        "seed: 0",
        "skip: [texts, largst]",
        "largst",
        "verify.skip[1]",
        "perhaps you meant 'largest'",
    ),
)

SIGNATURE = (
    M(
        "sample: token_ids",
        "sample: tokens",
        "tokens",
        "inputs[0].sample",
        "found 'tokens'; write token_ids, padding_mask,",
    ),
    M(
        "sample: token_ids",
        "sample: normal",
        "normal",
        "inputs[0].sample",
        "{normal: [mean, deviation]}",
    ),
    M(
        "sample: token_ids",
        "sample: {integer: [0, 9]}",
        "sample: {integer:",
        "inputs[0].sample",
        "found a mapping (integer",
    ),
    M("sample: token_ids", "sample: 5", "5}", "inputs[0].sample", "found 5; write token_ids"),
    M(
        ", sample: token_ids",
        "",
        "{name: ids",
        "inputs[0]",
        "input 'ids' is int64, so it needs a sample",
    ),
    M(
        "[0, 2]",
        "[2, 0]",
        "integers",
        "inputs[2].sample.integers",
        "found [2, 0]; write [low, high] with low < high",
    ),
    M(
        "[0, 2]",
        "[0]",
        "integers",
        "inputs[2].sample.integers",
        "found [0]; write [low, high]: low included",
    ),
    M(
        "[0, 2]",
        "[0, 1, 2]",
        "integers",
        "inputs[2].sample.integers",
        "found [0, 1, 2]; write [low, high]",
    ),
    M("[0, 2]", "[0, 2.5]", "2.5", "inputs[2].sample.integers[1]", "found 2.5; write an integer"),
    M(
        "{integers: [0, 2]}",
        "{normal: [0, 1]}",
        "sample: {normal",
        "inputs[2].sample",
        "normal samples fractions, but the input",
    ),
    M(
        "{integers: [0, 2]}",
        "{constant: 0.5}",
        "sample: {constant",
        "inputs[2].sample",
        "0.5 is not an integer",
    ),
    M(
        "{integers: [0, 2]}",
        "{file: x.npz}",
        "x.npz",
        "inputs[2].sample.file",
        "a path that ends in .npy",
    ),
    M(
        "[batch, sequence, 8]",
        "[batch, seqence, 8]",
        "seqence",
        "outputs[0].shape[1]",
        "perhaps you meant 'sequence'",
    ),
    M(
        "[batch, sequence, 8]",
        "[batch, seq +, 8]",
        "seq +",
        "outputs[0].shape[1]",
        "neither an axis nor arithmetic",
    ),
    M(
        "[batch, sequence, 8]",
        "[batch, -1, 8]",
        "-1",
        "outputs[0].shape[1]",
        "found -1; write a size from 0",
    ),
    M(
        "[batch, sequence, 8]",
        "[batch, 1.5, 8]",
        "1.5",
        "outputs[0].shape[1]",
        "found 1.5; write a size, an axis by name",
    ),
    M(
        "[batch, sequence, 8]",
        "[batch, true, 8]",
        "true",
        "outputs[0].shape[1]",
        "found true; write a size, an axis",
    ),
    M(
        "[batch, sequence, 8]",
        "batch",
        "batch}",
        "outputs[0].shape",
        "found 'batch'; write a list, such as [batch]",
    ),
    M(
        "[batch, sequence, 8]",
        "[batch, sequence - 3]",
        "sequence - 3",
        "outputs[0].shape[1]",
        "is -1 with every axis at",
    ),
    M(
        "[batch, sequence, 8]",
        "[batch // (batch - 1)]",
        "batch // (",
        "outputs[0].shape[0]",
        "divides by zero",
    ),
    M(
        "name: mask",
        "name: ids",
        "ids, dtype: int64, shape: [batch, sequence], sample: padding",
        "inputs[1].name",
        "inputs[0] is already called 'ids'",
    ),
    M(
        "name: hidden",
        "name: mask",
        "mask, dtype: float32",
        "outputs[0].name",
        "inputs[1] is already called 'mask'",
    ),
    M(
        "name: mask,",
        "name: mask, from: ids,",
        "ids, dtype: int64, shape: [batch, sequence], sample: padding",
        "inputs[1].from",
        "inputs[0] already refers to the model's 'ids'",
    ),
    M(
        "  sequence: {",
        "  unused: {min: 1, typical: 1, max: 1}\n  sequence: {",
        "unused",
        "axes.unused",
        "no input or output uses this axis",
    ),
    M(
        "seed: 0",
        "outputs: {hiden: {rms: 1}}",
        "hiden",
        "verify.outputs.hiden",
        "perhaps you meant 'hidden'; outputs: hidden",
    ),
    M(
        "device: cpu",
        "outputs: {x: {rms: 1}}",
        "x: {",
        "targets.ort-cpu.outputs.x",
        "is not an output; outputs: hidden",
    ),
)

MODEL_SOURCES = (
    M(CONFIG, "  task: x\n", "model", "model", "names no source; write one of hub, path, package"),
    M(
        CONFIG,
        "  hub: {id: a/b, revision: main}\n",
        "main}",
        "model.hub.revision",
        "found 'main'; write the full commit",
    ),
    M(
        CONFIG,
        "  hub: {id: a/b/c, revision: " + "0" * 39 + "a}\n",
        "a/b/c",
        "model.hub.id",
        "a repository as owner/name",
    ),
    M(
        CONFIG,
        "  package: {name: p, version: 1.0, path: m}\n",
        "1.0",
        "model.package.version",
        'write it in quotes: "1.0"',
    ),
    M(
        CONFIG,
        "  package: {name: p, version: 1.0.0, path: ../m}\n",
        "../m",
        "model.package.path",
        "write a path inside the package",
    ),
    M(CONFIG, "  factory: build\n", "build", "model.factory", "path/to/file.py:callable"),
    M(CONFIG, "  path: nowhere\n", "nowhere", "model.path", "found no folder 'nowhere'"),
    M(
        "  config:\n",
        "  omit: [ids]\n  config:\n",
        "ids]",
        "model.omit[0]",
        "'ids' is also one of the inputs",
    ),
    M(
        "  config:\n",
        "  omit: ids\n  config:\n",
        "ids\n",
        "model.omit",
        "found 'ids'; write a list, such as [ids]",
    ),
)

YAML_TEXT = (
    M(
        "name: small\n",
        "name: small\nname: other\n",
        "name: other",
        "name",
        "duplicate key, first used in line 2; remove one",
    ),
    M("name: small", "name: &a small", "&a", "name", "anchors (&a) are not supported"),
    M("name: small", "name: *a", "*a", "name", "aliases (*a) are not supported"),
    M("name: small", "name: !!str small", "!!str", "name", "tags (!!str) are not supported"),
    M(
        "name: small",
        "name: !!python/object/apply:os.system [ls]",
        "!!python",
        "name",
        "tags (!!python/object/apply:os.system",
    ),
    M("export: {", "export: !x {", "!x", "export", "tags (!x) are not supported"),
    M(
        "name: small\n",
        "<<: {a: 1}\nname: small\n",
        "<<",
        "<<",
        "merge keys (<<) are not supported",
    ),
    M(
        "name: small\n",
        "1: a\nname: small\n",
        "1: a",
        "1",
        'a key must be text; put it in quotes if you mean it: "1"',
    ),
    M("name: small\n", "~: a\nname: small\n", "~: a", "~", "a key must be text"),
    M("name: small\n", "? \n: a\nname: small\n", " \n: a", "", "a key is missing before the colon"),
    M("name: small\n", "? [a]\n: b\nname: small\n", "[a]", "", "a list or mapping cannot be a key"),
    M("name: small\n", "*a : b\nname: small\n", "*a", "", "an alias cannot be a key"),
    M("name: small\n", "name: small\n---\n", "---", "", "a second document starts here"),
    M(
        "schema: 1\n",
        "%YAML 1.1\n---\nschema: 1\n",
        "%YAML",
        "",
        "directives (%...) are not supported",
    ),
    M("  python:", "\tpython:", "\tpython", "", "this line is indented with a tab; use spaces"),
    M("name: small", "name: a: b", ": b", "", "a 'key: value' pair is not allowed here"),
    M("name: small", "name: @small", "@small", "", "text that starts with '@' needs quotes"),
    M("name: small", "name: `small`", "`small", "", "text that starts with '`' needs quotes"),
    M("name: small", "name: - small", "- small", "", "a list cannot start on the line of its key"),
    M(
        "[batch, sequence, 8]}",
        "[batch, sequence, 8]]}",
        "]}\nverify",
        "",
        "in the mapping that opens in line 20",
    ),
    M("name: small", "name: }", "}", "", "unmatched '}'"),
    M("name: small", r'name: "\qmall"', r"\q", "", "unknown escape"),
    M(
        "description: a",
        r'description: "\0" # a',
        '"\\0',
        "description",
        "an escape for the unprintable character U+0000",
    ),
    M(
        "  ort-cpu:\n    runtime: onnxruntime\n    device",
        "  ort-cpu:\n    runtime: onnxruntime\n   device",
        "device",
        "",
        "this does not fit the mapping that starts in line",
    ),
    M(
        "overrides: {num_hidden_layers: 1}",
        "overrides: {a: " + "9" * 40 + "}",
        "999",
        "model.config.overrides.a",
        "does not fit into 64 bits",
    ),
    M(
        "overrides: {num_hidden_layers: 1}",
        "overrides: {a: .inf}",
        ".inf",
        "model.config.overrides.a",
        "found .inf; write a finite number",
    ),
)

TABLE = (
    *UNKNOWN_AND_MISSING_KEYS,
    *PRECISIONS,
    *WRONG_VALUES,
    *SIGNATURE,
    *MODEL_SOURCES,
    *YAML_TEXT,
)
