import torch


class Attention(torch.nn.Module):
    """Scores of unnormalized features: they exceed 65504 before they are scaled down."""

    def __init__(self) -> None:
        super().__init__()
        self.query = torch.nn.Linear(64, 64)
        self.key = torch.nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.query(x) @ self.key(x).transpose(1, 2)
        return torch.softmax(scores / 4096, dim=-1) @ x


class Matcher(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Linear(64, 64)
        self.attention = Attention()
        self.head = torch.nn.Linear(64, 8)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return self.head(self.attention(self.scale(features * 100)) / 100)


def matcher() -> torch.nn.Module:
    torch.manual_seed(0)
    return Matcher()
