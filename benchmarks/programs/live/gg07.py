"""Group-relative policy optimisation of a small language model: sample completions, score, update."""
import argparse
import contextlib
import copy
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gg07"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 60
WARMUP = 2
VOCAB = 16384
PROMPT, REPLY = 16, 64


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


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.dim = heads, width // heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.proj = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x, cache=None, at=0):
        n, t, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, t, 3, self.heads, self.dim).permute(2, 0, 3, 1, 4).unbind(0)
        if cache is not None:
            cache[0][:, :, at:at + t] = k
            cache[1][:, :, at:at + t] = v
            k, v = cache[0][:, :, :at + t], cache[1][:, :, :at + t]
        h = F.scaled_dot_product_attention(q, k, v, is_causal=t > 1)
        x = x + self.proj(h.transpose(1, 2).reshape(n, t, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Policy(nn.Module):
    def __init__(self, width, depth, heads):
        super().__init__()
        self.width, self.heads = width, heads
        self.embed = nn.Embedding(VOCAB, width)
        self.place = nn.Embedding(PROMPT + REPLY, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(depth))
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, VOCAB, bias=False)

    def forward(self, tokens, caches=None, at=0):
        where = torch.arange(at, at + tokens.shape[1], device=tokens.device)
        x = self.embed(tokens) + self.place(where)
        for i, layer in enumerate(self.layers):
            x = layer(x, None if caches is None else caches[i], at)
        return self.head(self.norm(x))


class Generator:
    """Samples replies from the current policy with a preallocated key/value cache."""

    def __init__(self, policy, device, own):
        self.policy, self.device = policy, device
        self.actor = copy.deepcopy(policy).to(torch.bfloat16).requires_grad_(False) if own else policy

    def refresh(self):
        if self.actor is not self.policy:
            for mine, theirs in zip(self.actor.parameters(), self.policy.parameters()):
                mine.copy_(theirs)

    def precision(self):
        if self.actor is self.policy:
            return torch.autocast(self.device.type, torch.bfloat16)
        return contextlib.nullcontext()

    def next_token(self, tokens, caches, at):
        with self.precision():
            logits = self.actor(tokens, caches, at)[:, -1]
        noise = torch.empty_like(logits, dtype=torch.float32).exponential_()
        return (logits.float().softmax(-1) / noise).argmax(-1, keepdim=True)

    @torch.no_grad()
    def __call__(self, prompts):
        self.refresh()
        n, m = prompts.shape[0], self.policy
        shape = (n, m.heads, PROMPT + REPLY, m.width // m.heads)
        caches = [[torch.empty(shape, device=self.device, dtype=torch.bfloat16) for _ in range(2)] for _ in m.layers]
        out = [prompts]
        tokens, at = prompts, 0
        for _ in range(REPLY):
            following = self.next_token(tokens, caches, at)
            at += tokens.shape[1]
            tokens = following
            out.append(tokens)
        return torch.cat(out, 1)


class Learner:
    def __init__(self, policy, device):
        self.policy, self.device = policy, device
        self.opt = torch.optim.AdamW(policy.parameters(), lr=1e-6, fused=device.type == "cuda")

    def update(self, tokens, advantage):
        with torch.autocast(self.device.type, torch.bfloat16):
            logits = self.policy(tokens[:, :-1])[:, PROMPT - 1:]
        logp = -F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, PROMPT:].flatten(), reduction="none")
        loss = -(advantage[:, None] * logp.view(len(tokens), -1)).mean()
        loss.backward()
        self.opt.step()
        self.opt.zero_grad(set_to_none=True)


class Trainer:
    def __init__(self, args, device):
        size = (4096, 6, 32) if device.type == "cuda" else (128, 2, 4)
        self.groups, self.members = (4, 8) if device.type == "cuda" else (2, 2)
        self.device = device
        with torch.device(device):
            self.policy = Policy(*size)
        self.generate = Generator(self.policy, device, own=args.variant == "fixed")
        self.learner = Learner(self.policy, device)

    def reward(self, tokens):
        reply = tokens[:, PROMPT:]
        return (reply % 7 == 0).float().mean(1) - (reply[:, 1:] == reply[:, :-1]).float().mean(1)

    def step(self):
        prompts = torch.randint(0, VOCAB, (self.groups, PROMPT), device=self.device)
        tokens = self.generate(prompts.repeat_interleave(self.members, 0))
        r = self.reward(tokens).view(self.groups, self.members)
        advantage = ((r - r.mean(1, keepdim=True)) / (r.std(1, keepdim=True) + 1e-4)).flatten()
        self.learner.update(tokens, advantage)


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    run_loop(args, device, Trainer(args, device).step)


if __name__ == "__main__":
    main()
