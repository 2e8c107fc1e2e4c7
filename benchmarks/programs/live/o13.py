"""Far-field ASR encoder training with on-device room simulation (multi-microphone, CTC loss)."""
import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

def parse_args(variants, default_steps):
    p = argparse.ArgumentParser()
    p.add_argument("--variant", choices=variants, default=variants[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=default_steps)
    p.add_argument("--max-seconds", type=float, default=60.0)
    p.add_argument("--trace", default=None)
    return p.parse_args()


def run_loop(name, args, step):
    device = torch.device(args.device)

    def sync():
        if device.type == "cuda":
            torch.cuda.synchronize()

    for _ in range(5 if device.type == "cuda" else 1):
        step()
    sync()
    durations = []
    start = time.perf_counter()
    for _ in range(args.steps):
        tick = time.perf_counter()
        step()
        now = time.perf_counter()
        durations.append(now - tick)
        if now - start > args.max_seconds:
            break
    sync()
    total = time.perf_counter() - start
    print(json.dumps({
        "program": name,
        "variant": args.variant,
        "steps": len(durations),
        "step_ms_mean": round(1e3 * total / len(durations), 3),
        "step_ms_median": round(1e3 * statistics.median(durations), 3),
    }), flush=True)
    if args.trace:
        activities = [torch.profiler.ProfilerActivity.CPU]
        if device.type == "cuda":
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(
            activities=activities,
            schedule=torch.profiler.schedule(wait=0, warmup=2, active=4),
            on_trace_ready=lambda p: p.export_chrome_trace(args.trace),
            record_shapes=True, with_stack=True, with_modules=True,
        ) as prof:
            for _ in range(6):
                step()
                prof.step()
            sync()


def exact_length(n):
    return n


def smooth_length(n):
    while True:
        m = n
        for p in (2, 3, 5, 7):
            while m % p == 0:
                m //= p
        if m == 1:
            return n
        n += 1


def reverberate(dry, rirs, fft_length):
    """dry [B, S, T], rirs [B, S, M, L] -> mixture at every microphone [B, M, T]."""
    n = fft_length(dry.shape[-1] + rirs.shape[-1] - 1)
    spectrum = torch.fft.rfft(dry, n=n).unsqueeze(2) * torch.fft.rfft(rirs, n=n)
    wet = torch.fft.irfft(spectrum, n=n)[..., : dry.shape[-1]]
    return wet.sum(dim=1)


class FrontEnd(nn.Module):
    def __init__(self, mics, n_fft, hop, mels):
        super().__init__()
        self.n_fft, self.hop = n_fft, hop
        self.register_buffer("window", torch.hann_window(n_fft))
        self.register_buffer("bank", torch.rand(n_fft // 2 + 1, mels) / n_fft)
        self.combine = nn.Parameter(torch.full((mics,), 1.0 / mics))

    def forward(self, wave):
        mono = torch.einsum("bmt,m->bt", wave, self.combine)
        spec = torch.stft(mono, self.n_fft, self.hop, window=self.window, return_complex=True)
        power = spec.real.square() + spec.imag.square()
        return torch.log(power.transpose(1, 2) @ self.bank + 1e-6)


class Encoder(nn.Module):
    def __init__(self, mels, dim, layers, vocab):
        super().__init__()
        self.sub = nn.Sequential(
            nn.Conv1d(mels, dim, 5, stride=2, padding=2), nn.GELU(),
            nn.Conv1d(dim, dim, 5, stride=2, padding=2), nn.GELU())
        self.blocks = nn.ModuleList([
            nn.TransformerEncoderLayer(dim, dim // 64, 4 * dim, dropout=0.0, activation="gelu",
                                       batch_first=True, norm_first=True) for _ in range(layers)])
        self.head = nn.Linear(dim, vocab)

    def forward(self, feats):
        x = self.sub(feats.transpose(1, 2)).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def main():
    args = parse_args(["slow", "fixed"], 120)
    fft_length = {"slow": exact_length, "fixed": smooth_length}[args.variant]
    device = torch.device(args.device)
    gpu = device.type == "cuda"
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    batch, sources, mics, layers, dim = (64, 2, 8, 12, 768) if gpu else (2, 2, 2, 1, 64)
    length, rir = (192000, 8000) if gpu else (8000, 400)
    front = FrontEnd(mics, 512, 160, 80).to(device)
    encoder = Encoder(80, dim, layers, 512).to(device)
    opt = torch.optim.AdamW([*front.parameters(), *encoder.parameters()], lr=1e-4, fused=gpu)
    dry_pool = [torch.randn(batch, sources, length, device=device) * 0.1 for _ in range(2)]
    decay = torch.exp(-torch.arange(rir, device=device) / (rir / 6))
    rir_pool = [torch.randn(batch, sources, mics, rir, device=device) * decay for _ in range(2)]
    targets = torch.randint(1, 512, (batch, 60 if gpu else 4), device=device)
    target_len = torch.full((batch,), targets.shape[1], dtype=torch.long)
    count = 0

    def step():
        nonlocal count
        with torch.no_grad():
            wave = reverberate(dry_pool[count % 2], rir_pool[(count // 2) % 2], fft_length)
        count += 1
        feats = front(wave)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            logits = encoder(feats)
        logp = logits.float().log_softmax(-1).transpose(0, 1)
        in_len = torch.full((batch,), logp.shape[0], dtype=torch.long)
        loss = F.ctc_loss(logp, targets, in_len, target_len, zero_infinity=True)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()

    run_loop("o13", args, step)


if __name__ == "__main__":
    main()
