"""Trains the network of digits.yaml on scikit-learn's handwritten digits, in a few seconds.

Writes its weights, the rows that `evaluate:` scores (which it never saw) and the images that int8
is calibrated with. The three files are in the repository: run this only to make them anew.

    python examples/digits/train.py
"""

from pathlib import Path

import numpy as np
import torch
from digits import Digits
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

HERE = Path(__file__).parent
EPOCHS = 25


def main() -> None:
    """Train, and write the files."""
    torch.manual_seed(0)
    data = load_digits()
    images = (data.images[:, None] / 16).astype(np.float32)
    seen, rows, labels, row_labels = train_test_split(
        images, data.target, test_size=600, random_state=0, stratify=data.target
    )
    model = Digits()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(seen)).split(64):
            optimizer.zero_grad()
            scores = model(torch.from_numpy(seen)[batch])
            torch.nn.functional.cross_entropy(scores, torch.from_numpy(labels)[batch]).backward()
            optimizer.step()
    weights = {name: value.numpy() for name, value in model.state_dict().items()}
    np.savez_compressed(HERE / "weights.npz", **weights)
    np.savez_compressed(HERE / "rows.npz", image=rows, label=row_labels)
    np.savez_compressed(HERE / "calibration.npz", image=seen[:64].reshape(4, 16, 1, 8, 8))
    with torch.no_grad():
        found = model.eval()(torch.from_numpy(rows)).argmax(1).numpy()
    print(f"accuracy {(found == row_labels).mean():.3f} on {len(rows)} images")


if __name__ == "__main__":
    main()
