"""RT-DETR (random seeded weights): the whole with its head, and the parts that it is converted as.

A backbone and an encoder give features at three levels. The detector turns them into queries: one
score per class and one box each. The head returns the boxes whose scores exceed a threshold, so
that their number depends on the picture.
"""

import torch
from transformers import RTDetrConfig, RTDetrForObjectDetection, RTDetrResNetConfig

THRESHOLD = 0.5


def build(*, tiny: bool = False) -> torch.nn.Module:
    """Return the whole: pixels in, boxes, scores and classes out."""
    return _Whole(_rt_detr(tiny=tiny))


def features(*, tiny: bool = False) -> torch.nn.Module:
    """Return backbone and encoder: pixels in, features at three levels out."""
    return _Features(_rt_detr(tiny=tiny))


def detector(*, tiny: bool = False) -> torch.nn.Module:
    """Return the transformer's decoder: features in, scores and boxes of all queries out."""
    return _Detector(_rt_detr(tiny=tiny))


def head(*, tiny: bool = False) -> torch.nn.Module:
    """Return the head: scores and boxes of all queries in, the detections out."""
    del tiny
    return Head()


def _rt_detr(*, tiny: bool) -> RTDetrForObjectDetection:
    """Return RT-DETR with a ResNet-18, or a smaller one."""
    if tiny:
        backbone = RTDetrResNetConfig(
            embedding_size=8, hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], layer_type="basic",
            out_features=["stage2", "stage3", "stage4"],
        )  # fmt: skip
        width, layers, queries, classes = 32, 2, 20, 5
    else:
        backbone = RTDetrResNetConfig(
            hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic",
            out_features=["stage2", "stage3", "stage4"],
        )  # fmt: skip
        width, layers, queries, classes = 256, 3, 300, 80
    config = RTDetrConfig(
        backbone_config=backbone,
        encoder_in_channels=backbone.hidden_sizes[1:],
        encoder_hidden_dim=width,
        encoder_ffn_dim=4 * width,
        d_model=width,
        decoder_in_channels=[width] * 3,
        decoder_ffn_dim=4 * width,
        decoder_layers=layers,
        num_queries=queries,
        num_labels=classes,
        anchor_image_size=[64, 64] if tiny else [320, 320],
    )
    rt_detr = RTDetrForObjectDetection(config).eval()
    for module in rt_detr.modules():  # what training starts from shrinks a picture to nothing
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.ones_(module.weight)
        elif isinstance(module, torch.nn.Conv2d | torch.nn.Linear):
            torch.nn.init.xavier_normal_(module.weight)
    return _with_few_confident_queries(rt_detr)


def _with_few_confident_queries(rt_detr: RTDetrForObjectDetection) -> RTDetrForObjectDetection:
    """Spread the scores as training does, so that one query in ten finds something: random weights
    give all of them nearly the same.
    """
    last = rt_detr.model.decoder.class_embed[-1]
    size = rt_detr.config.anchor_image_size
    with torch.no_grad():
        logits = rt_detr(pixel_values=torch.rand(1, 3, *size)).logits[0]
        spread, middle = logits.std(dim=0), logits.mean(dim=0)
        best = ((logits - middle) / spread).amax(dim=-1).quantile(0.9)
        last.weight.div_(spread.unsqueeze(-1))
        last.bias.sub_(middle).div_(spread).sub_(best)
    return rt_detr


class _Whole(torch.nn.Module):
    def __init__(self, rt_detr: RTDetrForObjectDetection) -> None:
        super().__init__()
        self.rt_detr, self.head = rt_detr, Head()

    def forward(self, pixel_values: torch.Tensor) -> dict[str, torch.Tensor]:
        found = self.rt_detr(pixel_values=pixel_values)
        return self.head(found.logits, found.pred_boxes)


class _Features(torch.nn.Module):
    def __init__(self, rt_detr: RTDetrForObjectDetection) -> None:
        super().__init__()
        model = rt_detr.model
        self.backbone, self.encoder = model.backbone, model.encoder
        self.projections = model.encoder_input_proj

    def forward(self, pixel_values: torch.Tensor) -> dict[str, torch.Tensor]:
        everywhere = torch.ones_like(pixel_values[:, 0])
        found = self.backbone(pixel_values, everywhere)
        levels = [
            projection(level)
            for projection, (level, _) in zip(self.projections, found, strict=True)
        ]
        encoded = self.encoder(levels).last_hidden_state
        return {f"level_{number}": level for number, level in enumerate(encoded)}


class _Detector(torch.nn.Module):
    def __init__(self, rt_detr: RTDetrForObjectDetection) -> None:
        super().__init__()
        self.model = rt_detr.model
        for done_before in ("backbone", "encoder", "encoder_input_proj"):
            setattr(self.model, done_before, torch.nn.Identity())

    def forward(
        self, level_0: torch.Tensor, level_1: torch.Tensor, level_2: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        levels = [level_0, level_1, level_2]
        found = self.model(None, inputs_embeds=level_0, encoder_outputs=(levels,))
        return {
            "logits": found.intermediate_logits[:, -1],
            "pred_boxes": found.intermediate_reference_points[:, -1],
        }


class Head(torch.nn.Module):
    """Keeps the queries whose best class exceeds the threshold, with boxes as corners."""

    def forward(self, logits: torch.Tensor, pred_boxes: torch.Tensor) -> dict[str, torch.Tensor]:
        """Take logits [1, queries, classes] and pred_boxes [1, queries, 4] as center and size."""
        scores, classes = logits[0].sigmoid().max(dim=-1)
        center, half = pred_boxes[0, :, :2], pred_boxes[0, :, 2:] / 2
        corners = torch.cat([center - half, center + half], dim=-1)
        kept = scores > THRESHOLD
        return {"boxes": corners[kept], "scores": scores[kept], "classes": classes[kept]}
