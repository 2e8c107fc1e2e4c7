"""Byte-level LSTM language model, truncated back-propagation through time."""
import argparse
import json
import os
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def parse_args(variants, default_steps, cpu_steps=4):
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=variants, default=variants[0])
    ap.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    ap.add_argument("--steps", type=int, default=None)
    ap.add_argument("--max-seconds", type=float, default=1e9)
    ap.add_argument("--trace", default=None)
    args = ap.parse_args()
    if args.steps is None:
        args.steps = default_steps if args.device == "cuda" else cpu_steps
    return args


def run_loop(args, step, warmup):
    cuda = args.device == "cuda"
    sync = torch.cuda.synchronize if cuda else (lambda: None)
    count = 0
    for _ in range(warmup):
        step(count)
        count += 1
    sync()
    marks = [time.perf_counter()]
    for _ in range(args.steps):
        step(count)
        count += 1
        marks.append(time.perf_counter())
        if marks[-1] - marks[0] > args.max_seconds:
            break
    sync()
    total = time.perf_counter() - marks[0]
    laps = [b - a for a, b in zip(marks, marks[1:])]
    print(json.dumps({
        "program": os.path.splitext(os.path.basename(__file__))[0],
        "variant": args.variant,
        "steps": len(laps),
        "step_ms_mean": round(1e3 * total / len(laps), 4),
        "step_ms_median": round(1e3 * statistics.median(laps), 4),
    }), flush=True)
    if args.trace:
        from torch.profiler import ProfilerActivity, profile, schedule
        acts = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if cuda else [])
        with profile(activities=acts, record_shapes=True, with_stack=True, with_modules=True,
                     schedule=schedule(wait=0, warmup=2, active=4, repeat=1),
                     on_trace_ready=lambda p: p.export_chrome_trace(args.trace)) as prof:
            for _ in range(6):
                step(count)
                count += 1
                prof.step()
        sync()


class ByteLM(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.embed = nn.Embedding(256, width)
        self.rnn = nn.LSTM(width, width, num_layers=layers)
        self.head = nn.Linear(width, 256)

    def forward(self, tokens, state):
        out, state = self.rnn(self.embed(tokens), state)
        return self.head(out), state


class Trainer:
    def __init__(self, device):
        self.device = device
        self.width, self.layers, self.batch, self.chunk, length = (
            (2048, 2, 128, 256, 1 << 17) if device == "cuda" else (32, 2, 4, 16, 1 << 10))
        self.model = ByteLM(self.width, self.layers).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4, fused=True)
        gen = torch.Generator().manual_seed(1)
        self.text = torch.randint(0, 256, (length, self.batch), generator=gen, dtype=torch.uint8).to(device)
        self.state = None
        self.at = 0
        self.running = torch.zeros((), device=device)

    def next_chunk(self):
        if self.at + self.chunk + 1 > self.text.shape[0]:
            self.at, self.state = 0, None
        piece = self.text[self.at:self.at + self.chunk + 1].long()
        self.at += self.chunk
        return piece[:-1], piece[1:]

    def step(self, i):
        source, target = self.next_chunk()
        with torch.autocast(self.device, dtype=torch.bfloat16):
            logits, state = self.model(source, self.state)
        self.state = tuple(s.detach() for s in state)
        loss = F.cross_entropy(logits.float().flatten(0, 1), target.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.running.lerp_(loss.detach(), 0.02)
        if i % 50 == 0:
            self.bits = self.running.item() / 0.6931


def main():
    args = parse_args(["healthy"], 330)
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    run_loop(args, Trainer(args.device).step, warmup=5)


if __name__ == "__main__":
    main()
