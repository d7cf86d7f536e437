"""The expected values of crates/train/src/models/vit_tests.rs: torchvision's vision transformer in f64, on the tests' numbers.

    python tests/reference/vit.py        (torch, torchvision; made with 2.15 and 0.29.2)
"""

import torch
from torchvision.models.vision_transformer import VisionTransformer


def noise(count, seed):
    """`kernels::testing::noise`."""
    state = seed * 0x9E3779B97F4A7C15 % 2**64 | 1
    values = []
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        values.append((state >> 40) / 2**24 * 2 - 1)
    return torch.tensor(values)


torch.set_default_dtype(torch.float64)
model = VisionTransformer(
    image_size=8, patch_size=4, num_layers=2, num_heads=2, hidden_dim=8, mlp_dim=12, num_classes=3
)
for number, value in enumerate(model.state_dict().values()):
    value.copy_(noise(value.numel(), number + 1).reshape(value.shape) * 0.5)
logits = model(noise(2 * 3 * 8 * 8, 100).reshape(2, 3, 8, 8))
(logits * noise(6, 101).reshape(2, 3)).sum().backward()
print([round(x, 7) for x in logits.flatten().tolist()])
for number, (name, parameter) in enumerate(model.named_parameters()):
    product = (parameter.grad.flatten() * noise(parameter.numel(), 200 + number)).sum().item()
    print(f'    ("{name}", &{list(parameter.shape)}, {product:.7f}),')
