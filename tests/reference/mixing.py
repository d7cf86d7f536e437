"""tests/reference/mixing.json, the expected values of crates/train/src/training/mixing_tests.rs: torchvision's MixUp and CutMix with fixed
parameters, and PyTorch's cross-entropy with the mixed one-hot labels.

    python tests/reference/mixing.py     (torch, torchvision; made with 2.15 and 0.29.2)
"""

import json
import pathlib

import torch
import torch.nn.functional as F
from torchvision.transforms import v2

LABELS = torch.tensor([2, 0, 2, 1])


class Fixed:
    def __init__(self, value):
        self.value = value

    def sample(self, _):
        return torch.tensor(self.value, dtype=torch.float64)


def images(batch, height, width):
    return torch.arange(batch * height * width, dtype=torch.float64).reshape(batch, 1, height, width)


def fixed(transform, lam, center=(0, 0)):
    """The transform with this draw of lambda and, for CutMix, of the column and row of the centre."""
    transform._dist, numbers = Fixed(lam), iter(center)
    randint = torch.randint
    torch.randint = lambda high, size: torch.tensor([next(numbers)])
    try:
        return transform.make_params([images(4, 5, 6)]), transform
    finally:
        torch.randint = randint


def mix(kind, lam, row=0, column=0):
    params, transform = fixed(kind(alpha=1.0, num_classes=3), lam, (column, row))
    batch = {"labels": LABELS, "batch_size": 4, **params}
    x1, y1, x2, y2 = params.get("box", (0, 0, 0, 0))
    own = params.get("lam_adjusted", lam)
    pixels = transform.transform(images(4, 5, 6), batch).flatten().tolist()
    probabilities = transform.transform(LABELS, batch)
    case = {"kind": kind.__name__, "lam": lam, "centre": [row, column], "rows": [y1, y2], "columns": [x1, x2], "own": own}
    return {**case, "pixels": pixels, "probabilities": probabilities.tolist()}


def loss(lam, smoothing):
    logits = torch.linspace(-2, 2, 12, dtype=torch.float64).cos().mul(3).reshape(4, 3).requires_grad_()
    transform = v2.MixUp(alpha=1.0, num_classes=3)
    probabilities = transform.transform(LABELS, {"labels": LABELS, "batch_size": 4, "lam": lam}).double()
    value = F.cross_entropy(logits, probabilities, label_smoothing=smoothing)
    value.backward()
    case = {"lam": lam, "smoothing": smoothing, "logits": logits.detach().flatten().tolist()}
    return {**case, "loss": value.item(), "gradient": logits.grad.flatten().tolist()}


values = {
    "mixes": [mix(v2.MixUp, lam) for lam in (0.25, 0.75)]
    + [mix(v2.CutMix, *one) for one in [(0.25, 2, 3), (0.75, 0, 5), (0.5, 4, 0), (0.0, 2, 2), (0.99, 1, 1)]],
    "losses": [loss(lam, smoothing) for lam in (0.0, 0.3, 0.5, 0.9) for smoothing in (0.0, 0.1)],
}
lines = [f'"{name}": [\n' + ",\n".join(map(json.dumps, all)) + "\n]" for name, all in values.items()]
pathlib.Path(__file__).with_suffix(".json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
