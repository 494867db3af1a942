"""Reports of apple/coremltools. Core ML's programs are evaluated here, not run on a device."""

from reports.report import Report, Right, net

CT = "apple/coremltools"
COREML = ("coreml",)

REPORTS = (
    Report(
        "power_of_a_number",
        f"{CT}#2742",
        2026,
        "2 ** x lost its base's type",
        net("x", "return torch.pow(2, self.lin(x))", "self.lin = nn.Linear(6, 6)"),
        '{"x": torch.randn(2, 6) * 3}',
    ),
    Report(
        "atan2_on_the_axis",
        f"{CT}#2769",
        2026,
        "atan2 is put together from atan, and for y = 0, x < 0 the sign of pi is lost",
        net("y, x", "return torch.atan2(torch.relu(y), x)  # here"),
        '{"y": torch.randn(2, 6), "x": torch.randn(2, 6)}',
        right={
            "ort": Right("exporter", r"atan2", r"where|atan|torchscript", corrected=True),
            "ov": Right("exporter", r"atan2", r"where|atan|torchscript"),
            "coreml": Right("converter", r"atan2", r"where|atan|release"),
        },
    ),
    Report(
        "mask_of_infinities",
        f"{CT}#2771",
        2026,
        "triu is computed as x - band(x), which is NaN for infinite x",
        net(
            "x",
            """
            n = x.shape[1]
            mask = torch.triu(torch.full((n, n), float("-inf")), diagonal=1)
            return torch.softmax(x @ x.transpose(1, 2) + mask, -1) @ x
            """,
        ),
        '{"x": torch.randn(2, 5, 6)}',
    ),
    Report(
        "triu_of_an_infinite_input",
        f"{CT}#2771",
        2026,
        "triu is computed as x - band(x), which is NaN where the input is infinite",
        net("x", "return torch.triu(torch.log(torch.relu(x)), diagonal=1)  # here"),
        '{"x": torch.randn(5, 5)}',
        right={"coreml": Right("converter", r"triu|NaN", r"where|clamp|release", corrected=True)},
    ),
    Report(
        "last_element_by_narrow",
        f"{CT}#2774",
        2026,
        "narrow with a negative start that reaches the end becomes an empty slice",
        net("x", "return torch.narrow(x, 1, -1, 1)"),
        '{"x": torch.randn(2, 7, 6)}',
    ),
    Report(
        "roll_backwards",
        f"{CT}#2778",
        2026,
        "roll with a negative shift along an open axis: the runtime's modulo truncates",
        net("x", "return torch.roll(x, shifts=-2, dims=1)"),
        '{"x": torch.randn(2, 7, 6)}',
    ),
    Report(
        "roll_forward_on_an_open_axis",
        f"{CT}#2838",
        2026,
        "roll along an open axis becomes a range with a symbolic end, which the device refuses",
        net("x", "return torch.roll(x, shifts=3, dims=1) * 2"),
        '{"x": torch.randn(2, 7, 6)}',
    ),
    Report(
        "floor_division_by_one",
        f"{CT}#2761",
        2026,
        "a division by 1.0 is dropped with its floor",
        net(
            "x",
            """
            whole = x // 1.0  # here
            return whole * 2 + x
            """,
        ),
        '{"x": torch.randn(2, 6) * 5}',
        right={"coreml": Right("converter", r"floor", r"torch\.floor|floor\(", corrected=True)},
    ),
    Report(
        "scaled_second_operand",
        f"{CT}#2573",
        2025,
        "alpha of add and sub is ignored",
        net("x, y", "return torch.relu(torch.sub(x, y, alpha=5))"),
        '{"x": torch.randn(2, 6), "y": torch.randn(2, 6)}',
    ),
    Report(
        "floor_division_of_whole_numbers",
        f"{CT}#2570",
        2026,
        "floor_divide of whole numbers is computed in float32",
        net("x", "return torch.floor_divide(x, 3) * 2"),
        '{"x": torch.randint(0, 1000, (2, 6))}',
    ),
    Report(
        "remainder_of_one",
        f"{CT}#2836",
        2026,
        "x % 1 is converted to zeros",
        net("x", "return torch.sin(x % 1)  # here"),
        '{"x": torch.randn(2, 6) * 5}',
        right={"coreml": Right("converter", r"remainder|mod", r"floor|frac", corrected=True)},
    ),
    Report(
        "floor_and_trunc_of_whole_numbers",
        f"{CT}#1821",
        2023,
        "div with a rounding mode failed for whole numbers",
        net(
            "ids",
            """
            down = torch.div(ids - 7, 3, rounding_mode="floor") + 5
            to_zero = torch.div(ids - 7, 3, rounding_mode="trunc") + 5
            return self.table(down) + self.table(to_zero)
            """,
            "self.table = nn.Embedding(40, 4)",
        ),
        '{"ids": torch.randint(0, 30, (2, 6))}',
    ),
    Report(
        "acosh_is_missing",
        f"{CT}#2569",
        2025,
        "acosh and asinh call operations that Core ML does not have",
        net("x", "return torch.acosh(1 + x.abs()) + torch.asinh(x)  # here"),
        '{"x": torch.randn(2, 6) * 3}',
        right={"coreml": Right("converter", r"acosh|asinh", r"log|sqrt", corrected=True)},
    ),
    Report(
        "einsum_with_an_ellipsis",
        f"{CT}#2706",
        2026,
        "einsum with an ellipsis loses axes",
        net(
            "x",
            'return torch.einsum("...i,ji->...j", x, self.w)  # here',
            "self.w = nn.Parameter(torch.randn(5, 6))",
        ),
        '{"x": torch.randn(2, 3, 4, 6)}',
        right={"coreml": Right("converter", r"einsum", r"matmul|linear|without|@", corrected=True)},
    ),
    Report(
        "mask_with_the_smallest_float",
        f"{CT}#2669",
        2026,
        "finfo.min is cast to float16 as minus infinity; a fully masked row becomes NaN",
        net(
            "x, mask",
            """
            low = torch.finfo(torch.float32).min
            scores = x @ x.transpose(1, 2)
            scores = scores + (1 - mask[:, None, :]) * low
            return torch.softmax(scores, -1) @ x
            """,
        ),
        '{"x": torch.randn(2, 5, 6), "mask": torch.tensor([[1., 1, 1, 0, 0], [0, 0, 0, 0, 0]])}',
        targets=("coreml16",),
    ),
    Report(
        "negative_index_as_uint16",
        f"{CT}#2626",
        2025,
        "a cast of indices to uint16 wraps negative ones",
        net(
            "ids",
            "return self.table[self.of[ids] + 3]",
            """
            self.register_buffer("of", torch.tensor([4, -2, 4, -3, 0]))
            self.register_buffer("table", torch.randn(8, 4))
            """,
        ),
        '{"ids": torch.randint(0, 5, (2, 6))}',
        targets=("coreml", "coreml16"),
    ),
    Report(
        "indices_beyond_int16",
        f"{CT}#2222",
        2024,
        "int32 values that are gathered are cast to int16",
        net(
            "ids",
            "return self.values[ids] % 977",
            'self.register_buffer("values", torch.arange(8) * 91_117)',
        ),
        '{"ids": torch.randint(0, 8, (2, 6))}',
        targets=("coreml", "coreml16"),
    ),
    Report(
        "square_near_a_hundred",
        f"{CT}#2601",
        2025,
        "pow(x, 2) is computed in float16 by default: 10,000 has steps of 8 there",
        net("x", "return torch.pow(x + 100, 2)"),
        '{"x": torch.randn(10, 10)}',
        targets=("coreml",),
    ),
    Report(
        "diagonal_of_a_matrix",
        f"{CT}#2565",
        2025,
        "diagonal keeps the matrix",
        net("x", "return torch.diagonal(x, dim1=1, dim2=2)  # here"),
        '{"x": torch.randn(2, 5, 5)}',
        right={
            "coreml": Right(
                "converter", r"diagonal", r"sum|eye|gather|index|arange", corrected=True
            )
        },
        targets=COREML,
    ),
    Report(
        "write_into_a_slice",
        f"{CT}#2188",
        2024,
        "a write into a view of a copy is lost",
        net(
            "x, value",
            """
            y = x.clone()
            y[:, 1:3] = value
            return y * 2
            """,
        ),
        '{"x": torch.randn(2, 6), "value": torch.randn(2, 2)}',
    ),
    Report(
        "uneven_kernel_of_a_convolution",
        f"{CT}#2515",
        2025,
        "a device's kernel is wrong in the last column for a (3, 2) kernel with stride 2",
        net("x", "return self.conv(x)", "self.conv = nn.Conv2d(2, 2, (3, 2), 2, 1, bias=False)"),
        '{"x": torch.randn(1, 2, 5, 5)}',
    ),
    Report(
        "running_sum",
        f"{CT}#2303",
        2024,
        "cumsum of an exported program has two arguments, and three were expected",
        net("x", "return x.cumsum(dim=1)"),
        '{"x": torch.randn(2, 6, 4)}',
    ),
    Report(
        "negative_axes_of_swapaxes",
        f"{CT}#1783",
        2023,
        "swapaxes with negative axes",
        net("x", "return x.swapaxes(-2, -1) @ x"),
        '{"x": torch.randn(2, 6, 4)}',
    ),
    Report(
        "transposed_by_T",
        f"{CT}#2197",
        2024,
        "x.T was not implemented",
        net(
            "x",
            "return (x[:, None, :] - self.codes.T[None]).square().sum(-1).argmin(1)",
            "self.codes = nn.Parameter(torch.randn(4, 9))",
        ),
        '{"x": torch.randn(5, 4)}',
    ),
    Report(
        "evenly_spaced_numbers",
        f"{CT}#2416",
        2024,
        "linspace loses its last number",
        net("x", "return x + torch.linspace(0, 1, 7)"),
        '{"x": torch.randn(2, 7)}',
    ),
    Report(
        "attention_of_torch",
        f"{CT}#1823",
        2023,
        "scaled_dot_product_attention was not implemented",
        net("q, k, v", "return F.scaled_dot_product_attention(q, k, v)"),
        '{"q": torch.randn(2, 2, 5, 8), "k": torch.randn(2, 2, 5, 8),'
        ' "v": torch.randn(2, 2, 5, 8)}',
    ),
    Report(
        "filled_with_a_number",
        f"{CT}#2268",
        2024,
        "full with an element type of its own failed",
        net("x", "return x * torch.full((6,), 2, dtype=torch.float32) + torch.full_like(x, 3)"),
        '{"x": torch.randn(2, 6)}',
    ),
    Report(
        "mask_beside_an_index",
        f"{CT}#2842",
        2026,
        "a mask beside another index selects whole slices, and the other index is dropped",
        net("x, level", "return x[level > 0, torch.tensor([0])].sum(0)  # here"),
        '{"x": torch.randn(5, 3), "level": torch.tensor([1., -1, 2, -3, 4])}',
        right={"coreml": Right("converter", r"index", r"nonzero|gather|where", corrected=True)},
        targets=COREML,
    ),
    Report(
        "product_of_whole_numbers",
        f"{CT}#2575",
        2025,
        "a matrix product of int32 converts, and Core ML refuses to load it",
        net(
            "counts",
            "return counts @ self.weight  # here",
            'self.register_buffer("weight", torch.randint(0, 100, (8, 8)))',
        ),
        '{"counts": torch.randint(0, 100, (3, 8))}',
        right={"coreml": Right("converter", r"matmul|mm", r"float|sum", corrected=True)},
        targets=COREML,
    ),
    Report(
        "reflection_of_a_volume",
        f"{CT}#2576",
        2025,
        "reflection along three axes converts, and Core ML refuses to load it",
        net("x", "return self.pad(x)  # here", "self.pad = nn.ReflectionPad3d(1)"),
        '{"x": torch.randn(1, 2, 4, 5, 6)}',
        right={"coreml": Right("converter", r"pad", r"cat|flip|axis", corrected=True)},
        targets=COREML,
    ),
    Report(
        "repetition_around_a_volume",
        f"{CT}#2571",
        2025,
        "repeated edges along three axes convert, and Core ML refuses to load them",
        net("x", "return self.pad(x)  # here", "self.pad = nn.ReplicationPad3d(2)"),
        '{"x": torch.randn(1, 2, 6, 6, 6)}',
        right={"coreml": Right("converter", r"pad", r"cat|expand|axis", corrected=True)},
        targets=COREML,
    ),
    Report(
        "norm_of_a_spike",
        f"{CT}#2821",
        2026,
        "rms_norm adds an epsilon that grows with the square of the largest value",
        net("x", "return self.norm(x)  # here", "self.norm = nn.RMSNorm(6, eps=1e-3)"),
        '{"x": torch.randn(2, 6) * torch.tensor([1e-2, 1, 1, 1, 1, 300.])}',
        right={"coreml": Right("converter", r"rms_norm", r"rsqrt|mean", corrected=True)},
        targets=COREML,
    ),
    Report(
        "image_made_smaller_smoothly",
        f"{CT}#2818",
        2026,
        "cubic resizing with antialiasing was not implemented",
        net("image", 'return F.interpolate(image, (4, 5), mode="bicubic", antialias=True)  # here'),
        '{"image": torch.rand(1, 3, 8, 12)}',
        right={"coreml": Right("converter", r"bicubic", r"matmul|without", corrected=True)},
        targets=COREML,
    ),
    Report(
        "optimization_that_stops",
        f"{CT}#2020",
        2023,
        "a pass that makes a batch norm of a factor and an offset meets other shapes, and stops",
        net(
            "p",
            "return torch.log(torch.sigmoid(p) * self.rows + 1e-4)",
            """
            self.register_buffer("rows", torch.arange(5.).reshape(1, 5, 1, 1))
        """,
        ),
        '{"p": torch.randn(2, 1, 4, 4)}',
        targets=COREML,
    ),
    Report(
        "mean_of_a_batch_norm_in_a_volume",
        f"{CT}#2276",
        2024,
        "the batch norm of a volume crashed",
        net("x", "return self.norm(x)", "self.norm = nn.BatchNorm3d(4)"),
        '{"x": torch.randn(2, 4, 3, 5, 6)}',
        targets=COREML,
    ),
)
