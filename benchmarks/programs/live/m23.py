"""Fitting a wide autoencoder to sensor readings on the processor."""

import argparse
import copy
import csv
import os
import tempfile
import threading
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cpu")
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="healthy")
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--max-seconds", type=float, default=20)
args = parser.parse_args()

SENSORS, HIDDEN, CODE, BATCH, WARM = 1024, 2048, 1024, 1024, 2


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.inward = nn.ModuleList([nn.Linear(SENSORS, HIDDEN), nn.Linear(HIDDEN, CODE)])
        self.outward = nn.ModuleList([nn.Linear(CODE, HIDDEN), nn.Linear(HIDDEN, SENSORS)])

    def forward(self, x):
        for layer in self.inward:
            x = F.relu(layer(x))
        return self.outward[1](F.relu(self.outward[0](x)))


class Sensors:
    def __init__(self):
        self.dice = np.random.default_rng(1)
        self.rows = self.dice.standard_normal((4000, SENSORS)).astype(np.float32)

    def batch(self):
        pick = [int(i) for i in self.dice.integers(len(self.rows), size=BATCH)]
        return torch.from_numpy(self.rows[pick].copy())


class Table:
    """Losses of the run; the file is written anew so that it is always complete."""

    def __init__(self, path):
        self.path, self.rows, self.lock = path, [], threading.Lock()

    def add(self, **row):
        with self.lock:
            self.rows.append(row)
            with open(self.path, "w", newline="") as file:
                writer = csv.DictWriter(file, sorted(row))
                writer.writeheader()
                writer.writerows(copy.deepcopy(self.rows[-50:]))


def watch(table, done):
    while not done.wait(0.5):
        with table.lock:
            table.best = min((row["loss"] for row in table.rows), default=None)


def main():
    torch.manual_seed(0)
    model, sensors = Autoencoder().to(args.device), Sensors()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    handle, path = tempfile.mkstemp(suffix=".csv")
    os.close(handle)
    table, done = Table(path), threading.Event()
    threading.Thread(target=watch, args=(table, done), daemon=True).start()
    begin = start = time.perf_counter()
    for step in range(1, args.steps + 1):
        x = sensors.batch()
        loss = F.mse_loss(model(x), x)
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        norms = [parameter.grad.norm().item() for name, parameter in model.named_parameters() if "bias" in name]
        optimizer.step()
        table.add(step=step, loss=loss.item(), largest=max(norms))
        if step % 5 == 0:
            print(f"step {step} loss {loss.item():.4f} largest {max(norms):.4f}", flush=True)
        if step == WARM:
            start = time.perf_counter()
        if step > WARM and time.perf_counter() - begin > args.max_seconds:
            break
    took = time.perf_counter() - start
    done.set()
    os.remove(path)
    print(f"steps={step} mean_ms={1e3 * took / max(1, step - WARM):.3f}")


main()
