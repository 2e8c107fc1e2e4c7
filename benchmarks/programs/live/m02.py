"""Training a wide token mixer on sentences streamed from a loader."""

import argparse
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="healthy")
parser.add_argument("--steps", type=int, default=120)
parser.add_argument("--max-seconds", type=float, default=20)
args = parser.parse_args()

GPU = args.device.startswith("cuda")
WIDTH, HIDDEN, LAYERS = (8192, 16384, 4) if GPU else (64, 128, 2)
ROWS, LENGTH = (8, 1024) if GPU else (2, 16)
VOCAB = 4096 if GPU else 100
WARM = 4
DTYPE = torch.bfloat16 if GPU else torch.float32


def sync():
    if GPU:
        torch.cuda.synchronize()


class Sentences(Dataset):
    """Each sentence is a list of word numbers, cut to one length."""

    def __init__(self, count=2000):
        source = random.Random(4)
        self.rows = [[source.randrange(VOCAB) for _ in range(LENGTH + 1)] for _ in range(min(count, 400))]

    def __len__(self):
        return 20000

    def __getitem__(self, index):
        row = list(self.rows[index % len(self.rows)])
        return torch.tensor(row[:-1]), torch.tensor(row[1:])


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(x)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCAB, WIDTH)
        self.mixers = nn.ModuleList(Mixer() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)

    def forward(self, ids):
        x = self.words(ids)
        for mixer in self.mixers:
            x = mixer(x)
        return self.head(x)


class Journal:
    def __init__(self):
        self.history = []

    def note(self, step, loss):
        self.history = self.history + [float(loss)]
        average = sum(self.history) / len(self.history)
        if step % 10 == 0:
            print(f"step {step} loss {self.history[-1]:.4f} average {average:.4f}", flush=True)


def batches(loader):
    while True:
        yield from loader


def main():
    torch.manual_seed(0)
    with torch.device(args.device):
        model = Model().to(DTYPE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=True)
    loader = DataLoader(Sentences(), batch_size=ROWS, shuffle=True, num_workers=2)
    source, journal = batches(loader), Journal()
    begin = start = time.perf_counter()
    for step in range(1, args.steps + 1):
        ids, target = next(source)
        ids, target = ids.to(args.device), target.to(args.device)
        scores = model(ids)
        loss = F.cross_entropy(scores.flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.head.parameters():
            if not torch.isfinite(parameter.grad).all():
                raise RuntimeError("gradient is not finite")
        optimizer.step()
        journal.note(step, loss.detach())
        if step == WARM:
            sync()
            start = time.perf_counter()
        if step > WARM and time.perf_counter() - begin > args.max_seconds:
            break
    sync()
    took = time.perf_counter() - start
    print(f"steps={step} mean_ms={1e3 * took / max(1, step - WARM):.3f}")


if __name__ == "__main__":
    main()
