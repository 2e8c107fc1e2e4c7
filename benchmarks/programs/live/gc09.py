"""Language-model training with micro-batches, clipping, weight averaging and per-step logging."""
import argparse
import json
import collections
import math
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gc09"
CHOICES = ["healthy"]
DEFAULT_STEPS = 240
DEFAULT_SECONDS = 50.0
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=DEFAULT_SECONDS)
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


class CausalAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.transpose(1, 2) for y in self.qkv(x).view(b, t, 3, self.heads, c // self.heads).unbind(2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, c))


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = CausalAttention(dim, heads)
        self.up = nn.Linear(dim, 4 * dim, bias=False)
        self.down = nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class LanguageModel(nn.Module):
    def __init__(self, vocab, length, dim, depth, heads):
        super().__init__()
        self.tokens = nn.Embedding(vocab, dim)
        self.positions = nn.Parameter(torch.randn(length, dim) * 0.01)
        self.layers = nn.ModuleList([Layer(dim, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)
        self.apply(self.reset)

    @staticmethod
    def reset(module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


class Average:
    def __init__(self, model, decay):
        self.decay = decay
        self.live = list(model.parameters())
        self.kept = [p.detach().clone() for p in self.live]

    @torch.no_grad()
    def update(self):
        torch._foreach_lerp_(self.kept, self.live, 1 - self.decay)


class Journal:
    def __init__(self, model, every):
        self.model, self.every = model, every
        self.lines = collections.deque(maxlen=200)
        self.n = 0

    def write(self, loss, norm, lr):
        self.n += 1
        entry = {"loss": loss.item(), "norm": norm.item(), "lr": lr}
        if self.n % self.every == 0:
            for name, p in self.model.named_parameters():
                entry[name] = p.grad.norm().item()
        self.lines.append(entry)


class Corpus:
    def __init__(self, vocab, size):
        self.data = torch.randint(0, vocab, (size,), generator=torch.Generator().manual_seed(1))

    def sample(self, batch, length, device):
        starts = torch.randint(0, len(self.data) - length - 1, (batch,)).tolist()
        block = torch.stack([self.data[s:s + length + 1] for s in starts])
        if device.type == "cuda":
            block = block.pin_memory().to(device, non_blocking=True)
        return block[:, :-1], block[:, 1:]


class Trainer:
    def __init__(self, model, corpus, device, batch, length, micro):
        self.model, self.corpus, self.device = model, corpus, device
        self.batch, self.length, self.micro = batch, length, micro
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95),
                                           fused=device.type == "cuda")
        self.average = Average(model, 0.999)
        self.journal = Journal(model, every=25)
        self.at = 0

    def rate(self):
        return 3e-4 * min(1.0, (self.at + 1) / 100) * (0.55 + 0.45 * math.cos(self.at / 2000))

    def step(self):
        lr = self.rate()
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.zero_grad(set_to_none=True)
        total = torch.zeros((), device=self.device)
        for _ in range(self.micro):
            ids, target = self.corpus.sample(self.batch, self.length, self.device)
            with torch.autocast(self.device.type, dtype=torch.bfloat16):
                logits = self.model(ids)
                loss = F.cross_entropy(logits.flatten(0, 1), target.flatten()) / self.micro
            loss.backward()
            total += loss.detach()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.average.update()
        self.journal.write(total, norm, lr)
        self.at += 1


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    big = device.type == "cuda"
    vocab, length, dim, depth, heads, batch, micro = \
        (16384, 2048, 4096, 3, 32, 4, 2) if big else (256, 32, 64, 2, 2, 2, 2)
    with torch.device(device):
        model = LanguageModel(vocab, length, dim, depth, heads)
    trainer = Trainer(model, Corpus(vocab, 2_000_000 if big else 20_000), device, batch, length, micro)
    run_loop(args, device, trainer.step)


if __name__ == "__main__":
    main()
