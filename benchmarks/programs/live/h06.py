"""Double DQN with prioritised replay on a vectorised toy control task."""

import argparse
import copy
import time

import numpy as np
import torch
import torch.nn as nn


class PointWorld:
    """Batch of points to be steered to the origin; 9 discrete pushes."""

    def __init__(self, n, dim, seed):
        self.rng = np.random.default_rng(seed)
        self.dim = dim
        self.pushes = self.rng.normal(size=(9, dim)).astype(np.float32) * 0.2
        self.state = self.rng.normal(size=(n, dim)).astype(np.float32)

    def step(self, actions):
        nxt = self.state * 0.98 + self.pushes[actions]
        reward = -np.abs(nxt).mean(1)
        done = (reward < -3) | (self.rng.random(len(nxt)) < 0.01)
        prev = self.state
        fresh = self.rng.normal(size=nxt.shape).astype(np.float32)
        self.state = np.where(done[:, None], fresh, nxt)
        return prev, reward.astype(np.float32), nxt, done


class ReplayBase:
    def __init__(self, capacity, dim, device, alpha=0.6):
        self.capacity, self.alpha, self.at, self.device = capacity, alpha, 0, device
        self.obs = torch.randn(capacity, dim, device=device)
        self.nxt = torch.randn(capacity, dim, device=device)
        self.act = torch.randint(0, 9, (capacity,), device=device)
        self.rew = -torch.rand(capacity, device=device)
        self.done = torch.zeros(capacity, device=device)
        self.rng = np.random.default_rng(17)

    def add(self, obs, act, rew, nxt, done):
        idx = (self.at + np.arange(len(act))) % self.capacity
        self.at = int(idx[-1] + 1) % self.capacity
        where = torch.as_tensor(idx, device=self.device)
        for store, value in ((self.obs, obs), (self.nxt, nxt), (self.act, act), (self.rew, rew)):
            store[where] = torch.as_tensor(value, device=self.device).to(store.dtype)
        self.done[where] = torch.as_tensor(done, device=self.device).float()
        self.set_priority(idx, np.ones(len(idx)))

    def fetch(self, idx):
        where = torch.as_tensor(idx, device=self.device)
        return self.obs[where], self.act[where], self.rew[where], self.nxt[where], self.done[where]


class FlatReplay(ReplayBase):
    def __init__(self, *a, **k):
        super().__init__(*a, **k)
        self.priority = self.rng.random(self.capacity) + 0.1

    def set_priority(self, idx, value):
        self.priority[idx] = value + 1e-3

    def draw(self, count):
        scaled = self.priority**self.alpha
        prob = scaled / scaled.sum()
        idx = self.rng.choice(self.capacity, size=count, p=prob)
        return idx, prob[idx]


class TreeReplay(ReplayBase):
    def __init__(self, *a, **k):
        super().__init__(*a, **k)
        self.depth = (self.capacity - 1).bit_length()
        self.base = 1 << self.depth
        self.tree = np.zeros(2 * self.base)
        self.tree[self.base : self.base + self.capacity] = (
            self.rng.random(self.capacity) + 0.1
        ) ** self.alpha
        for level in range(self.depth - 1, -1, -1):
            lo = 1 << level
            kids = self.tree[2 * lo : 4 * lo]
            self.tree[lo : 2 * lo] = kids[0::2] + kids[1::2]

    def set_priority(self, idx, value):
        node = idx + self.base
        self.tree[node] = (value + 1e-3) ** self.alpha
        for _ in range(self.depth):
            node = node >> 1
            self.tree[node] = self.tree[2 * node] + self.tree[2 * node + 1]

    def draw(self, count):
        want = self.rng.random(count) * self.tree[1]
        node = np.ones(count, dtype=np.int64)
        for _ in range(self.depth):
            node = 2 * node
            left = self.tree[node]
            right = want >= left
            want = want - left * right
            node = node + right
        idx = np.minimum(node - self.base, self.capacity - 1)
        return idx, self.tree[idx + self.base] / self.tree[1]


def q_network(dim, width):
    return nn.Sequential(
        nn.Linear(dim, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, 9),
    )


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--device", default="cuda")
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--steps", type=int, default=2500)
    ap.add_argument("--max-seconds", type=float, default=36)
    args = ap.parse_args()
    torch.manual_seed(0)
    gpu = args.device == "cuda"
    capacity, dim, width, batch, envs = (
        (300_000, 64, 2048, 2048, 64) if gpu else (5_000, 8, 32, 64, 8)
    )
    torch.set_float32_matmul_precision("high")
    online = q_network(dim, width).to(args.device)
    target = copy.deepcopy(online).requires_grad_(False)
    opt = torch.optim.Adam(online.parameters(), lr=1e-4, fused=gpu)
    memory = (FlatReplay if args.variant == "slow" else TreeReplay)(capacity, dim, args.device)
    world = PointWorld(envs, dim, 1)
    t0, seen = time.perf_counter(), []
    for step in range(1, args.steps + 1):
        with torch.no_grad():
            greedy = (
                online(torch.as_tensor(world.state, device=args.device)).argmax(1).cpu().numpy()
            )
        acts = np.where(world.rng.random(envs) < 0.1, world.rng.integers(0, 9, envs), greedy)
        prev, rew, nxt, done = world.step(acts)
        memory.add(prev, acts, rew, nxt, done)

        idx, prob = memory.draw(batch)
        obs, act, rew, nxt, done = memory.fetch(idx)
        weight = (capacity * prob) ** -0.4
        weight = torch.as_tensor(weight / weight.max(), dtype=torch.float32, device=args.device)
        with torch.no_grad():
            best = online(nxt).argmax(1, keepdim=True)
            goal = rew + 0.97 * (1 - done) * target(nxt).gather(1, best).squeeze(1)
        td = online(obs).gather(1, act[:, None]).squeeze(1) - goal
        loss = (
            weight * nn.functional.huber_loss(td, torch.zeros_like(td), reduction="none")
        ).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        memory.set_priority(idx, td.detach().abs().cpu().numpy().astype(np.float64))
        seen.append(loss.detach())
        if step % 200 == 0:
            target.load_state_dict(online.state_dict())
            print(f"step {step} loss {torch.stack(seen[-200:]).mean().item():.5f}", flush=True)
        if time.perf_counter() - t0 > args.max_seconds:
            break
    last = torch.stack(seen[-100:]).mean().item()
    took = time.perf_counter() - t0
    print(f"done steps={step} ms_per_step={1e3 * took / step:.2f} loss={last:.5f}")


if __name__ == "__main__":
    main()
