"""Continued pre-training of a wide decoder with gradient accumulation and per-step logging."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "ge03"
CHOICES = ["healthy"]
DEFAULT_STEPS = 130
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


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, n, d))


class SwiGLU(nn.Module):
    def __init__(self, dim, inner):
        super().__init__()
        self.gate_up = nn.Linear(dim, 2 * inner, bias=False)
        self.down = nn.Linear(inner, dim, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class Layer(nn.Module):
    def __init__(self, dim, heads, inner):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention, self.mlp = Attention(dim, heads), SwiGLU(dim, inner)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embed = nn.Embedding(cfg["vocab"], cfg["dim"])
        self.position = nn.Parameter(torch.zeros(1, cfg["length"], cfg["dim"]))
        self.layers = nn.ModuleList(Layer(cfg["dim"], cfg["heads"], cfg["inner"]) for _ in range(cfg["layers"]))
        self.norm = nn.LayerNorm(cfg["dim"])
        self.head = nn.Linear(cfg["dim"], cfg["vocab"], bias=False)

    def forward(self, tokens, labels):
        x = self.embed(tokens) + self.position
        x = x.to(self.layers[0].attention.qkv.weight.dtype)
        for layer in self.layers:
            x = layer(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


class PackedText:
    def __init__(self, cfg, device, count=64):
        generator = torch.Generator().manual_seed(5)
        shape = (count, cfg["batch"], cfg["length"] + 1)
        self.windows = torch.randint(0, cfg["vocab"], shape, generator=generator)
        if device.type == "cuda":
            self.windows = self.windows.pin_memory()
        self.device, self.cursor = device, 0

    def next(self):
        window = self.windows[self.cursor % len(self.windows)].to(self.device, non_blocking=True)
        self.cursor += 1
        return window[:, :-1], window[:, 1:]


class Run:
    def __init__(self, cfg, device):
        self.cfg, self.device = cfg, device
        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        with torch.device(device):
            self.model = Decoder(cfg).to(dtype)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-5, betas=(0.9, 0.95),
                                           fused=device.type == "cuda")
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda i: min(1.0, (i + 1) / 20))
        self.data = PackedText(cfg, device)
        self.history = []

    def step(self):
        total = torch.zeros((), device=self.device)
        for _ in range(self.cfg["accumulate"]):
            tokens, labels = self.data.next()
            loss = self.model(tokens, labels) / self.cfg["accumulate"]
            loss.backward()
            total += loss.detach().float()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.history.append({"loss": total.item(), "norm": float(norm), "lr": self.schedule.get_last_lr()[0]})


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    if device.type == "cuda":
        cfg = dict(vocab=16000, dim=4096, heads=32, inner=11008, layers=3, batch=8, length=2048, accumulate=2)
    else:
        cfg = dict(vocab=300, dim=64, heads=4, inner=128, layers=2, batch=2, length=32, accumulate=2)
    run_loop(args, device, Run(cfg, device).step)


if __name__ == "__main__":
    main()
