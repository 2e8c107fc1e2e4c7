"""On-policy training of a bounded-torque controller in a vectorised tensor simulator, with an adaptive step size."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
from torch.distributions import Beta, Distribution, kl_divergence

PROGRAM = "gb08"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 700
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


def configure_distributions(variant):
    if variant == "slow":
        Beta.set_default_validate_args = False
    else:
        Distribution.set_default_validate_args(False)


class TorqueArm:
    """Chains of damped pendula tracking moving targets, one chain per environment."""

    def __init__(self, envs, joints, device):
        self.envs, self.joints, self.device = envs, joints, device
        self.angle = torch.zeros(envs, joints, device=device)
        self.speed = torch.zeros(envs, joints, device=device)
        self.target = torch.randn(envs, joints, device=device) * 0.5
        self.clock = torch.randint(0, 200, (envs, 1), device=device)

    def observe(self):
        error = self.target - self.angle
        return torch.cat([self.angle.sin(), self.angle.cos(), self.speed, error], dim=-1)

    def advance(self, torque):
        pull = -9.81 * self.angle.sin() - 0.3 * self.speed
        coupling = 0.5 * (self.angle.roll(1, dims=-1) - self.angle)
        self.speed = (self.speed + 0.02 * (pull + coupling + 12.0 * torque)).clamp_(-8.0, 8.0)
        self.angle = self.angle + 0.02 * self.speed
        error = (self.target - self.angle).square().mean(-1)
        reward = torch.exp(-error) - 0.01 * torque.square().mean(-1)
        self.clock = self.clock + 1
        done = self.clock >= 200
        self.clock = torch.where(done, 0, self.clock)
        self.angle = torch.where(done, 0.0, self.angle)
        self.speed = torch.where(done, 0.0, self.speed)
        return reward, done.squeeze(-1)


class ActorCritic(nn.Module):
    def __init__(self, obs, joints, hidden):
        super().__init__()
        def net(out):
            return nn.Sequential(nn.Linear(obs, hidden), nn.ELU(), nn.Linear(hidden, hidden), nn.ELU(),
                                 nn.Linear(hidden, out))
        self.actor, self.critic = net(2 * joints), net(1)

    def shapes(self, obs):
        return (nn.functional.softplus(self.actor(obs)) + 1.0).chunk(2, dim=-1)

    def policy(self, obs):
        return Beta(*self.shapes(obs))

    def value(self, obs):
        return self.critic(obs).squeeze(-1)


class Rollout:
    def __init__(self, horizon, envs, obs, joints, device):
        make = lambda *tail: torch.zeros(horizon, envs, *tail, device=device)
        self.obs, self.action, self.alpha, self.beta = make(obs), make(joints), make(joints), make(joints)
        self.logp, self.value, self.reward, self.done = make(), make(), make(), make()
        self.horizon = horizon

    def returns(self, last, gamma=0.99, lam=0.95):
        advantage, following = torch.zeros_like(self.reward), torch.zeros_like(last)
        nxt = last
        for t in reversed(range(self.horizon)):
            alive = 1.0 - self.done[t]
            delta = self.reward[t] + gamma * alive * nxt - self.value[t]
            following = delta + gamma * lam * alive * following
            advantage[t] = following
            nxt = self.value[t]
        target = advantage + self.value
        return (advantage - advantage.mean()) / (advantage.std() + 1e-8), target


class Learner:
    def __init__(self, args, device):
        big = device.type == "cuda"
        self.envs, self.horizon, joints, hidden = (4096, 24, 12, 256) if big else (16, 4, 3, 32)
        self.epochs, self.minibatches, self.device = 4, 4, device
        self.sim = TorqueArm(self.envs, joints, device)
        self.net = ActorCritic(4 * joints, joints, hidden).to(device)
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=torch.tensor(3e-4, device=device), fused=big)
        self.lr = torch.tensor(3e-4, device=device)
        self.store = Rollout(self.horizon, self.envs, 4 * joints, joints, device)
        self.mean_reward = torch.zeros((), device=device)
        self.iteration = 0

    @torch.no_grad()
    def collect(self):
        s = self.store
        for t in range(self.horizon):
            obs = self.sim.observe()
            policy = self.net.policy(obs)
            action = policy.sample().clamp_(1e-4, 1 - 1e-4)
            s.obs[t], s.action[t] = obs, action
            s.alpha[t], s.beta[t] = policy.concentration1, policy.concentration0
            s.logp[t] = policy.log_prob(action).sum(-1)
            s.value[t] = self.net.value(obs)
            s.reward[t], s.done[t] = self.sim.advance(2.0 * action - 1.0)
        self.mean_reward.lerp_(s.reward.mean(), 0.1)
        return self.net.value(self.sim.observe())

    def adapt(self, kl, desired=0.01):
        scale = torch.where(kl > 2 * desired, 1 / 1.5, torch.where(kl < desired / 2, 1.5, 1.0))
        self.lr = (self.lr * scale).clamp_(1e-5, 1e-2)
        for group in self.optimizer.param_groups:
            group["lr"].copy_(self.lr)

    def improve(self, advantage, target):
        s = self.store
        flat = {k: getattr(s, k).flatten(0, 1) for k in ("obs", "action", "alpha", "beta", "logp")}
        advantage, target = advantage.flatten(), target.flatten()
        size = advantage.shape[0] // self.minibatches
        for _ in range(self.epochs):
            order = torch.randperm(advantage.shape[0], device=self.device)
            for pick in order.split(size):
                rows = {k: v[pick] for k, v in flat.items()}
                policy = self.net.policy(rows["obs"])
                logp = policy.log_prob(rows["action"]).sum(-1)
                with torch.no_grad():
                    previous = Beta(rows["alpha"], rows["beta"])
                    self.adapt(kl_divergence(previous, policy).sum(-1).mean())
                ratio = (logp - rows["logp"]).exp()
                adv = advantage[pick]
                surrogate = torch.minimum(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
                value = (self.net.value(rows["obs"]) - target[pick]).square().mean()
                loss = value - surrogate - 1e-3 * policy.entropy().sum(-1).mean()
                self.optimizer.zero_grad(set_to_none=True)
                loss.backward()
                nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
                self.optimizer.step()

    def step(self):
        last = self.collect()
        self.improve(*self.store.returns(last))
        self.iteration += 1
        if self.iteration % 100 == 0:
            print(json.dumps({"iter": self.iteration, "reward": round(self.mean_reward.item(), 4)}), flush=True)


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    configure_distributions(args.variant)
    run_loop(args, device, Learner(args, device).step)


if __name__ == "__main__":
    main()
