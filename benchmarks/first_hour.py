"""Drafts a recipe for models of twelve kinds, and runs each draft without an edit.

    .venv/bin/python benchmarks/first_hour.py [KIND ...]

The models are tiny, with random weights: what counts is the shape of their interfaces. Prints a
Markdown table; exits with 1 if fewer than ten verify.
"""

import argparse
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

_NEEDED = 10

_MLP = """
    import torch

    class Ranker(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.user, self.item = torch.nn.Linear(12, 16), torch.nn.Linear(20, 16)

        def forward(self, user, item):
            return (self.user(user) * self.item(item)).sum(-1)

    def build():
        return Ranker()
"""
_CNN = """
    import torch

    class Digits(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = torch.nn.Conv2d(1, 4, 3, padding=1)
            self.head = torch.nn.Linear(4 * 28 * 28, 10)

        def forward(self, image):
            return {"scores": self.head(torch.relu(self.conv(image)).flatten(1))}

    def build():
        return Digits()
"""
_TAGGER = """
    import torch

    class Tagger(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(50, 16)
            layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
            self.encoder = torch.nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
            self.head = torch.nn.Linear(16, 5)

        def forward(self, tokens):
            return self.head(self.encoder(self.embed(tokens)))

    def build():
        return Tagger()
"""
# One call's inputs say what no layer does.
_BOXES = """
    import torch

    class Overlap(torch.nn.Module):
        def forward(self, boxes, anchors):
            low = torch.maximum(boxes[:, :, None, :2], anchors[None, None, :, :2])
            high = torch.minimum(boxes[:, :, None, 2:], anchors[None, None, :, 2:])
            return (high - low).clamp(min=0).prod(-1)

    def build():
        return Overlap()

    def example():
        return torch.rand(2, 5, 4), torch.rand(9, 4)
"""


def _own(code: str) -> Callable[[Path], list[str]]:
    def write(folder: Path) -> list[str]:
        (folder / "net.py").write_text(textwrap.dedent(code), encoding="utf-8")
        more = ["--example", str(folder / "net.py:example")] if "def example" in code else []
        return [f"{folder / 'net.py'}:build", *more]

    return write


def _folder(model_class: str, architecture: str, **config: object) -> Callable[[Path], list[str]]:
    def write(folder: Path) -> list[str]:
        import torch
        import transformers

        torch.manual_seed(0)
        made = transformers.AutoConfig.for_model(architecture, **config)
        getattr(transformers, model_class)(made).save_pretrained(folder / "model")
        return [str(folder / "model")]

    return write


def _onnx(folder: Path) -> list[str]:
    import torch

    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    batch = {0: torch.export.Dim("n")}
    program = torch.onnx.export(
        net.eval(), (torch.randn(2, 8),), dynamo=True, dynamic_shapes=(batch,), verbose=False
    )
    program.save(folder / "net.onnx")
    return [str(folder / "net.onnx")]


_ENCODER = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
KINDS: dict[str, Callable[[Path], list[str]]] = {
    "text encoder (BERT, classifier)": _folder(
        "BertForSequenceClassification", "bert", vocab_size=100, hidden_size=32, **_ENCODER
    ),
    "text to text (T5)": _folder(
        "T5Model", "t5", vocab_size=100, d_model=32, d_kv=8, d_ff=64, num_layers=1, num_heads=2
    ),
    "decoder (Phi-3)": _folder(
        "Phi3ForCausalLM", "phi3", vocab_size=100, hidden_size=32, pad_token_id=0, bos_token_id=1,
        eos_token_id=2, num_key_value_heads=2, max_position_embeddings=64,
        original_max_position_embeddings=64, **_ENCODER,
    ),
    "speech to text (Whisper)": _folder(
        "WhisperModel", "whisper", vocab_size=100, d_model=16, encoder_layers=1, decoder_layers=1,
        encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=32,
        decoder_ffn_dim=32, max_source_positions=50, max_target_positions=40, pad_token_id=0,
        bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
    ),
    "speech, waveform (wav2vec2)": _folder(
        "Wav2Vec2Model", "wav2vec2", hidden_size=32, conv_dim=[8, 8], conv_stride=[20, 16],
        conv_kernel=[40, 16], num_feat_extract_layers=2, num_conv_pos_embeddings=4,
        num_conv_pos_embedding_groups=2, **_ENCODER,
    ),
    "sound classifier (spectrogram transformer)": _folder(
        "ASTForAudioClassification", "audio-spectrogram-transformer", hidden_size=32,
        max_length=64, num_mel_bins=32, **_ENCODER,
    ),
    "image and text (CLIP)": _folder(
        "CLIPModel", "clip", projection_dim=16,
        text_config={"vocab_size": 100, "hidden_size": 32, "eos_token_id": 99, **_ENCODER},
        vision_config={"hidden_size": 32, "image_size": 32, "patch_size": 8, **_ENCODER},
    ),
    "image classifier (Swin)": _folder(
        "SwinForImageClassification", "swin", image_size=32, patch_size=4, embed_dim=16,
        depths=[1, 1], num_heads=[2, 2], window_size=4,
    ),
    "segmentation (SegFormer)": _folder(
        "SegformerForSemanticSegmentation", "segformer", depths=[1, 1, 1, 1],
        hidden_sizes=[8, 16, 16, 16], decoder_hidden_size=16, num_attention_heads=[1, 1, 2, 2],
        image_size=64,
    ),
    "own code, two feature vectors": _own(_MLP),
    "own code, convolutions": _own(_CNN),
    "own code, tokens": _own(_TAGGER),
    "own code, with an example call": _own(_BOXES),
    "an ONNX file": _onnx,
}  # fmt: skip


def main() -> int:
    """Draft and run each kind; print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="*", help="words in a kind's name; default: all")
    chosen = parser.parse_args().kinds
    print("| kind | drafted in | verified as drafted |\n| --- | --- | --- |", flush=True)
    passed = tried = 0
    for kind, write in KINDS.items():
        if chosen and not any(word.lower() in kind.lower() for word in chosen):
            continue
        with tempfile.TemporaryDirectory(prefix="first-hour-") as folder:
            seconds, verdict = _tried(write, Path(folder))
        tried += 1
        passed += verdict == "yes"
        print(f"| {kind} | {seconds:.0f} s | {verdict} |", flush=True)
    print(f"\n{passed} of {tried} verified without an edit")
    return 0 if chosen or passed >= _NEEDED else 1


def _tried(write: Callable[[Path], list[str]], folder: Path) -> tuple[float, str]:
    arguments = write(folder)
    started = time.monotonic()
    drafted = _convkit("init", *arguments, "-o", str(folder / "recipe.yaml"), folder=folder)
    seconds = time.monotonic() - started
    if drafted.returncode:
        return seconds, f"not drafted: {drafted.stderr.strip().splitlines()[-1][:300]}"
    ran = _convkit("run", str(folder / "recipe.yaml"), "--no-track", folder=folder)
    if ran.returncode == 0:
        return seconds, "yes"
    print(ran.stdout[-3000:], ran.stderr[-2000:], file=sys.stderr)
    return seconds, f"no: exit code {ran.returncode}"


def _convkit(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    own = ["--toolchain", "host", "--home", str(folder / "home")]
    command = [sys.executable, "-m", "convkit", *arguments, *own]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)


if __name__ == "__main__":
    sys.exit(main())
