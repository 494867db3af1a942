"""The Python code by which a module checks a built model against its golden cases. Text only."""

SELF_CHECK = '''

def self_check(run: Callable[[dict[str, Any]], Mapping[str, Any]], folder: str | Path | None = None) -> str:
    """Run the model on every golden case, and return how its outputs differ from the original's.

    `run` takes the inputs by name, as NumPy arrays, and returns the outputs by name. `folder` is
    `golden`, beside this module. The text is empty if the model computes what was verified. Needs
    numpy; raises ValueError if the cases cannot be read.
    """
    import numpy as np

    folder = Path(__file__).parent / "golden" if folder is None else Path(folder)
    problems: list[str] = []
    compared = 0
    for case, inputs, outputs in _cases(folder):
        try:
            feeds = {name: _loaded(folder / file, INPUTS[name]) for name, file in inputs.items()}
            found = run(feeds)
        except Exception as error:  # whatever the runtime raises
            problems.append(f"case {case}: {error}")
            continue
        for name, (file, limits) in outputs.items():
            compared += 1
            expected = np.load(folder / file, allow_pickle=False)
            text = _difference(expected, found.get(name), OUTPUTS[name].dtype, limits)
            if text:
                problems.append(f"case {case}, output {name}: {text}")
    return "\\n".join(problems) if compared or problems else "nothing was compared"


def _cases(folder: Path) -> Iterator[tuple[str, dict[str, str], dict[str, tuple[str, dict[str, float]]]]]:
    """Yield each case of `index.tsv`: its name, the inputs' files, and the outputs' files and limits."""
    lines = (folder / "index.tsv").read_text(encoding="utf-8").splitlines()
    if not lines or lines[0] != "convkit-golden\\t1":
        raise ValueError(f"{folder / 'index.tsv'}: written by another release of convkit")
    found: list[Any] = []
    for line in lines[1:]:
        match line.split("\\t"):
            case ["case", name]:
                found.append((name, {}, {}))
            case ["input", name, file]:
                found[-1][1][name] = file
            case ["output", name, file]:
                found[-1][2][name] = (file, {})
            case ["limit", name, value]:
                list(found[-1][2].values())[-1][1][name] = float(value)
            case _ if line and not line.startswith("#"):
                raise ValueError(f"{folder / 'index.tsv'}: not understood: {line}")
    yield from found


def _loaded(file: Path, tensor: Tensor) -> Any:
    import numpy as np

    values = np.load(file, allow_pickle=False)
    if tensor.dtype != "bfloat16":  # stored as its bits: NumPy has no name for it
        return values
    import ml_dtypes

    return values.view(ml_dtypes.bfloat16)


def _difference(expected: Any, found: Any, dtype: str, limits: dict[str, float]) -> str:
    """Return how an output differs from the original's, as text; an empty text if it is within its limits."""
    import numpy as np

    if found is None:
        return "the model did not return it"
    found = np.asarray(found)
    if found.dtype.name != dtype:
        return f"its element type is {found.dtype.name}, not {dtype}"
    if found.shape != expected.shape:
        return f"its shape is {list(found.shape)}, not {list(expected.shape)}"
    if dtype == "bfloat16" and expected.dtype == np.uint16:
        expected = (expected.astype(np.uint32) << 16).view(np.float32)
    wanted, values = expected.astype(np.float64).ravel(), found.astype(np.float64).ravel()
    if not wanted.size:
        return "there is nothing to compare"
    if np.isnan(values).any() or np.isnan(wanted).any():
        return f"{int(np.isnan(values).sum())} of {values.size} elements are NaN"
    infinite = np.isinf(wanted) | np.isinf(values)
    if (wanted[infinite] != values[infinite]).any():
        return "infinities are different"
    figures = _figures(wanted[~infinite], values[~infinite], int(infinite.sum()), limits.get("rtol", 0.0))
    problems = []
    for name, limit in limits.items():
        if name == "rtol":
            continue
        if name not in figures:
            raise ValueError(f"limit {name} is not known; take the bindings of the model's own run")
        larger_is_better = name in ("cosine", "agreement")
        if not (figures[name] >= limit if larger_is_better else figures[name] <= limit):
            problems.append(f"{name} {figures[name]:.3g} {'<' if larger_is_better else '>'} {limit:.3g}")
    return ", ".join(problems) if set(limits) - {"rtol"} else "it has no limit"


def _figures(wanted: Any, values: Any, infinite: int, rtol: float) -> dict[str, float]:
    """Return every figure that a limit can be set on; `infinite` elements besides these are equal."""
    import numpy as np

    error = np.abs(values - wanted)
    error[error < np.finfo(np.float32).tiny] = 0.0
    squares, own, others = ((each * each).sum() for each in (error, wanted, values))
    count = wanted.size + infinite
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.where(error == 0.0, 0.0, error / np.abs(wanted))
        cosine = (wanted * values).sum() / (np.sqrt(own) * np.sqrt(others)) if own and others else 0.0
        return {
            "max_abs": float(error.max(initial=0.0)),
            "max_rel": float(relative.max(initial=0.0)),
            "mean_abs": float(error.sum() / count),
            "rms": float(np.sqrt(squares / count)),
            "nrmse": float(np.sqrt(squares / own)) if squares else 0.0,
            "cosine": float(cosine) if squares else 1.0,
            "agreement": float(((error == 0.0).sum() + infinite) / count),
            "atol": float((error - rtol * np.abs(wanted)).max(initial=-np.inf)),
        }


def _changed_files(folder: Path) -> list[str]:
    """Return the files that are not those that the run of `origin.json` built."""
    try:
        listed = json.loads((folder / "origin.json").read_text(encoding="utf-8"))["files"]
    except FileNotFoundError:
        return []
    return [
        name
        for name, digest in listed.items()
        if (folder / name).is_file() and hashlib.sha256((folder / name).read_bytes()).hexdigest() != digest
    ]


def _opened(folder: Path) -> Callable[[dict[str, Any]], Mapping[str, Any]]:
    """Return what runs the model of a folder: onnxruntime, or convkit for other runtimes."""
    others = [file for file in folder.glob("model.*") if file.suffix not in (".onnx", ".data")]
    if others or not (folder / "model.onnx").is_file():
        import convkit

        return convkit.load(folder)
    import onnxruntime

    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    names = list(OUTPUTS)
    return lambda feeds: dict(zip(names, session.run(names, feeds), strict=True))


def _main(arguments: list[str]) -> int:
    if not arguments or arguments[0] != "--self-check":
        print("usage: python bindings.py --self-check [FOLDER OF THE MODEL]", file=sys.stderr)
        return 2
    folder = Path(arguments[1]) if len(arguments) > 1 else Path(__file__).parent
    try:
        text = "".join(f"{name} was changed after it was built\\n" for name in _changed_files(folder))
        text += self_check(_opened(folder), folder / "golden")
    except Exception as error:  # whatever the runtime raises
        text = str(error) or type(error).__name__
    print(f"{text.rstrip()}\\nself-check: FAILED" if text else "self-check: passed")
    return 1 if text else 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
'''
