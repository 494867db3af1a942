"""Contracts worked out from small graphs that are like what people ship, each with one trap."""

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from convkit.protocol.contract import dimension_size
from convkit.protocol.messages import Sample, SurveyRequest, SurveyResult
from convkit.protocol.postprocessing_constants import LabelConstants
from convkit.worker.job_context import Context, StageFailedError
from convkit.worker.stages.survey_file import run

HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'


def saved(folder: Path, text: str, **weights: np.ndarray) -> Path:
    model = onnx.parser.parse_model(HEADER + text)
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(value, name) for name, value in weights.items()
    )
    path = folder / "model.onnx"
    onnx.save(model, path)
    return path


def surveyed(path: Path, seconds: float = 30.0) -> SurveyResult:
    result, findings = run(SurveyRequest(str(path), seconds), Context(path.parent))
    assert findings == []
    return result


def shapes(result: SurveyResult) -> dict[str, tuple[int | str, ...]]:
    return {spec.name: spec.shape for spec in (*result.contract.inputs, *result.contract.outputs)}


def test_ids_stay_below_the_rows_of_the_table_they_index(tmp_path):
    text = """g (int64[unk__1,unk__2] tokens) => (float[a,b,c] y) {
        y = Gather<axis=0>(table, tokens)
    }"""
    result = surveyed(saved(tmp_path, text, table=np.ones((37, 4), np.float32)))
    assert result.ran
    assert result.samples["tokens"].numbers == (0, 37)
    assert shapes(result) == {"tokens": ("batch", "sequence"), "y": ("batch", "sequence", 4)}


def test_numbers_of_nodes_stay_below_the_smallest_graph(tmp_path):
    """What `node` of `slots` each value belongs to: with up to 100, only 100 slots would do."""
    text = """g (float[edges] values, int64[edges] node, float[slots] slots) => (float[slots] y) {
        y = ScatterElements<axis=0, reduction="add">(slots, node, values)
    }"""
    result = surveyed(saved(tmp_path, text))
    assert result.ran
    assert result.samples["node"].numbers == (0, 2)
    (slots,) = [axis for axis in result.contract.axes if axis.name == "slots"]
    assert slots.min == 2


@pytest.mark.parametrize(
    ("domain", "operator", "kind"),
    [
        ("", "ImageDecoder", "encoded_image"),
        ("com.microsoft.extensions", "DecodeImage", "encoded_image"),
        ("", "Identity", "integers"),
    ],
)
def test_bytes_that_the_graph_decodes_are_those_of_an_image(domain, operator, kind, tmp_path):
    name = f"{domain}.{operator}" if domain else operator
    text = f"""<ir_version: 9, opset_import: ["" : 20, "com.microsoft.extensions" : 1]>
    g (uint8[n] file) => (uint8[h,w,3] y) {{
        same = Identity(file)
        y = {name}(same)
    }}"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    result = surveyed(tmp_path / "model.onnx", 0)
    assert result.samples["file"].kind == kind


def test_sizes_that_follow_values_become_axes_from_data(tmp_path):
    text = """g (float[n] x) => (int64[1,a] places, float[b] kept, float[n] y) {
        most = Constant<value_float=0.4>()
        over = Greater(x, most)
        places = NonZero(over)
        kept = Compress<axis=0>(x, over)
        y = Identity(x)
    }"""
    result = surveyed(saved(tmp_path, text))
    assert shapes(result) == {"x": ("n",), "places": (1, "rows"), "kept": ("rows",), "y": ("n",)}
    (axis,) = result.contract.data_axes
    assert axis.name == "rows"
    assert axis.max >= 16
    assert any("set its max to the most rows" in note for note in result.notes)


def test_one_hot_by_comparison_bounds_ids_too(tmp_path):
    text = """g (int32[n,8] letters) => (float[n,8,12] y) {
        axes = Constant<value_ints=[2]>()
        wide = Unsqueeze(letters, axes)
        same = Equal(wide, counted)
        y = Cast<to=1>(same)
    }"""
    counted = np.arange(12, dtype=np.int32).reshape(1, 1, 12)
    assert surveyed(saved(tmp_path, text, counted=counted)).samples["letters"].numbers == (0, 12)


def test_a_picture_in_multiples_of_eight_gets_axes_in_steps(tmp_path):
    # Halved three times and grown back, added to what was never halved.
    text = """g (float[?,3,?,?] x) => (float[?,?,?,?] y) {
        a = MaxPool<kernel_shape=[8,8], strides=[8,8]>(x)
        scales = Constant<value_floats=[1.0,1.0,8.0,8.0]>()
        b = Resize<mode="nearest">(a, , scales)
        y = Add(x, b)
    }"""
    text = text.replace("?", "n1", 1).replace("?", "n2", 1).replace("?", "n3", 1).replace("?", "o")
    result = surveyed(saved(tmp_path, text))
    assert result.samples["x"].kind == "image"
    shape = shapes(result)["x"]
    assert shape[1:] == (3, "8*n2_div_8", "8*n3_div_8")
    assert shapes(result)["y"] == shape
    assert any("multiple of 8" in note for note in result.notes)


@pytest.mark.thorough
def test_bytes_are_recognized_by_their_scaling(tmp_path):
    text = """g (float[n,3,h,w] x) => (float[n,3,h,w] y) {
        f = Constant<value_float=0.003921569>()
        z = Mul(x, f)
        y = Relu(z)
    }"""
    result = surveyed(saved(tmp_path, text))
    assert (result.samples["x"].kind, result.samples["x"].numbers) == ("image", (0, 255))


def test_modes_are_those_that_the_graph_compares_with(tmp_path):
    text = """g (float[n,512] wave, int64 sr) => (float[n,512] y) {
        wanted = Constant<value_int=16000>()
        fast = Equal(sr, wanted)
        y = If (fast) <
            then_branch = a () => (float[n,512] p) { p = Relu(wave) },
            else_branch = b () => (float[n,512] q) { q = Neg(wave) }>
    }"""
    result = surveyed(saved(tmp_path, text))
    assert result.samples["sr"].kind == "one_of"
    assert result.samples["sr"].numbers == (8000, 16000)
    assert result.samples["wave"].kind == "audio"


@pytest.mark.thorough
def test_strides_and_windows_become_arithmetic(tmp_path):
    text = """g (float[batch,samples] audio) => (float[batch,frames,c] y) {
        axes = Constant<value_ints=[1]>()
        wide = Unsqueeze(audio, axes)
        z = Conv<strides=[160]>(wide, W)
        y = Transpose<perm=[0,2,1]>(z)
    }"""
    result = surveyed(saved(tmp_path, text, W=np.ones((5, 1, 400), np.float32)))
    (_, frames, channels) = shapes(result)["y"]
    assert channels == 5
    for samples in (400, 559, 560, 16000, 31999):
        sizes = {"batch": 1, "samples": samples}
        assert dimension_size(frames, sizes) == (samples - 400) // 160 + 1
    axis = result.contract.axis("samples")
    assert axis.min == 400


def test_unnamed_axes_that_must_be_equal_are_one(tmp_path):
    text = """g (float[a1,4] x, float[b1,4] z) => (float[c1,4] y) { y = Sub(x, z) }"""
    result = surveyed(saved(tmp_path, text))
    inputs = shapes(result)
    # Broadcasting lets a size of 1 through; equal sizes are what works throughout.
    assert inputs["y"][0] in (inputs["x"][0], inputs["z"][0])


def test_an_axis_with_a_single_size_is_written_as_that_size(tmp_path):
    text = """g (float[n,anything] x) => (float[n,2] y) {
        target = Constant<value_ints=[-1,64]>()
        flat = Reshape(x, target)
        y = MatMul(flat, W)
    }"""
    result = surveyed(saved(tmp_path, text, W=np.ones((64, 2), np.float32)))
    x, y = shapes(result)["x"], shapes(result)["y"]
    for n in (1, 2, 3):
        sizes = {axis.name: n for axis in result.contract.axes}
        elements = dimension_size(x[0], sizes) * dimension_size(x[1], sizes)
        assert elements == 64 * dimension_size(y[0], sizes)


LENGTHS = """g (float[n,t] waveforms, int64[n] waveforms_lens) => (float[n,t] y) {
    shape = Shape(waveforms)
    one = Constant<value_int=1>()
    last = Gather<axis=0>(shape, one)
    most = ReduceMax<keepdims=0>(waveforms_lens)
    bad = COMPARED
    y = If (bad) <
        then_branch = a () => (float[n,t] p) { p = Expand(waveforms, waveforms_lens) },
        else_branch = b () => (float[n,t] q) { q = Relu(waveforms) }>
}"""


@pytest.mark.thorough
def test_lengths_are_at_most_the_size_of_their_axis(tmp_path):
    text = LENGTHS.replace("COMPARED", "Greater(most, last)")
    sample = surveyed(saved(tmp_path, text)).samples["waveforms_lens"]
    assert (sample.kind, sample.along) == ("lengths", "t")


@pytest.mark.thorough
def test_the_longest_row_fills_its_axis_where_the_file_demands_it(tmp_path):
    """Here rows that are all shorter than the axis end the run."""
    text = LENGTHS.replace("COMPARED", "Less(most, last)")
    sample = surveyed(saved(tmp_path, text)).samples["waveforms_lens"]
    assert (sample.kind, sample.along) == ("lengths", "t")
    assert sample.numbers, "the longest fills the axis"


FRAMES = """g (float[n,LENGTH] x) => (float[n,2,m] y) {
    target = Constant<value_ints=[0,160,-1]>()
    framed = Reshape(x, target)
    y = Conv(framed, basis)
}"""


@pytest.mark.parametrize(("length", "kind"), [(1600, "audio"), (320, "normal")])
def test_a_flat_input_cut_into_many_frames_is_sound(tmp_path, length, kind):
    """A vector of features that a convolution mixes is not."""
    text = FRAMES.replace("LENGTH", str(length))
    path = saved(tmp_path, text, basis=np.ones((2, 160, 1), np.float32))
    assert surveyed(path, 0.0).samples["x"].kind == kind


def test_sound_is_recognized_behind_a_branch_that_only_lays_it_out(tmp_path):
    text = """g (float[n,512] x, bool flat) => (float[n,2,m] y) {
        one = Constant<value_ints=[1]>()
        wide = If (flat) <
            then_branch = a () => (float[n,1,512] p) { p = Unsqueeze(x, one) },
            else_branch = b () => (float[n,1,512] q) { q = Unsqueeze(x, one) }
        >
        y = Conv(wide, basis)
    }"""
    path = saved(tmp_path, text, basis=np.ones((2, 1, 128), np.float32))
    assert surveyed(path, 0.0).samples["x"].kind == "audio"


def test_what_depends_on_values_is_said_and_not_guessed(tmp_path):
    text = """g (float[64] x) => (int64[1,found] y) {
        z = Relu(x)
        y = NonZero(z)
    }"""
    notes = surveyed(saved(tmp_path, text)).notes
    assert any("depends on the inputs' values" in note for note in notes)


def test_a_file_that_never_runs_is_drafted_from_its_graph_with_the_reason(tmp_path):
    text = """g (float[n,4] x) => (float[n,m] y) {
        target = Constant<value_ints=[3,5,7]>()
        y = Reshape(x, target)
    }"""
    result = surveyed(saved(tmp_path, text))
    assert not result.ran
    assert any(note.startswith("the file did not run with any") for note in result.notes)


def test_without_time_nothing_is_run(tmp_path):
    result = surveyed(saved(tmp_path, "g (float[n,4] x) => (float[n,4] y) { y = Relu(x) }"), 0.0)
    assert not result.ran
    assert shapes(result)["x"] == ("n", 4)


def test_what_is_no_model_is_refused(tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"no model")
    with pytest.raises(StageFailedError, match=r"is not an? "):
        surveyed(tmp_path / "model.onnx")


MASKED_CACHE = """g (int64[b,s] ids, int64[b,total] mask, float[b,2,past,4] past_key) => (
    float[b,total] y, float[b,2,total,4] present_key) {
    rows = Gather<axis=0>(table, ids)
    heads = Transpose<perm=[0,2,1,3]>(rows)
    present_key = Concat<axis=2>(past_key, heads)
    sizes = Shape(present_key)
    two = Constant<value_ints=[2]>()
    three = Constant<value_ints=[3]>()
    zero = Constant<value_ints=[0]>()
    one = Constant<value_ints=[1]>()
    length = Slice(sizes, two, three)
    cut = Slice(mask, zero, length, one)
    live = Cast<to=1>(cut)
    score = ReduceMean<axes=[1,3],keepdims=0>(present_key)
    y = Mul(score, live)
}"""


def test_an_axis_that_the_file_also_gives_an_output_is_what_that_is(tmp_path):
    """Longer masks are cut to the cache's length, so running the file alone does not tell that the
    mask's length is past + sequence. The cache may be empty.
    """
    path = saved(tmp_path, MASKED_CACHE, table=np.ones((7, 2, 4), np.float32))
    result = surveyed(path)
    assert shapes(result) == {
        "ids": ("b", "s"),
        "mask": ("b", "s + past"),
        "past_key": ("b", 2, "past", 4),
        "y": ("b", "s + past"),
        "present_key": ("b", 2, "s + past", 4),
    }
    assert result.contract.axis("past").min == 0
    assert result.contract.axis("s").min == 1


def test_a_value_that_decides_sizes_is_held(tmp_path):
    """Which axis is reduced changes two sizes of the output at once."""
    text = """g (float[3,2,2] x, int64[1] axes, int64[3] ids) => (float[a,b,c] y, float[3,4] z) {
        y = ReduceSum<keepdims=1>(x, axes)
        z = Gather<axis=0>(table, ids)
    }"""
    result = surveyed(saved(tmp_path, text, table=np.ones((9, 4), np.float32)))
    assert result.samples["axes"] == Sample("constant", (2,))
    assert result.samples["ids"].kind == "integers"
    assert shapes(result)["y"] == (3, 2, 1)
    assert any("'axes' decides the shape of 'y': 2 was chosen" in note for note in result.notes)
    assert not any("'axes' may have" in note for note in result.notes)


def test_sizes_that_no_constant_settles_are_said_to_depend_on_values(tmp_path):
    text = """g (float[2,3] x, int64[1] k) => (int64[a,b] places) {
        some = Constant<value_float=0.2>()
        over = Greater(x, some)
        found = NonZero(over)
        row = Cast<to=1>(found)
        places = Tile(found, kk)
    }"""
    text = text.replace("row = Cast<to=1>(found)", "kk = Concat<axis=0>(k, k)")
    result = surveyed(saved(tmp_path, text))
    assert result.samples["k"].kind == "integers"
    assert any("in more than one axis" in note for note in result.notes)


def test_what_no_contract_can_describe_is_refused(tmp_path):
    constant = "g () => (float[2] y) { y = Constant<value_floats=[1.0, 2.0]>() }"
    with pytest.raises(StageFailedError, match="has no inputs: it returns constants"):
        surveyed(saved(tmp_path, constant))
    twice = onnx.load(saved(tmp_path, "g (float[2] x) => (float[2] y) { y = Relu(x) }"))
    twice.graph.input.append(twice.graph.input[0])
    onnx.save(twice, tmp_path / "twice.onnx")
    with pytest.raises(StageFailedError, match="several inputs called 'x'"):
        surveyed(tmp_path / "twice.onnx")


def test_samples_with_which_something_is_selected_are_preferred(tmp_path):
    """The number to select comes as a fraction: only 1 selects anything."""
    text = """g (float[4,8] x, float[1,1] settings) => (float[4,k] y) {
        shape = Constant<value_ints=[1]>()
        flat = Reshape(settings, shape)
        some = Cast<to=7>(flat)
        y, places = TopK(x, some)
    }"""
    result = surveyed(saved(tmp_path, text))
    assert result.samples["settings"] == Sample("constant", (1,))
    assert shapes(result)["y"] == (4, 1)


@pytest.mark.parametrize(
    ("last", "constants"),
    [
        ("Relu", LabelConstants(("cat", "dog"), "softmax")),
        ("Softmax", LabelConstants(("cat", "dog"), "none")),
        ("Sigmoid", LabelConstants(("cat", "dog"), "none", 0.5)),
    ],
)
def test_labels_in_the_metadata_are_those_of_the_scores(tmp_path, last, constants):
    text = f"""g (float[n,2] x) => (float[n,2] y, float[n,3] other) {{
        scores = {last}(x)
        y = Identity(scores)
        other = Concat<axis=1>(x, x1)
    }}"""
    path = saved(tmp_path, text, x1=np.ones((4, 1), np.float32))
    assert surveyed(path, 0).labels == {}
    model = onnx.load(path)
    onnx.helper.set_model_props(model, {"names": "{0: 'cat', 1: 'dog'}"})
    onnx.save(model, path)
    assert surveyed(path, 0).labels == {"y": constants}
    onnx.helper.set_model_props(model, {"names": "['cat', 'dog', 'bird', 'fish']"})
    onnx.save(model, path)
    assert surveyed(path, 0).labels == {}
