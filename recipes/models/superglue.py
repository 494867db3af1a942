"""SuperGlue's matcher without its detector: keypoints, descriptors and scores in, the log assignment out.

The layers are those of transformers; the weights are random and seeded. The product of descriptors is what overflows
in float16 with trained weights: `gain` scales the last projection, so that it does here as well.
"""

import torch
from transformers import SuperGlueConfig, SuperGlueForKeypointMatching, SuperPointConfig
from transformers.models.superglue.modeling_superglue import log_optimal_transport, normalize_keypoints


class PairScores(torch.nn.Module):
    """Products of every descriptor of the first image with every one of the second, over the root of their width."""

    def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        return first @ second.transpose(1, 2) / first.shape[-1] ** 0.5


class Transport(torch.nn.Module):
    """Sinkhorn's iterations in log space, with a bin for keypoints that match nothing."""

    def __init__(self, bin_score: torch.nn.Parameter, iterations: int) -> None:
        super().__init__()
        self.bin_score = bin_score
        self.iterations = iterations

    def forward(self, scores: torch.Tensor) -> torch.Tensor:
        return log_optimal_transport(scores, self.bin_score, self.iterations)


class Matcher(torch.nn.Module):
    """Matches the keypoints of image pairs."""

    def __init__(self, config: SuperGlueConfig, size: tuple[int, int], gain: float) -> None:
        super().__init__()
        model = SuperGlueForKeypointMatching(config)
        self.height, self.width = size
        self.keypoint_encoder = model.keypoint_encoder
        self.gnn = model.gnn
        self.final_projection = model.final_projection
        self.pair_scores = PairScores()
        self.transport = Transport(model.bin_score, config.sinkhorn_iterations)
        with torch.no_grad():
            self.final_projection.final_proj.weight.mul_(gain)

    def forward(self, keypoints: torch.Tensor, descriptors: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """keypoints: (batch, 2, n, 2) in pixels; descriptors: (batch, 2, n, 256); scores: (batch, 2, n), in 0 to 1.

        Returns the log assignment, (batch, n + 1, n + 1): its last row and column are the bins.
        """
        batch, _, count, width = descriptors.shape
        places = normalize_keypoints(keypoints.reshape(batch * 2, count, 2), self.height, self.width)
        encoded = self.keypoint_encoder(places, scores.reshape(batch * 2, count))[0]
        described = self.gnn(descriptors.reshape(batch * 2, count, width) + encoded)[0]
        projected = self.final_projection(described).reshape(batch, 2, count, width)
        return self.transport(self.pair_scores(projected[:, 0], projected[:, 1]))


def build(layers: int = 2, iterations: int = 10, gain: float = 1.0) -> torch.nn.Module:
    """Return the matcher with that many pairs of self and cross attention, for images of 480 x 640 pixels."""
    config = SuperGlueConfig(
        keypoint_detector_config=SuperPointConfig(),
        gnn_layers_types=["self", "cross"] * layers,
        sinkhorn_iterations=iterations,
        attn_implementation="eager",
    )
    return Matcher(config, (480, 640), gain).eval()
