"""Trains an attention-based speech transcriber: convolutional listener, recurrent speller, teacher forcing."""
import argparse
import contextlib
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gf07"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 900
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

def half(device):
    return torch.autocast(device.type, dtype=torch.bfloat16)


class Listener(nn.Module):
    def __init__(self, mels, dim):
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv1d(mels, dim, 5, stride=2, padding=2), nn.Conv1d(dim, dim, 5, stride=2, padding=2),
                                    nn.Conv1d(dim, dim, 3, stride=2, padding=1)])
        self.norm = nn.LayerNorm(dim)

    def forward(self, mel):
        with half(mel.device):
            h = mel
            for conv in self.convs:
                h = F.silu(conv(h))
            return self.norm(h.transpose(1, 2))


class NormLSTMCell(nn.Module):
    def __init__(self, inputs, hidden):
        super().__init__()
        self.w_x = nn.Linear(inputs, 4 * hidden)
        self.w_h = nn.Linear(hidden, 4 * hidden, bias=False)
        self.norm = nn.LayerNorm(hidden)

    def forward(self, x, state):
        h, c = state
        i, f, g, o = (self.w_x(x) + self.w_h(h)).chunk(4, dim=-1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(self.norm(c))
        return h, c


class Speller(nn.Module):
    def __init__(self, vocab, dim, hidden, variant):
        super().__init__()
        self.variant = variant
        self.embed = nn.Embedding(vocab, dim)
        self.cells = nn.ModuleList([NormLSTMCell(2 * dim, hidden), NormLSTMCell(hidden, hidden)])
        self.query = nn.Linear(hidden, dim)
        self.key = nn.Linear(dim, dim)
        self.out = nn.Linear(hidden + dim, vocab)
        self.hidden = hidden

    def attend(self, h, keys, memory):
        score = torch.einsum("bd,btd->bt", self.query(h), keys) * keys.shape[-1] ** -0.5
        weight = torch.softmax(score.float(), dim=-1)
        return torch.einsum("bt,btd->bd", weight.to(memory.dtype), memory)

    def advance(self, token, context, states, keys, memory):
        with half(token.device):
            x = torch.cat([token.to(context.dtype), context], dim=-1)
            new = []
            for cell, state in zip(self.cells, states):
                state = cell(x, state)
                new.append(state)
                x = state[0]
            return x, self.attend(x, keys, memory), new

    def precision(self, device):
        return half(device) if self.variant == "fixed" else contextlib.nullcontext()

    def unroll(self, tokens, keys, memory):
        b = tokens.shape[1]
        zeros = torch.zeros(b, self.hidden, device=memory.device)
        states = [(zeros, zeros) for _ in self.cells]
        context = memory.new_zeros(b, memory.shape[-1])
        features = []
        with self.precision(memory.device):
            for token in tokens:
                h, context, states = self.advance(token, context, states, keys, memory)
                features.append(torch.cat([h.to(context.dtype), context], dim=-1))
        return torch.stack(features, dim=1)

    def forward(self, memory, text):
        with half(memory.device):
            keys = self.key(memory)
            memory = memory.to(keys.dtype)
        features = self.unroll(self.embed(text).transpose(0, 1), keys, memory)
        with half(memory.device):
            return self.out(features)


class Transcriber(nn.Module):
    def __init__(self, mels, vocab, dim, hidden, variant):
        super().__init__()
        self.listener = Listener(mels, dim)
        self.speller = Speller(vocab, dim, hidden, variant)

    def forward(self, mel, text):
        return self.speller(self.listener(mel), text)


def augment(mel, width):
    start = torch.randint(0, mel.shape[-1] - width, (1,)).item()
    mel = mel.clone()
    mel[..., start:start + width] = 0
    return mel


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    small = device.type == "cpu"
    batch, frames, length = (2, 80, 5) if small else (64, 800, 40)
    dim, hidden, vocab = (32, 48, 100) if small else (1024, 4096, 4096)
    with torch.device(device):
        model = Transcriber(80, vocab, dim, hidden, args.variant)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-4, fused=not small)
    data = [(torch.randn(batch, 80, frames, device=device), torch.randint(vocab, (batch, length + 1), device=device))
            for _ in range(4)]
    count = [0]

    def step():
        mel, text = data[count[0] % len(data)]
        count[0] += 1
        logits = model(augment(mel, 40 if not small else 10), text[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), text[:, 1:].flatten(), label_smoothing=0.1)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        opt.step()

    run_loop(args, device, step)


if __name__ == "__main__":
    main()
