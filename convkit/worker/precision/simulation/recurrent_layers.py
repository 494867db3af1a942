"""Recurrent layers as loops over their steps."""

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from convkit.worker.graph.rewriting.node_writer import NodeWriter

DOMAIN = "convkit.recurrent"
_DOUBLE = ir.DataType.DOUBLE

Widen = Callable[[ir.Value], ir.Value]

# One direction of a layer: x are the inputs' products with W, both biases added ([steps, batch,
# gates * hidden]); r is R transposed; b the recurrent bias of a GRU's last gate; s whether a step
# is within a row's length ([steps, batch, 1]). All but `s` are float64. As ONNX defines them.
_STEPS = {
    "LSTM": """
        (x, r, b, s, h0, c0) => (ys, h, c) {
            h, c, ys = Scan <num_scan_inputs = 2, body = step
                (double[B, H] hi, double[B, H] ci, double[B, G] xi, bool[B, U] si)
                => (double[B, H] ho, double[B, H] co, double[B, H] yo) {
                    hr = MatMul(hi, r)
                    gates = Add(xi, hr)
                    i, o, f, n = Split <axis = -1, num_outputs = 4> (gates)
                    ia = Sigmoid(i)
                    oa = Sigmoid(o)
                    fa = Sigmoid(f)
                    na = Tanh(n)
                    kept = Mul(fa, ci)
                    new = Mul(ia, na)
                    cell = Add(kept, new)
                    shown = Tanh(cell)
                    hidden = Mul(oa, shown)
                    ho = Where(si, hidden, hi)
                    co = Where(si, cell, ci)
                    zero = Sub(hidden, hidden)
                    yo = Where(si, hidden, zero)
                }> (h0, c0, x, s)
        }
    """,
    "GRU": """
        (x, r, b, s, h0, c0) => (ys, h) {
            h, ys = Scan <num_scan_inputs = 2, body = step
                (double[B, H] hi, double[B, G] xi, bool[B, U] si)
                => (double[B, H] ho, double[B, H] yo) {
                    xz, xr, xh = Split <axis = -1, num_outputs = 3> (xi)
                    rz, rr, rh = Split <axis = -1, num_outputs = 3> (r)
                    hz = MatMul(hi, rz)
                    hrr = MatMul(hi, rr)
                    az = Add(xz, hz)
                    ar = Add(xr, hrr)
                    z = Sigmoid(az)
                    t = Sigmoid(ar)
                    NEW
                    n = Tanh(an)
                    away = Sub(hi, n)
                    back = Mul(z, away)
                    hidden = Add(n, back)
                    ho = Where(si, hidden, hi)
                    zero = Sub(hidden, hidden)
                    yo = Where(si, hidden, zero)
                }> (h0, x, s)
        }
    """,
    "RNN": """
        (x, r, b, s, h0, c0) => (ys, h) {
            h, ys = Scan <num_scan_inputs = 2, body = step
                (double[B, H] hi, double[B, H] xi, bool[B, U] si)
                => (double[B, H] ho, double[B, H] yo) {
                    hr = MatMul(hi, r)
                    sum = Add(xi, hr)
                    hidden = Tanh(sum)
                    ho = Where(si, hidden, hi)
                    zero = Sub(hidden, hidden)
                    yo = Where(si, hidden, zero)
                }> (h0, x, s)
        }
    """,
}
# A GRU's new state, with the reset gate before or after the product.
_RESET_BEFORE = "th = Mul(t, hi)\n hn = MatMul(th, rh)\n xb = Add(xh, b)\n an = Add(xb, hn)"
_RESET_AFTER = "hh = MatMul(hi, rh)\n hb = Add(hh, b)\n hn = Mul(t, hb)\n an = Add(xh, hn)"
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_ACTIVATIONS = {
    "LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"],
}  # fmt: skip
_LEAST_OPSET = 18  # Split's num_outputs


def definitions(opset: int) -> list[ir.Function]:
    """Return the functions that `write_recurrent` calls, for a graph of an opset."""
    texts = {
        "LSTM": _STEPS["LSTM"],
        "RNN": _STEPS["RNN"],
        "GRU": _STEPS["GRU"].replace("NEW", _RESET_BEFORE),
        "GRU.after": _STEPS["GRU"].replace("NEW", _RESET_AFTER),
    }
    head = f'<domain: "{DOMAIN}", opset_import: ["": {opset}]>'
    import onnx.parser

    return [
        ir.from_proto(onnx.parser.parse_function(f"{head} {name.replace('.', '_')} {text}"))
        for name, text in texts.items()
    ]


def write_recurrent(
    node: ir.Node, writer: NodeWriter, widen: Widen
) -> Sequence[ir.Value | None] | None:
    """Return the results of an LSTM, GRU or RNN in float64, or None if it has peepholes, clips, or
    other activations than ONNX's default ones, or if the opset has no Split into equal parts.

    The result calls the functions of `definitions`.
    """
    kind = node.op_type
    attributes = node.attributes
    inputs = [*node.inputs, *[None] * (8 - len(node.inputs))]
    x, weight, recurrent, bias, lengths, first_h, first_c, peepholes = inputs
    direction = attributes.get_string("direction", "forward") or "forward"
    directions = 2 if direction == "bidirectional" else 1
    hidden = attributes.get_int("hidden_size", 0)
    activations = (
        list(attributes["activations"].as_strings()) if "activations" in attributes else None
    )
    if (
        x is None
        or weight is None
        or recurrent is None
        or not hidden
        or peepholes is not None
        or "clip" in attributes
        or attributes.get_int("layout", 0)
        or attributes.get_int("input_forget", 0)
        or (activations is not None and activations != _ACTIVATIONS[kind] * directions)
        or writer.opset < _LEAST_OPSET
    ):
        return None
    after = kind == "GRU" and bool(attributes.get_int("linear_before_reset", 0))
    layer = _Layer(node, writer, widen, kind, hidden, after=after)
    results = [
        layer.direction(
            index,
            backwards=direction == "reverse" or index == 1,
            given=(x, weight, recurrent, bias, lengths, first_h, first_c),
        )
        for index in range(directions)
    ]
    axes = [1, 0, 0]
    return [
        parts[0] if directions == 1 else writer.op("Concat", list(parts), axis=axis)
        for axis, parts in zip(axes, zip(*results, strict=True), strict=False)
    ]


class _Layer:
    def __init__(
        self,
        node: ir.Node,
        writer: NodeWriter,
        widen: Widen,
        kind: str,
        hidden: int,
        *,
        after: bool,
    ) -> None:
        self._node = node
        self._writer = writer
        self._widen = widen
        self._kind = kind
        self._hidden = hidden
        self._after = after

    def direction(
        self, index: int, given: Sequence[ir.Value | None], *, backwards: bool
    ) -> list[ir.Value]:
        """Return one direction's outputs: [steps, 1, batch, hidden], then the last states."""
        writer, widen = self._writer, self._widen
        x, weight, recurrent, bias, lengths, first_h, first_c = given
        assert x is not None
        assert weight is not None
        assert recurrent is not None
        wide = widen(x)
        w = self._of_direction(widen(weight), index)
        r = writer.compute(
            "Transpose(r, perm=[1, 0])", r=self._of_direction(widen(recurrent), index)
        )
        sizes = writer.op("Shape", [x])
        within = self._within(sizes, lengths)
        if backwards:
            wide = self._reversed(wide, lengths)
        products = writer.compute("MatMul(x, Transpose(w, perm=[1, 0]))", x=wide, w=w)
        last = writer.constant(np.zeros(self._hidden))
        if bias is not None:
            products, last = self._with_biases(products, self._of_direction(widen(bias), index))
        states = [self._first(first_h, index, sizes), self._first(first_c, index, sizes)]
        name = "GRU_after" if self._after else self._kind
        count = 3 if self._kind == "LSTM" else 2
        ys, *last_states = writer.node(
            name, [products, r, last, within, *states], [_DOUBLE] * count, domain=DOMAIN
        )
        if backwards:
            ys = self._reversed(ys, lengths)
        steps = writer.op("Unsqueeze", [ys, [1]])
        return [steps, *(writer.op("Unsqueeze", [each, [0]]) for each in last_states)]

    def _of_direction(self, value: ir.Value, index: int) -> ir.Value:
        return self._writer.op("Gather", [value, index], axis=0)

    def _with_biases(self, products: ir.Value, bias: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Add what can be added outside the loop; return the rest, a GRU's last recurrent bias."""
        writer = self._writer
        gates = _GATES[self._kind]
        own, again = writer.node("Split", [bias], [_DOUBLE, _DOUBLE], {"axis": 0, "num_outputs": 2})
        rest = writer.constant(np.zeros(self._hidden))
        if self._kind == "GRU":
            update, reset, rest = writer.node(
                "Split", [again], [_DOUBLE] * gates, {"axis": 0, "num_outputs": gates}
            )
            none = writer.constant(np.zeros(self._hidden))
            again = writer.op("Concat", [update, reset, none], axis=0)
        return writer.compute("Add(x, Add(own, again))", x=products, own=own, again=again), rest

    def _first(self, given: ir.Value | None, index: int, sizes: ir.Value) -> ir.Value:
        """Return the state that a direction begins with: [batch, hidden]."""
        if given is not None:
            return self._of_direction(self._widen(given), index)
        return self._writer.compute(
            "Expand(zero, Concat(Slice(sizes, [1], [2]), hidden, axis=0))",
            zero=self._writer.constant(np.zeros(1)),
            sizes=sizes,
            hidden=[self._hidden],
        )

    def _within(self, sizes: ir.Value, lengths: ir.Value | None) -> ir.Value:
        """Return which steps of which rows are within the row's length: [steps, batch, 1]."""
        writer = self._writer
        steps = writer.op("Gather", [sizes, 0])
        row = (
            writer.compute("Expand(steps, Slice(sizes, [1], [2]))", steps=steps, sizes=sizes)
            if lengths is None
            else writer.cast(lengths, ir.DataType.INT64)
        )
        return writer.compute(
            "Less(Unsqueeze(Range(0, steps, 1), [1, 2]), Unsqueeze(row, [0, 2]))",
            steps=steps,
            row=row,
        )

    def _reversed(self, value: ir.Value, lengths: ir.Value | None) -> ir.Value:
        """Reverse the steps of each row, within its length."""
        writer = self._writer
        if lengths is not None:
            row = writer.cast(lengths, ir.DataType.INT64)
            return writer.op("ReverseSequence", [value, row], time_axis=0, batch_axis=1)
        return writer.op("Slice", [value, [-1], [np.iinfo(np.int64).min], [0], [-1]])
