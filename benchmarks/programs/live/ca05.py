"""Double DQN with a large replay memory on a vectorised point-mass task."""

import argparse
import copy
import json
import statistics
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class PointMass:
    """N independent agents that push a mass towards a moving goal in 8 dimensions."""

    def __init__(self, n: int, seed: int = 0):
        self.n, self.rng = n, np.random.default_rng(seed)
        self.dirs = self.rng.standard_normal((6, 8)).astype(np.float32)
        self.reset_all()

    def reset_all(self):
        self.pos = self.rng.standard_normal((self.n, 8)).astype(np.float32)
        self.vel = np.zeros_like(self.pos)
        self.goal = self.rng.standard_normal((self.n, 8)).astype(np.float32)

    def obs(self):
        return np.concatenate([self.pos, self.vel, self.goal - self.pos], 1)

    def step(self, action):
        self.vel = 0.9 * self.vel + 0.05 * self.dirs[action]
        self.pos = self.pos + self.vel
        dist = np.linalg.norm(self.goal - self.pos, axis=1)
        done = (dist < 0.5) | (dist > 12)
        reward = (-0.1 * dist).astype(np.float32)
        k = int(done.sum())
        if k:
            self.pos[done] = self.rng.standard_normal((k, 8))
            self.vel[done] = 0
            self.goal[done] = self.rng.standard_normal((k, 8))
        return self.obs(), reward, done


class ReplayMemory:
    def __init__(self, capacity: int, obs_dim: int, distinct: bool, seed: int = 0):
        self.capacity, self.distinct = capacity, distinct
        self.obs = np.zeros((capacity, obs_dim), np.float32)
        self.nxt = np.zeros((capacity, obs_dim), np.float32)
        self.action = np.zeros(capacity, np.int64)
        self.reward = np.zeros(capacity, np.float32)
        self.done = np.zeros(capacity, np.float32)
        self.size = self.head = 0
        np.random.seed(seed)

    def push(self, obs, action, reward, nxt, done):
        n = len(action)
        where = (self.head + np.arange(n)) % self.capacity
        self.obs[where], self.nxt[where] = obs, nxt
        self.action[where], self.reward[where], self.done[where] = action, reward, done
        self.head = (self.head + n) % self.capacity
        self.size = min(self.size + n, self.capacity)

    def sample(self, batch: int):
        if self.distinct:
            rows = np.random.choice(self.size, batch, replace=False)
        else:
            rows = np.random.randint(0, self.size, batch)
        return tuple(torch.from_numpy(a[rows]) for a in (self.obs, self.action, self.reward, self.nxt, self.done))


class QNet(nn.Module):
    def __init__(self, obs_dim: int, actions: int, width: int = 256):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(obs_dim, width), nn.LayerNorm(width), nn.ReLU(),
                                   nn.Linear(width, width), nn.LayerNorm(width), nn.ReLU())
        self.value, self.adv = nn.Linear(width, 1), nn.Linear(width, actions)

    def forward(self, x):
        h = self.trunk(x)
        a = self.adv(h)
        return self.value(h) + a - a.mean(1, keepdim=True)


class Agent:
    def __init__(self, obs_dim, actions, gamma=0.98, tau=0.01):
        torch.manual_seed(0)
        self.q = QNet(obs_dim, actions)
        self.target = copy.deepcopy(self.q).requires_grad_(False)
        self.opt = torch.optim.Adam(self.q.parameters(), lr=3e-4, fused=True)
        self.actions, self.gamma, self.tau = actions, gamma, tau
        self.rng = np.random.default_rng(1)

    @torch.no_grad()
    def act(self, obs, eps):
        greedy = self.q(torch.from_numpy(obs)).argmax(1).numpy()
        explore = self.rng.random(len(obs)) < eps
        return np.where(explore, self.rng.integers(0, self.actions, len(obs)), greedy)

    def learn(self, batch):
        obs, action, reward, nxt, done = batch
        with torch.no_grad():
            pick = self.q(nxt).argmax(1, keepdim=True)
            goal = reward + self.gamma * (1 - done) * self.target(nxt).gather(1, pick).squeeze(1)
        loss = F.smooth_l1_loss(self.q(obs).gather(1, action[:, None]).squeeze(1), goal)
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.q.parameters(), 10.0)
        self.opt.step()
        torch._foreach_lerp_(list(self.target.parameters()), list(self.q.parameters()), self.tau)
        return loss.detach()


def fill(env, memory, count):
    obs = env.obs()
    while memory.size < count:
        action = env.rng.integers(0, 6, env.n)
        nxt, reward, done = env.step(action)
        memory.push(obs, action, reward, nxt, done)
        obs = nxt


def train(distinct, steps, max_seconds, capacity=600_000):
    memory = ReplayMemory(capacity, 24, distinct)
    fill(PointMass(4096, seed=5), memory, capacity)
    env, agent = PointMass(32), Agent(24, 6)
    obs = env.obs()
    times, losses, begin = [], [], time.perf_counter()
    for step in range(steps):
        t0 = time.perf_counter()
        action = agent.act(obs, max(0.05, 1 - step / 2000))
        nxt, reward, done = env.step(action)
        memory.push(obs, action, reward, nxt, done)
        obs = nxt
        losses.append(agent.learn(memory.sample(256)))
        times.append(1e3 * (time.perf_counter() - t0))
        if time.perf_counter() - begin > max_seconds:
            break
    return times, torch.stack(losses[-100:]).mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
    ap.add_argument("--steps", type=int, default=2400)
    ap.add_argument("--max-seconds", type=float, default=60)
    args = ap.parse_args()
    times, loss = train(args.variant == "slow", args.steps, args.max_seconds)
    kept = times[10:] or times
    print(json.dumps({"steps": len(times), "mean_step_ms": round(statistics.fmean(kept), 3),
                      "median_step_ms": round(statistics.median(kept), 3), "loss": round(loss, 4)}))


if __name__ == "__main__":
    main()
