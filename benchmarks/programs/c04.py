"""Deep Q-learning from a replay memory."""
import copy
import random
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from common import Work, main


class Replay:
    def __init__(self, size, kind):
        self.size, self.at = size, 0
        self.rows = deque(maxlen=size) if kind is deque else []

    def add(self, row):
        if isinstance(self.rows, list) and len(self.rows) == self.size:
            self.rows[self.at] = row
            self.at = (self.at + 1) % self.size
        else:
            self.rows.append(row)

    def sample(self, n):
        obs, act, rew, nxt, end = zip(*random.sample(self.rows, n))
        return np.stack(obs), np.array(act), np.array(rew, np.float32), np.stack(nxt), np.array(end, np.float32)


def build(ctx):
    torch.set_float32_matmul_precision("high")
    random.seed(1)
    size, dim, n = ctx.pick(1_000_000, 3000), ctx.pick(64, 8), ctx.pick(512, 16)
    w = ctx.pick(2048, 32)
    net = nn.Sequential(nn.Linear(dim, w), nn.ReLU(), nn.Linear(w, w), nn.ReLU(), nn.Linear(w, w), nn.ReLU(), nn.Linear(w, 16)).to(ctx.device)
    target = copy.deepcopy(net).requires_grad_(False)
    opt = torch.optim.Adam(net.parameters(), lr=1e-4, fused=True)
    rng = np.random.default_rng(0)
    trail = list(rng.standard_normal((size + 1, dim), np.float32))
    acts, rews = rng.integers(0, 16, size).tolist(), rng.random(size).tolist()
    memory = Replay(size, deque if ctx.slow else list)
    for k in range(size):
        memory.add((trail[k], acts[k], rews[k], trail[k + 1], k % 500 == 499))

    def put(a):
        return torch.from_numpy(a).to(ctx.device, non_blocking=True)

    def train_step(i):
        memory.add((trail[i % size], acts[i % size], rews[i % size], trail[i % size + 1], False))
        for _ in range(4):
            obs, act, rew, nxt, end = map(put, memory.sample(n))
            with torch.no_grad():
                goal = rew + 0.99 * (1 - end) * target(nxt).amax(1)
            value = net(obs).gather(1, act[:, None])[:, 0]
            F.smooth_l1_loss(value, goal).backward()
            opt.step()
            opt.zero_grad()
        if i % 200 == 199:
            target.load_state_dict(net.state_dict())

    return Work(train_step, items=4 * n)


if __name__ == "__main__":
    main(build, steps=(200, 6))
