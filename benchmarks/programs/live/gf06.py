"""Dueling double-DQN with a prioritized replay memory kept on the device."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gf06"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 2500
MAX_SECONDS = 42.0
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=MAX_SECONDS)
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

class DuelingNet(nn.Module):
    def __init__(self, obs, actions, width):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(obs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.value, self.advantage = nn.Linear(width, 1), nn.Linear(width, actions)

    def forward(self, x):
        h = self.trunk(x)
        a = self.advantage(h)
        return self.value(h) + a - a.mean(-1, keepdim=True)


class PointEnvs:
    """A vector of linear control problems with noisy dynamics, stepped on the device."""

    def __init__(self, count, obs, actions, device):
        self.a = torch.eye(obs, device=device) * 0.97 + torch.randn(obs, obs, device=device) * 0.01
        self.b = torch.randn(actions, obs, device=device) * 0.2
        self.state = torch.randn(count, obs, device=device)

    def step(self, action):
        nxt = self.state @ self.a + self.b[action] + 0.02 * torch.randn_like(self.state)
        reward = -nxt.pow(2).mean(-1)
        done = (nxt.abs().amax(-1) > 6).float()
        previous = self.state
        self.state = torch.where(done[:, None] > 0, torch.randn_like(nxt), nxt)
        return previous, reward, nxt, done


class PrioritizedMemory:
    def __init__(self, capacity, obs, actions, device, variant, alpha=0.6):
        self.capacity, self.alpha, self.variant = capacity, alpha, variant
        self.obs = torch.randn(capacity, obs, device=device)
        self.nxt = torch.randn(capacity, obs, device=device)
        self.action = torch.randint(actions, (capacity,), device=device)
        self.reward = torch.randn(capacity, device=device)
        self.done = torch.zeros(capacity, device=device)
        self.priority = torch.rand(capacity, device=device) + 0.01
        self.cursor = 0

    def add(self, obs, action, reward, nxt, done):
        n = obs.shape[0]
        if self.cursor + n > self.capacity:
            self.cursor = 0
        where = slice(self.cursor, self.cursor + n)
        self.obs[where], self.nxt[where] = obs, nxt
        self.action[where], self.reward[where], self.done[where] = action, reward, done
        self.priority[where] = 1.0
        self.cursor += n

    def pick(self, count):
        if self.variant == "slow":
            return torch.multinomial(self.priority, count, replacement=True)
        cumulative = torch.cumsum(self.priority, 0)
        ticket = torch.rand(count, device=cumulative.device) * cumulative[-1]
        return torch.searchsorted(cumulative, ticket).clamp_(max=self.capacity - 1)

    def sample(self, count, beta):
        index = self.pick(count)
        probability = self.priority[index] / self.priority.sum()
        weight = (self.capacity * probability).pow(-beta)
        return index, weight / weight.max()

    def update(self, index, error):
        self.priority[index] = (error.abs() + 1e-3).pow(self.alpha)


class Agent:
    def __init__(self, obs, actions, width, device):
        self.online = DuelingNet(obs, actions, width).to(device)
        self.target = DuelingNet(obs, actions, width).to(device)
        self.target.load_state_dict(self.online.state_dict())
        self.opt = torch.optim.Adam(self.online.parameters(), lr=3e-4, fused=device.type == "cuda")
        self.actions, self.gamma = actions, 0.99

    @torch.no_grad()
    def act(self, obs, epsilon):
        greedy = self.online(obs).argmax(-1)
        explore = torch.rand(obs.shape[0], device=obs.device) < epsilon
        return torch.where(explore, torch.randint_like(greedy, self.actions), greedy)

    def learn(self, memory, count, beta):
        index, weight = memory.sample(count, beta)
        obs, nxt = memory.obs[index], memory.nxt[index]
        with torch.no_grad():
            best = self.online(nxt).argmax(-1, keepdim=True)
            future = self.target(nxt).gather(-1, best).squeeze(-1)
            goal = memory.reward[index] + self.gamma * (1 - memory.done[index]) * future
        value = self.online(obs).gather(-1, memory.action[index, None]).squeeze(-1)
        loss = (weight * F.smooth_l1_loss(value, goal, reduction="none")).mean()
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        self.opt.step()
        memory.update(index, (goal - value).detach())

    @torch.no_grad()
    def track(self, tau=0.005):
        torch._foreach_lerp_(list(self.target.parameters()), list(self.online.parameters()), tau)


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    small = device.type == "cpu"
    capacity = 20_000 if small else 12_000_000
    obs, actions, count = 24, 9, 64 if small else 1024
    envs = PointEnvs(64 if small else 512, obs, actions, device)
    memory = PrioritizedMemory(capacity, obs, actions, device, args.variant)
    agent = Agent(obs, actions, 64 if small else 768, device)
    clock = [0]

    def step():
        clock[0] += 1
        action = agent.act(envs.state, epsilon=max(0.05, 1 - clock[0] / 2000))
        previous, reward, nxt, done = envs.step(action)
        memory.add(previous, action, reward, nxt, done)
        for _ in range(4):
            agent.learn(memory, count, beta=min(1.0, 0.4 + clock[0] / 5000))
        agent.track()

    run_loop(args, device, step)


if __name__ == "__main__":
    main()
