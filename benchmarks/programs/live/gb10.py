"""Pre-training a very wide, shallow decoder; loss and gradient norm are read back every step for the progress line."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gb10"
CHOICES = ["healthy"]
DEFAULT_STEPS = 200
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


class WideBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)
        self.up = nn.Linear(dim, 4 * dim, bias=False)
        self.down = nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d)
        x = x + self.out(y)
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class WideLM(nn.Module):
    def __init__(self, vocab, dim, depth, heads, length):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.position = nn.Embedding(length, dim)
        self.blocks = nn.ModuleList(WideBlock(dim, heads) for _ in range(depth))
        self.norm = nn.RMSNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)
        nn.init.normal_(self.embed.weight, std=0.02)

    def forward(self, ids):
        x = self.embed(ids) + self.position.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Corpus:
    """Documents live in ordinary host memory and are cut into windows on demand."""

    def __init__(self, vocab, tokens, seed=0):
        self.gen = torch.Generator().manual_seed(seed)
        self.stream = torch.randint(0, vocab, (tokens,), generator=self.gen)

    def windows(self, batch, length):
        starts = torch.randint(0, len(self.stream) - length - 1, (batch,), generator=self.gen).tolist()
        rows = [self.stream[s:s + length + 1] for s in starts]
        return torch.stack(rows)


class Progress:
    def __init__(self):
        self.losses, self.norms, self.best = [], [], float("inf")

    def update(self, loss, norm):
        self.losses.append(loss)
        self.norms.append(norm)
        self.best = min(self.best, loss)
        if len(self.losses) % 40 == 0:
            window = self.losses[-40:]
            print(json.dumps({"iter": len(self.losses), "loss": round(sum(window) / len(window), 4),
                              "best": round(self.best, 4), "norm": round(norm, 4)}), flush=True)


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    big = device.type == "cuda"
    vocab, dim, depth, heads = (32_000, 8192, 2, 64) if big else (256, 64, 2, 2)
    batch, length = (4, 2048) if big else (2, 32)
    torch.set_default_dtype(torch.bfloat16 if big else torch.float32)
    with torch.device(device):
        model = WideLM(vocab, dim, depth, heads, length)
    torch.set_default_dtype(torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, betas=(0.9, 0.95), weight_decay=0.1, fused=big)
    corpus, progress = Corpus(vocab, 2_000_000 if big else 10_000), Progress()

    def step():
        window = corpus.windows(batch, length).to(device)
        ids, targets = window[:, :-1], window[:, 1:]
        logits = model(ids)
        loss = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        progress.update(loss.item(), norm.item())

    run_loop(args, device, step)


if __name__ == "__main__":
    main()
