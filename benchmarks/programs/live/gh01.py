"""Matched-filter search service: strain segments in, candidate triggers out."""
import argparse
import json
import math
import statistics
import time

import torch

PROGRAM = "gh01"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 1800
WARMUP = 4


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

def regular_length(n):
    best = 1 << (n - 1).bit_length()
    for a in range(0, 6):
        for b in range(0, 4):
            odd = 3 ** a * 5 ** b
            two = max(0, math.ceil(math.log2(n / odd))) if n > odd else 0
            best = min(best, odd * 2 ** two) if odd * 2 ** two >= n else best
    return best


def chirp_bank(count, length, rate):
    t = torch.arange(length, dtype=torch.float64) / rate
    tau = t[-1] + 1.0 / rate - t
    bank = []
    for mass in torch.linspace(1.1, 2.4, count, dtype=torch.float64).tolist():
        phase = -2.0 * math.pi * 58.0 / mass * tau ** 0.625
        bank.append(tau.clamp_min(1e-3) ** -0.25 * torch.cos(phase))
    bank = torch.stack(bank)
    bank = bank * torch.hann_window(length, periodic=False, dtype=torch.float64)
    return (bank / bank.norm(dim=-1, keepdim=True)).float()


class SegmentSource:
    """Rolls through a pinned archive of detector strain."""

    def __init__(self, detectors, length, device):
        g = torch.Generator().manual_seed(11)
        self.length = length
        self.archive = torch.randn(detectors, length * 3, generator=g)
        if device.type == "cuda":
            self.archive = self.archive.pin_memory()
        self.slots = [self._slot(i) for i in range(3)]
        self.cursor = 0

    def _slot(self, i):
        view = self.archive[:, i * self.length:(i + 1) * self.length].contiguous()
        return view.pin_memory() if self.archive.is_pinned() else view

    def next(self):
        self.cursor = (self.cursor + 1) % len(self.slots)
        return self.slots[self.cursor]


class FilterBank:
    def __init__(self, templates, segment, group, device, variant):
        self.device = device
        self.segment = segment
        self.width = templates.shape[-1]
        self.full = segment + self.width - 1
        self.n = self.full if variant == "slow" else regular_length(self.full)
        self.spectra = torch.fft.rfft(templates.to(device).flip(-1), n=self.n).split(group)
        freqs = torch.linspace(0, 1, self.n // 2 + 1, device=device)
        self.whitening = 1.0 / (0.4 + (freqs - 0.1) ** 2)
        self.window = torch.hann_window(segment, device=device)

    def prepare(self, strain):
        strain = strain - strain.mean(dim=-1, keepdim=True)
        return torch.fft.rfft(strain * self.window, n=self.n) * self.whitening

    def correlate(self, data, spectra):
        out = torch.fft.irfft(data[:, None] * spectra[None], n=self.n)
        return out[..., self.width - 1:self.segment]


class Search:
    def __init__(self, bank, clusters, keep):
        self.bank = bank
        self.clusters = clusters
        self.keep = keep

    def rank(self, series):
        sigma = series[..., ::16].std(dim=-1, keepdim=True)
        size = series.shape[-1] // self.clusters
        peaks = series[..., :size * self.clusters].unflatten(-1, (self.clusters, size)).amax(dim=-1)
        return peaks / sigma

    @torch.inference_mode()
    def handle(self, strain):
        strain = strain.to(self.bank.device, non_blocking=True)
        data = self.bank.prepare(strain)
        ranked = [self.rank(self.bank.correlate(data, s)) for s in self.bank.spectra]
        snr = torch.cat(ranked, dim=1)
        best, which = snr.max(dim=1)
        top = best.topk(min(self.keep, best.shape[-1]), dim=-1)
        template = which.gather(1, top.indices)
        return top.values.cpu(), template.cpu(), top.indices.cpu()


def publish(book, triggers, threshold):
    values, template, cell = triggers
    hits = values > threshold
    book["requests"] += 1
    book["hits"] += int(hits.sum())
    if hits.any():
        book["last"] = (float(values[hits].max()), int(template[hits][0]), int(cell[hits][0]))


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    if device.type == "cuda":
        detectors, segment, width, count, group = 128, 65536, 8192, 32, 8
    else:
        detectors, segment, width, count, group = 2, 65536, 8192, 4, 2
    bank = FilterBank(chirp_bank(count, width, 4096.0), segment, group, device, args.variant)
    search = Search(bank, clusters=64, keep=12)
    source = SegmentSource(detectors, segment, device)
    book = {"requests": 0, "hits": 0, "last": None}

    def step():
        publish(book, search.handle(source.next()), threshold=5.0)

    run_loop(args, device, step)


if __name__ == "__main__":
    main()
