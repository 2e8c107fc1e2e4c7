"""Embedding service: requests of mixed length in exact buckets, pooled vectors go back to the host for every batch."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "o09"
CHOICES = ["healthy"]
DEFAULT_STEPS = 60
WARMUP = 8


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


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Encoder(nn.Module):
    def __init__(self, vocab, dim, heads, layers, max_len):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, dim), nn.Embedding(max_len, dim)
        self.blocks = nn.ModuleList([Block(dim, heads) for _ in range(layers)])

    def forward(self, ids):
        x = self.tok(ids) + self.pos.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return F.normalize(x.mean(1).float(), dim=-1)


class Service:
    def __init__(self, model, vocab, dim, tokens_per_batch, lengths, device):
        self.model, self.vocab, self.device = model, vocab, device
        self.tokens, self.lengths, self.turn = tokens_per_batch, lengths, 0
        cuda = device.type == "cuda"
        rows = tokens_per_batch // min(lengths)
        self.slots = [torch.empty(rows, dim, pin_memory=cuda) for _ in range(2)]
        self.done = [torch.cuda.Event() if cuda else None for _ in range(2)]
        self.waiting = None
        self.index = {}
        self.requests = {t: [torch.randint(vocab, (tokens_per_batch // t, t)) for _ in range(2)] for t in lengths}
        if cuda:
            self.requests = {t: [x.pin_memory() for x in xs] for t, xs in self.requests.items()}

    @torch.inference_mode()
    def submit(self, ids, slot):
        vectors = self.model(ids.to(self.device, non_blocking=True))
        self.slots[slot][: len(vectors)].copy_(vectors, non_blocking=True)
        if self.done[slot] is not None:
            self.done[slot].record()
        return slot, len(vectors)

    def deliver(self, slot, count):
        if self.done[slot] is not None:
            self.done[slot].synchronize()
        host = self.slots[slot][:count].numpy().copy()
        for row in range(count):
            self.index[row] = {"vector": host[row], "norm": float(host[row, 0])}

    def step(self):
        length = self.lengths[self.turn % len(self.lengths)]
        ids = self.requests[length][self.turn // len(self.lengths) % 2]
        launched = self.submit(ids, self.turn % 2)
        if self.waiting is not None:
            self.deliver(*self.waiting)
        self.waiting = launched
        self.turn += 1


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    if device.type == "cuda":
        dtype, vocab, dim, heads, layers, tokens, lengths = torch.bfloat16, 32000, 6144, 48, 6, 16384, [128, 512, 256, 1024]
    else:
        dtype, vocab, dim, heads, layers, tokens, lengths = torch.float32, 100, 32, 2, 1, 64, [8, 16]
    with torch.device(device):
        model = Encoder(vocab, dim, heads, layers, max(lengths)).to(dtype).eval()
    service = Service(model, vocab, dim, tokens, lengths, device)
    run_loop(args, device, service.step)


if __name__ == "__main__":
    main()
