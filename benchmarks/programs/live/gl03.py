"""Language model over byte tokens whose mixers are long implicit convolutions."""
import argparse
import json
import math
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gl03"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 350
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=50.0)
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


class Filter(nn.Module):
    """A small network of the position gives one filter per channel."""

    def __init__(self, width, longest, order=32):
        super().__init__()
        t = torch.linspace(0, 1, longest).unsqueeze(1)
        bands = torch.arange(1, 8).unsqueeze(0)
        feats = torch.cat([t, torch.sin(2 * math.pi * t * bands), torch.cos(2 * math.pi * t * bands)], dim=1)
        self.register_buffer("feats", feats)
        self.net = nn.Sequential(nn.Linear(feats.shape[1], order), nn.SiLU(),
                                 nn.Linear(order, order), nn.SiLU(), nn.Linear(order, width, bias=False))
        rates = torch.logspace(0.3, 2.0, width)
        self.register_buffer("window", torch.exp(-t * rates))

    def forward(self, length):
        taps = self.net(self.feats[:length]) * self.window[:length]
        return taps.float().t() / math.sqrt(length)


class LongConv(nn.Module):
    def __init__(self, width, longest, pow2):
        super().__init__()
        self.filter = Filter(width, longest)
        self.skip = nn.Parameter(torch.ones(width, 1))
        self.pow2 = pow2

    def padded_size(self, length):
        size = 2 * length
        if self.pow2:
            size = 1 << (size - 1).bit_length()
        return size

    def forward(self, u):
        length = u.shape[-1]
        size = self.padded_size(length)
        with torch.autocast(u.device.type, enabled=False):
            u32 = u.float()
            spectrum = torch.fft.rfft(self.filter(length), n=size)
            y = torch.fft.irfft(torch.fft.rfft(u32, n=size) * spectrum, n=size)[..., :length]
            y = y + u32 * self.skip
        return y.to(u.dtype)


class Mixer(nn.Module):
    def __init__(self, width, longest, pow2):
        super().__init__()
        self.inp = nn.Linear(width, 3 * width)
        self.shift = nn.Parameter(torch.full((3 * width,), 0.3))
        self.conv = LongConv(width, longest, pow2)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        z = self.inp(x)
        before = F.pad(z[:, :-1], (0, 0, 1, 0))
        z = torch.lerp(z, before, self.shift.to(z.dtype))
        gate, key, value = z.transpose(1, 2).chunk(3, dim=1)
        y = gate * self.conv(key * value)
        return self.out(y.transpose(1, 2))


class Block(nn.Module):
    def __init__(self, width, longest, pow2):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mixer = Mixer(width, longest, pow2)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.mixer(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ConvLM(nn.Module):
    def __init__(self, vocab, width, depth, longest, pow2):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.blocks = nn.ModuleList([Block(width, longest, pow2) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Corpus:
    """One long stream of bytes, cut at random places."""

    def __init__(self, size, vocab, window, batch, device):
        gen = torch.Generator(device=device).manual_seed(5)
        self.stream = torch.randint(0, vocab, (size,), generator=gen, device=device)
        self.steps = torch.arange(window, device=device)
        self.window, self.batch, self.device = window, batch, device

    def sample(self):
        starts = torch.randint(0, self.stream.numel() - self.window, (self.batch, 1), device=self.device)
        text = self.stream[starts + self.steps]
        return text[:, :-1], text[:, 1:]


def cosine(step, total, peak):
    warm = 100
    if step < warm:
        return peak * (step + 1) / warm
    return peak * 0.5 * (1 + math.cos(math.pi * min(1.0, (step - warm) / total)))


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    vocab, width, depth, window, batch, size = 512, 768, 8, 8192, 4, 50_000_000
    if device.type == "cpu":
        vocab, width, depth, window, batch, size = 64, 32, 2, 128, 2, 10_000
    model = ConvLM(vocab, width, depth, window, pow2=args.variant == "fixed").to(device)
    corpus = Corpus(size, vocab, window, batch, device)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), fused=device.type == "cuda")
    state = {"step": 0, "loss": torch.zeros((), device=device)}

    def step():
        for group in opt.param_groups:
            group["lr"] = cosine(state["step"], 2000, 3e-4)
        ids, target = corpus.sample()
        with torch.autocast(device.type, dtype=torch.bfloat16):
            logits = model(ids)
        loss = F.cross_entropy(logits.flatten(0, 1).float(), target.flatten())
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        state["loss"].lerp_(loss.detach(), 0.05)
        state["step"] += 1
        if state["step"] % 50 == 0:
            state["shown"] = state["loss"].item()

    run_loop(args, device, step)


if __name__ == "__main__":
    main()
