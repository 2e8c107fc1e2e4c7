"""PPO on a batched torque-controlled two-pole cart simulated in torch, with a live status file for the dashboard."""
import argparse
import collections
import json
import math
import os
import random
import shutil
import statistics
import tempfile
import threading
import time

import torch
import torch.nn as nn


class CartEnv:
    """Semi-implicit Euler, all environments advance together on the device."""

    def __init__(self, n, device):
        self.n, self.device = n, device
        self.x = torch.zeros(n, 6, device=device)
        self.age = torch.randint(0, 200, (n,), device=device).float()
        self.ret = torch.zeros(n, device=device)
        self.x.uniform_(-0.1, 0.1)

    def observe(self):
        pos, a, b, v, wa, wb = self.x.unbind(-1)
        return torch.stack((pos, a.sin(), a.cos(), b.sin(), b.cos(), v, wa, wb), -1)

    def advance(self, action):
        dt = 0.01
        force = action.squeeze(-1).clamp(-1, 1) * 20
        for _ in range(2):
            pos, a, b, v, wa, wb = self.x.unbind(-1)
            drive = (force + 0.1 * wa.square() * a.sin() + 0.05 * wb.square() * b.sin()) / 1.5
            aa = (9.8 * a.sin() - a.cos() * drive) / (0.66 - 0.1 * a.cos().square())
            ab = (9.8 * b.sin() - b.cos() * drive) / (0.33 - 0.05 * b.cos().square())
            acc = drive - 0.1 * aa * a.cos() - 0.05 * ab * b.cos()
            rate = torch.stack((v + dt * acc, wa + dt * aa, wb + dt * ab), -1)
            self.x = torch.cat((self.x[:, :3] + dt * rate, rate), -1)
        pos, a, b = self.x[:, 0], self.x[:, 1], self.x[:, 2]
        reward = 1.0 - 0.01 * pos.square() - 0.001 * force.square() / 400
        self.age += 1
        self.ret += reward
        done = (pos.abs() > 2.4) | (a.abs() > 0.9) | (b.abs() > 1.2) | (self.age >= 500)
        finished = torch.stack((self.ret, self.age), -1)
        fresh = torch.empty_like(self.x).uniform_(-0.1, 0.1)
        self.x = torch.where(done[:, None], fresh, self.x)
        alive = (~done).float()
        self.age *= alive
        self.ret *= alive
        return self.observe(), reward, done, finished


class Agent(nn.Module):
    def __init__(self, obs, act, hidden):
        super().__init__()
        net = lambda out: nn.Sequential(nn.Linear(obs, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(),
                                        nn.Linear(hidden, out))
        self.actor, self.critic = net(act), net(1)
        self.log_std = nn.Parameter(torch.full((act,), -0.5))

    def log_prob(self, mean, action):
        z = (action - mean) / self.log_std.exp()
        return (-0.5 * z.square() - self.log_std - 0.5 * math.log(2 * math.pi)).sum(-1)

    @torch.no_grad()
    def act(self, obs):
        mean = self.actor(obs)
        action = mean + self.log_std.exp() * torch.randn_like(mean)
        return action, self.log_prob(mean, action), self.critic(obs).squeeze(-1)


class StatusWriter(threading.Thread):
    """Publishes the recent episodes for the dashboard, which polls the folder."""

    def __init__(self, folder, recent, period):
        super().__init__(daemon=True)
        self.folder, self.recent, self.period = folder, recent, period
        self.halt = threading.Event()

    def run(self):
        while not self.halt.wait(self.period):
            self.publish()

    def publish(self):
        text = json.dumps({"time": time.time(), "episodes": list(self.recent)})
        target = os.path.join(self.folder, "status.json")
        with open(target + ".tmp", "w") as f:
            f.write(text)
        os.replace(target + ".tmp", target)


class JournalWriter(StatusWriter):
    def __init__(self, folder, recent, period):
        super().__init__(folder, recent, period)
        self.seen = recent[-1]["episode"] if recent else -1

    def publish(self):
        fresh = []
        for row in reversed(list(self.recent)):
            if row["episode"] <= self.seen:
                break
            fresh.append(row)
        if fresh:
            self.seen = fresh[0]["episode"]
            with open(os.path.join(self.folder, "status.jsonl"), "a") as f:
                f.write("".join(json.dumps(r) + "\n" for r in reversed(fresh)))


def restore_history(count):
    rng = random.Random(7)
    rows = ({"episode": i, "env": rng.randrange(4096), "return": rng.gauss(180, 40), "length": rng.randrange(20, 500),
             "time": 1.7e9 + i * 0.013} for i in range(count))
    return collections.deque(rows, maxlen=count)


def build(args, device, folder):
    tiny = device.type == "cpu"
    torch.manual_seed(0)
    envs, horizon, epochs, parts, keep = (16, 4, 1, 2, 200) if tiny else (2048, 24, 4, 4, 20000)
    env = CartEnv(envs, device)
    agent = Agent(8, 1, 32 if tiny else 256).to(device)
    opt = torch.optim.Adam(agent.parameters(), lr=3e-4, eps=1e-5, fused=True)
    recent = restore_history(keep)
    # -- variant
    writer = {"slow": StatusWriter, "fixed": JournalWriter}[args.variant](folder, recent, 0.05)
    # --
    writer.start()
    run = {"obs": env.observe(), "episode": keep}

    def collect():
        rows, obs = [], run["obs"]
        for _ in range(horizon):
            action, logp, value = agent.act(obs)
            nxt, reward, done, finished = env.advance(action)
            rows.append((obs, action, logp, value, reward, done, finished))
            obs = nxt
        run["obs"] = obs
        with torch.no_grad():
            last = agent.critic(obs).squeeze(-1)
        return [torch.stack(c) for c in zip(*rows)], last

    def advantages(value, reward, done, last, gamma=0.99, lam=0.95):
        adv, out = torch.zeros_like(last), [None] * horizon
        for t in range(horizon - 1, -1, -1):
            alive = (~done[t]).float()
            nxt = last if t == horizon - 1 else value[t + 1]
            adv = reward[t] + gamma * nxt * alive - value[t] + gamma * lam * alive * adv
            out[t] = adv
        return torch.stack(out)

    def record(done, finished):
        now = time.time()
        for ret, length in finished[done].tolist():
            recent.append({"episode": run["episode"], "env": 0, "return": ret, "length": int(length), "time": now})
            run["episode"] += 1

    def step():
        (obs, action, logp, value, reward, done, finished), last = collect()
        with torch.no_grad():
            adv = advantages(value, reward, done, last)
            target = adv + value
        flat = [t.flatten(0, 1) for t in (obs, action, logp, adv, target)]
        for _ in range(epochs):
            order = torch.randperm(envs * horizon, device=device)
            for index in order.chunk(parts):
                o, a, lp, ad, tg = (t[index] for t in flat)
                ad = (ad - ad.mean()) / (ad.std() + 1e-8)
                ratio = (agent.log_prob(agent.actor(o), a) - lp).exp()
                policy = -torch.min(ratio * ad, ratio.clamp(0.8, 1.2) * ad).mean()
                critic = 0.5 * (agent.critic(o).squeeze(-1) - tg).square().mean()
                loss = policy + 0.5 * critic - 0.01 * agent.log_std.sum()
                opt.zero_grad(set_to_none=True)
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                opt.step()
        record(done, finished)

    return step, writer


def measure(program, args, step, device):
    sync = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    for _ in range(args.warmup):
        step()
    sync()
    marks = [time.perf_counter()]
    for _ in range(args.steps):
        step()
        marks.append(time.perf_counter())
        if args.max_seconds and marks[-1] - marks[0] > args.max_seconds:
            break
    sync()
    end = time.perf_counter()
    gaps = [b - a for a, b in zip(marks, marks[1:])]
    print(json.dumps({
        "program": program, "variant": args.variant, "steps": len(gaps),
        "step_ms_mean": round((end - marks[0]) * 1e3 / len(gaps), 3),
        "step_ms_median": round(statistics.median(gaps) * 1e3, 3),
    }), flush=True)
    if args.trace:
        acts = [torch.profiler.ProfilerActivity.CPU]
        if device.type == "cuda":
            acts.append(torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(
            activities=acts, record_shapes=True, with_stack=True, with_modules=True,
            schedule=torch.profiler.schedule(wait=0, warmup=2, active=4, repeat=1),
            on_trace_ready=lambda p: p.export_chrome_trace(args.trace),
        ) as prof:
            for _ in range(6):
                step()
                prof.step()


def parse_args(variants, steps, tiny_steps=4, warmup=5):
    p = argparse.ArgumentParser()
    p.add_argument("--variant", choices=variants, default=variants[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=None)
    p.add_argument("--max-seconds", type=float, default=None)
    p.add_argument("--trace", default=None)
    args = p.parse_args()
    if args.steps is None:
        args.steps = steps[args.variant] if args.device == "cuda" else tiny_steps
    args.warmup = warmup if args.device == "cuda" else 1
    return args


if __name__ == "__main__":
    args = parse_args(["slow", "fixed"], {"slow": 130, "fixed": 200})
    device = torch.device(args.device)
    folder = tempfile.mkdtemp(prefix="ppo-")
    try:
        step, writer = build(args, device, folder)
        measure("s05", args, step, device)
        writer.halt.set()
        writer.join()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
