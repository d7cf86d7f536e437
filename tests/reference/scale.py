"""tests/reference/scale.json, the expected values of crates/data/src/sets/image_pixels_tests.rs: images scaled by Pillow, in the
sizes of torchvision's Resize and CenterCrop, and made grey.

    python tests/reference/scale.py    (pillow; made with 13.0)
"""

import json
import pathlib

from PIL import Image


def picture(channels, height, width):
    """`testing::picture`: noise with many zeros, full values and repeated ones."""
    state, last, pixels = 7, 0, []
    for _ in range(channels * height * width):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        last = [0, 255, last, state >> 56, state >> 56, state >> 56, state >> 56, state >> 56][state >> 40 & 7]
        pixels.append(last)
    size = height * width
    planes = [
        Image.frombytes("L", (width, height), bytes(pixels[c * size : (c + 1) * size])) for c in range(channels)
    ]
    return planes[0] if channels == 1 else Image.merge("RGB", planes)


def case(own, size, resize, to, channels):
    # torchvision's loader makes every image one of colours.
    image = picture(own, *size).convert("RGB")
    if resize == "squash":
        image = image.resize((to, to), Image.Resampling.BILINEAR)
    else:
        # functional.resize with an int, and functional.center_crop.
        width, height = image.size
        short, long = (width, height) if width <= height else (height, width)
        longer = int(to * long / short)
        image = image.resize((to, longer) if width <= height else (longer, to), Image.Resampling.BILINEAR)
        width, height = image.size
        top, left = int(round((height - to) / 2.0)), int(round((width - to) / 2.0))
        image = image.crop((left, top, left + to, top + to))
    if channels == 1:
        image = image.convert("L")
    pixels = b"".join(plane.tobytes() for plane in image.split()).hex()
    return {"own": own, "size": size, "resize": resize, "to": to, "channels": channels, "pixels": pixels}


cases = [
    case(own, size, resize, to, channels)
    for own, channels in [(3, 3), (3, 1), (1, 1), (1, 3)]
    for size, to in [([40, 25], 8), ([25, 40], 8), ([9, 9], 12), ([10, 10], 10), ([61, 8], 8), ([7, 90], 11), ([300, 2], 9)]
    for resize in ["crop", "squash"]
    if own == 3 or (to == 8)
]
path = pathlib.Path(__file__).with_suffix(".json")
path.write_text("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")
