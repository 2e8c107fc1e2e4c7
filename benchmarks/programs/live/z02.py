"""Hybrid acoustic model: stacked LSTM on filterbank frames, frame-level senone targets."""
import argparse
import json
import statistics
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "z02"


@dataclass
class AcousticConfig:
    mel: int = 80
    stack: int = 4
    hidden: int = 1536
    layers: int = 4
    senones: int = 2000
    frames: int = 400
    batch: int = 256
    label_delay: int = 5

    @classmethod
    def for_device(cls, device):
        if device == "cpu":
            return cls(mel=8, stack=2, hidden=32, layers=2, senones=20, frames=16, batch=4, label_delay=1)
        return cls()


class UtteranceStore:
    """Features in host memory (pinned), drawn chunk by chunk as a truncated-utterance trainer does."""

    def __init__(self, cfg, pin, chunks=6):
        g = torch.Generator().manual_seed(1)
        self.feats = [torch.randn(cfg.frames * cfg.stack, cfg.batch, cfg.mel, generator=g) for _ in range(chunks)]
        self.ali = [torch.randint(0, cfg.senones, (cfg.frames, cfg.batch), generator=g) for _ in range(chunks)]
        if pin:
            self.feats = [f.pin_memory() for f in self.feats]
            self.ali = [a.pin_memory() for a in self.ali]

    def __len__(self):
        return len(self.feats)

    def __getitem__(self, i):
        i %= len(self)
        return self.feats[i], self.ali[i]


class FrontEnd(nn.Module):
    """Mean/variance normalisation, SpecAugment masks, frame stacking."""

    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.register_buffer("mean", torch.zeros(cfg.mel))
        self.register_buffer("istd", torch.ones(cfg.mel))

    def masks(self, x):
        t, b, f = x.shape
        start_f = torch.randint(0, max(1, f - f // 5), (1, b, 1), device=x.device)
        start_t = torch.randint(0, max(1, t - t // 10), (1, b, 1), device=x.device)
        fi = torch.arange(f, device=x.device).view(1, 1, f)
        ti = torch.arange(t, device=x.device).view(t, 1, 1)
        freq = (fi >= start_f) & (fi < start_f + f // 5)
        time_ = (ti >= start_t) & (ti < start_t + t // 10)
        return freq, time_

    def forward(self, x):
        x = (x - self.mean) * self.istd
        freq, time_ = self.masks(x)
        x = x.masked_fill(freq, 0.0).masked_fill(time_, 0.0)
        t, b, f = x.shape
        s = self.cfg.stack
        return x.view(t // s, s, b, f).transpose(1, 2).reshape(t // s, b, s * f)


class AcousticModel(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.front = FrontEnd(cfg)
        self.rnn = nn.LSTM(cfg.mel * cfg.stack, cfg.hidden, num_layers=cfg.layers, dropout=0.1)
        self.norm = nn.LayerNorm(cfg.hidden)
        self.out = nn.Linear(cfg.hidden, cfg.senones)

    def forward(self, feats, state):
        y, state = self.rnn(self.front(feats), state)
        return self.out(self.norm(y)), state


def delayed_loss(logits, ali, delay):
    t = logits.shape[0]
    return F.cross_entropy(logits[delay:].flatten(0, 1), ali[: t - delay].flatten(), label_smoothing=0.05)


def parse_args(variants):
    p = argparse.ArgumentParser()
    p.add_argument("--variant", choices=variants, default=variants[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=None)
    p.add_argument("--max-seconds", type=float, default=None)
    p.add_argument("--trace", default=None)
    return p.parse_args()


def drive(args, step, steps, warmup):
    cuda = args.device == "cuda"
    sync = torch.cuda.synchronize if cuda else (lambda: None)
    for i in range(warmup):
        step(i)
    sync()
    laps, it = [], warmup
    start = last = time.perf_counter()
    for _ in range(steps):
        step(it)
        it += 1
        now = time.perf_counter()
        laps.append(now - last)
        last = now
        if args.max_seconds and now - start > args.max_seconds:
            break
    sync()
    total = time.perf_counter() - start
    print(json.dumps({
        "program": PROGRAM, "variant": args.variant, "steps": len(laps),
        "step_ms_mean": round(1e3 * total / len(laps), 3),
        "step_ms_median": round(1e3 * statistics.median(laps), 3),
    }), flush=True)
    if args.trace:
        acts = [torch.profiler.ProfilerActivity.CPU]
        if cuda:
            acts.append(torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(
            activities=acts, record_shapes=True, with_stack=True, with_modules=True,
            schedule=torch.profiler.schedule(wait=0, warmup=2, active=4),
            on_trace_ready=lambda p: p.export_chrome_trace(args.trace),
        ) as prof:
            for k in range(6):
                step(it)
                it += 1
                if cuda and k == 5:
                    sync()
                prof.step()


class Trainer:
    def __init__(self, args):
        self.cfg = AcousticConfig.for_device(args.device)
        self.dev = torch.device(args.device)
        self.cuda = args.device == "cuda"
        torch.manual_seed(0)
        self.model = AcousticModel(self.cfg).to(self.dev)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=4e-4, fused=self.cuda)
        self.store = UtteranceStore(self.cfg, self.cuda)
        self.copy = torch.cuda.Stream() if self.cuda else None
        self.state = None
        self.loss_avg = torch.zeros((), device=self.dev)
        self.pending = self.fetch(0)

    def fetch(self, i):
        feats, ali = self.store[i]
        if not self.cuda:
            return feats, ali
        with torch.cuda.stream(self.copy):
            return feats.to(self.dev, non_blocking=True), ali.to(self.dev, non_blocking=True)

    def step(self, i):
        if self.cuda:
            torch.cuda.current_stream().wait_stream(self.copy)
        feats, ali = self.pending
        if self.cuda:
            feats.record_stream(torch.cuda.current_stream())
            ali.record_stream(torch.cuda.current_stream())
        self.pending = self.fetch(i + 1)
        with torch.autocast(self.dev.type, dtype=torch.bfloat16):
            logits, state = self.model(feats, self.state)
            loss = delayed_loss(logits, ali, self.cfg.label_delay)
        self.state = tuple(s.detach() for s in state)
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
        self.opt.step()
        self.loss_avg.lerp_(loss.detach(), 0.05)


def main():
    args = parse_args(["healthy"])
    trainer = Trainer(args)
    drive(args, trainer.step, args.steps or (100 if args.device == "cuda" else 4), warmup=4)


if __name__ == "__main__":
    main()
