"""RT-DETR with its head: a picture in; boxes, scores and classes of what it detects out.

The layers are those of transformers; the weights are random and seeded. The head takes the best of all queries and
classes, as transformers' own post-processing does, and keeps those whose score exceeds the threshold. How many that
are depends on the picture.
"""

import torch
from transformers import RTDetrConfig, RTDetrForObjectDetection, RTDetrResNetConfig


class Detector(torch.nn.Module):
    """Detects objects in one picture."""

    def __init__(self, config: RTDetrConfig, threshold: float) -> None:
        super().__init__()
        self.detr = RTDetrForObjectDetection(config)
        self.threshold = threshold
        # New class heads score every place alike: which of them are best would be chance.
        for name, weight in self.detr.named_parameters():
            if "class_embed" in name or "enc_score_head" in name:
                torch.nn.init.normal_(weight)

    def forward(self, pixel_values: torch.Tensor) -> dict[str, torch.Tensor]:
        """pixel_values: (1, 3, height, width).

        Returns `boxes` (n, 4), center and size in parts of the picture, `scores` (n,) from best to worst, and `classes`
        (n,).
        """
        found = self.detr(pixel_values)
        queries, labels = found.logits.shape[1:]
        scores, places = found.logits[0].sigmoid().flatten().topk(queries)
        keep = scores > self.threshold
        boxes = found.pred_boxes[0][places // labels]
        return {"boxes": boxes[keep], "scores": scores[keep], "classes": (places % labels)[keep]}


def build(threshold: float = 0.5, width: int = 64, queries: int = 50, labels: int = 20) -> torch.nn.Module:
    """Return a detector whose layers have that width."""
    sizes = [width // 4, width // 2, width, width]
    backbone = RTDetrResNetConfig(
        embedding_size=width // 4,
        hidden_sizes=sizes,
        depths=[1, 1, 1, 1],
        layer_type="basic",
        out_features=["stage2", "stage3", "stage4"],
    )
    config = RTDetrConfig(
        backbone_config=backbone,
        encoder_in_channels=sizes[1:],
        encoder_hidden_dim=width,
        encoder_ffn_dim=2 * width,
        encoder_attention_heads=4,
        d_model=width,
        decoder_in_channels=[width] * 3,
        decoder_ffn_dim=2 * width,
        decoder_layers=2,
        decoder_attention_heads=4,
        num_queries=queries,
        num_denoising=0,
        num_labels=labels,
    )
    return Detector(config, threshold)
