"""tests/reference/augment.json, the expected values of crates/data/src/resized_crop_tests.rs and color_jitter_tests.rs:
torchvision's transforms with fixed parameters, on the tests' numbers.

    python tests/reference/augment.py    (torch, torchvision, pillow; made with 2.15, 0.29.2 and 13.0)
"""

import json
import math
import pathlib

import numpy as np
import torch
import torchvision.transforms.functional as on_pil
import torchvision.transforms.v2.functional as on_tensors
from PIL import Image
from torchvision.transforms import RandomResizedCrop


def picture(channels, height, width):
    """`testing::picture`: noise with many zeros, full values and repeated ones."""
    state, last, pixels = 7, 0, []
    for _ in range(channels * height * width):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        last = [0, 255, last, state >> 56, state >> 56, state >> 56, state >> 56, state >> 56][state >> 40 & 7]
        pixels.append(last)
    return torch.tensor(pixels, dtype=torch.uint8).reshape(channels, height, width)


def show(image):
    return image.numpy().astype(np.uint8).tobytes().hex()


def crop(channels, size, window, to):
    image = picture(channels, *size)
    planes = [Image.fromarray(plane.numpy()) for plane in image]
    image = planes[0] if channels == 1 else Image.merge("RGB", planes)
    out = np.asarray(on_pil.resized_crop(image, *window, list(to)))
    out = torch.from_numpy(out.copy()).reshape(*to, channels).permute(2, 0, 1).contiguous()
    return {"channels": channels, "size": size, "window": window, "to": to, "pixels": show(out)}


class Refused(Exception):
    pass


def params(size, scale, ratio, draws):
    """`get_params` with these draws of area and logarithm of the ratio; the window is as far left and up as possible."""
    draws = iter(draws)

    def draw(self, low, high):
        try:
            return torch.tensor([next(draws)])
        except StopIteration:
            raise Refused

    before = torch.Tensor.uniform_, torch.randint
    torch.Tensor.uniform_, torch.randint = draw, lambda low, high, size: torch.tensor([0])
    try:
        return RandomResizedCrop.get_params(torch.empty(1, *size), scale, ratio)
    except Refused:
        return None
    finally:
        torch.Tensor.uniform_, torch.randint = before


def attempt(size, area, log_ratio):
    window = params(size, [0.08, 1.0], [3 / 4, 4 / 3], [area, log_ratio])
    return {"size": size, "area": area, "log_ratio": log_ratio, "sides": window and window[2:]}


def fallback(size, ratio):
    return {"size": size, "ratio": ratio, "window": params(size, [0.08, 1.0], ratio, [100.0, 0.0] * 10)}


def jitter(channels, size, steps):
    image = picture(channels, *size)
    for name, factor in steps:
        image = getattr(on_tensors, f"adjust_{name}")(image, factor)
    return {"channels": channels, "size": size, "steps": steps, "pixels": show(image)}


f32 = lambda x: float(np.float32(x))
log = lambda x: f32(math.log(x))
windows = [
    (3, (13, 17), (0, 0, 13, 17), (6, 5)),
    (3, (13, 17), (2, 3, 9, 11), (5, 5)),
    (3, (13, 17), (12, 16, 1, 1), (4, 4)),
    (3, (13, 17), (4, 0, 5, 5), (5, 5)),
    (1, (13, 17), (1, 5, 3, 12), (3, 7)),
    (1, (13, 17), (1, 5, 12, 7), (9, 7)),
    (1, (9, 200), (0, 1, 9, 199), (8, 8)),
    (3, (60, 45), (7, 4, 41, 38), (8, 8)),
    # Pillow 13 shortens these before it narrows them.
    (3, (60, 45), (3, 5, 50, 20), (8, 9)),
    (1, (60, 45), (3, 5, 14, 9), (7, 12)),
    # Here it does not: twice as much is gained along columns.
    (1, (60, 45), (3, 5, 28, 18), (8, 8)),
]
attempts = [
    ((13, 17), 0.5, log(1.0)),
    ((13, 17), 1.0, log(17 / 13)),
    ((13, 17), 1.0, log(1.25)),
    ((13, 17), 0.08, log(0.75)),
    ((32, 32), 1.0, 0.0),
    ((32, 32), 1.0, log(1.02)),
    ((375, 500), f32(0.31), f32(0.123)),
    ((375, 500), f32(0.93), f32(-0.2)),
    ((1, 40), 0.08, log(0.75)),
    # Half pixels: Python rounds them to even.
    ((10, 10), 0.0625, 0.0),
    ((10, 10), 0.1225, 0.0),
    ((100, 10), 0.0001, 0.0),
]
fallbacks = [((13, 17), [3 / 4, 4 / 3]), ((10, 40), [3 / 4, 4 / 3]), ((40, 9), [3 / 4, 4 / 3]), ((375, 500), [1.0, 1.0])]
steps = [
    [("brightness", 1.7)],
    [("brightness", 0.3)],
    [("contrast", 1.9)],
    [("contrast", 0.25)],
    [("saturation", 2.6)],
    [("saturation", 0.0)],
    [("saturation", 0.4)],
    [("hue", 0.1)],
    [("hue", -0.37)],
    [("hue", 0.5)],
    [("contrast", 1.2), ("hue", 0.05), ("saturation", 0.7), ("brightness", 1.1)],
    [("hue", -0.05), ("brightness", 0.8), ("saturation", 1.3), ("contrast", 0.9)],
]
values = {
    "crops": [crop(*window) for window in windows],
    "attempts": [attempt(*one) for one in attempts],
    "fallbacks": [fallback(*one) for one in fallbacks],
    "jitters": [jitter(3, (9, 11), [(n, f32(x)) for n, x in one]) for one in steps]
    + [jitter(1, (9, 11), [(n, f32(x)) for n, x in one]) for one in [*steps[:4], steps[-1]]],
}
lines = [f'"{name}": [\n' + ",\n".join(map(json.dumps, all)) + "\n]" for name, all in values.items()]
pathlib.Path(__file__).with_suffix(".json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
