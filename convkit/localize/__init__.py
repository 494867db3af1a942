"""Why a converted model differs, and where: the weight, operator, input or output that causes it.

`weights` compares the graph's weights with the original's without running anything. `recording`
runs the original once and keeps what each operation computed, `graph` runs any part of the
converted graph, `matching` finds the same values on both sides, `divergence` the first place at
which they part, `region` what both sides compute there, `explanation` the change that makes the
difference vanish.
"""
