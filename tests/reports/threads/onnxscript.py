"""Reports of microsoft/onnxscript, whose library and optimizer torch's exporter uses."""

from reports.report import Report, Right, net

OS = "microsoft/onnxscript"
BOTH = ("ort", "ov")
assert Right

REPORTS = (
    Report(
        "row_that_is_masked_whole",
        f"{OS}#2479",
        2025,
        "attention with a mask that hides a whole row is NaN in the graph, and 0 in torch",
        net("q, mask", "return F.scaled_dot_product_attention(q, q, q, attn_mask=mask[:, None])"),
        '{"q": torch.randn(2, 2, 5, 8),'
        ' "mask": torch.arange(5)[None, :, None].ne(0).expand(2, 5, 5).contiguous()}',
        targets=BOTH,
    ),
    Report(
        "rounded_quotients",
        f"{OS}#2147",
        2025,
        "rounding modes of div",
        net(
            "x",
            """
            down = torch.div(x, 0.7, rounding_mode="floor")
            return down + torch.div(x, 0.7, rounding_mode="trunc")
            """,
        ),
        '{"x": torch.randn(2, 6) * 5}',
        targets=BOTH,
    ),
    Report(
        "product_of_all",
        f"{OS}#2762",
        2026,
        "prod kept an axis",
        net("x", "return torch.prod(x, dim=1) + x.sum(1)"),
        '{"x": torch.randn(2, 6, 3)}',
    ),
    Report(
        "mean_over_two_axes",
        f"{OS}#1962",
        2024,
        "mean over axes whose number is not known took the wrong branch",
        net("x", "return x.mean((1, 2)) * x.mean((1, 2), keepdim=True).flatten(1).sum(1)"),
        '{"x": torch.randn(4, 5, 4)}',
    ),
    Report(
        "unfolded_from_the_end",
        f"{OS}#1145",
        2023,
        "unfold along a negative axis",
        net("x", "return x.unfold(-1, 4, 2)"),
        '{"x": torch.randn(2, 3, 12)}',
        targets=BOTH,
    ),
    Report(
        "group_norm",
        f"{OS}#1171",
        2023,
        "the element type of a group norm",
        net("x", "return self.norm(x)", "self.norm = nn.GroupNorm(2, 6)"),
        '{"x": torch.randn(2, 6, 5)}',
    ),
    Report(
        "deviation_with_a_correction",
        f"{OS}#1687",
        2024,
        "std with a correction was missing",
        net("x", "return (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True, correction=0)"),
        '{"x": torch.randn(2, 6)}',
    ),
    Report(
        "where_with_one_argument",
        f"{OS}#1971",
        2024,
        "torch.where with a condition only was matched to the one with three arguments",
        net("x", "return torch.where(x > 0)[0] * 2"),
        '{"x": torch.tensor([0, 1, 2, 0, 3])}',
        targets=("ort",),
    ),
    Report(
        "pieces_of_given_sizes",
        f"{OS}#2543",
        2025,
        "split_with_sizes of an open axis",
        net(
            "x",
            """
            a, b = x.split([2, 4], dim=2)
            return torch.cat([b, a], 2) * x
            """,
        ),
        '{"x": torch.randn(2, 5, 6)}',
    ),
    Report(
        "convolution_decomposed",
        f"{OS}#1615",
        2024,
        "a convolution gained an axis that it should not have",
        net("x", "return self.conv(x)", "self.conv = nn.Conv1d(3, 4, 3, padding='same')"),
        '{"x": torch.randn(2, 3, 9)}',
    ),
    Report(
        "linear_without_bias",
        f"{OS}#1819",
        2024,
        "linear was written with MatMul and lost accuracy",
        net("x", "return self.lin(x)", "self.lin = nn.Linear(64, 8, bias=False)"),
        '{"x": torch.randn(3, 64)}',
    ),
    Report(
        "norm_behind_a_linear",
        f"{OS}#2728",
        2025,
        "a norm folded into a linear layer",
        net(
            "x",
            "return self.norm(self.lin(x))",
            """
            self.lin = nn.Linear(6, 8)
            self.norm = nn.BatchNorm1d(8)
            self.norm.running_mean.normal_()
            self.norm.running_var.uniform_(0.5, 2)
            """,
        ),
        '{"x": torch.randn(3, 6)}',
    ),
    Report(
        "recurrent_layers",
        f"{OS}#2674",
        2025,
        "LSTM had to be decomposed step by step",
        net("x", "return self.rnn(x)[0]", "self.rnn = nn.LSTM(6, 5, 2, batch_first=True)"),
        '{"x": torch.randn(2, 7, 6)}',
        targets=BOTH,
    ),
    Report(
        "buckets",
        f"{OS}#1659",
        2024,
        "bucketize was missing",
        net(
            "x",
            "return torch.bucketize(x, self.edges)",
            'self.register_buffer("edges", torch.linspace(-1, 1, 5))',
        ),
        '{"x": torch.randn(2, 6)}',
        targets=("ort",),
    ),
)
