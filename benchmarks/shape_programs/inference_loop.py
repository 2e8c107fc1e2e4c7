"""Inference without optimizer and loader: boxes are sorted out one by one."""

import sys

import torch

SLOW = "<genexpr> (inference_loop.py"  # of suppress

torch.set_num_threads(1)
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 3, padding=1)
)


def suppress(boxes):
    """Pair by pair."""
    kept = []
    for box in boxes:
        if all(float((box - other).abs().sum()) > 0.5 for other in kept):
            kept.append(box)
    return kept


with torch.inference_mode():
    for number in range(2 * int(sys.argv[1])):
        image = torch.full((1, 3, 32, 32), number / 100)
        outputs = model(image)
        suppress(outputs.flatten(2)[0].T[:256])
