"""Distilling a simulator into a wide network, with a lock-guarded metric board (CPU)."""

import argparse
import copy
import threading
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cpu")
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="healthy")
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--max-seconds", type=float, default=15)
args = parser.parse_args()

INPUTS, WIDTH, DEPTH, BATCH = 24, 1536, 3, 768


class Board:
    """Metrics shared with a thread that prints a summary every second."""

    def __init__(self):
        self.lock, self.rows, self.stop = threading.Lock(), [], threading.Event()
        self.thread = threading.Thread(target=self.show, daemon=True)
        self.thread.start()

    def add(self, **row):
        with self.lock:
            self.rows.append(row)

    def show(self):
        while not self.stop.wait(1.0):
            with self.lock:
                rows = copy.deepcopy(self.rows[-50:])
            if rows:
                mean = sum(r["loss"] for r in rows) / len(rows)
                print(f"{len(self.rows)} rows, recent mean loss {mean:.5f}", flush=True)

    def close(self):
        self.stop.set()
        self.thread.join()


class Surrogate(nn.Module):
    def __init__(self):
        super().__init__()
        self.read = nn.Linear(INPUTS, WIDTH)
        self.layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH)])
        self.write = nn.Linear(WIDTH, 2)

    def forward(self, x):
        x = torch.relu(self.read(x))
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.write(x)


def simulate(rng):
    """One row at a time, as the original simulator does it."""
    for _ in range(BATCH // 64):
        knobs = rng.random((64, INPUTS), dtype=np.float32)
        drag = np.sin(knobs[:, :8].sum(1)) * knobs[:, 8]
        lift = knobs[:, 9:].prod(1) + np.sqrt(knobs[:, 10])
        yield knobs, np.stack([drag, lift], 1)


def collect(rng):
    rows, answers = [], []
    for knobs, answer in simulate(rng):
        rows.append(torch.tensor(knobs))
        answers.append(torch.tensor(answer))
    return torch.cat(rows), torch.cat(answers).float()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(2)
    rng = np.random.default_rng(8)
    model = Surrogate()
    opt = torch.optim.SGD(model.parameters(), lr=0.02)
    board = Board()
    begin = time.perf_counter()
    for step in range(1, args.steps + 1):
        x, y = collect(rng)
        loss = F.mse_loss(model(x), y)
        opt.zero_grad(set_to_none=False)
        loss.backward()
        opt.step()
        norm = sum(p.grad.norm().item() for p in model.parameters())
        board.add(step=step, loss=loss.item(), norm=norm)
        if time.perf_counter() - begin > args.max_seconds:
            break
    took = time.perf_counter() - begin
    board.close()
    print(f"done steps={step} ms_per_step={1e3 * took / step:.2f} loss={loss.item():.5f}")


if __name__ == "__main__":
    main()
