"""An OpenVINO IR's XML and weights, as a converter with a fault would have written them."""

import xml.etree.ElementTree as ET
from pathlib import Path
from xml.etree.ElementTree import Element

import numpy as np

_TYPES = {"f32": np.float32, "i64": np.int64, "i32": np.int32}
_NAMES = {np.dtype(kind): name for name, kind in _TYPES.items()}


class IREditor:
    """The layers of an IR. `shapes` are those of their values in one case, by `value`."""

    def __init__(self, path: Path, shapes: dict[str, tuple[int, ...]]) -> None:
        self.shapes = shapes
        self.tree = ET.parse(path)
        self._weights = bytearray(path.with_suffix(".bin").read_bytes())
        self._layers, self._edges = (self.tree.findall(each)[0] for each in ("layers", "edges"))
        self._by_id = {each.get("id"): each for each in self._layers}

    @property
    def operations(self) -> list[Element]:
        """Every layer that computes something."""
        others = ("Const", "Parameter", "Result")
        return [each for each in self._layers if _type(each) not in others]

    def of(self, *types: str) -> list[Element]:
        """Return the layers of these types."""
        return [each for each in self._layers if _type(each) in types]

    def value(self, layer: Element) -> str:
        """Return the name of what a layer computes: an output's, or its own."""
        if any(_type(each) == "Result" for each in self.readers(layer)):
            port = layer.find("output/port")
            names = "" if port is None else port.get("names", "")
            return next((n for n in names.split(",") if n in self.shapes), name_of(layer))
        return name_of(layer)

    def shape(self, layer: Element) -> tuple[int, ...]:
        """Return the shape of what a layer computes in the case."""
        return self.shapes.get(self.value(layer), ())

    def setting(self, layer: Element, name: str) -> str | None:
        """Return an attribute as it is written."""
        data = layer.find("data")
        return None if data is None else data.get(name)

    def set(self, layer: Element, name: str, value: object) -> None:
        """Write an attribute."""
        data = layer.find("data")
        assert data is not None
        data.set(name, str(value))

    def read(self, layer: Element, place: int) -> Element | None:
        """Return the layer that computes an input."""
        edge = self._edge(layer, place)
        return None if edge is None else self._by_id[edge.get("from-layer")]

    def inputs(self, layer: Element) -> list[Element]:
        """Return the layers that compute a layer's inputs."""
        count = len(layer.findall("input/port"))
        return [each for place in range(count) if (each := self.read(layer, place)) is not None]

    def readers(self, layer: Element) -> list[Element]:
        """Return the layers that read what a layer computes."""
        here = layer.get("id")
        return [self._by_id[e.get("to-layer")] for e in self._edges if e.get("from-layer") == here]

    def constant(self, layer: Element, place: int) -> np.ndarray | None:
        """Return an input that is stored; None for what is computed, or of another type."""
        source = self.read(layer, place)
        data = None if source is None else source.find("data")
        if source is None or data is None or _type(source) != "Const":
            return None
        kind = _TYPES.get(data.get("element_type", ""))
        if kind is None:
            return None
        shape = [int(size) for size in data.get("shape", "").split(",") if size.strip()]
        begin, size = int(data.get("offset", 0)), int(data.get("size", 0))
        return np.frombuffer(bytes(self._weights[begin : begin + size]), kind).reshape(shape)

    def put(self, layer: Element, place: int, values: np.ndarray) -> str:
        """Give a layer another constant as an input; return its name."""
        return name_of(self.wire(layer, place, self._add_constant(values)))

    def wire(self, layer: Element, place: int, source: Element) -> Element:
        """Let an input read what another layer computes first; return that layer."""
        edge = self._edge(layer, place)
        assert edge is not None
        _set_source(edge, source)
        return source

    def move_readers(self, layer: Element, source: Element, keep: Element | None = None) -> None:
        """Let all that reads a layer, except `keep`, read another one instead."""
        for edge in self._edges:
            kept = keep is not None and edge.get("to-layer") == keep.get("id")
            if edge.get("from-layer") == layer.get("id") and not kept:
                _set_source(edge, source)

    def insert_after(self, layer: Element, kind: str, *constants: np.ndarray) -> Element:
        """Put an elementwise layer between another one and all that reads it."""
        name = f"{name_of(layer)}_inserted"
        made = self._add(name, kind, 1 + len(constants))
        if constants:
            ET.SubElement(made, "data", auto_broadcast="numpy")
        self.move_readers(layer, made)
        for place, source in enumerate((layer, *map(self._add_constant, constants))):
            edge = ET.SubElement(self._edges, "edge")
            edge.set("to-layer", str(made.get("id")))
            edge.set("to-port", str(place))
            _set_source(edge, source)
        return made

    def save(self, path: Path) -> None:
        """Write the IR and its weights."""
        self.tree.write(path, encoding="utf-8", xml_declaration=True)
        path.with_suffix(".bin").write_bytes(bytes(self._weights))

    def _edge(self, layer: Element, place: int) -> Element | None:
        ports = layer.findall("input/port")
        if place >= len(ports):
            return None
        where = (layer.get("id"), ports[place].get("id"))
        edges = (e for e in self._edges if (e.get("to-layer"), e.get("to-port")) == where)
        return next(edges, None)

    def _add(self, name: str, kind: str, inputs: int) -> Element:
        number = str(1 + max(int(str(each.get("id"))) for each in self._layers))
        made = ET.SubElement(self._layers, "layer", id=number, name=name, type=kind)
        made.set("version", "opset1")
        entries = ET.SubElement(made, "input") if inputs else None
        for place in range(inputs):
            assert entries is not None
            ET.SubElement(entries, "port", id=str(place), precision="FP32")
        port = ET.SubElement(ET.SubElement(made, "output"), "port", id=str(inputs))
        port.set("precision", "FP32")
        self._by_id[number] = made
        return made

    def _add_constant(self, values: np.ndarray) -> Element:
        made = self._add(f"constant_put_{len(self._layers)}", "Const", 0)
        ET.SubElement(
            made,
            "data",
            element_type=_NAMES[values.dtype],
            shape=", ".join(map(str, values.shape)),
            offset=str(len(self._weights)),
            size=str(values.nbytes),
        )
        port = made.find("output/port")
        assert port is not None
        port.set("precision", {"f32": "FP32", "i64": "I64", "i32": "I32"}[_NAMES[values.dtype]])
        for size in values.shape:
            ET.SubElement(port, "dim").text = str(size)
        self._weights += values.tobytes()
        return made


def name_of(layer: Element) -> str:
    """Return a layer's name."""
    return str(layer.get("name"))


def _type(layer: Element) -> str:
    return str(layer.get("type"))


def _set_source(edge: Element, source: Element) -> None:
    port = source.find("output/port")
    assert port is not None
    edge.set("from-layer", str(source.get("id")))
    edge.set("from-port", str(port.get("id")))
