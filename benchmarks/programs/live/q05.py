"""Bird calls from field recorders: a loader worker cuts and augments clips, a convolutional net learns."""

import argparse
import io
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--variant", choices=["healthy"], default="healthy")
parser.add_argument("--device", default="cpu")
parser.add_argument("--steps", type=int, default=150)
args = parser.parse_args()


class Calls(Dataset):
    """Every clip is a compressed .npz blob, opened anew for each access."""

    def __init__(self, clips=256):
        rng = np.random.default_rng(0)
        self.blobs = []
        for i in range(clips):
            out = io.BytesIO()
            mel = (20 * rng.standard_normal((48, 80))).astype(np.int8)
            np.savez_compressed(out, mel=mel, label=np.int64(i % 10))
            self.blobs.append(out.getvalue())

    def __len__(self):
        return 100000

    def __getitem__(self, i):
        with np.load(io.BytesIO(self.blobs[i % len(self.blobs)])) as z:
            mel, label = z["mel"], int(z["label"])
        shift = np.random.randint(0, 16)
        clip = mel[:, shift : shift + 64].astype(np.float32) / 20
        for _ in range(2):  # SpecAugment: two bands are blanked
            f = np.random.randint(0, 40)
            clip[f : f + 8] = 0
        return torch.from_numpy(clip[None].copy()), label


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 48, 3, padding=1)
        self.b1 = nn.Conv2d(48, 96, 3, stride=2, padding=1)
        self.b2 = nn.Conv2d(96, 128, 3, stride=2, padding=1)
        self.b3 = nn.Conv2d(128, 128, 3, padding=1)
        self.head = nn.Linear(128, 10)

    def forward(self, x):
        for conv in (self.stem, self.b1, self.b2, self.b3):
            x = F.relu(conv(x))
        return self.head(x.mean((2, 3)))


def main():
    torch.manual_seed(0)
    device = torch.device(args.device)
    model = Net().to(device)
    opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loader = DataLoader(Calls(), batch_size=16, shuffle=True, num_workers=1, prefetch_factor=4)
    times, history = [], []
    batches = iter(loader)
    for step in range(args.steps):
        start = time.perf_counter()
        x, y = next(batches)
        x, y = x.to(device), y.to(device)
        out = model(x)
        loss = F.cross_entropy(out, y)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        opt.step()
        right = (out.argmax(1) == y).float().mean().item()
        history = history + [(loss.item(), right)]
        print(f"{step} loss {history[-1][0]:.3f} accuracy {np.mean([r for _, r in history[-50:]]):.2f}", flush=True)
        times.append(time.perf_counter() - start)
    half = times[len(times) // 2 :]
    print(f"step_ms={1000 * sum(half) / len(half):.3f}")


if __name__ == "__main__":
    main()
