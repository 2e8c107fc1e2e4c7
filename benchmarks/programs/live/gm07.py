"""World-model training: a recurrent latent dynamics model unrolled over replayed sequences."""
import argparse
import contextlib
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gm07"
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


class Shapes:
    def __init__(self, small):
        self.deter, self.stoch, self.hidden = (64, 16, 32) if small else (6144, 1024, 3072)
        self.embed, self.actions, self.obs = (32, 4, 24) if small else (1024, 32, 256)
        self.batch, self.length = (4, 5) if small else (128, 32)


class GatedCell(nn.Module):
    def __init__(self, inputs, size):
        super().__init__()
        self.linear = nn.Linear(inputs + size, 3 * size, bias=False)

    def forward(self, x, h):
        reset, candidate, update = self.linear(torch.cat([x, h], -1)).chunk(3, -1)
        candidate = torch.tanh(torch.sigmoid(reset) * candidate)
        return torch.lerp(h, candidate, torch.sigmoid(update - 1))


class Head(nn.Module):
    def __init__(self, inputs, hidden, outputs):
        super().__init__()
        self.a, self.b = nn.Linear(inputs, hidden), nn.Linear(hidden, outputs)

    def forward(self, x):
        return self.b(F.silu(self.a(x)))


class Dynamics(nn.Module):
    """One time step: deterministic state, prior and posterior over the stochastic state."""

    def __init__(self, s):
        super().__init__()
        self.inward = nn.Linear(s.stoch + s.actions, s.embed)
        self.cell = GatedCell(s.embed, s.deter)
        self.prior = Head(s.deter, s.hidden, s.stoch)
        self.posterior = Head(s.deter + s.embed, s.hidden, s.stoch)

    def forward(self, deter, stoch, action, embed):
        with torch.autocast(deter.device.type, dtype=torch.bfloat16):
            x = F.silu(self.inward(torch.cat([stoch, action], -1)))
            deter = self.cell(x, deter)
            prior = self.prior(deter)
            post = self.posterior(torch.cat([deter, embed], -1))
        return deter, torch.tanh(post), prior, post


class WorldModel(nn.Module):
    def __init__(self, s, variant):
        super().__init__()
        self.shapes = s
        self.encoder = Head(s.obs, s.hidden, s.embed)
        self.dynamics = Dynamics(s)
        self.decoder = Head(s.deter + s.stoch, s.hidden, s.obs)
        self.reward = Head(s.deter + s.stoch, s.hidden // 4, 1)
        self.variant = variant

    def precision(self, device):
        if self.variant == "fixed":
            return torch.autocast(device.type, dtype=torch.bfloat16)
        return contextlib.nullcontext()

    def unroll(self, embeds, actions, first):
        s, device = self.shapes, embeds.device
        deter = torch.zeros(embeds.shape[1], s.deter, device=device, dtype=torch.bfloat16)
        stoch = torch.zeros(embeds.shape[1], s.stoch, device=device, dtype=torch.bfloat16)
        states, priors, posts = [], [], []
        with self.precision(device):
            for t in range(embeds.shape[0]):
                keep = 1 - first[t]
                deter, stoch, prior, post = self.dynamics(deter * keep, stoch * keep, actions[t], embeds[t])
                states.append(torch.cat([deter, stoch], -1))
                priors.append(prior)
                posts.append(post)
        return torch.stack(states), torch.stack(priors), torch.stack(posts)

    def losses(self, obs, actions, rewards, first):
        with torch.autocast(obs.device.type, dtype=torch.bfloat16):
            embeds = self.encoder(obs)
        states, priors, posts = self.unroll(embeds, actions, first)
        with torch.autocast(obs.device.type, dtype=torch.bfloat16):
            rebuilt = self.decoder(states)
            reward = self.reward(states)[..., 0]
        priors, posts = priors.float(), posts.float()
        balance = 0.8 * F.mse_loss(priors, posts.detach()) + 0.2 * F.mse_loss(posts, priors.detach())
        return {"rebuild": F.mse_loss(rebuilt.float(), obs), "reward": F.mse_loss(reward.float(), rewards),
                "balance": balance}


class Replay:
    """Fixed-capacity sequences on the device."""

    def __init__(self, s, capacity, device):
        self.s, self.device = s, device
        self.obs = torch.randn(capacity, s.obs, device=device)
        self.actions = torch.randn(capacity, s.actions, device=device).to(torch.bfloat16)
        self.rewards = torch.randn(capacity, device=device)
        self.first = (torch.rand(capacity, 1, device=device) < 0.01).to(torch.bfloat16)
        self.reach = torch.arange(s.length, device=device)[:, None]

    def sample(self):
        starts = torch.randint(0, self.obs.shape[0] - self.s.length, (1, self.s.batch), device=self.device)
        where = starts + self.reach
        return self.obs[where], self.actions[where], self.rewards[where], self.first[where]


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    s = Shapes(device.type == "cpu")
    with device:
        model = WorldModel(s, args.variant)
    replay = Replay(s, 2000 if device.type == "cpu" else 200000, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, eps=1e-6, fused=device.type == "cuda")
    meters, count = {}, [0]

    def step():
        losses = model.losses(*replay.sample())
        optimizer.zero_grad(set_to_none=True)
        sum(losses.values()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 100.0, foreach=True)
        optimizer.step()
        for name, value in losses.items():
            meters[name] = value.detach() if name not in meters else torch.lerp(meters[name], value.detach(), 0.02)
        count[0] += 1
        if count[0] % 100 == 0:
            print(count[0], {k: round(v.item(), 4) for k, v in meters.items()}, flush=True)

    run_loop(args, device, step)


if __name__ == "__main__":
    main()
