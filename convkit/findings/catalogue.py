"""Every finding's code: what it means, why it is missed elsewhere, what to do. `convkit explain
CODE` prints it.
"""

from convkit.findings.explanation import Explanation
from convkit.findings.localization import LOCALIZATION

FAMILIES: dict[str, str] = {
    "C": "contract",
    "N": "numerics",
    "T": "types and kernels",
    "V": "versions",
    "E": "execution",
    "Q": "quantisation",
    "R": "reproducibility",
}

CATALOGUE: dict[str, Explanation] = {
    "C101": Explanation(
        "an input is missing",
        "The recipe declares an input that the model does not have: the exporter dropped it because"
        " nothing used it, or the model never had it.",
        "TorchScript exports drop unused inputs without a word; feeding by position then shifts"
        " every later input.",
        "Remove the input from the recipe if the model does not need it, or export with an exporter"
        " that keeps it.",
    ),
    "C102": Explanation(
        "an input is not in the contract",
        "The model has an input that the recipe does not declare, so no caller knows what to feed.",
        "A runtime reports it only at the first call, and a caller that binds by position shifts"
        " every later input.",
        "Declare the input in the recipe, at its place in the order.",
    ),
    "C103": Explanation(
        "the inputs stand in another order",
        "The model's inputs and the recipe's have the same names in another order. Callers that"
        " bind by position (C++, TensorRT, Triton) feed one tensor as another.",
        "Two inputs of one type and shape can be exchanged without any error; a BERT then gives"
        " wrong numbers or NaN.",
        "Put the recipe's inputs in the model's order; if the other order is meant, say"
        " export.input_order: recipe.",
    ),
    "C104": Explanation(
        "an input was renamed",
        "A declared input is missing and an undeclared one of the same type and shape stands in its"
        " place.",
        "Exporters rename inputs (input.1, onnx::Gather_0) when names are not given or are taken.",
        "Use the model's name in the recipe, or keep the name and give the model's as `from`.",
    ),
    "C105": Explanation(
        "an input has another element type",
        "The model takes an input in another element type than the recipe declares.",
        "Some runtimes convert in silence; others read the bytes as what they are not.",
        "Give the input's dtype in the recipe as the model takes it.",
    ),
    "C106": Explanation(
        "an axis was fixed",
        "An axis that the recipe calls symbolic has a fixed size in the model, in the declared"
        " shape or inside the graph: other sizes fail or give wrong results.",
        "Checks that run only the example's shape pass.",
        "Export with the axis symbolic; write shapes in the model with tensor.shape, not with"
        " Python numbers.",
    ),
    "C107": Explanation(
        "an input has another shape",
        "The number of axes or a fixed size differs from the recipe.",
        "Runtimes that do not check shapes read past the end or broadcast.",
        "Give the input's shape in the recipe as the model takes it.",
    ),
    "C108": Explanation(
        "an input has no influence",
        "Changing the input changes no output of the converted model, though it changes the"
        " original's.",
        "Parity on inputs where the value does not matter (all-ones masks, zero token types)"
        " holds.",
        "Look at how the exporter traced the input; constants made from it at export time are the"
        " usual cause.",
    ),
    "C109": Explanation(
        "two inputs were merged",
        "The converted model takes one input's values for another: it gives what the original gives"
        " when both are fed the same values.",
        "Passing one tensor object for several inputs to an exporter merges them; the graph still"
        " lists both.",
        "Export with distinct example tensors for each input, as convkit's exporters do.",
    ),
    "C110": Explanation(
        "inputs are exchanged",
        "Parity fails as declared and holds when the named inputs are exchanged.",
        "The exchanged inputs have one type and shape, so nothing complains; a BERT gives wrong"
        " numbers or NaN.",
        "Exchange the two names in the recipe or correct the exporter's input names.",
    ),
    "C111": Explanation(
        "the tokenizer's input is not in the contract",
        "The model's own tokenizer produces an input that changes the model's outputs, and the"
        " recipe leaves it out.",
        "The model takes its default, which is right for some texts (single sentences) and wrong"
        " for others (pairs).",
        "Declare the input; if its default is meant, list it under model.omit.",
    ),
    "C112": Explanation(
        "an input never had an influence",
        "Changing the input changes no output, in the original as in the converted model.",
        "A dead input looks like a part of the contract; exporters may drop it at any release.",
        "Remove the input from the recipe, or choose samples under which it matters.",
    ),
    "C113": Explanation(
        "an axis cannot vary as declared",
        "The model works for a part of the declared sizes only (positions up to 512, multiples of"
        " 8), or only where two axes have one size.",
        "Checks that run only the example's shape pass; the other sizes fail in service.",
        "Give the axis the range that the model has under axes, or one axis's name to both"
        " dimensions.",
    ),
    "C114": Explanation(
        "the outputs depend on weights that were not loaded",
        "The checkpoint lacks weights that the outputs need; they were filled with random numbers.",
        "transformers warns and goes on; original and converted model agree, both on nonsense.",
        "Choose the model.task that the checkpoint was trained for, or outputs that do not need"
        " those weights.",
    ),
    "C201": Explanation(
        "an output is missing",
        "The recipe declares an output that the model does not give.",
        "Comparing outputs by position compares something else instead.",
        "Use a name that the model gives.",
    ),
    "C202": Explanation(
        "an output is not in the contract",
        "The model gives an output that the recipe does not declare.",
        "It costs time and memory at every call and shifts outputs bound by position.",
        "Declare the output or remove it from the model.",
    ),
    "C203": Explanation(
        "the outputs stand in another order",
        "The model's outputs and the recipe's have the same names in another order.",
        "Callers that bind by position take one output for another.",
        "Put the recipe's outputs in the model's order.",
    ),
    "C204": Explanation(
        "an output was renamed",
        "A declared output is missing and an undeclared one of the same type and shape stands in"
        " its place.",
        "Exporters name outputs by position; a dictionary's keys get lost.",
        "Use the model's name in the recipe, or keep the name and give the model's as `from`.",
    ),
    "C205": Explanation(
        "an output has another element type",
        "The model gives an output in another element type than the recipe declares.",
        "Comparisons that cast first do not see it.",
        "Give the output's dtype in the recipe as the model gives it.",
    ),
    "C206": Explanation(
        "an output's axis was fixed",
        "An output's axis that the recipe calls symbolic has a fixed size in the model.",
        "Checks that run only the example's shape pass.",
        "Export with the axis symbolic.",
    ),
    "C207": Explanation(
        "an output has another shape",
        "The number of axes or a fixed size of an output differs from the recipe.",
        "Comparisons that broadcast do not see it.",
        "Give the output's shape in the recipe as the model gives it.",
    ),
    "C208": Explanation(
        "outputs are exchanged",
        "The converted model gives one declared output's values under another's name.",
        "Exporters that name outputs by position mislabel a dictionary's entries.",
        "Exchange the names of the outputs in the recipe or correct the exporter's output names.",
    ),
    "C301": Explanation(
        "the model carries no contract",
        "A model file was opened that has no convkit contract in its metadata, or a damaged one.",
        "Without it names, order and shapes can only be guessed.",
        "Open the file that convkit built, or add the model to a recipe with model.onnx.",
    ),
    "C302": Explanation(
        "the engine lists its tensors in an order of its own",
        "A TensorRT engine has the declared inputs or outputs, and lists them in another order than"
        " the contract.",
        "Code that binds buffers by position takes one tensor for another: a BERT whose attention"
        " mask and token types change places gives NaN or wrong answers, and no error.",
        "Bind by name. convkit writes bindings.hpp and bindings.py beside every built model for"
        " that.",
    ),
    "N101": Explanation(
        "results differ from the original",
        "An output differs from the original by more than the tolerance.",
        "Checks on one easy input, or on the first output, pass; a warning after 'export succeeded'"
        " is overlooked.",
        "Look at the first failing case; convkit's tolerance keys accept what you can justify.",
    ),
    "N102": Explanation(
        "the converted model gives NaN or infinity",
        "An output has non-finite elements where the original's are finite.",
        "Comparisons written as `error > tolerance` pass on NaN.",
        "Look at the first failing case: a fully masked row and low precision are the usual"
        " causes.",
    ),
    "N103": Explanation(
        "the original gives NaN",
        "The original model itself gives NaN on a case, so nothing can be proven there. NaN on both"
        " sides is no match.",
        "Comparisons that treat NaN as equal pass.",
        "Repair the model, or leave the case out by name under verify.skip.",
    ),
    "N104": Explanation(
        "nothing was compared",
        "An output had no elements, or no case could be run: no statement is possible.",
        "A loop over nothing passes.",
        "Give the axes sizes of at least one and keep at least one case.",
    ),
    "N201": Explanation(
        "a constant is beyond the precision's range",
        "A constant of the graph (a mask of float32's lowest value, as a rule) becomes infinite in"
        " the target's precision. A note where no output suffers from it, an error where one is not"
        " finite because of it.",
        "onnxruntime's CPU computes most of float16 in float32, so the harm shows on the device"
        " only; converters that check constants alone raise the alarm for every transformer.",
        "precision: {default: float16, saturate: true} for masks; keep_float32 for the modules of"
        " other constants.",
    ),
    "N202": Explanation(
        "an activation overflows",
        "A tensor is beyond the range of the target's precision (65504 in float16), and outputs are"
        " not finite because of it. The finding names the first one on the way to the outputs.",
        "onnxruntime's CPU computes most of float16 in float32: a graph that overflows on every"
        " device passes there.",
        "Keep the modules that make and take the tensor in float32: precision.keep_float32.",
    ),
    "N203": Explanation(
        "a guard against zero was flushed to zero",
        "A small value (an epsilon of 1e-12) is zero in the target's precision, and a division,"
        " logarithm or power behind it gives NaN or infinity.",
        "It takes an input on which the guard is needed: a constant row, a masked row.",
        "Keep the module in float32 (precision.keep_float32), or give the model a larger epsilon.",
    ),
    "N204": Explanation(
        "a tensor lost its variance",
        "A tensor that varies in float32 is constant in the target's precision: what it carried is"
        " gone. An error where an output is constant too.",
        "Its values are finite and of the right size, so range checks pass.",
        "Keep the module in float32: precision.keep_float32.",
    ),
    "N205": Explanation(
        "a fully masked row becomes NaN",
        "All positions of a row in front of a softmax are minus infinity in the target's precision,"
        " because the mask's value is beyond its range. In float32 the row is finite.",
        "Rows with one live position are right, and tests rarely mask a row whole; batches padded"
        " with empty rows do.",
        "precision: {default: float16, saturate: true}, which masks with the type's lowest finite"
        " value.",
    ),
    "N206": Explanation(
        "a precision pattern names no module",
        "A pattern under precision.keep_float32 matches none of the graph's modules.",
        "A misspelt or outdated pattern has no effect, and the module that it should protect is in"
        " low precision.",
        "Write the pattern as the graph's modules are named; convkit names the nearest.",
    ),
    "N207": Explanation(
        "nothing is in low precision",
        "The target asks for a low precision, and no node of the graph computes in it.",
        "The converter returns the model as it was and reports success.",
        "Narrow precision.keep_float32, or write precision: float32.",
    ),
    "N208": Explanation(
        "what stays in float32 was found",
        "The recipe says keep_float32: auto. The modules named are the ones that must stay in"
        " float32 for the target to meet its tolerance in simulation.",
        "A plan that is worked out anew with every run moves when the model does; written down, it"
        " is the recipe's.",
        "Write the patterns into the recipe, as the finding's change does.",
    ),
    "N209": Explanation(
        "no precision plan meets the tolerance",
        "keep_float32: auto looked for modules to keep in float32, simulated each plan on every"
        " case, and none of them met the target's tolerance.",
        "A search that gives its last try as its result looks like a success.",
        "Keep more in float32 by hand, give parts of the model's root a module of their own, or"
        " justify another tolerance.",
    ),
    "N210": Explanation(
        "a module's values are beyond the precision's range",
        "In float32, tensors of these modules reach magnitudes that the target's precision cannot"
        " hold. It is known before anything is built; whether outputs suffer from it is for the"
        " simulation to say.",
        "onnxruntime's CPU computes most of float16 in float32, so the range is never left there.",
        "Nothing, where the target verifies; else keep the modules in float32.",
    ),
    "N211": Explanation(
        "device and CPU disagree",
        "A target ran on its device, and its graph on the CPU (in simulation, where its precision"
        " is low), and a case passes in one and fails in the other. The target's verdict is the"
        " device's.",
        "A kernel that adds up in another width than the simulation, or fuses several operators,"
        " rounds elsewhere.",
        "Trust the device for this machine; look at the cases before moving to another.",
    ),
    "N212": Explanation(
        "device and CPU agree",
        "A target ran on its device, and its graph on the CPU (in simulation, where its precision"
        " is low), and both come to the same verdict in every case. The finding says how far their"
        " outputs are apart.",
        "One of the two alone says nothing about the other.",
        "Nothing.",
    ),
    "N213": Explanation(
        "Core ML's CPU and all units are apart",
        "The same package was predicted on the CPU alone and on all of the machine's units, the GPU"
        " and the Neural Engine among them. The figure is the largest absolute difference over all"
        " cases.",
        "One run on one machine shows one of them, and another machine takes another.",
        "Nothing to do where both are within the tolerance.",
    ),
    "N301": Explanation(
        "padding moves real positions",
        "More padding, or other values at masked positions, change what the built model gives at"
        " real positions (or a pooled output), by more than they change it in the original and"
        " twice the tolerance.",
        "Tests feed full rows, for which a mask that was lost in the conversion makes no"
        " difference.",
        "Look at what became of the mask in the export: each attention, mean and maximum over"
        " positions must apply it.",
    ),
    "N302": Explanation(
        "a row depends on its batch",
        "The built model gives a row alone other outputs than the same row among others, by more"
        " than the original does and twice the tolerance.",
        "One sample at a time, every output is right; a server that batches requests mixes"
        " them up.",
        "Look for what is taken over all rows: normalisation in training mode, a mean over the"
        " first dimension, one scale of a dynamic quantisation.",
    ),
    "N303": Explanation(
        "two runs differ",
        "The same inputs give other outputs when they are run again. An error where they differ by"
        " more than the tolerance (and than the original does), a warning where they differ at all."
        " On the reference stage: the original itself is random, so parity with it says little.",
        "One run is compared with one reference; a difference reads as a failure that comes and"
        " goes.",
        "Put the model into inference mode; give what draws at random a fixed seed.",
    ),
    "N304": Explanation(
        "an output collapsed",
        "An output is constant, over all its elements or over all rows, where the original's"
        " varies. No tolerance is asked.",
        "Zeros are finite, and within a tolerance that is wide enough for them.",
        "Look for what overflows or is rounded to nothing on the way to the output; for rows, for"
        " an input that became a constant.",
    ),
    "N305": Explanation(
        "the original itself depends on padding",
        "More padding changes what the original gives at real positions, far beyond rounding. The"
        " built model is only asked to depend on it no more than that.",
        "A converted model that agrees with it passes, and both answer differently in other"
        " batches.",
        "Look at whether the model applies its mask everywhere, or pad inputs as it was"
        " trained on.",
    ),
    "N401": Explanation(
        "the runtime's optimisation changes the results",
        "The built model is wrong at the target's optimisation level and right at a lower one: a"
        " fusion of the runtime takes a pattern of operators for another.",
        "The exported file is right, and so is every check on it alone.",
        "Lower the target's optimization, or take another release of the runtime.",
    ),
    "N402": Explanation(
        "the exported graph differs from the original",
        "The float32 graph gives other results than the original model, also without any"
        " optimisation: the exporter took something differently, or the file is of another model.",
        "Exporters validate one shape and one input, or call a difference a warning.",
        "Export with another exporter, and look for other findings on inputs, branches and modes.",
    ),
    "T101": Explanation(
        "no kernel for an operator in this element type",
        "The runtime has the operator, but no implementation for these element types at this opset"
        " on this provider; bfloat16 on the CPU is the usual case. float16 is served on the CPU"
        " through casts that onnxruntime inserts.",
        "The exporter's checker passes the graph, and the session fails with NOT_IMPLEMENTED at the"
        " first such node.",
        "Load the model in float32 (model.dtype) and let the target's precision lower it, or take"
        " another release.",
    ),
    "T102": Explanation(
        "element types disagree",
        "An operator that needs one element type gets several (float32 and float16), or a node"
        " gives a type that the graph does not declare.",
        "Exporters write such graphs when weights were loaded in different types, converters when"
        " they miss a Cast.",
        "Load the whole model in one type (model.dtype), or unify the graph's types.",
    ),
    "T103": Explanation(
        "an operator does not take this element type",
        "ONNX does not allow the element type for this input or output of the operator at the"
        " model's opset.",
        "An exporter that knows a newer opset writes what the older one does not allow.",
        "Export with a newer opset, or in float32.",
    ),
    "T104": Explanation(
        "element types are unknown",
        "The graph does not say the types of some values and they cannot be inferred, so their"
        " nodes were not checked.",
        "A check that passes over what it does not know looks green.",
        "Export with value types, or without operators of other domains.",
    ),
    "T105": Explanation(
        "TensorRT has no layer for an operator",
        "The graph has an operator, or an operator in an element type, that the parser's"
        " documentation does not list. It is asked where TensorRT itself is not there; where it is,"
        " the parser's own word counts (E213).",
        "The parser says so only on a machine with a GPU, after the export and everything"
        " before it.",
        "Export with another opset or exporter, change the model, or serve it with onnxruntime.",
    ),
    "T106": Explanation(
        "TensorRT narrows float64",
        "Nodes compute in float64; TensorRT computes them in float32 and clamps values to its"
        " range.",
        "The parser mentions it in a log line.",
        "Compute in float32 in the model, so that the original means the same.",
    ),
    "T107": Explanation(
        "TensorRT does not take these zero points",
        "A QuantizeLinear or DequantizeLinear has a zero point other than zero, or an unsigned"
        " type.",
        "onnxruntime's quantisers write uint8 activations with zero points by default, and its CPU"
        " serves them.",
        "Quantise symmetrically: a target with runtime: tensorrt does so by itself.",
    ),
    "V101": Explanation(
        "the opset is newer than the runtime",
        "The model uses a version of an operator set that this release of the runtime does not"
        " load.",
        "It loads on the developer's machine, where the runtime is newer.",
        "Export with an older opset (export.opset; `--repair` takes the newest that the release"
        " loads), or drop the release from the target's versions.",
    ),
    "V102": Explanation(
        "the file format is newer than the runtime",
        "The file's IR version is newer than this release of the runtime reads. It is independent"
        " of the opset: exporters write the newest format they know.",
        "Lowering export.opset does not change it.",
        "Drop the release from the target's versions, or export with exporter: torchscript, which"
        " writes an older one.",
    ),
    "V103": Explanation(
        "the runtime does not know an operator",
        "A node's operator, or the domain it is from, is not registered in this release of the"
        " runtime: a custom operator, or one of the runtime's own from a later release.",
        "Exporters and optimisers of a later release write operators that only that release knows.",
        "Export without the operator, or take a release that has it (tools.onnxruntime).",
    ),
    "V104": Explanation(
        "TensorRT's parser does not read the opset",
        "The graph is of an opset older or newer than the parser reads (9 to 24 in TensorRT"
        " 10.15).",
        "The parser tries all the same, and fails at a node that has changed since.",
        "Export with an opset in between (export.opset).",
    ),
    "V105": Explanation(
        "a tool's release was withdrawn",
        "A release that the recipe pins was yanked: its makers took it back, for a broken build or"
        " wrong results, and it stays on the index only for those who pin it exactly. The reason is"
        " theirs.",
        "Installers warn in a line among hundreds, once; what is installed already is never looked"
        " at again.",
        "Pin another release (tools, or the target's versions). What is known is as of the last"
        " time the versions were resolved or installed.",
    ),
    "V106": Explanation(
        "a stage used other tools than were resolved for it",
        "What the stage imported is not of the versions that were resolved or locked for its"
        " environment: somebody installed into it, or another folder got in front of it on the"
        " path.",
        "A result is then filed under versions that did not make it.",
        "Remove the environment (convkit env prune --all) and run again; nothing was kept of the"
        " stage.",
    ),
    "E101": Explanation(
        "the device or provider is absent",
        "The target asks for a device or provider that this machine, or this build of the runtime,"
        " does not have.",
        "onnxruntime falls back to the CPU and says so in a log line only.",
        "Run on a machine that has it: convkit run RECIPE --only TARGET.",
    ),
    "E102": Explanation(
        "nodes fell back to the CPU",
        "Some nodes ran on the CPU though the target asks for another device.",
        "The session starts and the numbers are right; only the time tells.",
        "See the list of nodes: an operator or element type without a kernel on the device.",
    ),
    "E201": Explanation(
        "the stage's process crashed",
        "The worker was ended by a signal such as a segmentation fault inside a tool.",
        "In one process with the tool, the whole run would have been lost.",
        "See the log's tail; try another version of the tool under tools:.",
    ),
    "E202": Explanation(
        "the stage ran out of memory",
        "The worker was killed by the system (SIGKILL), which is what the kernel does when memory"
        " runs out.",
        "The log simply ends.",
        "Use smaller axes, fewer --jobs, or a machine with more memory.",
    ),
    "E203": Explanation(
        "the stage took too long",
        "The worker was stopped at verify.timeout.",
        "A hanging tool hangs the pipeline.",
        "Raise verify.timeout, or see the log for where it hung.",
    ),
    "E204": Explanation(
        "a tool failed",
        "The stage's tool raised an error.",
        "Some pipelines log it and go on.",
        "See the message and the log's tail.",
    ),
    "E205": Explanation(
        "the runtime refused the model",
        "The runtime could not load the built model.",
        "The exporter's own checker accepts graphs that a runtime has no kernel for.",
        "See the runtime's message; another runtime release or opset may serve.",
    ),
    "E206": Explanation(
        "the runtime failed on a case",
        "The built model loaded, and failed to run on a legal input.",
        "Checks that run only the example's shape pass.",
        "See the case's sizes; a shape fixed inside the graph is the usual cause.",
    ),
    "E207": Explanation(
        "training mode was left on",
        "Nodes of the exported graph compute as in training: dropout draws anew at every call,"
        " batch norms take the mean and variance of the batch in place of those of the training.",
        "Results look plausible, and differ from call to call or with the batch they are in.",
        "Call eval() on the model before the export, and give functional.dropout"
        " training=self.training.",
    ),
    "E208": Explanation(
        "a branch on values became constant",
        "The model's Python decides by the values of a tensor (if x.mean() > 0, int(x.max())). An"
        " export that follows one example keeps the side that the example took, for all inputs."
        " Told where such a line exists and the converted model's results are off.",
        "The exporter prints a warning among dozens; the example itself comes out right.",
        "Write the branch with torch.where or torch.cond, or export with the exporter torch, which"
        " refuses it.",
    ),
    "E209": Explanation(
        "weights are stored more than once",
        "The file holds equal weights under several names, or a matrix and its transpose: a tied"
        " output layer that was written twice. They cost the space and the memory of all their"
        " copies.",
        "The outputs are right; a release of the exporter that unties weights makes the file larger"
        " by half.",
        "Export with convkit, which stores equal weights once, or let the file's exporter share"
        " them.",
    ),
    "E210": Explanation(
        "weights are not where the model says",
        "The model's weights lie in a file of their own, which is missing, outside the model's"
        " folder, truncated, or has other bytes at a weight's place than its shape and type need.",
        "The graph's file opens in a viewer and passes for the model; a runtime names its own line"
        " of code.",
        "Copy the model and the files that it names, whole and together.",
    ),
    "E211": Explanation(
        "the evaluator does not know an operation of the program",
        "A Core ML program is judged off macOS by evaluating it, and it holds an operation that the"
        " evaluator has no kernel for. Nothing is known of its results.",
        "Converting and saving succeed; tools that cannot run a program pass it.",
        "Verify the package on macOS, where Core ML itself predicts, or write the model with other"
        " operations.",
    ),
    "E212": Explanation(
        "the model was followed on an example instead of traced whole",
        "torch.export cannot trace the model, so torch.jit.trace followed it on an example for Core"
        " ML. Whatever Python decided by values there is fixed; what it decided by sizes may be.",
        "Converters fall back without a word, and results are right wherever the example's branches"
        " are.",
        "Write branches with torch.where or torch.cond, and sizes with tensor.shape. Verification"
        " at other sizes says whether it matters.",
    ),
    "E213": Explanation(
        "TensorRT's parser refuses a node",
        "The parser cannot turn a node of the graph into layers; the message is its own.",
        "Tools that wrap the parser show the last line of its log, without the node.",
        "Export with another opset or exporter, or have the model compute it otherwise.",
    ),
    "E214": Explanation(
        "the engine computes in other types than planned",
        "The engine inspector's table shows layers whose results are of another float type than the"
        " graph's nodes that they were made of. Engines are built strongly typed, so this must"
        " not be.",
        "A builder flag that a release no longer knows is ignored, and an engine that was to be"
        " float16 is float32: it is right, and slow; the other way round it overflows.",
        "Look at layers.json beside the engine; rebuild at another builder_level or with another"
        " release.",
    ),
    "Q101": Explanation(
        "nothing was quantised",
        "The target asks for quantisation, and no node of the graph was quantised: none has weights"
        " that the quantiser knows, or precision.keep_float32 covers all of them.",
        "The quantiser writes the model as it was and reports success.",
        "Narrow precision.keep_float32, or write precision: float32; convolutions want"
        " static-int8.",
    ),
    "Q102": Explanation(
        "some modules lose most by quantisation",
        "Outputs are far from the original's, and the finding lists the modules whose quantisation"
        " moves them most: the error at the outputs with that module alone quantised, the"
        " signal-to-noise ratio of its weights and of its own results (in dB; six dB are one bit).",
        "The error at the outputs is one figure for the whole model; a few modules with outliers"
        " may make most of it.",
        "Keep the first modules of the table in float32 (precision.keep_float32), or let convkit"
        " choose: auto.",
    ),
    "Q103": Explanation(
        "the weights are quantised already",
        "The model carries its weights as whole numbers: packed into int32, as GPTQ's layers have"
        " them, or with a quantiser's own operators. Quantisation would pass them over, or quantise"
        " the scales and shifts around them.",
        "The quantiser reports success; what it did was to round the few weights that were left in"
        " float32.",
        "Quantise the float32 model, or build the quantised one as it is: precision: float32.",
    ),
    "Q104": Explanation(
        "a scale does not fit its weight",
        "A DequantizeLinear's scales have another number than the axis they stand along, stand"
        " along another axis than their numbers were scaled by, or have another shape than their"
        " zero points.",
        "The weight of a square layer loads and runs with its scales along either axis; one of them"
        " gives other weights. ONNX's checker does not read weights.",
        "Quantise again with the scales along the output channels (axis 1 of a MatMul's weight), or"
        " one for the whole.",
    ),
    "Q105": Explanation(
        "eight-bit results depend on the processor",
        "This x86 processor has no VNNI instructions: it adds pairs of eight-bit products in 16"
        " bits, which saturate. Results differ from those of a processor that has them, and may be"
        " worse.",
        "Each machine gives the same numbers every time; only a second kind of machine shows the"
        " difference.",
        "Verify on the kind of processor that the model will run on, or set precision.reduce_range:"
        " true.",
    ),
    "Q106": Explanation(
        "a calibrated range is of no use",
        "A tensor that static quantisation scales was constant in all cases of the calibration,"
        " reaches to a mask's value, or was not finite (then an error). Its node stays in float32,"
        " or clips what it has not seen.",
        "The quantiser's calibration passes over NaN in silence, and gives a mask's range 255 equal"
        " steps.",
        "Calibrate with typical data (precision.calibration.file), or keep the module in float32.",
    ),
    "Q107": Explanation(
        "the opset was raised",
        "Four-bit weights in standard operators, and scales for each channel, need a later opset"
        " than the export's. convkit raised it, having checked that every operator of the graph"
        " means the same in both.",
        "The quantiser sets the number and leaves the nodes, whatever they mean in the other"
        " opset.",
        "Nothing needs doing; export.opset says the same from the start.",
    ),
    "R101": Explanation(
        "one key, two artifacts",
        "The same stage with the same inputs and tools gave different files.",
        "Without content digests nobody notices.",
        "Compare the two artifacts; a tool writes dates, random names or the order of a hash map.",
    ),
    "R102": Explanation(
        "the artifact suits this kind of machine",
        "The runtime optimised the graph for the processor it was built on and the result was"
        " saved: its layout, and the operators in it, belong to that kind of processor.",
        "The file loads elsewhere, slower or not at all, and nothing in it says why.",
        "Build artifact: exported, or optimization: extended, for a file that suits every machine.",
    ),
}
CATALOGUE |= LOCALIZATION
