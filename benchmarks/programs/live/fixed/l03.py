#!/usr/bin/env python
"""Fine-tune an encoder with a small trainer and callbacks."""
import argparse
import json
import os
import subprocess
import tempfile
import time
from dataclasses import dataclass, field

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

TINY = os.environ.get("TINY") == "1"


@dataclass
class State:
    step: int = 0
    started: float = field(default_factory=time.time)
    log: list = field(default_factory=list)


class Callback:
    def on_step_end(self, trainer, state, loss):
        pass

    def on_log(self, trainer, state, row):
        pass


class GpuMonitor(Callback):
    """Keeps the highest memory use and the last utilisation of the card."""

    def __init__(self):
        self.peak, self.util = 0, 0

    def on_step_end(self, trainer, state, loss):
        if state.step % 500:
            return
        try:
            out = subprocess.run(["nvidia-smi", "--query-gpu=memory.used,utilization.gpu", "--format=csv,noheader,nounits"],
                                 capture_output=True, text=True, timeout=10).stdout
            used, self.util = (int(v) for v in out.splitlines()[0].split(","))
            self.peak = max(self.peak, used)
        except (OSError, ValueError, IndexError, subprocess.SubprocessError):
            pass

    def on_log(self, trainer, state, row):
        row.update(gpu_mem_mb=self.peak, gpu_util=self.util)


class JsonLog(Callback):
    def __init__(self, folder):
        self.file = open(os.path.join(folder, "log.jsonl"), "w")

    def on_log(self, trainer, state, row):
        self.file.write(json.dumps(row) + "\n")
        print(row, flush=True)


class Encoder(nn.Module):
    def __init__(self, vocab, d, h, layers, labels):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.blocks = nn.ModuleList([nn.TransformerEncoderLayer(d, h, 4 * d, 0.0, F.gelu, batch_first=True, norm_first=True) for _ in range(layers)])
        self.out = nn.Linear(d, labels)

    def forward(self, ids):
        x = self.emb(ids)
        for b in self.blocks:
            x = b(x)
        return self.out(x.mean(1))


class Trainer:
    def __init__(self, model, args, loader, device, callbacks):
        self.model, self.args, self.loader, self.device, self.callbacks = model, args, loader, device, callbacks
        self.opt = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
        self.sched = torch.optim.lr_scheduler.LinearLR(self.opt, 1.0, 0.1, args.steps)

    def training_step(self, ids, labels):
        with torch.autocast(self.device, torch.bfloat16):
            loss = F.cross_entropy(self.model(ids), labels)
        loss.backward()
        self.opt.step()
        self.sched.step()
        self.opt.zero_grad()
        return loss.detach()

    def train(self):
        state, a = State(), self.args
        while True:
            for ids, labels in self.loader:
                loss = self.training_step(ids.to(self.device, non_blocking=True), labels.to(self.device, non_blocking=True))
                state.step += 1
                for c in self.callbacks:
                    c.on_step_end(self, state, loss)
                if state.step % a.log_every == 0:
                    row = {"step": state.step, "loss": round(loss.item(), 4), "steps_per_s": round(state.step / (time.time() - state.started), 2)}
                    for c in self.callbacks:
                        c.on_log(self, state, row)
                if state.step >= a.steps or time.time() - state.started > a.max_seconds:
                    return state


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--batch", type=int, default=2 if TINY else 32)
    p.add_argument("--seq", type=int, default=8 if TINY else 256)
    p.add_argument("--steps", type=int, default=4 if TINY else 3000)
    p.add_argument("--lr", type=float, default=2e-5)
    p.add_argument("--log-every", type=int, default=2 if TINY else 25)
    p.add_argument("--max-seconds", type=float, default=15)
    args = p.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    n = 64 if TINY else 20000
    data = TensorDataset(torch.randint(0, 100, (n, args.seq)), torch.randint(0, 4, (n,)))
    loader = DataLoader(data, batch_size=args.batch, shuffle=True, drop_last=True, num_workers=2, pin_memory=device == "cuda", persistent_workers=True)
    d, h, layers = (32, 2, 1) if TINY else (1024, 16, 8)
    model = Encoder(30000 if not TINY else 100, d, h, layers, 4).to(device)
    state = Trainer(model, args, loader, device, [GpuMonitor(), JsonLog(tempfile.mkdtemp())]).train()
    print(f"done: {state.step} steps in {time.time() - state.started:.1f} s")


if __name__ == "__main__":
    main()
