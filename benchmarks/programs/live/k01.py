"""Deep Q-learning of a team of gliders in a drifting wind field."""

import argparse
import random
import time
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--max-seconds", type=float, default=15)
args = parser.parse_args()

GPU = args.device == "cuda"
MEMORY, BATCH, WIDTH = (400_000, 512, 1024) if GPU else (2_000, 32, 64)
GLIDERS, SENSORS, MOVES, WARM = 32, 64, 6, 5


class WindField:
    """A vectorised simulator: every glider sees a noisy view of the wind around it."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.flow = self.rng.normal(0, 0.3, (MOVES, SENSORS)).astype(np.float32)
        self.view = self.rng.normal(0, 1, (GLIDERS, SENSORS)).astype(np.float32)

    def advance(self, moves):
        before = self.view
        drift = self.flow[moves]
        after = 0.9 * before + drift + self.rng.normal(0, 0.1, before.shape).astype(np.float32)
        reward = (after[:, :4].sum(1) - 0.1 * np.square(after).mean(1)).astype(np.float32)
        ended = self.rng.random(GLIDERS) < 0.01
        self.view = np.where(ended[:, None], 0, after).astype(np.float32)
        return before, moves, reward, after, ended


class Experience:
    """The most recent transitions of all gliders."""

    def __init__(self, capacity):
        self.rows = deque(maxlen=capacity)

    def add(self, row):
        self.rows.append(row)

    def draw(self, count):
        picked = random.sample(self.rows, count)
        view, move, reward, after, ended = zip(*picked)
        return (
            np.stack(view),
            np.asarray(move, dtype=np.int64),
            np.asarray(reward, dtype=np.float32),
            np.stack(after),
            np.asarray(ended, dtype=np.float32),
        )


class RingExperience(Experience):
    def __init__(self, capacity):
        self.rows, self.capacity, self.next = [], capacity, 0

    def add(self, row):
        if len(self.rows) < self.capacity:
            self.rows.append(row)
            return
        self.rows[self.next] = row
        self.next = (self.next + 1) % self.capacity


def value_net():
    return nn.Sequential(
        nn.Linear(SENSORS, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, MOVES)
    ).to(args.device)


class Learner:
    def __init__(self, memory):
        self.memory, self.field = memory, WindField(1)
        self.online, self.target = value_net(), value_net()
        self.target.load_state_dict(self.online.state_dict())
        self.opt = torch.optim.Adam(self.online.parameters(), lr=2e-4, fused=GPU)

    def collect(self):
        with torch.no_grad():
            scores = self.online(torch.from_numpy(self.field.view).to(args.device))
            moves = scores.argmax(1).cpu().numpy()
        for row in zip(*self.field.advance(moves)):
            self.memory.add(row)

    def improve(self):
        batch = [torch.from_numpy(part).to(args.device) for part in self.memory.draw(BATCH)]
        view, move, reward, after, ended = batch
        with torch.no_grad():
            best = self.online(after).argmax(1, keepdim=True)
            goal = reward + 0.98 * (1 - ended) * self.target(after).gather(1, best).squeeze(1)
        guess = self.online(view).gather(1, move[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(guess, goal)
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        self.opt.step()
        return loss

    def step(self, index):
        self.collect()
        loss = self.improve()
        if index % 50 == 0:
            self.target.load_state_dict(self.online.state_dict())
            print(f"step {index} loss {loss.item():.4f}", flush=True)


def fill(memory):
    rng = np.random.default_rng(0)
    for _ in range(0, MEMORY, 20_000):
        views = rng.standard_normal((20_001, SENSORS), dtype=np.float32)
        moves = rng.integers(0, MOVES, 20_000)
        rewards = rng.standard_normal(20_000, dtype=np.float32)
        ended = rng.random(20_000) < 0.01
        for row in zip(views[:-1], moves, rewards, views[1:], ended):
            memory.add(row)


def sync():
    if GPU:
        torch.cuda.synchronize()


def main():
    torch.manual_seed(0)
    random.seed(0)
    memory = (Experience if args.variant == "slow" else RingExperience)(MEMORY)
    fill(memory)
    learner = Learner(memory)
    start = begin = time.perf_counter()
    for step in range(1, args.steps + 1):
        learner.step(step)
        if step == WARM:
            sync()
            start = time.perf_counter()
        if time.perf_counter() - begin > args.max_seconds:
            break
    sync()
    took = time.perf_counter() - start
    print(f"steps={step} mean_ms={1e3 * took / max(1, step - WARM):.3f}")


main()
