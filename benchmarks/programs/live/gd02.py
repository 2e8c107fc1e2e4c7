"""Policy-gradient updates (clipped surrogate) of a continuous-control agent from a device-resident rollout."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
from torch.distributions import Independent, MultivariateNormal, Normal

PROGRAM = "gd02"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 1000
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=45.0)
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


def mlp(sizes, out_gain):
    layers = []
    for a, b in zip(sizes[:-2], sizes[1:-1]):
        layers += [nn.Linear(a, b), nn.Tanh()]
    head = nn.Linear(sizes[-2], sizes[-1])
    nn.init.orthogonal_(head.weight, out_gain)
    return nn.Sequential(*layers, head)


class ActorCritic(nn.Module):
    def __init__(self, obs_dim, act_dim, width, variant):
        super().__init__()
        self.actor = mlp([obs_dim, width, width, width, act_dim], 0.01)
        self.critic = mlp([obs_dim, width, width, width, 1], 1.0)
        self.log_std = nn.Parameter(torch.full((act_dim,), -0.5))
        self.variant = variant

    def policy(self, obs):
        mean = self.actor(obs)
        std = self.log_std.exp().expand_as(mean)
        if self.variant == "slow":
            return MultivariateNormal(mean, torch.diag_embed(std.square()))
        return Independent(Normal(mean, std), 1)

    def evaluate(self, obs, actions):
        dist = self.policy(obs)
        return dist.log_prob(actions), dist.entropy(), self.critic(obs).squeeze(-1)


class Rollout:
    """A fixed horizon of experience from many parallel environments."""

    def __init__(self, horizon, envs, obs_dim, act_dim, device):
        self.horizon, self.envs = horizon, envs
        self.obs = torch.randn(horizon, envs, obs_dim, device=device)
        self.mix = torch.randn(obs_dim, act_dim, device=device) / obs_dim ** 0.5
        self.act_dim, self.device = act_dim, device
        self.done = (torch.rand(horizon, envs, device=device) < 0.01).float()

    @torch.no_grad()
    def collect(self, agent):
        flat = self.obs.flatten(0, 1)
        mean = agent.actor(flat)
        std = agent.log_std.exp()
        noise = torch.randn_like(mean)
        self.actions = mean + std * noise
        self.logp = (-0.5 * noise.square() - agent.log_std - 0.9189385).sum(-1)
        self.values = agent.critic(flat).view(self.horizon, self.envs)
        target = torch.tanh(flat @ self.mix)
        self.rewards = -(self.actions - target).square().mean(-1).view(self.horizon, self.envs)

    @torch.no_grad()
    def advantages(self, gamma=0.99, lam=0.95):
        out = torch.empty_like(self.rewards)
        running = torch.zeros(self.envs, device=self.device)
        following = torch.zeros_like(running)
        for t in reversed(range(self.horizon)):
            keep = 1.0 - self.done[t]
            delta = self.rewards[t] + gamma * keep * following - self.values[t]
            running = delta + gamma * lam * keep * running
            out[t], following = running, self.values[t]
        return out.flatten(), (out + self.values).flatten()


class Learner:
    def __init__(self, agent, rollout, minibatches, device):
        self.agent, self.rollout, self.minibatches = agent, rollout, minibatches
        self.optimizer = torch.optim.Adam(agent.parameters(), lr=3e-4, eps=1e-5, fused=device.type == "cuda")
        self.kl = torch.zeros((), device=device)

    def loss(self, rows, adv, returns, obs):
        logp, entropy, value = self.agent.evaluate(obs[rows], self.rollout.actions[rows])
        log_ratio = logp - self.rollout.logp[rows]
        ratio = log_ratio.exp()
        a = adv[rows]
        a = (a - a.mean()) / (a.std() + 1e-8)
        surrogate = torch.min(ratio * a, ratio.clamp(0.8, 1.2) * a).mean()
        with torch.no_grad():
            self.kl.lerp_((ratio - 1 - log_ratio).mean(), 0.05)
        return -surrogate + 0.5 * (value - returns[rows]).square().mean() - 1e-3 * entropy.mean()

    def step(self):
        self.rollout.collect(self.agent)
        adv, returns = self.rollout.advantages()
        obs = self.rollout.obs.flatten(0, 1)
        order = torch.randperm(len(obs), device=obs.device)
        for rows in order.chunk(self.minibatches):
            loss = self.loss(rows, adv, returns, obs)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(self.agent.parameters(), 0.5)
            self.optimizer.step()


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    big = device.type == "cuda"
    obs_dim, act_dim = (256, 22) if big else (8, 3)
    agent = ActorCritic(obs_dim, act_dim, 1024 if big else 16, args.variant).to(device)
    rollout = Rollout(32 if big else 4, 4096 if big else 8, obs_dim, act_dim, device)
    learner = Learner(agent, rollout, 4, device)
    run_loop(args, device, learner.step)


if __name__ == "__main__":
    main()
