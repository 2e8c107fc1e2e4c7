"""Group-relative policy optimisation of a decoder language model on long prompts with short answers."""
import argparse
import json
import statistics
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gb04"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 400
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


@dataclass
class Sizes:
    vocab: int
    dim: int
    depth: int
    groups: int
    group_size: int
    prompt: int
    answer: int

    @property
    def rows(self):
        return self.groups * self.group_size


def rotary_tables(length, head_dim, device, dtype):
    inv = 10000.0 ** (-torch.arange(0, head_dim, 2, device=device, dtype=torch.float32) / head_dim)
    angle = torch.outer(torch.arange(length, device=device, dtype=torch.float32), inv)
    return angle.cos().to(dtype), angle.sin().to(dtype)


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


class DecoderLayer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)
        self.up = nn.Linear(dim, 4 * dim, bias=False)
        self.down = nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x, cos, sin):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.silu(self.up(self.norm2(x))))


class PolicyLM(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.embed = nn.Embedding(sizes.vocab, sizes.dim)
        self.layers = nn.ModuleList(DecoderLayer(sizes.dim, max(1, sizes.dim // 64)) for _ in range(sizes.depth))
        self.norm = nn.RMSNorm(sizes.dim)
        self.lm_head = nn.Linear(sizes.dim, sizes.vocab, bias=False)
        nn.init.normal_(self.embed.weight, std=0.02)

    def hidden(self, ids, tables):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, *tables)
        return self.norm(x)


def answer_logps(model, ids, tables, answer, variant):
    """log p of each of the last `answer` tokens given everything before it."""
    hidden = model.hidden(ids, tables)[:, :-1]
    targets = ids[:, 1:]
    if variant == "fixed":
        hidden, targets = hidden[:, -answer:], targets[:, -answer:]
    logits = model.lm_head(hidden).float()
    logps = logits.log_softmax(dim=-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    return logps[:, -answer:]


class RolloutBuffer:
    """Stands in for the generation workers: prompts repeated per group, sampled answers, rewards, lengths."""

    def __init__(self, sizes, device):
        self.sizes, self.device = sizes, device
        self.gen = torch.Generator(device=device).manual_seed(3)

    def draw(self):
        s = self.sizes
        prompts = torch.randint(0, s.vocab, (s.groups, s.prompt), device=self.device, generator=self.gen)
        answers = torch.randint(0, s.vocab, (s.rows, s.answer), device=self.device, generator=self.gen)
        ids = torch.cat([prompts.repeat_interleave(s.group_size, 0), answers], dim=1)
        rewards = torch.rand(s.groups, s.group_size, device=self.device, generator=self.gen)
        length = torch.randint(s.answer // 2, s.answer + 1, (s.rows, 1), device=self.device, generator=self.gen)
        mask = (torch.arange(s.answer, device=self.device) < length).float()
        return ids, rewards, mask


def group_advantages(rewards):
    centred = rewards - rewards.mean(dim=1, keepdim=True)
    return (centred / (rewards.std(dim=1, keepdim=True) + 1e-4)).reshape(-1, 1)


def policy_loss(logps, old, ref, advantages, mask, clip=0.2, beta=0.04):
    ratio = (logps - old).exp()
    surrogate = torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages)
    drift = ref - logps
    kl = drift.exp() - drift - 1
    return -(((surrogate - beta * kl) * mask).sum(1) / mask.sum(1)).mean()


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    big = device.type == "cuda"
    sizes = Sizes(100_352, 1024, 8, 2, 4, 1536, 256) if big else Sizes(512, 64, 2, 1, 2, 48, 16)
    dtype = torch.bfloat16 if big else torch.float32
    with torch.device(device):
        policy = PolicyLM(sizes).to(dtype)
        reference = PolicyLM(sizes).to(dtype).requires_grad_(False)
    reference.load_state_dict(policy.state_dict())
    tables = rotary_tables(sizes.prompt + sizes.answer, min(64, sizes.dim), device, dtype)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-6, betas=(0.9, 0.99), fused=big)
    buffer = RolloutBuffer(sizes, device)
    done = [0]

    def step():
        ids, rewards, mask = buffer.draw()
        with torch.no_grad():
            ref = answer_logps(reference, ids, tables, sizes.answer, args.variant)
        logps = answer_logps(policy, ids, tables, sizes.answer, args.variant)
        loss = policy_loss(logps, logps.detach(), ref, group_advantages(rewards), mask)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        done[0] += 1
        if done[0] % 50 == 0:
            print(json.dumps({"iter": done[0], "loss": round(loss.item(), 5)}), flush=True)

    run_loop(args, device, step)


if __name__ == "__main__":
    main()
