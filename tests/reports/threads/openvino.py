"""Reports of openvinotoolkit/openvino, for its CPU plugin."""

from reports.report import Report, Right, net

OV = "openvinotoolkit/openvino"
BOTH = ("ort", "ov")
_IN_32_BITS = r"int32|32 bits|2\*\*31|whole numbers"
_SMALLER = r"int32|float64|smaller|below|onnxruntime|another runtime|different runtime"

REPORTS = (
    Report(
        "hash_of_an_id",
        f"{OV}#35829",
        2026,
        "int64 is computed in int32: the product of the hash wraps before the modulo",
        net(
            "user",
            """
            product = user * 2654435761  # here
            return self.head(self.table(product % 97).mean(1))
            """,
            """
            self.table = nn.Embedding(97, 8)
            self.head = nn.Linear(8, 2)
            """,
        ),
        '{"user": torch.randint(0, 2_000_000, (2, 5))}',
        right={
            "ov": Right("runtime's kernel", _IN_32_BITS, _SMALLER),
            "coreml": Right("converter", _IN_32_BITS, _SMALLER),
        },
    ),
    Report(
        "remainder_of_large_numbers",
        f"{OV}#35829",
        2026,
        "Mod of int64 is computed in float32, which is not exact beyond 2 ** 24",
        net("x", "return torch.remainder(x, 13)  # here"),
        '{"x": torch.randint(0, 2_000_000_000, (2, 6))}',
        right={"ov": Right("runtime's kernel", r"Mod|remainder", _SMALLER + r"|float|torch\.div")},
    ),
    Report(
        "quotient_of_large_numbers",
        f"{OV}#37766",
        2026,
        "Div of int64 is computed in float32, which is not exact beyond 2 ** 24",
        net("x", 'return torch.div(x, 11, rounding_mode="trunc")  # here'),
        '{"x": torch.randint(0, 2_000_000_000, (2, 6))}',
        right={"ov": Right("runtime's kernel", r"Div|div", _SMALLER + r"|float")},
        targets=BOTH,
    ),
    Report(
        "sum_beyond_int32",
        f"{OV}#35823",
        2026,
        "Add of int64 wraps as int32",
        net("a, b", "return a + b  # here"),
        '{"a": torch.randint(10**9, 2 * 10**9, (2, 4)),'
        ' "b": torch.randint(10**9, 2 * 10**9, (2, 4))}',
        right={"ov": Right("runtime's kernel", _IN_32_BITS, _SMALLER)},
        targets=BOTH,
    ),
    Report(
        "magnitude_of_a_large_number",
        f"{OV}#35890",
        2026,
        "Abs of int64 beyond int32 is 0",
        net("x", "return x.abs() // 4  # here"),
        '{"x": torch.randint(-(2**40), 2**40, (2, 4))}',
        right={"ov": Right("runtime's kernel", _IN_32_BITS, _SMALLER)},
        targets=BOTH,
    ),
    Report(
        "large_float_as_a_whole_number",
        f"{OV}#35896",
        2026,
        "a float beyond int32 is cast to the smallest int32",
        net("x", "return (x * 1e12).to(torch.int64)  # here"),
        '{"x": torch.randn(2, 4)}',
        right={"ov": Right("runtime's kernel", _IN_32_BITS, _SMALLER)},
        targets=BOTH,
    ),
    Report(
        "floor_of_a_negative_quotient",
        f"{OV}#38248",
        2026,
        "an integer division that should floor truncates; ONNX files spell the floor out",
        net("x", 'return torch.div(-x, 2, rounding_mode="floor")'),
        '{"x": torch.randint(0, 100, (2, 6))}',
        targets=BOTH,
    ),
    Report(
        "last_window_of_a_pool",
        f"{OV}#33369",
        2025,
        "AveragePool with ceil_mode has a window that begins beyond the padding",
        net(
            "x",
            "return self.pool(x) + 0  # here",
            "self.pool = nn.AvgPool2d(2, stride=2, padding=1, ceil_mode=True)",
        ),
        '{"x": torch.randn(1, 3, 17, 17)}',
        right={"ov": Right("converter", r"shape|pool", r"ceil_mode|pad|crop|slice")},
        targets=BOTH,
    ),
    Report(
        "transposed_convolution",
        f"{OV}#20848",
        2023,
        "ConvTranspose without pads has a wrong shape",
        net("x", "return self.conv(x)", "self.conv = nn.ConvTranspose2d(1, 2, 3)"),
        '{"x": torch.randn(1, 1, 3, 3)}',
        targets=BOTH,
    ),
    Report(
        "transposed_convolution_with_output_padding",
        f"{OV}#31007",
        2025,
        "ConvTranspose has a wrong shape",
        net(
            "x",
            "return self.conv(x)",
            "self.conv = nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1, output_padding=1)",
        ),
        '{"x": torch.randn(1, 2, 5, 5)}',
        targets=BOTH,
    ),
    Report(
        "mean_over_all_but_the_batch",
        "microsoft/onnxruntime#20357",
        2024,
        "OpenVINO's mean over three axes behind a convolution to one channel",
        net(
            "x",
            "return self.second(self.first(x)).mean(dim=(1, 2, 3))",
            """
            self.first = nn.Conv2d(3, 8, 3, padding=1)
            self.second = nn.Conv2d(8, 1, 1)
            """,
        ),
        '{"x": torch.randn(1, 3, 16, 16)}',
        targets=BOTH,
    ),
    Report(
        "softmax_in_float16",
        f"{OV}#33381",
        2025,
        "a Softmax in float16 that is an output has no kernel",
        net("x", "return F.softmax(x, -1)"),
        '{"x": torch.randn(2, 6).half()}',
        targets=BOTH,
    ),
    Report(
        "largest_pool",
        f"{OV}#20879",
        2023,
        "MaxPool differs from onnxruntime's",
        net("x", "return self.pool(x)", "self.pool = nn.MaxPool2d(3, 2, 1, ceil_mode=True)"),
        '{"x": torch.rand(1, 1, 5, 5)}',
        targets=BOTH,
    ),
    Report(
        "softsign_behind_a_relu",
        f"{OV}#31252",
        2025,
        "Softsign behind another operator is wrong",
        net("x", "return F.softsign(torch.relu(x) * 2)"),
        '{"x": torch.randn(1, 3, 4, 4)}',
        targets=BOTH,
    ),
    Report(
        "negative_index_of_gather_nd",
        f"{OV}#30764",
        2025,
        "GatherND with negative indices",
        net("x, i", "return x[i - 3, i]"),
        '{"x": torch.randn(3, 3), "i": torch.tensor([0, 1, 2, 1])}',
        targets=BOTH,
    ),
    Report(
        "unique_numbers",
        f"{OV}#31004",
        2025,
        "Unique has results in another order",
        net("x", "return torch.unique(x, sorted=True, return_inverse=True)[1]"),
        '{"x": torch.randint(0, 4, (6,))}',
        targets=BOTH,
    ),
    Report(
        "exact_nearest_resize",
        f"{OV}#36023",
        2026,
        "nearest with half pixels: ties round to the other pixel, 20 to 6",
        net("x", 'return F.interpolate(x, size=6, mode="nearest-exact")  # here'),
        '{"x": torch.linspace(0, 1, 20).reshape(1, 1, 20)}',
        targets=BOTH,
    ),
)
