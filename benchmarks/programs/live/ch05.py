"""Image classifier fed from a bucket with latency; loss is read and logged on every step."""
import argparse
import json
import tempfile
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


class Bucket(Dataset):
    """Objects of remote storage: every get costs a round trip."""

    def __init__(self, count):
        self.count = count
        self.data = torch.randint(0, 255, (128, 3, 64, 64), dtype=torch.uint8)

    def __len__(self):
        return self.count

    def fetch(self, i):
        time.sleep(0.005)
        return self.data[i % 128]

    def __getitem__(self, i):
        return self.fetch(i), i % 10


class Net(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        def conv(i, o, s=1):
            return nn.Sequential(nn.Conv2d(i, o, 3, s, 1), nn.ReLU())
        self.body = nn.Sequential(conv(3, width, 2), conv(width, width * 2), conv(width * 2, width * 2, 2),
                                  conv(width * 2, width * 4), conv(width * 4, width * 4, 2))
        self.head = nn.Linear(width * 4, 10)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", default="healthy", choices=["healthy"])
    ap.add_argument("--steps", type=int, default=110)
    ap.add_argument("--max-seconds", type=float, default=30)
    args = ap.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(Bucket(24 * 1000), batch_size=24, shuffle=True, num_workers=2, prefetch_factor=4)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    log = tempfile.NamedTemporaryFile("w", suffix=".jsonl")
    times, start = [], time.perf_counter()
    t = time.perf_counter()
    for x, y in loader:
        x = x.float().div_(127.5).sub_(1)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        right = sum(int(p) == int(q) for p, q in zip(model.head.bias.argsort()[:4], y[:4]))
        log.write(json.dumps({"step": len(times), "loss": loss.item(), "right": right}) + "\n")
        log.flush()
        times.append((time.perf_counter() - t) * 1e3)
        if len(times) >= args.steps or time.perf_counter() - start > args.max_seconds:
            break
        t = time.perf_counter()
    kept = sorted(times[5:])
    print(json.dumps({"mean_ms": round(sum(kept) / len(kept), 2), "median_ms": round(kept[len(kept) // 2], 2),
                      "steps": len(times)}))


if __name__ == "__main__":
    main()
