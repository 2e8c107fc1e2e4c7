"""Collision-event classifier over ragged detector objects."""
import argparse
import json
import resource
import statistics
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

PROGRAM = "gh05"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 3000
WARMUP = 4
RAGGED = ("tracks", "towers", "vertices")
FEATURES = {"tracks": 12, "towers": 7, "vertices": 5}


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=30.0)
    p.add_argument("--trace", default=None)
    return p.parse_args()


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def run_loop(args, device, step):
    for _ in range(min(WARMUP, max(1, args.steps))):
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

class Events(Dataset):
    def __init__(self, count, means):
        self.count = count
        self.means = means

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        label = index % 5
        event = {"label": label, "weight": float(rng.exponential(1.0)),
                 "summary": rng.standard_normal(8, dtype=np.float32)}
        for name in RAGGED:
            n = 1 + int(rng.poisson(self.means[name]))
            block = rng.standard_normal((n, FEATURES[name]), dtype=np.float32)
            block[:, 0] += 0.3 * label
            event[name] = torch.from_numpy(block)
        return event


class Batcher:
    def __init__(self, variant):
        self.variant = variant

    def __call__(self, events):
        batch = {
            "label": torch.tensor([e["label"] for e in events]),
            "weight": torch.tensor([e["weight"] for e in events]),
            "summary": torch.from_numpy(np.stack([e["summary"] for e in events])),
        }
        for name in RAGGED:
            parts = [e[name] for e in events]
            batch[name] = parts if self.variant == "slow" else with_lengths(parts)
        return batch


def with_lengths(parts):
    return pad_sequence(parts, batch_first=True), torch.tensor([len(p) for p in parts])


def to_device(batch, device):
    out = {}
    for name, value in batch.items():
        if name in RAGGED:
            padded, lengths = with_lengths(value) if isinstance(value, list) and len(value) != 2 else value
            out[name] = (padded.to(device, non_blocking=True), lengths.to(device, non_blocking=True))
        else:
            out[name] = value.to(device, non_blocking=True)
    return out


class ObjectEmbedding(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.project = nn.ModuleDict({k: nn.Linear(v, width) for k, v in FEATURES.items()})
        self.kind = nn.ParameterDict({k: nn.Parameter(torch.randn(width) * 0.02) for k in RAGGED})
        self.summary = nn.Linear(8, width)

    def forward(self, batch):
        tokens, keep = [self.summary(batch["summary"])[:, None]], []
        keep.append(torch.ones_like(tokens[0][..., 0], dtype=torch.bool))
        for name in RAGGED:
            x, lengths = batch[name]
            tokens.append(self.project[name](x) + self.kind[name])
            keep.append(torch.arange(x.shape[1], device=x.device)[None] < lengths[:, None])
        return torch.cat(tokens, 1), torch.cat(keep, 1)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, width * 3), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, width * 4), nn.GELU(), nn.Linear(width * 4, width))

    def forward(self, x, keep):
        b, n, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=keep[:, None, None, :])
        x = x + self.out(y.transpose(1, 2).reshape(b, n, d))
        return x + self.mlp(self.n2(x))


class EventNet(nn.Module):
    def __init__(self, width, heads, depth, classes=5):
        super().__init__()
        self.embed = ObjectEmbedding(width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.head = nn.Linear(width, classes)

    def forward(self, batch):
        x, keep = self.embed(batch)
        for block in self.blocks:
            x = block(x, keep)
        return self.head(x[:, 0])


class Feeder:
    def __init__(self, loader):
        self.loader = loader
        self.epoch = 0
        self.iterator = iter(loader)

    def next(self):
        try:
            return next(self.iterator)
        except StopIteration:
            self.epoch += 1
            self.iterator = iter(self.loader)
            return next(self.iterator)


def raise_open_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    want = 8192 if hard == resource.RLIM_INFINITY else min(8192, hard)
    if soft != resource.RLIM_INFINITY and soft < want:
        resource.setrlimit(resource.RLIMIT_NOFILE, (want, hard))


def main():
    args = parse_args()
    raise_open_files()
    device = torch.device(args.device)
    torch.manual_seed(0)
    gpu = device.type == "cuda"
    batch, width, heads, depth, workers = (48, 256, 8, 4, 6) if gpu else (8, 32, 2, 1, 1)
    means = {"tracks": 60, "towers": 40, "vertices": 6}
    loader = DataLoader(Events(48_000, means), batch_size=batch, shuffle=True, drop_last=True,
                        num_workers=workers, persistent_workers=True, pin_memory=gpu,
                        collate_fn=Batcher(args.variant))
    feeder = Feeder(loader)
    model = EventNet(width, heads, depth).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, fused=gpu)
    running = torch.zeros(2, device=device)

    def step():
        data = to_device(feeder.next(), device)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            logits = model(data)
        losses = F.cross_entropy(logits.float(), data["label"], reduction="none")
        loss = (losses * data["weight"]).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        running.mul_(0.98)
        running[0] += 0.02 * loss.detach()
        running[1] += 0.02 * (logits.argmax(1) == data["label"]).float().mean()

    run_loop(args, device, step)


if __name__ == "__main__":
    main()
