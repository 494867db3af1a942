"""Finds why and where a converted model differs: the weight, operator, input or output that causes
it.

`weights` compares the graph's weights with the original's without running anything. `recording`
runs the original once and records the result of each operation, `graph` runs any part of the
converted graph, `matching` finds equal values on both sides, `divergence` the first place where
they diverge, `region` what both sides compute there, and `explanation` the change that removes the
difference.
"""
