"""Churn prediction from a data frame: scaling with pandas, an MLP, loop with evaluation."""

import statistics
import time

import numpy as np
import pandas as pd
import torch
from torch import nn

torch.set_num_threads(1)


def load_frame(n=20_000, features=80):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        rng.normal(3, 2, (n, features)), columns=[f"f{i}" for i in range(features)]
    )
    frame["churn"] = (frame["f0"] + frame["f3"] * frame["f7"] > 12).astype(int)
    return frame


def to_tensors(frame):
    x = frame.drop(columns="churn")
    x = (x - x.mean()) / x.std()
    return torch.tensor(x.values), torch.tensor(frame["churn"].values)


class ChurnNet(nn.Module):
    def __init__(self, n_features, hidden=768):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(n_features, hidden),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Linear(hidden, hidden),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Linear(hidden, hidden),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
            nn.Linear(hidden, 2),
        )

    def forward(self, x):
        return self.net(x)


def main(steps=200, batch=512):
    torch.manual_seed(0)
    x, y = to_tensors(load_frame())
    # RuntimeError: mat1 and mat2 must have the same dtype, but got Double and Float
    model = ChurnNet(x.shape[1]).double()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    loss_fn = nn.CrossEntropyLoss()
    times = []
    t0 = last = time.perf_counter()
    for step in range(steps):
        pick = torch.randint(len(x), (batch,))
        loss = loss_fn(model(x[pick]), y[pick])
        opt.zero_grad()
        loss.backward()
        opt.step()
        now = time.perf_counter()
        times.append(now - last)
        last = now
        if step % 25 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    print(
        f"median step {statistics.median(times) * 1e3:.2f} ms  total {time.perf_counter() - t0:.2f} s"
    )


if __name__ == "__main__":
    main()
