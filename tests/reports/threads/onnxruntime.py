"""Reports of microsoft/onnxruntime and its tools."""

from reports.report import Report, Right, net

RT = "microsoft/onnxruntime"
ONLY = ("ort",)
BOTH = ("ort", "ov")

_HEADER = '<ir_version: 10, opset_import: ["" : {opset}]>\n'

REPORTS = (
    Report(
        "nearest_resize",
        f"{RT}#28310",
        2026,
        "the source pixel of a nearest resize from 26 to 64 is one off in some columns",
        net(
            "image",
            """
            x = self.down(image)
            x = F.interpolate(x, size=(64, 64), mode="nearest")  # here
            return self.out(x)
            """,
            """
            self.down = nn.Conv2d(3, 8, 3)
            self.out = nn.Conv2d(8, 3, 1)
            """,
        ),
        '{"image": torch.rand(1, 3, 28, 28)}',
        right={
            "ort": Right("runtime's kernel", r"Resize|nearest", r"index|gather|size|nearest-exact"),
            "ov": Right("runtime's kernel", r"Resize|nearest", r"index|gather|size|nearest-exact"),
        },
    ),
    Report(
        "nearest_resize_by_a_factor",
        f"{RT}#28085",
        2026,
        "the same, with a factor of 64 / 26",
        net("x", 'return F.interpolate(x, size=64, mode="nearest") * 2  # here'),
        '{"x": torch.arange(26.).reshape(1, 1, 26)}',
        right={
            "ort": Right("runtime's kernel", r"Resize|nearest", r"index|gather|size|nearest-exact"),
            "ov": Right("runtime's kernel", r"Resize|nearest", r"index|gather|size|nearest-exact"),
        },
        targets=BOTH,
    ),
    Report(
        "ceiled_average_pool_of_old",
        f"{RT}#16203",
        2023,
        "AveragePool below opset 19 divides by the whole window where it ends beyond the padding",
        net(
            "image",
            """
            x = self.pool(torch.relu(self.stem(image)))
            return self.head(x)
            """,
            """
            self.stem = nn.Conv2d(3, 8, 3, padding=1)
            self.pool = nn.AvgPool2d(3, stride=2, padding=1, ceil_mode=True)
            self.head = nn.Conv2d(8, 4, 1)
            """,
        ),
        '{"image": torch.rand(1, 3, 16, 16)}',
        right={"old": Right("runtime's kernel", r"AveragePool", r"opset|1\.\d\d", "AveragePool")},
        targets=("ort", "old"),
        isolated=True,
    ),
    Report(
        "ceiled_average_pool",
        f"{RT}#29629",
        2026,
        "the same with today's release, which mended it",
        net(
            "x", "return self.pool(x)", "self.pool = nn.AvgPool2d(3, 2, padding=1, ceil_mode=True)"
        ),
        '{"x": torch.arange(1., 17).reshape(1, 1, 4, 4)}',
    ),
    Report(
        "reshape_to_a_computed_shape",
        f"{RT}#32105",
        2026,
        "a Reshape whose result is the shape of the next is fused with it",
        graph=_HEADER.format(opset=21)
        + """main (float[4] x, float[2, 2] like) => (float[n, m] y)
        <int64[1] flat = {2}> {
            sizes = Shape (like)
            shape = Reshape (sizes, flat)
            y = Reshape (x, shape)
        }""",
        targets=BOTH,
    ),
    Report(
        "relu_before_a_clip_in_float64",
        f"{RT}#24158",
        2025,
        "Relu and Clip of float64 are fused by code for other types",
        graph=_HEADER.format(opset=18)
        + """main (double[2, 4] x) => (double[2, 4] y)
        <double low = {-1.0}, double high = {0.5}> {
            r = Relu (x)
            y = Clip (r, low, high)
        }""",
        right={"ort": Right("runtime's fusion", r"Clip|Relu|fus", r"optimiz", r"Clip|Relu")},
        targets=ONLY,
    ),
    Report(
        "scale_wider_than_the_norm",
        f"{RT}#31980",
        2026,
        "a norm is fused with a scale that is wider than its axis",
        graph=_HEADER.format(opset=17)
        + """main (float[n, 1] x) => (float[n, 2] y)
        <float eps = {0.1}, float two = {2.0}, float[2] scale = {0.5, 3.0}> {
            mean = ReduceMean <axes = [-1], keepdims = 1> (x)
            c = Sub (x, mean)
            q = Pow (c, two)
            v = ReduceMean <axes = [-1], keepdims = 1> (q)
            e = Add (v, eps)
            s = Sqrt (e)
            d = Div (c, s)
            y = Mul (scale, d)
        }""",
        right={"ort": Right("runtime's fusion", r"fus|optimiz|Norm", r"optimiz", r"Norm|Mul")},
        targets=ONLY,
    ),
    Report(
        "norm_with_a_broadcast_scale",
        f"{RT}#25855",
        2025,
        "a norm written out is fused although its scale has another shape than its axes",
        net(
            "x",
            """
            centered = x - x.mean(-1, keepdim=True)
            variance = centered.pow(2).mean(-1, keepdim=True)
            return centered / torch.sqrt(variance + 1e-5) * self.scale + self.shift
            """,
            """
            self.scale = nn.Parameter(torch.rand(4, 1) + 0.5)
            self.shift = nn.Parameter(torch.randn(4, 1))
            """,
        ),
        '{"x": torch.randn(2, 4, 8)}',
    ),
    Report(
        "norm_behind_a_linear_of_rank_three",
        f"{RT}#22512",
        2024,
        "MatMul and BatchNormalization become a Gemm, which needs rank 2",
        net(
            "x",
            """
            y = self.lin(x)
            return self.norm(y.flatten(0, 1)).reshape(y.shape)
            """,
            """
            self.lin = nn.Linear(6, 8, bias=False)
            self.norm = nn.BatchNorm1d(8)
            """,
        ),
        '{"x": torch.randn(2, 5, 6)}',
    ),
    Report(
        "casts_that_round",
        f"{RT}#17565",
        2023,
        "casts to float32 and back are removed as useless",
        net("x", "return x.to(torch.float32).to(torch.float64) - x"),
        '{"x": torch.randn(2, 6, dtype=torch.float64)}',
        targets=ONLY,
    ),
    Report(
        "gathered_k",
        f"{RT}#29072",
        2026,
        "the shape of a Gather that gives K is inferred wrong since 1.26",
        graph=_HEADER.format(opset=17)
        + """main (float[n, 8] x) => (float[n, k] y)
        <int64[2] sizes = {3, 5}, int64[1] first = {0}> {
            k = Gather <axis = 0> (sizes, first)
            y, i = TopK (x, k)
        }""",
        targets=BOTH,
    ),
    Report(
        "batch_of_a_gru",
        f"{RT}#19270",
        2024,
        "a recurrent layer exported with one batch runs with it only",
        net("x, h", "return self.gru(x, h)[0]", "self.gru = nn.GRU(6, 5)"),
        '{"x": torch.randn(4, 2, 6), "h": torch.randn(1, 2, 5)}',
    ),
    Report(
        "saturating_pairs",
        f"{RT}#19109",
        2024,
        "sums of pairs of 8-bit products saturate on processors without VNNI",
        net(
            "x",
            "return self.second(torch.relu(self.first(x)))",
            """
            self.first = nn.Linear(64, 64)
            self.second = nn.Linear(64, 8)
            with torch.no_grad():
                self.first.weight.copy_(torch.ones(64, 64) * 0.5 + torch.randn(64, 64) * 0.01)
                self.second.weight.copy_(torch.rand(8, 64) * 0.1 + 0.2)
            """,
        ),
        '{"x": torch.rand(8, 64)}',
        right={
            "signed8": Right(
                "processor", r"pairs|saturat|VNNI", r"reduce_range", r"first|second", corrected=True
            )
        },
        targets=("signed8",),
    ),
    Report(
        "depthwise_in_one_range",
        "Tiarin-Hino/ability-draft-plus#80",
        2026,
        "one scale for all channels of a weight, whose sizes differ by far",
        net(
            "x",
            "return self.point(torch.relu(self.depth(x))).mean((2, 3))",
            """
            self.depth = nn.Conv2d(8, 8, 3, groups=8, padding=1)
            self.point = nn.Conv2d(8, 5, 1)
            with torch.no_grad():
                sizes = torch.logspace(-3, 1, 8).reshape(8, 1, 1, 1)
                self.depth.weight.mul_(sizes)
                self.point.weight.div_(sizes.reshape(1, 8, 1, 1))
            """,
        ),
        '{"x": torch.randn(2, 8, 8, 8)}',
        right={
            "dynamic8": Right("recipe", r"channel|scale|range", r"per_channel|float32", "depth")
        },
        targets=("dynamic8",),
    ),
    Report(
        "sum_of_squares_in_float16",
        f"{RT}#29034",
        2026,
        "the mean of squares passes 65504 for activations above 7600 or so",
        net(
            "x",
            """
            x = self.up(x) * 300
            size = x.pow(2).mean(-1, keepdim=True)  # here
            return x * torch.rsqrt(size + 1e-6)
            """,
            "self.up = nn.Linear(16, 32)",
        ),
        '{"x": torch.randn(2, 16) * 10}',
        right={"ort16": Right("recipe", r"overflow|beyond|range", r"float32|scal")},
        targets=("ort16",),
    ),
    Report(
        "mean_of_an_image_in_float16",
        "microsoft/onnxconverter-common#323",
        2025,
        "a sum over 512 x 512 pixels is infinite on devices that add up in float16",
        net("image", "return self.conv(image).mean((2, 3))", "self.conv = nn.Conv2d(3, 4, 1)"),
        '{"image": torch.rand(1, 3, 512, 512)}',
        targets=("ort16",),
    ),
    Report(
        "attention_mask_in_float16",
        "NVIDIA/TensorRT#4111",
        2024,
        "a norm behind attention overflows in float16",
        net(
            "x",
            """
            x = x + self.attention(x, x, x, need_weights=False)[0] * 4000
            wide = (x - x.mean(-1, keepdim=True)).pow(2).mean(-1, keepdim=True)  # here
            return (x - x.mean(-1, keepdim=True)) / torch.sqrt(wide + 1e-5)
            """,
            "self.attention = nn.MultiheadAttention(16, 2, batch_first=True)",
        ),
        '{"x": torch.randn(2, 5, 16) * 20}',
        right={
            "ort16": Right("recipe", r"overflow|beyond|range", r"float32|scal"),
            "trt16": Right("recipe", r"overflow|beyond|range", r"float32|scal"),
        },
        targets=("ort16", "trt16"),
    ),
    Report(
        "scatter_with_repeated_indices",
        "pytorch/pytorch#125835",
        2024,
        "scatter_add was exported without its reduction",
        net("x, i, y", "return torch.scatter_add(x, 0, i, y)"),
        '{"x": torch.randn(6, 4), "i": torch.randint(0, 4, (6, 4)), "y": torch.randn(6, 4)}',
        targets=BOTH,
    ),
    Report(
        "convolution_in_float64",
        f"{RT}#16494",
        2023,
        "few operators have kernels for float64, and Conv is not one of them",
        net(
            "x",
            """
            x = self.conv(x.double())  # here
            return torch.relu(x).float().mean(2)
            """,
            "self.conv = nn.Conv1d(3, 4, 3, padding=1).double()",
        ),
        '{"x": torch.randn(2, 3, 8)}',
        right={"ort": Right("runtime's kernel", r"no kernel .*Conv", r"type|float32|OpenVINO")},
        targets=BOTH,
    ),
    Report(
        "log_of_a_sigmoid",
        f"{RT}#22557",
        2024,
        "the sigmoid of numbers below -18 is 0",
        net("x", "scores = torch.sigmoid(x * 2)  # here\nreturn torch.log(scores) + 1"),
        '{"x": torch.linspace(-40, 20, 24).reshape(4, 6)}',
        right={"ort": Right("runtime's kernel", r"Sigmoid", r"exp\(-x\)|logsigmoid|softplus")},
        targets=ONLY,
    ),
    Report(
        "padding_before_a_max_pool",
        "onnxsim/onnxsim#290",
        2023,
        "zeros around a MaxPool are fused into it, as if they were minus infinity",
        net(
            "image",
            """
            x = F.pad(self.conv(image), (1, 1, 1, 1))
            x = F.max_pool2d(x, 2)  # here
            return self.head(x)
            """,
            """
            self.conv = nn.Conv2d(3, 6, 3)
            self.conv.bias.data.sub_(2.0)
            self.head = nn.Conv2d(6, 4, 1)
            """,
        ),
        '{"image": torch.rand(1, 3, 10, 10)}',
        right={"ort": Right("runtime's fusion", r"optimiz|fus", r"optimiz")},
        targets=ONLY,
    ),
    Report(
        "cast_and_a_quotient_of_ones",
        f"{RT}#32416",
        2026,
        "a removed cast keeps a reader where a product with a quotient of ones is fused",
        graph=_HEADER.format(opset=18)
        + """main (float[n, 2] x) => (float[n, 2] y)
        <float one = {1}, float[2, 2] w = {1, 2, 3, 4}> {
            a = MatMul (x, w)
            c = Cast <to = 1> (a)
            r = Div (one, one)
            m = Mul (r, c)
            y = Relu (m)
        }""",
        right={"ort": Right("runtime's fusion", r"optimiz|Cast", r"optimiz", r"Cast|Mul|Div")},
        targets=ONLY,
    ),
    Report(
        "norm_of_large_values",
        f"{RT}#28463",
        2026,
        "the variance of large numbers was NaN; what is left is what float32 loses of them",
        net("x", "return self.norm(x)  # here", "self.norm = nn.LayerNorm(16)"),
        '{"x": torch.rand(2, 16) * 4 + 40000}',
        right={"ort": Right("original", r"digits|round", r"float64|double|subtract")},
        targets=ONLY,
    ),
    Report(
        "negative_quotients",
        f"{RT}#26997",
        2026,
        "Div of whole numbers cuts off; onnx's own evaluator rounds down",
        graph=_HEADER.format(opset=18)
        + "main (int64[4] x) => (int64[4] y) <int64 d = {3}> { y = Div (x, d) }",
        targets=ONLY,
    ),
    Report(
        "quantized_resize",
        f"{RT}#28448",
        2026,
        "a linear Resize between Q and DQ was computed on whole numbers",
        graph=_HEADER.format(opset=19)
        + """main (float[1, 1, 1, 3] x) => (float[1, 1, 1, 6] y)
        <float s = {0.05}, int8 z = {0}, int64[4] sizes = {1, 1, 1, 6}> {
            q = QuantizeLinear (x, s, z)
            d = DequantizeLinear (q, s, z)
            r = Resize <mode = "linear"> (d, , , sizes)
            p = QuantizeLinear (r, s, z)
            y = DequantizeLinear (p, s, z)
        }""",
        targets=ONLY,
    ),
)
