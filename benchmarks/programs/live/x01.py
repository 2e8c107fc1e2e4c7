"""Double DQN on vector observations with a prioritized replay memory and importance weights."""
import argparse
import json
import statistics
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def run_steps(name, args, step, device, warmup=5):
    sync = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    for i in range(warmup):
        step(i)
    sync()
    laps = []
    begin = last = time.perf_counter()
    for i in range(args.steps):
        step(warmup + i)
        now = time.perf_counter()
        laps.append(now - last)
        last = now
        if args.max_seconds and now - begin > args.max_seconds:
            break
    sync()
    mean = (time.perf_counter() - begin) / len(laps)
    print(json.dumps({"program": name, "variant": args.variant, "steps": len(laps),
                      "step_ms_mean": round(mean * 1e3, 3),
                      "step_ms_median": round(statistics.median(laps) * 1e3, 3)}), flush=True)
    if args.trace:
        activities = [torch.profiler.ProfilerActivity.CPU]
        if device.type == "cuda":
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(activities=activities, record_shapes=True, with_stack=True, with_modules=True,
                                    schedule=torch.profiler.schedule(wait=0, warmup=2, active=4),
                                    on_trace_ready=lambda p: p.export_chrome_trace(args.trace)) as prof:
            for i in range(6):
                step(warmup + len(laps) + i)
                prof.step()


def parse_args(variants, steps):
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=variants, default=variants[0])
    ap.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    ap.add_argument("--steps", type=int, default=steps)
    ap.add_argument("--max-seconds", type=float, default=0.0)
    ap.add_argument("--trace", default=None)
    return ap.parse_args()


class QNetwork(nn.Module):
    def __init__(self, obs_dim, actions, width):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(obs_dim, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
                                   nn.Linear(width, width), nn.ReLU())
        self.value = nn.Linear(width, 1)
        self.advantage = nn.Linear(width, actions)

    def forward(self, obs):
        h = self.trunk(obs)
        adv = self.advantage(h)
        return self.value(h) + adv - adv.mean(dim=1, keepdim=True)


class Memory:
    """Transitions live on the device as a ring."""

    def __init__(self, capacity, obs_dim, actions, device):
        self.capacity, self.device = capacity, device
        self.obs = torch.randn(capacity, obs_dim, device=device)
        self.next_obs = self.obs + 0.1 * torch.randn(capacity, obs_dim, device=device)
        self.action = torch.randint(actions, (capacity,), device=device)
        self.reward = torch.randn(capacity, device=device)
        self.done = (torch.rand(capacity, device=device) < 0.01).float()
        self.head = 0

    def write(self, obs, action, reward, next_obs, done):
        n = obs.shape[0]
        rows = slice(self.head, self.head + n)
        self.obs[rows], self.next_obs[rows] = obs, next_obs
        self.action[rows], self.reward[rows], self.done[rows] = action, reward, done
        self.head = (self.head + n) % self.capacity
        return rows

    def take(self, index):
        return self.obs[index], self.action[index], self.reward[index], self.next_obs[index], self.done[index]


class NumpyPriorities:
    def __init__(self, capacity, device, alpha=0.6, seed=0):
        self.rng = np.random.default_rng(seed)
        self.alpha, self.device = alpha, device
        self.priority = self.rng.uniform(0.1, 2.0, capacity).astype(np.float32)

    def fresh(self, rows):
        self.priority[rows] = self.priority.max()

    def draw(self, batch, beta):
        scaled = self.priority.astype(np.float64) ** self.alpha
        probs = scaled / scaled.sum()
        index = self.rng.choice(len(probs), size=batch, p=probs)
        weights = (len(probs) * probs[index]) ** (-beta)
        weights = (weights / weights.max()).astype(np.float32)
        return torch.from_numpy(index).to(self.device), torch.from_numpy(weights).to(self.device)

    def update(self, index, td):
        self.priority[index.cpu().numpy()] = td.abs().cpu().numpy() + 1e-3


class DevicePriorities:
    def __init__(self, capacity, device, alpha=0.6, seed=0):
        self.alpha, self.device = alpha, device
        self.priority = torch.empty(capacity, device=device).uniform_(0.1, 2.0)

    def fresh(self, rows):
        self.priority[rows] = self.priority.max()

    def draw(self, batch, beta):
        scaled = self.priority.double() ** self.alpha
        edges = scaled.cumsum(0)
        total = edges[-1]
        index = torch.searchsorted(edges, torch.rand(batch, device=self.device, dtype=torch.float64) * total)
        index.clamp_(max=len(edges) - 1)
        weights = (len(edges) * scaled[index] / total) ** (-beta)
        return index, (weights / weights.max()).float()

    def update(self, index, td):
        self.priority[index] = td.abs() + 1e-3


def main():
    args = parse_args(["slow", "fixed"], 450)
    device = torch.device(args.device)
    big = args.device == "cuda"
    capacity, obs_dim, actions, width, batch, envs = ((1 << 20), 64, 18, 2048, 16384, 256) if big else (4096, 16, 6, 64, 64, 16)
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    online = QNetwork(obs_dim, actions, width).to(device)
    target = QNetwork(obs_dim, actions, width).to(device)
    target.load_state_dict(online.state_dict())
    opt = torch.optim.Adam(online.parameters(), lr=1e-4, fused=big)
    memory = Memory(capacity, obs_dim, actions, device)
    priorities = {"slow": NumpyPriorities, "fixed": DevicePriorities}[args.variant](capacity, device)
    state = torch.randn(envs, obs_dim, device=device)

    @torch.no_grad()
    def act():
        nonlocal state
        action = online(state).argmax(dim=1)
        following = 0.95 * state + 0.1 * torch.randn_like(state)
        rows = memory.write(state, action, -following.square().mean(dim=1), following, torch.zeros(envs, device=device))
        priorities.fresh(rows)
        state = following

    def learn(i):
        index, weights = priorities.draw(batch, beta=min(1.0, 0.4 + i * 1e-4))
        obs, action, reward, next_obs, done = memory.take(index)
        with torch.no_grad():
            best = online(next_obs).argmax(dim=1, keepdim=True)
            goal = reward + 0.99 * (1 - done) * target(next_obs).gather(1, best).squeeze(1)
        chosen = online(obs).gather(1, action[:, None]).squeeze(1)
        loss = (weights * F.smooth_l1_loss(chosen, goal, reduction="none")).mean()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        priorities.update(index, (goal - chosen).detach())

    def step(i):
        act()
        learn(i)
        with torch.no_grad():
            torch._foreach_lerp_(list(target.parameters()), list(online.parameters()), 0.005)

    run_steps("x01", args, step, device)


if __name__ == "__main__":
    main()
