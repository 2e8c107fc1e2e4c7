"""Trains a self-attentive next-item recommender with sampled negatives, fed by a DataLoader."""
import argparse
import json
import statistics
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, get_worker_info

PROGRAM = "gf04"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 1500
MAX_SECONDS = 42.0
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=MAX_SECONDS)
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

class SessionLog(Dataset):
    """User sessions packed in one flat array, with per-session candidates drawn on the fly."""

    def __init__(self, sessions, items, length, negatives, variant):
        rng = np.random.default_rng(7)
        sizes = rng.integers(length // 2, length * 2, sessions)
        self.offsets = np.concatenate([[0], np.cumsum(sizes)])
        self.flat = np.minimum(rng.zipf(1.2, int(self.offsets[-1])), items - 1).astype(np.int32)
        self.items, self.length, self.negatives = items, length, negatives
        self.variant = variant
        self._rng = None

    def __len__(self):
        return len(self.offsets) - 1

    @property
    def rng(self):
        if self._rng is None:
            info = get_worker_info()
            self._rng = np.random.default_rng(info.seed if info else 0)
        return self._rng

    def draw_candidates(self):
        if self.variant == "slow":
            return np.random.choice(self.items, self.negatives, replace=False)
        return self.rng.choice(self.items, self.negatives, replace=False)

    def __getitem__(self, index):
        begin, end = self.offsets[index], self.offsets[index + 1]
        window = self.flat[max(begin, end - self.length - 1):end]
        history = np.zeros(self.length, dtype=np.int64)
        target = np.zeros(self.length, dtype=np.int64)
        n = len(window) - 1
        history[-n:] = window[:-1]
        target[-n:] = window[1:]
        return {"history": torch.from_numpy(history), "target": torch.from_numpy(target),
                "negatives": torch.from_numpy(self.draw_candidates().astype(np.int64))}


def seed_worker(worker_id):
    np.random.seed((get_worker_info().seed + worker_id) % 2 ** 32)


class Recommender(nn.Module):
    def __init__(self, items, dim, length, layers, heads):
        super().__init__()
        self.items = nn.Embedding(items, dim, padding_idx=0)
        self.position = nn.Parameter(torch.zeros(length, dim))
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(dim, heads, 4 * dim, dropout=0.0, batch_first=True,
                                                               norm_first=True) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        nn.init.normal_(self.items.weight, std=0.02)
        self.register_buffer("causal", nn.Transformer.generate_square_subsequent_mask(length), persistent=False)

    def forward(self, history):
        h = self.items(history) + self.position
        for layer in self.layers:
            h = layer(h, src_mask=self.causal, is_causal=True)
        return self.norm(h)


def sampled_loss(model, hidden, target, negatives):
    positive = (hidden * model.items(target)).sum(-1, keepdim=True)
    other = torch.einsum("bld,bnd->bln", hidden, model.items(negatives))
    other = other.masked_fill(target.unsqueeze(-1) == negatives.unsqueeze(1), -1e4)
    logits = torch.cat([positive, other], dim=-1)
    loss = -F.log_softmax(logits.float(), dim=-1)[..., 0]
    keep = (target != 0).float()
    return (loss * keep).sum() / keep.sum().clamp(min=1)


def batches(loader):
    epoch = 0
    while True:
        for batch in loader:
            yield epoch, batch
        epoch += 1


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    small = device.type == "cpu"
    items = 4000 if small else 400_000
    data = SessionLog(sessions=600 if small else 60_000, items=items, length=50, negatives=64, variant=args.variant)
    loader = DataLoader(data, batch_size=16 if small else 128, shuffle=True, drop_last=True,
                        num_workers=0 if small else 8, worker_init_fn=seed_worker, pin_memory=not small,
                        persistent_workers=not small, prefetch_factor=None if small else 4)
    stream = batches(loader)
    model = Recommender(items, 128, 50, layers=3, heads=4).to(device)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3, fused=not small)
    running = torch.zeros((), device=device)

    def step():
        _, batch = next(stream)
        batch = {k: v.to(device, non_blocking=True) for k, v in batch.items()}
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = sampled_loss(model, model(batch["history"]), batch["target"], batch["negatives"])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        running.mul_(0.99).add_(loss.detach(), alpha=0.01)

    run_loop(args, device, step)


if __name__ == "__main__":
    main()
