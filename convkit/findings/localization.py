"""The stories of what `convkit.localize` finds, in the form of `convkit.findings.catalogue`."""

from convkit.findings.explanation import Explanation

LOCALIZATION: dict[str, Explanation] = {
    "C115": Explanation(
        "an input is transformed differently",
        "The graph applies something to an input that the original does not, or lacks something"
        " that the original applies: a normalization, the order of channels or axes, a shift by"
        " one. With that changed, the outputs are right.",
        "Shapes and types agree, and outputs look plausible.",
        "Feed the input as the message says, or remove the step from the graph.",
    ),
    "C209": Explanation(
        "an output is transformed differently",
        "The graph's output is the original's with something added or left out: a softmax, a"
        " sigmoid, a scale, the order of axes. With that changed, the outputs are right.",
        "The largest class often stays the largest, so samples look right.",
        "Apply the step to the output in the caller, or correct the graph's last nodes.",
    ),
    "E216": Explanation(
        "the cause was not searched for",
        "A target failed, and the search for the place where its graph parts from the original"
        " could not run: its environment could not be made, or its process ended early.",
        "Other tools do not search.",
        "See the message; the verdict does not depend on the search.",
    ),
    "N403": Explanation(
        "a weight differs from the original's",
        "A weight of the graph does not hold the original's values: they are scaled, rounded,"
        " changed in some rows, not finite, or from another checkpoint. With the original's"
        " values the outputs are right.",
        "The graph loads and runs; only a comparison weight by weight shows which one it is.",
        "Make the file again from the weights that the original is loaded from.",
    ),
    "N404": Explanation(
        "weights are exchanged",
        "A weight of the graph holds the values of another of the original's weights of the same"
        " shape. With its own values the outputs are right.",
        "Layers of one model have weights of the same shape and similar size.",
        "Put each weight back into its own place, or make the file again.",
    ),
    "N405": Explanation(
        "an operator computes something else",
        "A node's attribute, operator or constant differs from what the original computes there."
        " From the original's own inputs its result is wrong; with the change that the message"
        " names it is right, and so are the outputs.",
        "Small differences, such as an epsilon, are lost in a tolerance until other inputs come.",
        "Correct the node as the message says, or what wrote it so.",
    ),
    "N406": Explanation(
        "an operation is missing or too much",
        "The graph computes something at this place that the original does not, or leaves out"
        " something that the original does: a bias, a mask, a scale, an activation, a rounding."
        " With that changed the outputs are right.",
        "All shapes fit.",
        "Add what is missing or remove what is too much, in the graph or in what wrote it.",
    ),
    "N407": Explanation(
        "a node reads the wrong values",
        "A node reads another value than the original's operation, its inputs in another order, or"
        " their elements in another order. Connected as the message says the outputs are right.",
        "All shapes fit.",
        "Connect the node as the message says, or correct what rewrote the graph.",
    ),
    "N408": Explanation(
        "the graph parts from the original here",
        "Everything that is computed before this place is right, and the result here is wrong."
        " With the original's value put here the outputs are right, so the cause lies in the nodes"
        " that the message names; none of the known changes explains it.",
        "Only the outputs are compared elsewhere.",
        "Compare the node's inputs and attributes with the original's operation at this place.",
    ),
    "N409": Explanation(
        "the graph probably parts from the original near here",
        "Values before this place agree with the original's and this one does not, but the"
        " original's value here does not make the outputs right, or could not be tried: there may"
        " be several causes, or one that lies beside it.",
        "Only the outputs are compared elsewhere.",
        "Look from this place upwards: compare what the graph and the original compute there.",
    ),
}
