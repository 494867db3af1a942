"""Faults of what precedes and follows a model: the app prepares images, or reads outputs, in
another way than the original.
"""

from pathlib import Path
from typing import Any

from faults.corpus import fault, healthy
from faults.recipes import write_recipe

LOOKS = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = torch.nn.Conv2d(3, 8, 4, stride=4)
        self.head = torch.nn.Linear(8, 5)

    def forward(self, pixels):
        return {"scores": self.head(torch.tanh(2 * self.patches(pixels)).mean((2, 3)))}

def build():
    return Net()
"""
HALF = [0.5, 0.5, 0.5]
APP = "the app must change, too, and a repair cannot do that"
PROCESSOR = {
    "config": {"image_processor_type": "ViTImageProcessor", "size": {"height": 16, "width": 16}}
}
CONSTANTS: dict[str, Any] = {"resize": [16, 16], "scale": "1/255", "mean": HALF, "std": HALF}


def recipe(folder: Path, *, fuse: bool = False, **image: Any) -> Path:
    """Write a recipe of the model, whose app applies these constants."""
    tensor: dict[str, Any] = {
        "name": "pixels",
        "dtype": "uint8" if fuse else "float32",
        "shape": ["batch", 16, 16, 3] if fuse else ["batch", 3, 16, 16],
        "sample": {"image": [0, 255] if fuse else [-1, 1]},
        "preprocess": {"fuse": fuse, "processor": PROCESSOR, "image": CONSTANTS | image},
    }
    return write_recipe(
        folder,
        code=LOOKS,
        axes={"batch": {"min": 1, "typical": 2, "max": 3}},
        inputs=[tensor],
        outputs=[{"name": "scores", "dtype": "float32", "shape": ["batch", 5]}],
    )


@fault(code="C521", place="pixels", remedy="scale: 1/255", repaired=APP, source="PT#80133")
def not_divided_by_255(folder: Path) -> Path:
    """an app that feeds pixels from 0 to 255 to a model of values from -1 to 1"""
    return recipe(folder, fuse=True, scale=1.0)


@fault(code="C522", place="pixels", remedy="channels: rgb", repaired=APP, source="CT#1843")
def blue_first(folder: Path) -> Path:
    """an app that feeds OpenCV's BGR images to a model that expects RGB"""
    return recipe(folder, channels="bgr")


@fault(
    code="C524", place="pixels", remedy="interpolation: bilinear", repaired=APP, source="PT#34204"
)
def another_interpolation(folder: Path) -> Path:
    """an app that resizes with nearest-neighbor interpolation"""
    return recipe(folder, interpolation="nearest")


@healthy(tempts="an input of bytes that the original reads as floats")
def prepared_in_the_graph(folder: Path) -> Path:
    """images of bytes, normalized by the built model"""
    return recipe(folder, fuse=True)


READS = """
def decode(outputs):
    names = ["ant", "bee", "cow", "dog", "eel"]
    shares = torch.softmax(torch.from_numpy(outputs["scores"]), -1).numpy()
    return [(names[best], row[best]) for row, best in zip(shares, shares.argmax(-1))]
"""
NAMES = ["ant", "bee", "cow", "dog", "eel"]


def reading(folder: Path, **labels: Any) -> Path:
    """Write a recipe of the model, whose app makes labels of the scores with these constants."""
    made = {"processor": {"call": "model.py:decode"}, "labels": {"names": NAMES} | labels}
    scores = {"name": "scores", "dtype": "float32", "shape": ["batch", 5]}
    return write_recipe(
        folder,
        code=LOOKS + READS,
        axes={"batch": {"min": 1, "typical": 2, "max": 3}},
        inputs=[{"name": "pixels", "dtype": "float32", "shape": ["batch", 3, 16, 16]}],
        outputs=[scores | {"postprocess": made}],
    )


@fault(
    code="C571",
    place="scores",
    remedy="in the original's order",
    repaired=APP,
    source="yolov5#7749",
)
def labels_sorted_by_name(folder: Path) -> Path:
    """an app whose label file is in a different order from the original's"""
    return reading(folder, names=["ant", "bee", "dog", "cow", "eel"])


@fault(
    code="C574",
    place="scores",
    remedy="activation: softmax",
    repaired=APP,
    source="ultralytics#13851",
)
def sigmoid_in_place_of_softmax(folder: Path) -> Path:
    """an app that applies the multi-label activation to single-label scores"""
    return reading(folder, activation="sigmoid")


@healthy(tempts="an app that turns scores into labels")
def labels_as_the_original_reads_them(folder: Path) -> Path:
    """scores that become labels as in the original's own function"""
    return reading(folder)
