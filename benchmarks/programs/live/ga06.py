"""Long-range copying and pixel-by-pixel tasks with a norm-preserving recurrent network."""
import argparse
import contextlib
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import orthogonal

PROGRAM = "ga06"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 1000
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


class ModReLU(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.offset = nn.Parameter(torch.empty(width).uniform_(-0.01, 0.01))

    def forward(self, z):
        return torch.sign(z) * F.relu(z.abs() + self.offset)


class UnitaryCell(nn.Module):
    def __init__(self, inputs, width):
        super().__init__()
        self.read = nn.Linear(inputs, width)
        self.recur = orthogonal(nn.Linear(width, width, bias=False), orthogonal_map="matrix_exp")
        self.act = ModReLU(width)

    def forward(self, drive, state):
        return self.act(drive + self.recur(state))


class SequenceReader(nn.Module):
    def __init__(self, inputs, width, classes, scope):
        super().__init__()
        self.cell = UnitaryCell(inputs, width)
        self.scope = scope
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        drives = self.cell.read(x).unbind(1)
        state = torch.zeros_like(drives[0])
        total = torch.zeros_like(drives[0])
        with self.scope():
            for drive in drives:
                state = self.cell(drive, state)
                total = total + state
        return self.head(self.norm(state + total / len(drives)))


class PermutedPixels:
    """Synthetic images read in a fixed random order, a few pixels at a time."""

    def __init__(self, count, length, chunk, classes, device):
        generator = torch.Generator().manual_seed(11)
        prototypes = torch.randn(classes, length * chunk, generator=generator)
        labels = torch.randint(0, classes, (count,), generator=generator)
        noise = torch.randn(count, length * chunk, generator=generator)
        order = torch.randperm(length * chunk, generator=generator)
        pixels = (prototypes[labels] + 0.7 * noise)[:, order]
        self.pixels = pixels.view(count, length, chunk).to(device)
        self.labels = labels.to(device)

    def sample(self, batch):
        pick = torch.randint(0, len(self.labels), (batch,), device=self.labels.device)
        return self.pixels[pick], self.labels[pick]


class Trainer:
    def __init__(self, model, data, batch, fused):
        self.model, self.data, self.batch = model, data, batch
        slow_group = [p for n, p in model.named_parameters() if "recur" in n]
        rest = [p for n, p in model.named_parameters() if "recur" not in n]
        self.optimizer = torch.optim.RAdam([{"params": slow_group, "lr": 1e-4}, {"params": rest, "lr": 1e-3}],
                                           foreach=fused)
        self.correct = None

    def train_step(self):
        x, y = self.data.sample(self.batch)
        logits = self.model(x)
        loss = F.cross_entropy(logits, y)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
        self.optimizer.step()
        hits = (logits.detach().argmax(-1) == y).float().mean()
        self.correct = hits if self.correct is None else 0.98 * self.correct + 0.02 * hits


def main():
    args = parse_args()
    torch.manual_seed(0)
    device = torch.device(args.device)
    on_gpu = device.type == "cuda"
    width, length, chunk, batch = (512, 49, 16, 256) if on_gpu else (64, 8, 4, 8)
    scope = parametrize.cached if args.variant == "fixed" else contextlib.nullcontext
    model = SequenceReader(chunk, width, 10, scope).to(device)
    data = PermutedPixels(4096 if on_gpu else 64, length, chunk, 10, device)
    trainer = Trainer(model, data, batch, on_gpu)
    run_loop(args, device, trainer.train_step)


if __name__ == "__main__":
    main()
