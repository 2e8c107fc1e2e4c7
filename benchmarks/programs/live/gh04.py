"""Off-policy control of a bank of simulated reactors (double DQN)."""
import argparse
import json
import random
import statistics
import time
from collections import deque, namedtuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gh04"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 4000
WARMUP = 4

Transition = namedtuple("Transition", "obs action reward next_obs done")


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=30.0)
    p.add_argument("--trace", default=None)
    return p.parse_args()


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def run_loop(args, device, step):
    for _ in range(min(WARMUP, max(1, args.steps))):
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

class ReactorBank:
    def __init__(self, count, dim, actions, rng):
        self.rng = rng
        self.drift = (np.eye(dim) * 0.97 + rng.normal(0, 0.02, (dim, dim))).astype(np.float32)
        self.push = rng.normal(0, 0.3, (actions, dim)).astype(np.float32)
        self.obs = rng.normal(0, 1, (count, dim)).astype(np.float32)

    def step(self, action):
        noise = self.rng.normal(0, 0.05, self.obs.shape).astype(np.float32)
        nxt = np.tanh(self.obs @ self.drift + self.push[action] + noise)
        reward = -np.abs(nxt).mean(1)
        done = self.rng.random(len(nxt)) < 0.005
        previous, self.obs = self.obs, np.where(done[:, None], 0.0, nxt).astype(np.float32)
        return previous, reward, nxt, done


class QNet(nn.Module):
    def __init__(self, dim, actions, width):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(dim, width), nn.LayerNorm(width), nn.GELU(),
                                   nn.Linear(width, width), nn.LayerNorm(width), nn.GELU())
        self.value = nn.Linear(width, 1)
        self.advantage = nn.Linear(width, actions)

    def forward(self, x):
        h = self.trunk(x)
        adv = self.advantage(h)
        return self.value(h) + adv - adv.mean(1, keepdim=True)


class RingStore:
    def __init__(self, maxlen):
        self.items, self.maxlen, self.head = [], maxlen, 0

    def append(self, item):
        if len(self.items) < self.maxlen:
            self.items.append(item)
        else:
            self.items[self.head] = item
            self.head = (self.head + 1) % self.maxlen

    def sequence(self):
        return self.items


class TailStore(deque):
    def sequence(self):
        return self


class Replay:
    def __init__(self, capacity, variant):
        self.memory = TailStore(maxlen=capacity) if variant == "slow" else RingStore(capacity)

    def push(self, *fields):
        self.memory.append(Transition(*fields))

    def sample(self, batch):
        return Transition(*zip(*random.sample(self.memory.sequence(), batch)))


def prefill(replay, env, capacity, actions, rng):
    count, dim = env.obs.shape
    base = np.tanh(rng.standard_normal((capacity + 1, dim), dtype=np.float32))
    rewards = (-np.abs(base).mean(1)).tolist()
    chosen = rng.integers(0, actions, capacity).tolist()
    rows = list(base)
    for i in range(capacity):
        replay.push(rows[i], chosen[i], rewards[i + 1], rows[i + 1], False)


class Agent:
    def __init__(self, env, replay, device, dim, actions, width, batch):
        self.env, self.replay, self.device, self.batch = env, replay, device, batch
        self.actions = actions
        self.online = QNet(dim, actions, width).to(device)
        self.target = QNet(dim, actions, width).to(device)
        self.target.load_state_dict(self.online.state_dict())
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=1e-4, fused=device.type == "cuda")
        self.ticks = 0
        self.returns = deque(maxlen=100)
        self.loss = None

    @torch.no_grad()
    def act(self):
        q = self.online(torch.from_numpy(self.env.obs).to(self.device))
        greedy = q.argmax(1).cpu().numpy()
        explore = self.env.rng.random(len(greedy)) < 0.05
        return np.where(explore, self.env.rng.integers(0, self.actions, len(greedy)), greedy)

    def interact(self):
        action = self.act()
        obs, reward, nxt, done = self.env.step(action)
        for i in range(len(obs)):
            self.replay.push(obs[i], int(action[i]), float(reward[i]), nxt[i], bool(done[i]))
        self.returns.append(float(reward.mean()))

    def tensors(self):
        t = self.replay.sample(self.batch)
        obs = torch.from_numpy(np.array(t.obs)).to(self.device)
        nxt = torch.from_numpy(np.array(t.next_obs)).to(self.device)
        action = torch.tensor(t.action, device=self.device)
        reward = torch.tensor(t.reward, dtype=torch.float32, device=self.device)
        done = torch.tensor(t.done, device=self.device)
        return obs, action, reward, nxt, done

    def learn(self):
        obs, action, reward, nxt, done = self.tensors()
        with torch.no_grad():
            best = self.online(nxt).argmax(1, keepdim=True)
            future = self.target(nxt).gather(1, best).squeeze(1)
            goal = reward + 0.99 * future * (~done)
        q = self.online(obs).gather(1, action[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(q, goal)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.loss = loss.detach()

    def blend(self):
        with torch.no_grad():
            torch._foreach_lerp_(list(self.target.parameters()), list(self.online.parameters()), 0.01)

    def step(self):
        self.interact()
        self.ticks += 1
        if self.ticks % 4 == 0:
            self.learn()
            self.blend()
        if self.ticks % 200 == 0:
            print(json.dumps({"tick": self.ticks, "loss": round(float(self.loss), 5),
                              "reward": round(float(np.mean(self.returns)), 4)}), flush=True)


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    random.seed(0)
    rng = np.random.default_rng(0)
    if device.type == "cuda":
        count, dim, actions, width, batch, capacity = 16, 48, 12, 1024, 1024, 400_000
    else:
        count, dim, actions, width, batch, capacity = 4, 16, 6, 64, 64, 20_000
    env = ReactorBank(count, dim, actions, rng)
    replay = Replay(capacity, args.variant)
    prefill(replay, env, capacity, actions, rng)
    agent = Agent(env, replay, device, dim, actions, width, batch)
    run_loop(args, device, agent.step)


if __name__ == "__main__":
    main()
