"""Off-policy actor-critic learner: vectorised environments feed a large experience store."""
import argparse
import json
import statistics
import time
import copy
import random
from collections import deque
from typing import NamedTuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gn03"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 1500
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=None)
    p.add_argument("--trace", default=None)
    return p.parse_args()


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def run_loop(args, device, step):
    for _ in range(WARMUP):
        step()
    synchronize(device)
    laps, start = [], time.perf_counter()
    last = start
    for _ in range(args.steps):
        step()
        now = time.perf_counter()
        laps.append((now - last) * 1e3)
        last = now
        if args.max_seconds is not None and now - start > args.max_seconds:
            break
    synchronize(device)
    total = (time.perf_counter() - start) * 1e3
    print(json.dumps({"program": PROGRAM, "variant": args.variant, "steps": len(laps),
                      "step_ms_mean": round(total / len(laps), 3),
                      "step_ms_median": round(statistics.median(laps), 3)}), flush=True)
    if args.trace:
        record_trace(args.trace, device, step)


def record_trace(path, device, step):
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities, record_shapes=True, with_stack=True, with_modules=True,
                                schedule=torch.profiler.schedule(wait=0, warmup=2, active=4),
                                on_trace_ready=lambda p: p.export_chrome_trace(path)) as prof:
        for _ in range(6):
            step()
            prof.step()
    synchronize(device)


class Transition(NamedTuple):
    obs: np.ndarray
    action: np.ndarray
    reward: float
    next_obs: np.ndarray
    done: bool


class Ring:
    def __init__(self, capacity):
        self.items, self.capacity, self.head = [], capacity, 0

    def append(self, item):
        if len(self.items) < self.capacity:
            self.items.append(item)
        else:
            self.items[self.head] = item
            self.head = (self.head + 1) % self.capacity

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class Experience:
    def __init__(self, capacity, variant, seed=0):
        self.store = deque(maxlen=capacity) if variant == "slow" else Ring(capacity)
        self.rng = random.Random(seed)

    def add_batch(self, obs, actions, rewards, next_obs, dones):
        for row in zip(obs, actions, rewards.tolist(), next_obs, dones.tolist()):
            self.store.append(Transition(*row))

    def sample(self, n):
        picks = self.rng.sample(range(len(self.store)), n)
        rows = [self.store[i] for i in picks]
        return (np.stack([r.obs for r in rows]), np.stack([r.action for r in rows]),
                np.array([r.reward for r in rows], dtype=np.float32), np.stack([r.next_obs for r in rows]),
                np.array([r.done for r in rows], dtype=np.float32))


class PointMasses:
    """Batch of damped point masses that should reach a goal."""

    def __init__(self, count, obs_dim, act_dim, seed=1):
        self.rng = np.random.default_rng(seed)
        self.mix = (self.rng.standard_normal((act_dim, obs_dim)) * 0.2).astype(np.float32)
        self.count, self.obs_dim = count, obs_dim
        self.state = self.fresh(count)

    def fresh(self, n):
        return self.rng.standard_normal((n, self.obs_dim), dtype=np.float32)

    def advance(self, action):
        nxt = 0.97 * self.state + action @ self.mix
        reward = -np.square(nxt).mean(1)
        done = (reward < -4.0) | (self.rng.random(self.count) < 0.005)
        before = self.state
        self.state = np.where(done[:, None], self.fresh(self.count), nxt)
        return before, reward, nxt, done


def mlp(i, h, o):
    return nn.Sequential(nn.Linear(i, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU(), nn.Linear(h, o))


class Actor(nn.Module):
    def __init__(self, obs, act, hidden):
        super().__init__()
        self.net = mlp(obs, hidden, 2 * act)

    def forward(self, obs):
        mean, log_std = self.net(obs).chunk(2, -1)
        std = log_std.clamp(-5, 2).exp()
        raw = mean + std * torch.randn_like(mean)
        logp = (-0.5 * ((raw - mean) / std) ** 2 - std.log() - 2 * (0.6931 - raw - F.softplus(-2 * raw))).sum(-1)
        return raw.tanh(), logp


class Critics(nn.Module):
    def __init__(self, obs, act, hidden):
        super().__init__()
        self.a, self.b = mlp(obs + act, hidden, 1), mlp(obs + act, hidden, 1)

    def forward(self, obs, act):
        x = torch.cat([obs, act], -1)
        return self.a(x).squeeze(-1), self.b(x).squeeze(-1)


class Learner:
    def __init__(self, args, device):
        big = device.type == "cuda"
        self.device = device
        self.obs_dim, self.act_dim = 48, 12
        capacity, self.batch, hidden = (500_000, 512, 1024) if big else (20_000, 64, 64)
        self.env = PointMasses(16, self.obs_dim, self.act_dim)
        self.memory = Experience(capacity, args.variant)
        self.actor = Actor(self.obs_dim, self.act_dim, hidden).to(device)
        self.critics = Critics(self.obs_dim, self.act_dim, hidden).to(device)
        self.target = copy.deepcopy(self.critics).requires_grad_(False)
        self.opt_a = torch.optim.Adam(self.actor.parameters(), lr=3e-4)
        self.opt_c = torch.optim.Adam(self.critics.parameters(), lr=3e-4)
        self.count = 0
        self.warm_store(capacity)

    def warm_store(self, capacity):
        rng = np.random.default_rng(2)
        chunk = 10_000
        for _ in range(capacity // chunk):
            obs = rng.standard_normal((chunk, self.obs_dim), dtype=np.float32)
            act = rng.uniform(-1, 1, (chunk, self.act_dim)).astype(np.float32)
            nxt = 0.97 * obs + act @ self.env.mix
            self.memory.add_batch(obs, act, -np.square(nxt).mean(1), nxt, rng.random(chunk) < 0.005)

    @torch.no_grad()
    def collect(self):
        obs = torch.from_numpy(self.env.state).to(self.device)
        action = self.actor(obs)[0].cpu().numpy()
        before, reward, nxt, done = self.env.advance(action)
        self.memory.add_batch(before, action, reward, nxt, done)

    def update(self):
        obs, act, rew, nxt, done = (torch.from_numpy(a).to(self.device) for a in self.memory.sample(self.batch))
        with torch.no_grad():
            na, nlogp = self.actor(nxt)
            goal = rew + 0.99 * (1 - done) * (torch.minimum(*self.target(nxt, na)) - 0.1 * nlogp)
        q1, q2 = self.critics(obs, act)
        loss = F.mse_loss(q1, goal) + F.mse_loss(q2, goal)
        self.opt_c.zero_grad()
        loss.backward()
        self.opt_c.step()
        pa, logp = self.actor(obs)
        actor_loss = (0.1 * logp - torch.minimum(*self.critics(obs, pa))).mean()
        self.opt_a.zero_grad()
        actor_loss.backward()
        self.opt_a.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(self.target.parameters()), list(self.critics.parameters()), 0.005)

    def step(self):
        self.collect()
        self.update()
        self.count += 1


def build(args, device):
    return Learner(args, device).step


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    run_loop(args, device, build(args, device))


if __name__ == "__main__":
    main()
