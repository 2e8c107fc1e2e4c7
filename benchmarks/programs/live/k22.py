"""Training a regressor of engine states, with a running average of its weights."""

import argparse
import copy
import os
import tempfile
import threading
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cpu")
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="healthy")
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--max-seconds", type=float, default=15)
args = parser.parse_args()

WIDTH, LAYERS, BATCH, ROWS, WARM = 2048, 2, 2048, 4096, 2


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)])

    def forward(self, x):
        for layer in self.layers:
            x = F.relu(layer(x))
        return x


class Average:
    def __init__(self, model, keep=0.99):
        self.model, self.keep = copy.deepcopy(model), keep

    @torch.no_grad()
    def follow(self, model):
        for mine, theirs in zip(self.model.parameters(), model.parameters()):
            mine.lerp_(theirs, 1 - self.keep)


class Board:
    """Numbers of the last steps, read by a display thread."""

    def __init__(self, folder):
        self.guard, self.rows, self.closing = threading.Lock(), [], threading.Event()
        self.path = os.path.join(folder, "bias.pt")
        self.thread = threading.Thread(target=self.show, daemon=True)
        self.thread.start()

    def add(self, step, loss, biases):
        with self.guard:
            self.rows.append((step, loss.item(), [bias.norm().item() for bias in biases]))
        if step % 5 == 0:
            torch.save(biases, self.path)

    def show(self):
        while not self.closing.wait(1.0):
            with self.guard:
                rows = copy.deepcopy(self.rows)
            if rows:
                print(f"step {rows[-1][0]} loss {rows[-1][1]:.4f}", flush=True)

    def close(self):
        self.closing.set()
        self.thread.join()


def batches():
    mixer = torch.Generator().manual_seed(1)
    x = torch.randn(ROWS, WIDTH, generator=mixer)
    y = torch.roll(x, 1, 1).relu_()
    while True:
        for begin in torch.randperm(ROWS - BATCH, generator=mixer)[:64].tolist():
            yield x[begin : begin + BATCH], y[begin : begin + BATCH]


def main():
    torch.manual_seed(0)
    model = Regressor().to(args.device)
    average = Average(model)
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    with tempfile.TemporaryDirectory() as folder:
        board, source = Board(folder), batches()
        start = begin = time.perf_counter()
        for step in range(1, args.steps + 1):
            x, y = next(source)
            loss = F.mse_loss(model(x.to(args.device)), y.to(args.device))
            opt.zero_grad(set_to_none=False)
            loss.backward()
            opt.step()
            average.follow(model)
            board.add(step, loss.detach(), [layer.bias.detach() for layer in model.layers])
            if step == WARM:
                start = time.perf_counter()
            if time.perf_counter() - begin > args.max_seconds:
                break
        took = time.perf_counter() - start
        board.close()
    print(f"steps={step} mean_ms={1e3 * took / max(1, step - WARM):.3f}")


main()
