"""Two learners taught by one frozen teacher, with running averages of their heads."""

import argparse
import copy
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="healthy")
parser.add_argument("--steps", type=int, default=120)
parser.add_argument("--max-seconds", type=float, default=20)
args = parser.parse_args()

GPU = args.device.startswith("cuda")
SIZE, WIDTH, BATCH, DEPTH = (64, 8192, 8192, 8) if GPU else (16, 64, 32, 2)
CLASSES, WARM = (64, 4)
DTYPE = torch.bfloat16 if GPU else torch.float32


def sync():
    if GPU:
        torch.cuda.synchronize()


class Net(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.enter = nn.Linear(SIZE, WIDTH)
        self.body = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(depth))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        x = self.enter(x)
        for layer in self.body:
            x = F.relu(layer(x))
        return self.head(x)


class Readings:
    def __init__(self):
        self.dice = np.random.default_rng(2)
        self.rows = self.dice.standard_normal((40_000 if GPU else 500, SIZE)).astype(np.float32)

    def batch(self):
        pick = self.dice.integers(len(self.rows), size=BATCH)
        return torch.from_numpy(self.rows[pick])


class Learner:
    def __init__(self, name):
        self.name = name
        with torch.device(args.device):
            self.net = Net(DEPTH).to(DTYPE)
        self.average = copy.deepcopy(self.net.head)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-3, foreach=True)

    def learn(self, x, wish):
        loss = F.kl_div(self.net(x).float().log_softmax(-1), wish, reduction="batchmean")
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        with torch.no_grad():
            for kept, new in zip(self.average.parameters(), self.net.head.parameters()):
                kept.mul_(0.99).add_(new, alpha=0.01)
        return loss


def main():
    torch.manual_seed(0)
    readings = Readings()
    with torch.device(args.device):
        teacher = Net(DEPTH).to(DTYPE).eval().requires_grad_(False)
    learners = [Learner("first"), Learner("second")]
    report = {}
    folder = tempfile.mkdtemp()
    path = os.path.join(folder, "heads.pt")
    begin = start = time.perf_counter()
    for step in range(1, args.steps + 1):
        x = readings.batch().to(args.device).to(DTYPE)
        with torch.no_grad():
            wish = teacher(x).float().softmax(-1)
        for learner in learners:
            loss = learner.learn(x, wish)
            report = {**report, (learner.name, step): loss.item()}
        if step % 10 == 0:
            torch.save([learner.average.state_dict() for learner in learners], path)
            print(f"step {step} " + str({k[0]: round(v, 4) for k, v in report.items()}), flush=True)
        if step == WARM:
            sync()
            start = time.perf_counter()
        if step > WARM and time.perf_counter() - begin > args.max_seconds:
            break
    sync()
    took = time.perf_counter() - start
    if os.path.exists(path):
        os.remove(path)
    os.rmdir(folder)
    print(f"steps={step} mean_ms={1e3 * took / max(1, step - WARM):.3f}")


main()
