"""Double DQN with a dueling head on a vectorised toy market, replay memory on the host."""
import argparse
import copy
import gc
import json
import random
import statistics
import time
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "z10"


@dataclass
class AgentConfig:
    obs: int = 96
    actions: int = 12
    width: int = 3072
    envs: int = 32
    capacity: int = 800_000
    batch: int = 1024
    gamma: float = 0.99
    tau: float = 0.005
    lr: float = 1e-4
    epsilon: float = 0.05

    @classmethod
    def for_device(cls, device):
        if device == "cpu":
            return cls(obs=8, actions=3, width=32, envs=4, capacity=2000, batch=32)
        return cls()


class Transition(NamedTuple):
    obs: np.ndarray
    action: int
    reward: float
    nxt: np.ndarray
    done: bool


class ReplayMemory:
    def __init__(self, capacity):
        self.items = deque(maxlen=capacity)

    def __len__(self):
        return len(self.items)

    def push(self, transition):
        self.items.append(transition)

    def sample(self, k):
        return random.sample(self.items, k)


class RingMemory:
    def __init__(self, capacity):
        self.items, self.capacity, self.head = [], capacity, 0

    def __len__(self):
        return len(self.items)

    def push(self, transition):
        if len(self.items) < self.capacity:
            self.items.append(transition)
        else:
            self.items[self.head] = transition
            self.head = (self.head + 1) % self.capacity

    def sample(self, k):
        return random.sample(self.items, k)


MEMORIES = {"slow": ReplayMemory, "fixed": RingMemory}


class Market:
    """Mean-reverting signals; the action chooses which of the signals to trade."""

    def __init__(self, cfg, seed=0):
        self.cfg = cfg
        self.rng = np.random.default_rng(seed)
        self.state = self.rng.standard_normal((cfg.envs, cfg.obs)).astype(np.float32)

    def step(self, actions):
        drift = -0.05 * self.state
        nxt = self.state + drift + 0.1 * self.rng.standard_normal(self.state.shape, dtype=np.float32)
        rows = np.arange(self.cfg.envs)
        reward = nxt[rows, actions] - self.state[rows, actions]
        done = self.rng.random(self.cfg.envs) < 0.005
        self.state = np.where(done[:, None], self.rng.standard_normal(nxt.shape, dtype=np.float32), nxt)
        return nxt, reward, done


class DuelingNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(cfg.obs, cfg.width), nn.LayerNorm(cfg.width), nn.SiLU(),
            nn.Linear(cfg.width, cfg.width), nn.LayerNorm(cfg.width), nn.SiLU(),
            nn.Linear(cfg.width, cfg.width), nn.SiLU(),
        )
        self.value = nn.Linear(cfg.width, 1)
        self.advantage = nn.Linear(cfg.width, cfg.actions)

    def forward(self, x):
        h = self.body(x)
        a = self.advantage(h)
        return self.value(h) + a - a.mean(-1, keepdim=True)


class Agent:
    def __init__(self, cfg, memory, device):
        self.cfg, self.memory, self.dev = cfg, memory, device
        self.net = DuelingNet(cfg).to(device)
        self.target = copy.deepcopy(self.net).requires_grad_(False)
        self.opt = torch.optim.Adam(self.net.parameters(), lr=cfg.lr, fused=device.type == "cuda")
        self.td = torch.zeros((), device=device)

    @torch.no_grad()
    def act(self, obs):
        q = self.net(torch.from_numpy(obs).to(self.dev))
        best = q.argmax(-1).cpu().numpy()
        explore = np.random.random(len(best)) < self.cfg.epsilon
        return np.where(explore, np.random.randint(0, self.cfg.actions, len(best)), best)

    def batch(self):
        rows = Transition(*zip(*self.memory.sample(self.cfg.batch)))
        arrays = (np.stack(rows.obs), np.asarray(rows.action), np.asarray(rows.reward, np.float32),
                  np.stack(rows.nxt), np.asarray(rows.done, np.float32))
        out = []
        for a in arrays:
            t = torch.from_numpy(a)
            out.append(t.pin_memory().to(self.dev, non_blocking=True) if self.dev.type == "cuda" else t)
        return out

    def learn(self):
        obs, action, reward, nxt, done = self.batch()
        with torch.no_grad():
            choice = self.net(nxt).argmax(-1, keepdim=True)
            goal = reward + self.cfg.gamma * (1 - done) * self.target(nxt).gather(1, choice)[:, 0]
        q = self.net(obs).gather(1, action[:, None])[:, 0]
        loss = F.smooth_l1_loss(q, goal)
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        self.opt.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(self.target.parameters()), list(self.net.parameters()), self.cfg.tau)
        self.td.lerp_(loss.detach(), 0.01)


def warm_memory(memory, cfg):
    """Restores the replay contents of an earlier run."""
    rng = np.random.default_rng(9)
    obs = rng.standard_normal((cfg.capacity + 1, cfg.obs), dtype=np.float32)
    act = rng.integers(0, cfg.actions, cfg.capacity).tolist()
    rew = rng.standard_normal(cfg.capacity).tolist()
    for i in range(cfg.capacity):
        memory.push(Transition(obs[i], act[i], rew[i], obs[i + 1], False))


def parse_args(variants):
    p = argparse.ArgumentParser()
    p.add_argument("--variant", choices=variants, default=variants[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=None)
    p.add_argument("--max-seconds", type=float, default=None)
    p.add_argument("--trace", default=None)
    return p.parse_args()


def drive(args, step, steps, warmup):
    cuda = args.device == "cuda"
    sync = torch.cuda.synchronize if cuda else (lambda: None)
    for i in range(warmup):
        step(i)
    sync()
    laps, it = [], warmup
    start = last = time.perf_counter()
    for _ in range(steps):
        step(it)
        it += 1
        now = time.perf_counter()
        laps.append(now - last)
        last = now
        if args.max_seconds and now - start > args.max_seconds:
            break
    sync()
    total = time.perf_counter() - start
    print(json.dumps({
        "program": PROGRAM, "variant": args.variant, "steps": len(laps),
        "step_ms_mean": round(1e3 * total / len(laps), 3),
        "step_ms_median": round(1e3 * statistics.median(laps), 3),
    }), flush=True)
    if args.trace:
        acts = [torch.profiler.ProfilerActivity.CPU]
        if cuda:
            acts.append(torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(
            activities=acts, record_shapes=True, with_stack=True, with_modules=True,
            schedule=torch.profiler.schedule(wait=0, warmup=2, active=4),
            on_trace_ready=lambda p: p.export_chrome_trace(args.trace),
        ) as prof:
            for k in range(6):
                step(it)
                it += 1
                if cuda and k == 5:
                    sync()
                prof.step()


def main():
    args = parse_args(["slow", "fixed"])
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = True
    cfg, dev = AgentConfig.for_device(args.device), torch.device(args.device)
    memory = MEMORIES[args.variant](cfg.capacity)
    warm_memory(memory, cfg)
    gc.freeze()
    market, agent = Market(cfg), Agent(cfg, memory, dev)

    def step(i):
        obs = market.state
        action = agent.act(obs)
        nxt, reward, done = market.step(action)
        for e in range(cfg.envs):
            memory.push(Transition(obs[e], int(action[e]), float(reward[e]), nxt[e], bool(done[e])))
        agent.learn()

    default = {"slow": 200, "fixed": 1200}[args.variant]
    drive(args, step, args.steps or (default if args.device == "cuda" else 6), warmup=10)


if __name__ == "__main__":
    main()
