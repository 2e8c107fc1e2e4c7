"""A script that does one thing once: it embeds lines, and compares all with all in Python."""

import torch

SLOW = "<genexpr> (one_shot.py"  # of nearest

torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 32))


def nearest(vectors):
    """Pair by pair."""
    best = []
    for vector in vectors:
        best.append(max(float(vector @ other) for other in vectors))
    return best


with torch.inference_mode():
    vectors = model(torch.rand(1000, 64))
    print(sum(nearest(vectors)))
