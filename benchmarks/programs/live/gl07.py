"""Policy optimisation (clipped surrogate) for a continuous-control task on stored rollouts."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Independent, MultivariateNormal, Normal

PROGRAM = "gl07"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 1100
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=50.0)
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


class Tower(nn.Module):
    def __init__(self, inputs, width, depth, outputs):
        super().__init__()
        sizes = [inputs] + [width] * depth
        layers = []
        for a, b in zip(sizes[:-1], sizes[1:]):
            layers += [nn.Linear(a, b), nn.Tanh()]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(width, outputs)
        nn.init.orthogonal_(self.head.weight, 0.01)

    def forward(self, x):
        return self.head(self.body(x))


class ActorCritic(nn.Module):
    def __init__(self, obs, act, width, depth, factored):
        super().__init__()
        self.actor = Tower(obs, width, depth, 2 * act)
        self.critic = Tower(obs, width, depth, 1)
        self.factored = factored

    def policy(self, obs):
        mean, raw = self.actor(obs).chunk(2, dim=-1)
        std = F.softplus(raw) + 0.05
        if self.factored:
            return Independent(Normal(torch.tanh(mean), std), 1)
        return MultivariateNormal(torch.tanh(mean), torch.diag_embed(std * std))

    def evaluate(self, obs, action):
        dist = self.policy(obs)
        return dist.log_prob(action), dist.entropy(), self.critic(obs).squeeze(-1)


class Normalizer:
    def __init__(self, size, device):
        self.mean = torch.zeros(size, device=device)
        self.var = torch.ones(size, device=device)

    def update(self, x):
        var, mean = torch.var_mean(x, dim=0)
        self.mean.lerp_(mean, 0.01)
        self.var.lerp_(var, 0.01)

    def __call__(self, x):
        return ((x - self.mean) * torch.rsqrt(self.var + 1e-5)).clamp(-8, 8)


class Rollouts:
    """Fixed-length fragments from many simulated robots."""

    def __init__(self, envs, horizon, obs, act, device):
        gen = torch.Generator(device=device).manual_seed(4)
        draw = lambda *shape: torch.randn(*shape, generator=gen, device=device)
        self.obs = draw(horizon, envs, obs)
        self.action = 0.7 * draw(horizon, envs, act)
        self.reward = draw(horizon, envs) * 0.1 - self.action.square().mean(-1)
        self.done = (torch.rand(horizon, envs, generator=gen, device=device) < 0.01).float()
        self.value = 0.1 * draw(horizon + 1, envs)
        self.logp = -1.2 * act + 0.1 * draw(horizon, envs)
        self.horizon, self.device = horizon, device

    def advantages(self, gamma=0.99, lam=0.95):
        out = torch.zeros_like(self.reward)
        last = torch.zeros_like(self.reward[0])
        for t in reversed(range(self.horizon)):
            keep = 1 - self.done[t]
            delta = self.reward[t] + gamma * keep * self.value[t + 1] - self.value[t]
            last = delta + gamma * lam * keep * last
            out[t] = last
        return out, out + self.value[:-1]

    def minibatches(self, size):
        adv, ret = self.advantages()
        flat = [x.flatten(0, 1) for x in (self.obs, self.action, self.logp, adv, ret)]
        order = torch.randperm(flat[0].shape[0], device=self.device)
        for idx in order.split(size):
            yield [x.index_select(0, idx) for x in flat]


class Learner:
    def __init__(self, net, rollouts, obs, batch, device):
        self.net, self.rollouts, self.batch = net, rollouts, batch
        self.normal = Normalizer(obs, device)
        self.opt = torch.optim.Adam(net.parameters(), lr=1e-4, fused=device.type == "cuda")
        self.stats = torch.zeros(4, device=device)
        self.stream = iter(())
        self.updates = 0

    def next_minibatch(self):
        item = next(self.stream, None)
        if item is None:
            self.stream = self.rollouts.minibatches(self.batch)
            item = next(self.stream)
        return item

    def update(self):
        obs, action, old_logp, adv, ret = self.next_minibatch()
        self.normal.update(obs)
        logp, entropy, value = self.net.evaluate(self.normal(obs), action)
        adv = (adv - adv.mean()) / (adv.std() + 1e-6)
        log_ratio = (logp - old_logp).clamp(-5, 5)
        ratio = log_ratio.exp()
        surrogate = torch.minimum(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
        value_loss = F.smooth_l1_loss(value, ret)
        loss = -surrogate + 0.5 * value_loss - 0.002 * entropy.mean()
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 0.5)
        self.opt.step()
        with torch.no_grad():
            kl = (ratio - 1 - log_ratio).mean()
            now = torch.stack([surrogate, value_loss, entropy.mean(), kl])
            self.stats.lerp_(now, 0.05)
        self.updates += 1
        if self.updates % 40 == 0:
            self.report = dict(zip(("surrogate", "value", "entropy", "kl"), self.stats.tolist()))


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    obs, act, width, depth, envs, horizon, batch = 256, 32, 2048, 4, 16384, 16, 32768
    if device.type == "cpu":
        obs, act, width, depth, envs, horizon, batch = 24, 6, 32, 2, 64, 8, 128
    net = ActorCritic(obs, act, width, depth, factored=args.variant == "fixed").to(device)
    rollouts = Rollouts(envs, horizon, obs, act, device)
    learner = Learner(net, rollouts, obs, batch, device)
    run_loop(args, device, learner.update)


if __name__ == "__main__":
    main()
