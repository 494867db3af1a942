"""Reports of pytorch/pytorch: its exporter, and what its own modules do."""

from reports.report import Report, Right, net

PT = "pytorch/pytorch"
BOTH = ("ort", "ov")
_ENCODER = """
    self.table = nn.Embedding(50, 16)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    self.encoder = nn.TransformerEncoder(layer, 2)
"""
_PADDED = (
    '{"tokens": torch.randint(0, 50, (2, 6)),'
    ' "padding": torch.tensor([[False] * 6, [False] * 4 + [True] * 2])}'
)

REPORTS = (
    Report(
        "bias_of_a_folded_norm",
        f"{PT}#166797",
        2025,
        "a norm folded into a convolution left a bias of a wrong shape",
        net(
            "image",
            "return torch.relu(self.norm(self.conv(image)))",
            """
            self.conv = nn.Conv2d(3, 8, 3, bias=False)
            self.norm = nn.BatchNorm2d(8)
            self.norm.running_mean.normal_()
            self.norm.running_var.uniform_(0.5, 2)
            """,
        ),
        '{"image": torch.randn(1, 3, 16, 16)}',
    ),
    Report(
        "residual_block_with_norms",
        f"{PT}#168224",
        2025,
        "norms of a residual block are folded into the wrong convolution",
        net(
            "image",
            """
            x = torch.relu(self.first_norm(self.first(image)))
            x = self.second_norm(self.second(x))
            return torch.relu(x + self.short_norm(self.short(image)))
            """,
            """
            self.first = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False)
            self.first_norm = nn.BatchNorm2d(8)
            self.second = nn.Conv2d(8, 8, 3, padding=1, bias=False)
            self.second_norm = nn.BatchNorm2d(8)
            self.short = nn.Conv2d(3, 8, 1, stride=2, bias=False)
            self.short_norm = nn.BatchNorm2d(8)
            for norm in (self.first_norm, self.second_norm, self.short_norm):
                norm.running_mean.normal_()
                norm.running_var.uniform_(0.5, 2)
            """,
        ),
        '{"image": torch.randn(1, 3, 16, 16)}',
    ),
    Report(
        "norms_of_equal_values",
        f"{PT}#169178",
        2025,
        "constants that norms share are folded twice",
        net(
            "image",
            "return self.head(self.body(image).mean((2, 3)))",
            """
            self.body = nn.Sequential(
                nn.Conv2d(3, 6, 3, bias=False), nn.BatchNorm2d(6), nn.ReLU(),
                nn.Conv2d(6, 6, 3, bias=False), nn.BatchNorm2d(6), nn.ReLU(),
            )
            self.head = nn.Linear(6, 4)
            """,
        ),
        '{"image": torch.randn(2, 3, 12, 12)}',
    ),
    Report(
        "resize_to_one_pixel",
        f"{PT}#183523",
        2026,
        "pytorch_half_pixel is written for bilinear, which for one pixel takes the first one",
        net(
            "x",
            'return F.interpolate(x, size=(1, 1), mode="bilinear", align_corners=False)  # here',
        ),
        '{"x": torch.randn(1, 3, 10, 10)}',
        right={
            "ort": Right(
                "exporter",
                r"Resize|half_pixel|bilinear",
                r"mean|half_pixel|torchscript",
                corrected=True,
            ),
            "ov": Right(
                "exporter",
                r"Resize|half_pixel|bilinear",
                r"mean|half_pixel|torchscript",
                corrected=True,
            ),
        },
    ),
    Report(
        "ceiled_pool_of_the_exporter",
        f"{PT}#183528",
        2026,
        "avg_pool2d with ceil_mode and padding: onnxruntime's kernel, not the exporter",
        net("x", "return F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=True)"),
        '{"x": torch.arange(1., 17).reshape(1, 1, 4, 4)}',
        targets=BOTH,
    ),
    Report(
        "zeros_at_padding",
        f"{PT}#109532",
        2023,
        "torch's fast path writes zeros at padding, which the exported graph computes",
        net(
            "tokens, padding",
            "return self.encoder(self.table(tokens), src_key_padding_mask=padding)  # here",
            _ENCODER,
        ),
        _PADDED,
        right={
            name: Right(
                "original",
                r"padding|zero|fast",
                r"enable_nested_tensor|mask",
                r"model\.py:15\b|encoder",
            )
            for name in BOTH
        },
        targets=BOTH,
    ),
    Report(
        "no_fast_path",
        f"{PT}#97111",
        2023,
        "the same without nested tensors",
        net(
            "tokens, padding",
            "return self.encoder(self.table(tokens), src_key_padding_mask=padding)",
            _ENCODER.replace("(layer, 2)", "(layer, 2, enable_nested_tensor=False)"),
        ),
        _PADDED,
        targets=BOTH,
    ),
    Report(
        "encoder_of_tokens",
        f"{PT}#110557",
        2023,
        "an encoder without a mask",
        net("tokens", "return self.encoder(self.table(tokens))", _ENCODER),
        '{"tokens": torch.randint(0, 50, (2, 6))}',
    ),
    Report(
        "masked_input_in_place",
        f"{PT}#95050",
        2023,
        "a view of the input is masked in place, which exporters lost; the caller's tensor changes",
        net(
            "x",
            """
            x.view(-1, 3, 2).masked_fill_(self.hidden, -5.0)  # here
            return x * 2
            """,
            'self.register_buffer("hidden", torch.tensor([True, False]))',
        ),
        '{"x": torch.randn(2, 6)}',
        right={"coreml": Right("module's code", r"input|in place|writes", r"clone|copy")},
    ),
    Report(
        "zeroed_slice_of_the_input",
        f"{PT}#110056",
        2023,
        "a slice of the input is set to zero: the caller's tensor changes",
        net(
            "x",
            """
            x[:, 1:-1] = 0  # here
            return x.cumsum(1)
            """,
        ),
        '{"x": torch.randn(2, 6)}',
        right={"coreml": Right("module's code", r"input|in place|writes", r"clone|copy")},
    ),
    Report(
        "zeroed_elements_of_the_input",
        f"{PT}#74801",
        2024,
        "elements of the input are replaced where a mask says so",
        net(
            "x, mask",
            """
            x[mask] = 0  # here
            return x.sum(1)
            """,
        ),
        '{"x": torch.randn(2, 6), "mask": torch.tensor([[True] + [False] * 5, [False] * 6])}',
        right={"coreml": Right("module's code", r"input|in place|writes", r"clone|copy")},
    ),
    Report(
        "frozen_length_of_two_directions",
        f"{PT}#191855",
        2026,
        "a bidirectional pass by hand keeps the example's length in an Expand",
        net(
            "x",
            """
            there = self.forth(x)[0]
            back = self.back(torch.flip(x, [1]))[0]  # here
            return torch.cat([there, torch.flip(back, [1])], 2)
            """,
            """
            self.forth = nn.LSTM(6, 5, batch_first=True)
            self.back = nn.LSTM(6, 5, batch_first=True)
            """,
        ),
        '{"x": torch.randn(2, 7, 6)}',
        targets=BOTH,
    ),
    Report(
        "meshgrid_of_positions",
        f"{PT}#141770",
        2024,
        "meshgrid failed to decompose",
        net(
            "x",
            """
            rows = torch.arange(x.shape[1], dtype=x.dtype)
            columns = torch.arange(x.shape[2], dtype=x.dtype)
            y, z = torch.meshgrid(rows, columns, indexing="ij")
            return x * y + z
            """,
        ),
        '{"x": torch.randn(2, 5, 4)}',
    ),
    Report(
        "filled_like_another",
        f"{PT}#122898",
        2024,
        "full_like with a value that is no float",
        net("x", "return x + torch.full_like(x, 3, dtype=torch.int64)"),
        '{"x": torch.randint(0, 9, (2, 6))}',
    ),
    Report(
        "convolution_by_fourier_transforms",
        f"{PT}#113444",
        2023,
        "rfft and irfft of a long convolution were compiled wrong",
        net(
            "x",
            """
            n = 2 * x.shape[-1]
            spectrum = torch.fft.rfft(x, n=n) * torch.fft.rfft(self.kernel, n=n)
            return torch.fft.irfft(spectrum, n=n)[..., : x.shape[-1]]
            """,
            "self.kernel = nn.Parameter(torch.randn(4, 8))",
        ),
        '{"x": torch.randn(2, 4, 8)}',
        targets=("ort",),
    ),
    Report(
        "short_time_spectrum",
        f"{PT}#113067",
        2023,
        "stft could not be exported",
        net(
            "sound",
            """
            spectrum = torch.stft(sound, 32, 16, window=self.window, return_complex=True)
            return spectrum.abs()
            """,
            'self.register_buffer("window", torch.hann_window(32))',
        ),
        '{"sound": torch.randn(2, 320)}',
        targets=("ort",),
    ),
    Report(
        "rotation_by_complex_numbers",
        f"{PT}#126972",
        2024,
        "complex numbers of a rotary embedding",
        net(
            "x",
            """
            pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
            turned = pairs * torch.polar(torch.ones(6, 4), self.angles)[: x.shape[1]]
            return torch.view_as_real(turned).flatten(-2)
            """,
            'self.register_buffer("angles", torch.rand(6, 4))',
        ),
        '{"x": torch.randn(2, 6, 8)}',
        targets=("ort",),
    ),
    Report(
        "size_that_depends_on_values",
        f"{PT}#143222",
        2024,
        "a comparison with a number of selected elements cannot be traced",
        net(
            "x",
            """
            kept = x[x > 0]
            if kept.numel() > 3:  # here
                return kept.mean() + x
            return x * 2
            """,
        ),
        '{"x": torch.randn(2, 6)}',
        right={"ort": Right("module's code", r"branch|depends|values|numel", r"where|torch\.cond")},
        targets=("ort",),
    ),
    Report(
        "added_at_repeated_indices",
        f"{PT}#111159",
        2023,
        "index_add with repeated indices kept the last of them only",
        net("x, i, y", "return x.index_add(0, i, y)"),
        '{"x": torch.randn(6, 4), "i": torch.tensor([0, 2, 2, 5]), "y": torch.randn(4, 4)}',
        targets=BOTH,
    ),
    Report(
        "clamp_between_tensors",
        f"{PT}#130826",
        2024,
        "clamp with tensors as bounds loses NaN in onnxruntime",
        net(
            "x",
            "return x.clamp(self.low, self.high)",
            """
            self.register_buffer("low", torch.tensor([-0.5]))
            self.register_buffer("high", torch.tensor([0.5]))
            """,
        ),
        '{"x": torch.randn(2, 6)}',
    ),
    Report(
        "repeated_elements",
        f"{PT}#128505",
        2024,
        "repeat_interleave gave an invalid file",
        net("x", "return torch.repeat_interleave(x.sin(), 2, dim=-1)"),
        '{"x": torch.randn(2, 6, 4)}',
    ),
    Report(
        "transposed_view_of_attention",
        f"{PT}#139508",
        2024,
        "a view of a transposed tensor failed in the exporter",
        net(
            "x",
            """
            q = self.q(x).reshape(x.shape[0], -1, 2, 4).transpose(1, 2)
            y = F.scaled_dot_product_attention(q, q, q)
            return y.transpose(1, 2).reshape(x.shape[0], -1, 8)
            """,
            "self.q = nn.Linear(8, 8)",
        ),
        '{"x": torch.randn(2, 5, 8)}',
    ),
    Report(
        "batch_of_a_residual_network",
        f"{PT}#157621",
        2025,
        "the batch was fixed although it was declared open",
        net(
            "image",
            "return torch.flatten(self.pool(self.conv(image)), 1)",
            """
            self.conv = nn.Conv2d(3, 4, 3)
            self.pool = nn.AdaptiveAvgPool2d((1, 1))
            """,
        ),
        '{"image": torch.randn(1, 3, 10, 10)}',
    ),
    Report(
        "roll_by_an_open_size",
        f"{PT}#128324",
        2024,
        "roll and copy_ with open sizes failed",
        net(
            "x",
            """
            y = torch.empty_like(x)
            y.copy_(torch.roll(x, x.shape[1] // 2, dims=1))
            return y
            """,
        ),
        '{"x": torch.randn(2, 6, 4)}',
    ),
)
